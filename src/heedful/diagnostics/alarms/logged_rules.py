"""The alarms of an audit: those of a run, told by a trainer's scalars too, and what scalars and words alone can tell.

They are judged on `trainer/*`, the trainer's own names translated, and on `text/*`. A scalar has no interval, so the
scatter of the series alone decides whether it has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from heedful.diagnostics.alarms.conditions import Beyond, Condition, Jump, Rule, Runaway, Spike
from heedful.diagnostics.alarms.rules import SUCCESS, AlarmConfig, changes, standard_rules

REWARD, ENTROPY, TRAINER_SUCCESS = "trainer/reward", "trainer/entropy", "trainer/success"
KEPT = 64
"""Latest values from which growth is judged."""


def logged_rules(config: AlarmConfig) -> tuple[Rule, ...]:
    """The standard rules with scalars among their conditions, and the rules of scalars and of words."""
    change = partial(changes, config)
    fell = change("down", config.success, TRAINER_SUCCESS, REWARD, relative=False)
    fell_too = change("down", config.success, TRAINER_SUCCESS, REWARD, relative=False, pair=True)
    estimated = tuple(replace(each, design=replace(each.design, estimated=True)) for each in fell)
    # Rule -> what is added to each of its groups of conditions.
    scalars: Mapping[str, tuple[tuple[Condition, ...], ...]] = {
        "low_entropy_collapse": (change("down", config.entropy_fall, ENTROPY, pair=True), fell_too),
        "noise_collapse": (change("up", config.entropy_rise, ENTROPY, pair=True), fell_too),
        "entropy_rise": (change("up", config.entropy_rise, ENTROPY),),
        "success_drop": (estimated,),
        "starvation": ((Beyond("trainer/zero_std", 0.75, True, 8),),),
    }
    solved, nearly_all = (
        tuple(Beyond(name, share, True, 8) for name in (SUCCESS, TRAINER_SUCCESS)) for share in (0.8, 0.95)
    )
    # Of each group of conditions one has to hold, a scalar's or the rule's own.
    known = [
        replace(
            rule, all_of=tuple((*group, *more) for group, more in zip(rule.all_of, scalars[rule.name], strict=True))
        )
        if rule.name in scalars
        else rule
        for rule in standard_rules(config)
    ]
    known = [replace(rule, unless=(*rule.unless, *solved)) if rule.name == "starvation" else rule for rule in known]
    validation_fell = change("down", config.success, "trainer/validation", relative=False)
    paired = change("down", config.success, "trainer/validation", relative=False, pair=True)
    return (
        *known,
        Rule(
            "not_finite",
            ((Beyond("trainer/not_finite", 0.0, True, 1, with_reason=True),),),
            severity="collapse",
            optional=True,
        ),
        Rule(
            "rate_jump",
            ((Jump("trainer/learning_rate", 2.0, 5),),),
            optional=True,
        ),
        Rule(
            "gradient_spike",
            ((Spike("trainer/grad_norm", 3.0, 6.0, 10, 32),),),
            severity="notice",
            optional=True,
        ),
        Rule(
            "kl_runaway",
            ((Runaway("trainer/kl", 4.0, 0.01, 24, KEPT),),),
            optional=True,
        ),
        Rule(
            "sampler_mismatch",
            (change("up", 2.0, "trainer/mismatch", floor=0.002),),
            optional=True,
        ),
        Rule(
            "truncation",
            (
                (
                    *change("up", config.format, "trainer/truncated", relative=False),
                    Beyond("trainer/truncated", 0.25, True, 5),
                ),
            ),
            optional=True,
        ),
        Rule(
            "length_rise",
            (
                tuple(
                    replace(each, paid_by=(SUCCESS, TRAINER_SUCCESS, REWARD), payment=config.success)
                    for each in change("up", 0.5, "trainer/length")
                ),
            ),
            severity="notice",
            optional=True,
        ),
        Rule(
            "outgrown",
            # A reward for the format keeps solved groups apart: then success alone tells.
            ((Beyond("trainer/zero_std", 0.75, True, 8), Beyond("signal/solved", 0.75, True, 8), *nearly_all), solved),
            severity="notice",
            optional=True,
        ),
        Rule(
            "validation_drop",
            (validation_fell,),
            optional=True,
        ),
        Rule(
            "train_validation_gap",
            (paired,),
            unless=fell_too,
            optional=True,
        ),
        Rule(
            "words_uninformed",
            (change("down", config.information, "text/judge_accuracy_8way"),),
            optional=True,
        ),
    )
