"""The alarms as data: which metrics each rule watches, for what kind of change, and what to do about it.

Every number that decides is a field of `AlarmConfig`. A rule is a value, so a study can replay other rules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from annotated_types import Interval

from heedful.diagnostics.alarms.conditions import Beyond, Change, Condition, Rule, Share
from heedful.diagnostics.catalogue import entry_of
from heedful.diagnostics.statistics.change_point import Design, Direction

GAP = "information/first_turn/gap"
GAP_PER_TOKEN, THOUGHT_TOKENS = "gap_per_token", "thought_tokens"
P_VALUE = "retrieval/first_turn/p_value"
IMAGE_GAP, IMAGE_P_VALUE = "information/image/gap", "retrieval/image/p_value"
ENTROPY_GIVEN_PROMPT = "information/first_turn/entropy_conditional_per_token"
THOUGHT_ENTROPY = "policy/thought_entropy_per_token"
ANSWER_ENTROPY = "policy/answer_entropy_per_token"
SOLVED_ENTROPY = "policy/solved_entropy_per_token"
INPUT_TO_ACTION = "grounding/input_to_action"
TOKEN_ENTROPY = "policy/entropy_per_token"
ONE_OUTCOME = "policy/advantage_without_outcome"
SUCCESS = "success/rate"
PROGRESS = "success/progress"


Positive = Annotated[float, Interval(gt=0)]


@dataclass(frozen=True, slots=True)
class AlarmConfig:
    """When a change is an alarm. With the defaults fewer than 1% of runs of 100 steps in which nothing happens raise
    any, also where neighbouring values are correlated (up to `correlation`)."""

    threshold: Positive = 5.0
    """Standard errors of a change that is an alarm by itself."""
    pair_threshold: Positive = 4.0
    """Standard errors of each of two changes that are an alarm together."""
    baseline: Annotated[int, Interval(ge=2)] = 5
    """Values of a metric of every step before it can have changed."""
    confirm: Annotated[int, Interval(ge=1)] = 2
    """Values of a metric of every step that a change must last."""
    measured_baseline: Annotated[int, Interval(ge=2)] = 3
    """The same as baseline, of what is measured every few steps."""
    measured_confirm: Annotated[int, Interval(ge=1)] = 1
    """The same as confirm, of what is measured every few steps."""
    correlation: Annotated[float, Interval(ge=0, lt=1)] = 0.25
    """Largest correlation of neighbouring values under which the rate of false alarms holds. `success_drop` estimates
    a higher one from the run."""
    window: Annotated[int, Interval(ge=2)] = 64
    """Latest values of a metric that are compared with each other."""
    success: Positive = 0.05
    """Fall of the success rate, or of the mean progress, that matters."""
    format: Positive = 0.1
    """Fall of the share of valid or closed replies that matters."""
    information: Positive = 0.25
    """Fall of the information per thought (the gap of a thought) that matters, as a part of its level."""
    entropy_rise: Positive = 0.1
    """Rise of an entropy that matters, as a part of its level."""
    answer_entropy_rise: Positive = 1.0
    """The same of the entropy of answers, given their thoughts, which is small while thoughts decide."""
    answer_entropy_least: Positive = 0.05
    """Rise of the entropy of answers that matters at least, in nats per token. In healthy runs it doubles from .02."""
    entropy_fall: Positive = 0.5
    """Fall of an entropy that matters, as a part of its level."""
    strategies: Positive = 0.25
    """Fall of strategy entropy, or of the share of distinct strategies, that matters, as a part of its level."""
    influence: Positive = 0.3
    """Fall of the thought's influence on the action that matters, as a part of its level."""
    action_information: Positive = 0.5
    """Fall of what the first action tells of the prompt that matters, as a part of its level."""
    oscillation: Positive = 0.1
    """Rise of the share of turns that lead nowhere that matters."""
    p: Annotated[float, Interval(gt=0, lt=1)] = 0.05
    """Thoughts cannot be told from thoughts about other prompts when the retrieval test's p-value exceeds this."""
    p_readings: Annotated[int, Interval(ge=2)] = 2
    """Measurements in a row that have to say so."""
    blind: Annotated[float, Interval(ge=0, lt=1)] = 0.1
    """Share of unpaid groups that is accepted: the reward is blind to what they did."""
    starved: Annotated[float, Interval(ge=0, lt=1)] = 0.1
    """Share of groups that teach (kept by the filter, or mixed) at or below which a step is starved."""
    starved_steps: Annotated[int, Interval(ge=2)] = 5
    """Starved steps in a row."""
    shaping: Annotated[float, Interval(ge=0, lt=1)] = 0.35
    """Part of the advantage from groups with one outcome that is accepted. Proposed, not calibrated: it was chosen on
    the runs of docs/results/shaped.md and matrix.md. PPO reads .04 to .52 there while it learns."""
    shaping_steps: Annotated[int, Interval(ge=2)] = 5
    """Steps in a row in which it is more."""
    shaping_solved: Annotated[float, Interval(ge=0, lt=1)] = 0.25
    """Share of solved groups above which such groups do no harm: they differ in how fast they were. Proposed, not
    calibrated: it was chosen on the runs of docs/results/matrix.md and natural.md."""

    def __post_init__(self) -> None:
        if self.window < self.baseline + self.confirm or self.window < self.measured_baseline + self.measured_confirm:
            raise ValueError(f"window must hold a baseline and a change, found {self.window} readings")


