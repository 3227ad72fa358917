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
    solved = tuple(Beyond(name, 0.8, True, 8) for name in (SUCCESS, TRAINER_SUCCESS))
    known = [_with(rule, scalars[rule.name]) if rule.name in scalars else rule for rule in standard_rules(config)]
    known = [replace(rule, unless=(*rule.unless, *solved)) if rule.name == "starvation" else rule for rule in known]
    validation_fell = change("down", config.success, "trainer/validation", relative=False)
    paired = change("down", config.success, "trainer/validation", relative=False, pair=True)
    return (
        *known,
        Rule(
            "not_finite",
            ((Beyond("trainer/not_finite", 0.0, True, 1, with_reason=True),),),
            "The gradient, the loss or the reward is no finite number. Look for a step whose groups were all dropped, "
            "for overflow in fp16, and for a reward that is not finite. Go back to a checkpoint before the step named.",
            severity="collapse",
            optional=True,
        ),
        Rule(
            "rate_jump",
            ((Jump("trainer/learning_rate", 2.0, 5),),),
            "The learning rate has jumped beyond all earlier ones. Look at the schedule, and at what a resume set.",
            optional=True,
        ),
        Rule(
            "gradient_spike",
            ((Spike("trainer/grad_norm", 3.0, 6.0, 10, 32),),),
            "One gradient was far larger than usual. Look at the batch of this step. Clip the norm, or lower the "
            "learning rate, if it repeats.",
            severity="notice",
            optional=True,
        ),
        Rule(
            "kl_runaway",
            ((Runaway("trainer/kl", 4.0, 0.01, 24, KEPT),),),
            "The policy leaves the reference faster and faster. Lower the learning rate, or raise the KL coefficient, "
            "and go back to a checkpoint before the growth.",
            optional=True,
        ),
        Rule(
            "sampler_mismatch",
            (change("up", 2.0, "trainer/mismatch", floor=0.002),),
            "The engine that samples is less and less the policy that learns. Compare precision, weights, template and "
            "temperature of both. An importance correction helps meanwhile.",
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
            "More replies are cut at the token limit, and a cut reply is seldom right. Raise the limit, or make the "
            "reward prefer shorter replies.",
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
            "Replies have become longer by half, and success has not risen with it. Read some of them.",
            severity="notice",
            optional=True,
        ),
        Rule(
            "outgrown",
            ((Beyond("trainer/zero_std", 0.75, True, 8), Beyond("signal/solved", 0.75, True, 8)), solved),
            "Nearly all groups are solved, so hardly any teaches. Use harder tasks.",
            severity="notice",
            optional=True,
        ),
        Rule(
            "validation_drop",
            (validation_fell,),
            "Success on held-out tasks has fallen. Go back to the best checkpoint, and compare training with it.",
            optional=True,
        ),
        Rule(
            "train_validation_gap",
            (paired,),
            "Held-out success falls while the reward of training does not: the reward may be gamed, or tasks are "
            "learnt by heart. Read the best-paid episodes, and grade some by hand.",
            unless=fell_too,
            optional=True,
        ),
        Rule(
            "words_uninformed",
            (change("down", config.information, "text/judge_accuracy_8way"),),
            "The words of thoughts tell their prompts apart less than before. Words are no proof: `--model` or "
            "`--server` asks a model instead. Read some thoughts beside their prompts.",
            optional=True,
        ),
    )


def _with(rule: Rule, more: tuple[tuple[Condition, ...], ...]) -> Rule:
    """The rule with more conditions in each of its groups, of which one has to hold."""
    return replace(rule, all_of=tuple((*group, *extra) for group, extra in zip(rule.all_of, more, strict=True)))
