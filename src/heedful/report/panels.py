"""Which metrics a page draws together, and under what heading."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from heedful.report.drawing.chart import Axis, Curve
from heedful.report.drawing.panel import Panel, Question, some
from heedful.report.record import RunRecord

SCOPES = {"first_turn": "first turn", "any_turn": "any turn", "observation": "last observation swapped"}

FIRST = 5
"""Charts of the first screen."""
MOST_CURVES = 6
"""Curves of a chart: as many as there are colours."""


def first_panels(run: RunRecord) -> tuple[Panel, ...]:
    """The curves of the first screen: the first five of these that have a value."""
    thoughts = f"{run.family('information')}/first_turn"
    panel = partial(_panel, run)
    choices = (
        _success(run),
        _reward(run),
        _information(run),
        _rightness(run),
        panel(
            "Entropy",
            "nats per token",
            ("thoughts, given the prompt", f"{thoughts}/entropy_conditional_per_token", 1),
            ("thoughts, over all prompts", f"{thoughts}/entropy_marginal_per_token", 2),
            ("policy, exact", "policy/entropy_per_token", 3),
            ("policy, as the trainer says", "trainer/entropy", 4),
        ),
        _words(run),
        _format(run),
        _length(run),
        *_as_the_trainer_says(run),
    )
    return tuple(one for one in choices if any(curve.series.numeric for curve in one.curves))[:FIRST]


def questions(run: RunRecord) -> list[Question]:
    """The other charts of one run, by the question that they answer."""
    panel = partial(_panel, run)
    learnt = (
        _success(run),
        _reward(run),
        _format(run),
        _length(run),
        panel("Gradient norm", "before clipping", ("all parameters", "policy/gradient_norm", 1)),
        panel(
            "KL divergence of the policy",
            "nats per token",
            ("to the sampler", "policy/kl_to_sampler", 1),
            ("to the reference", "policy/kl_to_reference", 2),
        ),
        panel(
            "Entropy by place",
            "nats per token",
            ("in thoughts", "policy/thought_entropy_per_token", 1),
            ("in answers, given the thought", "policy/answer_entropy_per_token", 2),
            ("in solved episodes", "policy/solved_entropy_per_token", 3),
            axis=Axis.FROM_ZERO,
            optional=True,
        ),
    )
    listens = (
        _information(run),
        _gap(run),
        _retrieval(run, "Retrieval accuracy", "accuracy", "chance"),
        _retrieval(run, "8-way retrieval", "accuracy_8way"),
        panel(
            "Influence of thought on action",
            "0 to 1",
            ("thought of another prompt", _grounded(run, "thought_influence"), 1),
            axis=Axis.SHARE,
        ),
        _rightness(run),
        _words(run),
    )
    filtered = (
        panel(
            "Groups by kind",
            "share of groups",
            ("mixed", "signal/mixed", 1),
            ("solved", "signal/solved", 3),
            ("unpaid", "signal/unpaid", 5),
            ("failed", "signal/failed", 2),
            axis=Axis.SHARE,
            stacked=True,
        ),
        panel(
            "Kept by the filter",
            "share",
            ("groups kept", "filter/kept_ratio", 1),
            ("variance kept", "filter/mass_kept", 2),
            axis=Axis.SHARE,
        ),
        panel(
            "Kept, but without signal",
            "share",
            ("kept groups without signal", "filter/kept_without_signal", 2),
            ("advantage of groups with one outcome", "policy/advantage_without_outcome", 1),
            axis=Axis.SHARE,
            optional=True,
        ),
        panel(
            "Reward variance within groups",
            "",
            ("mean", "signal/reward_variance", 1),
            ("dispersion", "signal/variance_dispersion", 2),
        ),
        panel(
            "Luck in the reward variance",
            "share of the replayed variance",
            ("all groups", "signal/luck_share", 1),
            ("kept groups", "signal/luck_share_kept", 2),
            axis=Axis.FROM_ZERO,
            optional=True,
        ),
    )
    triage = (
        "A group whose members all got the same has no advantage to learn from. What helps depends on why: solved, "
        "unpaid (members got all the way, and the reward does not see it) or failed."
    )
    reads = (
        "No single number decides: mutual information can rise while success falls. Can the prompt be identified from "
        "the thought? Does the action depend on the thought? A first turn holds nothing of the model's own. In any "
        "turn whole contexts are exchanged, earlier replies included. With the last observation swapped the history "
        "stays: any turn high and observation low means that the model follows itself, not the input. Scopes differ in "
        "their number of prompts: compare gaps and 8-way retrieval."
    )
    shown = {one.title for one in first_panels(run)}
    asked = [Question("learned", "Did it learn?", "", learnt)]
    trained = [one for one in _as_the_trainer_says(run) if any(curve.series.points for curve in one.curves)]
    if any(one.title not in shown for one in trained):
        scalars = "Scalars of the trainer itself, under heedful's names."
        asked.append(Question("trainer", "What did the trainer log?", scalars, tuple(trained)))
    asked += [Question("listens", "Does it listen?", reads, listens), *_pictures(run)]
    asked.append(Question("filter", "What did the filter do?", triage, filtered))
    return [replace(each, panels=tuple(one for one in each.panels if one.title not in shown)) for each in asked]


def _words(run: RunRecord) -> Panel:
    return _panel(
        run,
        "Prompt named from the words",
        "share of thoughts",
        ("judge, all prompts", "text/judge_accuracy", 1),
        ("judge, 8-way", "text/judge_accuracy_8way", 2),
        axis=Axis.SHARE,
        optional=True,
    )


def _format(run: RunRecord) -> Panel:
    return _panel(
        run,
        "Format",
        "share of turns",
        ("executable as written", "format/valid_rate", 1),
        ("thought closed", "format/closed_rate", 2),
        axis=Axis.SHARE,
    )


def _length(run: RunRecord) -> Panel:
    return _panel(
        run,
        "Length",
        "tokens",
        ("thought", "length/reasoning_tokens", 1),
        ("reply", "length/response_tokens", 2),
    )


def _panel(
    run: RunRecord,
    title: str,
    unit: str,
    *choices: tuple[str, str, int],
    axis: Axis = Axis.FITTED,
    stacked: bool = False,
    optional: bool = False,
    reference: tuple[str, str] | None = None,
) -> Panel:
    """Curves as (label, metric, hue), with a grey `reference` (label, metric) where there is one."""
    curves = some(run, *choices)
    if reference is not None:
        curves = (*curves, Curve(reference[0], run.get(reference[1]), 0, reference=True))
    return Panel(title, unit, curves, axis, stacked, optional)


def _as_the_trainer_says(run: RunRecord) -> tuple[Panel, ...]:
    curves = (
        ("Reward, as the trainer says", "", ("training", "trainer/reward", 1), ("validation", "trainer/validation", 2)),
        (
            "Groups without spread, cut replies",
            "share",
            ("groups", "trainer/zero_std", 1),
            ("cut", "trainer/truncated", 2),
        ),
        ("Divergence from the reference", "as the trainer takes it", ("KL", "trainer/kl", 1)),
        ("Gradient norm, as the trainer says", "", ("all parameters", "trainer/grad_norm", 1)),
        ("Length, as the trainer says", "tokens", ("reply", "trainer/length", 1)),
    )
    return tuple(_panel(run, title, unit, *choices, optional=True) for title, unit, *choices in curves)


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


def _information(run: RunRecord) -> Panel:
    base = f"{run.family('information')}/first_turn"
    # Its upper bracket (mi_loo) is many times the ceiling on a healthy run and would flatten the curve that matters.
    return _panel(
        run,
        "Mutual information, first turn",
        "nats",
        ("MI", f"{base}/mi", 1),
        axis=Axis.FROM_ZERO,
        reference=("ceiling", f"{base}/mi_ceiling"),
    )


def _retrieval(run: RunRecord, title: str, metric: str, reference: str = "") -> Panel:
    """A share of thoughts in each scope. `reference`: the metric of the first turn by chance."""
    base = run.family("retrieval")
    choices = [(label, f"{base}/{scope}/{metric}", hue) for hue, (scope, label) in enumerate(SCOPES.items(), start=1)]
    chance = ("chance", f"{base}/first_turn/{reference}") if reference else None
    return _panel(run, title, "share of thoughts", *choices, axis=Axis.SHARE, optional=not reference, reference=chance)


def _gap(run: RunRecord) -> Panel:
    """The gap in each scope and, in first turns, as other models see it."""
    family, metric = run.family("information"), "gap_per_token"
    choices = [(label, f"{family}/{scope}/{metric}") for scope, label in SCOPES.items()]
    judges = dict.fromkeys(name.split("/")[0] for name in run.series if name.startswith("information@"))
    choices += [
        (f"first turn, judge {judge.partition('@')[2]}", f"{judge}/first_turn/{metric}")
        for judge in judges
        if judge != family
    ]
    curves = ((label, name, hue) for hue, (label, name) in enumerate(choices[:MOST_CURVES], start=1))
    return _panel(run, "Gap between own and other prompts", "nats per token", *curves)


def _rightness(run: RunRecord) -> Panel:
    """The probability of a right first action as a band of its parts; of agreeing with other replies where no right
    action is known. The upper edge is the whole. A part below 0 takes away from those under it."""
    known = run.get(_grounded(run, "right")).numeric
    label, title = (
        ("right", "Right first actions, by their carrier") if known else ("agreed", "Agreement, by its carrier")
    )
    carriers = {"_by_chance": ("by chance", 6), "_by_thought": ("by the thought", 1)}
    carriers |= {"_by_prompt": ("by the prompt past the thought", 2), "_by_both": ("by both together only", 3)}
    choices = [(name, _grounded(run, f"{label}{part}"), hue) for part, (name, hue) in carriers.items()]
    unit = "probability; the upper edge is all parts"
    return _panel(run, title, unit, *choices, axis=Axis.SHARE, stacked=True, optional=True)


def _grounded(run: RunRecord, metric: str) -> str:
    """Under the policy's own name or, in an audit, that of the first model that was asked."""
    scorers = (name for name in run.series if name.startswith("grounding@") and name.endswith(f"/{metric}"))
    own = f"grounding/{metric}"
    return own if own in run.series else next(scorers, own)


