"""Which metrics a page draws together, and under what heading."""

from __future__ import annotations

import re
from collections.abc import Sequence

from heedful.report.drawing.chart import Axis, Curve
from heedful.report.drawing.panel import Panel, Section, some
from heedful.report.image_panels import image_sections
from heedful.report.record import RunRecord

SCOPES = {"first_turn": "first turn", "any_turn": "any turn", "observation": "last observation swapped"}

MOST_COMPONENTS = 5
"""Components of the reward that a chart draws: as many as there are colours beside that of the sum."""


def sections(run: RunRecord) -> list[Section]:
    """The charts of one run, in reading order."""
    return [
        Section(
            "side-by-side",
            "Success and reasoning, side by side",
            "No single number decides: mutual information can rise while success falls, and format, entropy and "
            "influence move at other times. Equal places on these axes are equal steps.",
            (
                _success(run),
                _information(run, "first_turn"),
                _per_scope(run, "Gap between own and other prompts", "nats per token", "information", "gap_per_token"),
                _influence(run),
                _entropies(run),
                _entropies_by_token(run),
                _format(run),
            ),
        ),
        Section(
            "grounding",
            "Retrieval, grounding and length",
            "Can the prompt be identified from the thought? Does the action depend on the thought and on the input?",
            (
                _retrieval(run),
                _grounding(run),
                _strategies(run),
                _play(run),
                _text(run),
                _lengths(run),
            ),
        ),
        *_scopes(run),
        *image_sections(run),
        Section(
            "triage",
            "Triage: why groups teach nothing",
            "A group whose members all got the same has no advantage to learn from. What helps depends on why: solved, "
            "blind (the reward does not see a difference that exists) or failed.",
            (_kinds(run), _silent(run)),
        ),
        Section(
            "training",
            "Reward, filter and optimiser",
            "Only groups whose members differ can teach: what there was to keep, what the filter kept, and the update.",
            (
                _reward(run),
                _filter(run),
                _variance(run),
                _luck(run),
                _gradient(run),
                _signal(run),
                _parts(run),
                _divergence(run),
            ),
        ),
    ]


def splits(run: RunRecord) -> list[str]:
    """The splits that were evaluated."""
    names = (re.fullmatch(r"eval/([^/]+)/[^/]+/success", name) for name in run.series)
    return list(dict.fromkeys(name[1] for name in names if name))


def _success(run: RunRecord) -> Panel:
    curves = list(some(run, ("training", "success/rate", 1)))
    evaluated = splits(run)
    for number, split in enumerate(evaluated or ["val"]):
        of = f" ({split})" if len(evaluated) > 1 else ""
        sampled, greedy = (2, 3) if number == 0 else (4, 5)
        curves += some(
            run,
            (f"evaluation, sampled{of}", f"eval/{split}/sampled/success", sampled),
            (f"evaluation, greedy{of}", f"eval/{split}/greedy/success", greedy),
        )
        curves += [
            Curve(f"random policy{of}", run.get(f"eval/{split}/random/success"), 0, reference=True),
            Curve(f"best input-blind policy{of}", run.get(f"eval/{split}/fixed/success"), 6, reference=True),
        ]
        best = run.get(f"eval/{split}/best/success")
        if any((point.number or 1.0) < 1 for point in best.numeric):
            curves.append(Curve(f"best possible{of}", best, 5, reference=True))
    return Panel("Success", "share of episodes", tuple(curves), axis=Axis.SHARE)


def _information(run: RunRecord, scope: str) -> Panel:
    base = f"{run.family('information')}/{scope}"
    # Its upper bracket (mi_loo) is many times the ceiling on a healthy run and would flatten the curve that matters.
    curves = (
        *some(run, ("MI", f"{base}/mi", 1)),
        Curve("ceiling", run.get(f"{base}/mi_ceiling"), 0, reference=True),
    )
    return Panel(f"Mutual information, {SCOPES[scope]}", "nats", curves, Axis.FROM_ZERO, optional=scope != "first_turn")