def standard_rules(config: AlarmConfig) -> tuple[Rule, ...]:
    """The alarms of every run, in the order of the documentation: first the collapses, then the warnings."""
    change = partial(changes, config)
    blind = Beyond(P_VALUE, config.p, True, config.p_readings)
    indistinguishable = replace(blind, once_within=True)
    entropies = THOUGHT_ENTROPY, ENTROPY_GIVEN_PROMPT
    entropy_fell = change("down", config.entropy_fall, *entropies, pair=True)
    entropy_rose = change("up", config.entropy_rise, *entropies, pair=True)
    success_fell = change("down", config.success, SUCCESS, PROGRESS, relative=False)
    uninformed_or_worse = (
        _information_lost(config, pair=True),
        indistinguishable,
        *change("down", config.success, SUCCESS, PROGRESS, relative=False, pair=True),
    )
    strategies = ("grounding/strategy_entropy", "grounding/distinct_strategies")
    (answers,) = change("up", config.answer_entropy_rise, ANSWER_ENTROPY)
    (actions,) = change("down", config.action_information, INPUT_TO_ACTION)
    return (
        Rule(
            "template_collapse",
            ((_information_lost(config), indistinguishable),),
            unless=entropy_fell,
            severity="collapse",
        ),
        Rule(
            "low_entropy_collapse",
            (entropy_fell, uninformed_or_worse),
            severity="collapse",
        ),
        Rule(
            "noise_collapse",
            (entropy_rose, uninformed_or_worse),
            severity="collapse",
        ),
        Rule(
            "format_collapse",
            (change("down", config.format, "format/valid_rate", "format/closed_rate", relative=False),),
            severity="collapse",
        ),
        Rule(
            "entropy_gaming",
            (
                change("up", config.entropy_rise, TOKEN_ENTROPY, pair=True),
                change("down", config.strategies, *strategies, pair=True),
            ),
        ),
        Rule(
            "entropy_rise",
            (
                (
                    replace(answers, design=replace(answers.design, floor=config.answer_entropy_least)),
                    *change("up", config.entropy_rise, SOLVED_ENTROPY, THOUGHT_ENTROPY),
                ),
            ),
        ),
        Rule(
            "thought_bypassed",
            (change("down", config.influence, "grounding/thought_influence"),),
        ),
        Rule(
            "action_uninformed",
            # The prompts of one batch may all call for the same action by chance, so a single reading proves nothing.
            ((replace(actions, design=replace(actions.design, confirm=max(2, config.measured_confirm))),),),
            optional=True,
        ),
        Rule(
            "input_blind",
            ((blind,),),
        ),
        Rule(
            "picture_ignored",
            ((_information_lost(config, IMAGE_GAP), replace(blind, metric=IMAGE_P_VALUE)),),
            optional=True,
        ),
        Rule(
            "oscillation",
            (change("up", config.oscillation, "grounding/oscillation_rate", relative=False),),
        ),
        Rule(
            "starvation",
            (
                tuple(
                    Beyond(name, config.starved, False, config.starved_steps)
                    for name in ("filter/kept_ratio", "signal/mixed")
                ),
            ),
            unless=(Beyond("signal/solved", 0.5, True, config.starved_steps),),
        ),
        Rule(
            "reward_blind",
            ((Share("signal/unpaid", config.blind, config.threshold, 2 * config.baseline),),),
        ),
        Rule(
            "unpaid_tasks",
            ((Beyond("treat/unpaid", 0, True, 1, with_reason=True),),),
            of_update=True,
            optional=True,
        ),
        Rule(
            "shaping_dominates",
            ((Beyond(ONE_OUTCOME, config.shaping, True, config.shaping_steps),),),
            unless=(Beyond("signal/solved", config.shaping_solved, True, config.shaping_steps),),
            of_update=True,
            optional=True,
        ),
        Rule(
            "success_drop",
            # Success may be more correlated from step to step than the configuration says: the run tells.
            (tuple(replace(each, design=replace(each.design, estimated=True)) for each in success_fell),),
        ),
    )


def _information_lost(config: AlarmConfig, gap: str = GAP, pair: bool = False) -> Condition:
    """A thought tells less about its prompt than before, however long it is.

    Per token the information also falls where thoughts only get longer, and it stays where half of a thought is left
    out. So it is told beside, with the lengths, and it decides nothing.
    """
    (change,) = changes(config, "down", config.information, gap, pair=pair)
    return replace(change, other_unit=GAP_PER_TOKEN, beside=(THOUGHT_TOKENS,))


def changes(
    config: AlarmConfig,
    direction: Direction,
    least: float,
    *metrics: str,
    relative: bool = True,
    pair: bool = False,
    floor: float = 0.0,
) -> tuple[Change, ...]:
    """One of the metrics has moved by a part of its level, or (not `relative`) by an amount."""
    threshold = config.pair_threshold if pair else config.threshold
    changes = []
    for metric in metrics:
        entry = entry_of(metric)
        sparse = entry is not None and entry.cadence != "step"
        baseline = config.measured_baseline if sparse else config.baseline
        confirm = config.measured_confirm if sparse else config.confirm
        changes.append(
            Change(
                metric,
                Design(direction, least, relative, threshold, baseline, confirm, config.correlation, floor=floor),
            )
        )
    return tuple(changes)