def _reward(run: RunRecord) -> Panel:
    components = [name for name in run.series if name.startswith("reward/") and name != "reward/mean"]
    drawn = components[: MOST_CURVES - 1]
    choices = [(name.removeprefix("reward/"), name, hue) for hue, name in enumerate(drawn, start=2)]
    unit = "per trajectory"
    if len(components) > len(drawn):
        unit += f"; {len(drawn)} of {len(components)} components are drawn, metrics.jsonl holds all"
    return _panel(run, "Reward", unit, ("sum", "reward/mean", 1), *choices)


def _pictures(run: RunRecord) -> list[Question]:
    """What moves a thought, the picture or the text. Empty where no picture was exchanged."""
    scopes = ("image", "image_newest", "image_all", "text")
    if not any(run.get(f"information/{scope}/gap").points for scope in scopes):
        return []
    lead = (
        "Thoughts are read again with other pictures, and with other texts, in place of their own. The picture alone "
        "moves them: they follow the picture. The text alone: they follow the text. In later turns, the newest picture "
        "low and all pictures high means that earlier pictures and replies already say what the newest one shows."
    )
    exchanged = _panel(
        run,
        "Gap, by what is exchanged",
        "nats per thought",
        ("picture, first turn", "information/image/gap", 1),
        ("text, first turn", "information/text/gap", 2),
        ("both, first turn", "information/first_turn/gap", 3),
        ("newest picture, later turn", "information/image_newest/gap", 4),
        ("all pictures, later turn", "information/image_all/gap", 5),
        axis=Axis.FROM_ZERO,
    )
    return [Question("pictures", "Is the picture read?", lead, (exchanged,))]