def _scopes(run: RunRecord) -> list[Section]:
    """Later turns and other models' judgement next to first turns. Empty where only first turns were measured."""
    family = run.family("information")
    later = any(run.get(f"{family}/{scope}/mi").points for scope in SCOPES if scope != "first_turn")
    judges = list(dict.fromkeys(name.split("/")[0] for name in run.series if name.startswith("information@")))
    if not later and (not judges or family in judges):
        return []
    panels = [_information(run, scope) for scope in SCOPES if scope != "first_turn"]
    if later:
        panels += [
            _per_scope(run, "8-way retrieval", "share of thoughts", "retrieval", "accuracy_8way", Axis.SHARE),
            _per_scope(
                run, "Entropy given the prompt", "nats per token", "information", "entropy_conditional_per_token"
            ),
        ]
    panels.append(_judges(run, [family, *(judge for judge in judges if judge != family)]))
    lead = (
        "A first turn holds nothing of the model's own. In any turn whole contexts are exchanged, earlier replies "
        "included, and a thought can be identified by its style. With the last observation swapped the history stays, "
        "and only what the model has just read can identify it. Any turn high and observation low: the model follows "
        "itself, not the input. Scopes differ in their number of prompts: compare gaps (above) and 8-way retrieval, "
        "not how high MI is."
    )
    return [Section("scopes", "First turn, any turn, observation swapped", lead, tuple(panels))]


def _judges(run: RunRecord, families: Sequence[str]) -> Panel:
    choices = [
        (
            f"judge {family.partition('@')[2]}" if "@" in family else "the policy",
            f"{family}/first_turn/gap_per_token",
            hue,
        )
        for hue, family in enumerate(families[:6], start=1)
    ]
    curves = some(run, *choices) if len(families) > 1 else ()
    return Panel("Gap, as other models see it", "nats per token, first turn", curves, optional=True)


def _per_scope(run: RunRecord, title: str, unit: str, family: str, metric: str, axis: Axis = Axis.FITTED) -> Panel:
    choices = [
        (label, f"{run.family(family)}/{scope}/{metric}", hue)
        for hue, (scope, label) in enumerate(SCOPES.items(), start=1)
    ]
    return Panel(title, unit, some(run, *choices), axis)


def _influence(run: RunRecord) -> Panel:
    curves = some(
        run,
        ("thought of another prompt", _grounded(run, "thought_influence"), 1),
    )
    return Panel("Influence of thought on action", "0 to 1", curves, axis=Axis.SHARE)


def _grounded(run: RunRecord, metric: str) -> str:
    """Under the policy's own name or, in an audit, that of the first model that was asked."""
    scorers = (name for name in run.series if name.startswith("grounding@") and name.endswith(f"/{metric}"))
    own = f"grounding/{metric}"
    return own if own in run.series else next(scorers, own)


def _strategies(run: RunRecord) -> Panel:
    curves = some(run, ("executed sequences, within a group", "grounding/strategy_entropy", 1))
    return Panel("Entropy of strategies", "nats", curves, Axis.FROM_ZERO, optional=True)


def _play(run: RunRecord) -> Panel:
    curves = some(
        run,
        ("distinct strategies, of a group's episodes", "grounding/distinct_strategies", 1),
        ("turns that lead nowhere", "grounding/oscillation_rate", 2),
    )
    return Panel("Strategies and oscillation", "share", curves, Axis.SHARE, optional=True)


def _entropies(run: RunRecord) -> Panel:
    base = f"{run.family('information')}/first_turn"
    curves = some(
        run,
        ("thoughts, given the prompt", f"{base}/entropy_conditional_per_token", 1),
        ("thoughts, over all prompts", f"{base}/entropy_marginal_per_token", 2),
        ("policy, exact", "policy/entropy_per_token", 3),
    )
    return Panel("Entropy", "nats per token", curves)


def _entropies_by_token(run: RunRecord) -> Panel:
    curves = some(
        run,
        ("in thoughts", "policy/thought_entropy_per_token", 1),
        ("in answers, given the thought", "policy/answer_entropy_per_token", 2),
        ("in solved episodes", "policy/solved_entropy_per_token", 3),
    )
    return Panel("Entropy by place", "nats per token", curves, Axis.FROM_ZERO, optional=True)


def _format(run: RunRecord) -> Panel:
    curves = some(run, ("executable as written", "format/valid_rate", 1), ("thought closed", "format/closed_rate", 2))
    return Panel("Format", "share of turns", curves, axis=Axis.SHARE)


def _retrieval(run: RunRecord) -> Panel:
    panel = _per_scope(run, "Retrieval accuracy", "share of thoughts", "retrieval", "accuracy")
    base = f"{run.family('retrieval')}/first_turn"
    chance = Curve("chance", run.get(f"{base}/chance"), 0, reference=True)
    against_8 = some(run, ("first turn, 8-way", f"{base}/accuracy_8way", 4))
    return Panel(panel.title, panel.unit, (*panel.curves, *against_8, chance), axis=Axis.SHARE)


def _grounding(run: RunRecord) -> Panel:
    curves = some(
        run,
        ("input to action", "grounding/input_to_action", 1),
        ("thought to action", _grounded(run, "reasoning_to_action"), 2),
    )
    return Panel("Information in the action", "nats", curves, optional=True)


def _text(run: RunRecord) -> Panel:
    curves = some(
        run, ("judge, all prompts", "text/judge_accuracy", 1), ("judge, 8-way", "text/judge_accuracy_8way", 2)
    )
    return Panel("Prompt named from the words", "share of thoughts", curves, axis=Axis.SHARE, optional=True)


def _reward(run: RunRecord) -> Panel:
    components = [name for name in run.series if name.startswith("reward/") and name != "reward/mean"]
    drawn = components[:MOST_COMPONENTS]
    choices = [(name.removeprefix("reward/"), name, hue) for hue, name in enumerate(drawn, start=2)]
    unit = "per trajectory"
    if len(components) > len(drawn):
        unit += f"; {len(drawn)} of {len(components)} components are drawn, metrics.jsonl holds all"
    return Panel("Reward", unit, some(run, ("sum", "reward/mean", 1), *choices))


def _kinds(run: RunRecord) -> Panel:
    curves = some(
        run,
        ("mixed", "signal/mixed", 1),
        ("solved", "signal/solved", 3),
        ("blind", "signal/blind", 5),
        ("failed", "signal/failed", 2),
    )
    return Panel("Groups by kind", "share of groups", curves, axis=Axis.SHARE, stacked=True)


def _silent(run: RunRecord) -> Panel:
    curves = some(
        run,
        ("kept groups without signal", "filter/kept_without_signal", 2),
        ("advantage of groups with one outcome", "policy/advantage_without_outcome", 1),
    )
    return Panel("Kept, but without signal", "share", curves, axis=Axis.SHARE, optional=True)


def _filter(run: RunRecord) -> Panel:
    curves = some(run, ("groups kept", "filter/kept_ratio", 1), ("variance kept", "filter/mass_kept", 2))
    return Panel("Kept by the filter", "share", curves, axis=Axis.SHARE)


def _variance(run: RunRecord) -> Panel:
    curves = some(run, ("mean", "signal/reward_variance", 1), ("dispersion", "signal/variance_dispersion", 2))
    return Panel("Reward variance within groups", "", curves)


def _luck(run: RunRecord) -> Panel:
    curves = some(run, ("all groups", "signal/luck_share", 1), ("kept groups", "signal/luck_share_kept", 2))
    title = "Luck in the reward variance"
    return Panel(title, "share of the replayed variance", curves, Axis.FROM_ZERO, optional=True)


def _lengths(run: RunRecord) -> Panel:
    curves = some(run, ("thought", "length/reasoning_tokens", 1), ("reply", "length/response_tokens", 2))
    return Panel("Length", "tokens", curves)


def _gradient(run: RunRecord) -> Panel:
    return Panel("Gradient norm", "before clipping", some(run, ("all parameters", "policy/gradient_norm", 1)))


def _signal(run: RunRecord) -> Panel:
    curves = some(run, ("signal²", "gradient/all/task_signal2", 1), ("noise²", "gradient/all/task_noise2", 2))
    return Panel("Signal and noise of the task gradient", "of a step's groups", curves, Axis.FROM_ZERO, optional=True)


def _parts(run: RunRecord) -> Panel:
    curves = some(
        run,
        ("task", "gradient/all/task_group_norm", 1),
        ("KL, coefficient 1", "gradient/all/kl_group_norm", 3),
        ("entropy, coefficient 1", "gradient/all/entropy_group_norm", 5),
    )
    return Panel("Gradient of a single group", "root mean square norm", curves, Axis.FROM_ZERO, optional=True)


def _divergence(run: RunRecord) -> Panel:
    curves = some(run, ("to the sampler", "policy/kl_to_sampler", 1), ("to the reference", "policy/kl_to_reference", 2))
    return Panel("KL divergence of the policy", "nats per token", curves)
