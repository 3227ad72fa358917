"""The information of each token of a thought about its prompt, for `heedful play`: pointwise, in nats.

The reference tasks are named. Only the last observation is exchanged. The history and the thought are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

from heedful.diagnostics.cross_scores.information import pointwise_information
from heedful.diagnostics.cross_scores.thoughts import observed
from heedful.envs.common.contract import turns_of
from heedful.envs.common.tasks import evaluation_tasks
from heedful.seeds import derive
from heedful.types import Trajectory

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from heedful.policies.sampling import Sampling
    from heedful.run.evaluation.subjects import LoadedModel

FULL_COLOUR = 2.0
"""Nats at which a token gets the strongest colour."""
FAINT = 0.1
"""Nats below which a token has no colour."""
_LISTENS = ((222, 235, 247), (66, 146, 198))
_MISLEADS = ((254, 224, 210), (251, 106, 74))
_NAMED = 3


@dataclass(frozen=True, slots=True)
class WeighedThought:
    """One turn's thought, token by token."""

    turn: int
    """The turn's number, from 0."""
    references: int
    """The number of references that had this turn and showed another observation. With 0 there are no values."""
    texts_T: tuple[str, ...]
    values_T: tuple[float, ...]
    """Pointwise information in nats."""


def show_listening(
    trajectory: Trajectory, loaded: LoadedModel, env: Any, sampling: Sampling, count: int, console: Console
) -> None:
    """Play `count` reference tasks with the same model, then print every thought coloured by pointwise information."""
    from rich.text import Text

    from heedful.rollout import LockStep, Request

    try:
        tasks = evaluation_tasks(env, trajectory.task.split, count)
    except ValueError as problem:
        console.print(f"\nWhich words listen was not measured: {problem} Set --references.", soft_wrap=True)
        return
    policy = loaded.policy(sampling, derive(0, "references"))
    played = LockStep()(policy, Request(env.episode, tasks, 1, turns_of(env), loaded.context))
    references = [group.trajectories[0] for group in played]
    introduction = (
        f"\nWhich words listen: the thoughts, coloured by what each token tells of its prompt. References: the first "
        f"{len(tasks)} evaluation tasks of {trajectory.task.split} ({tasks[0].id} to {tasks[-1].id}), each played once "
        "by the same model. First turn: the prompt is exchanged. Later turns: the history is kept and the last "
        "observation is exchanged for those that the references show in that turn."
    )
    console.print(introduction, soft_wrap=True, markup=False)
    legend = Text()
    for value in (-FULL_COLOUR, -FULL_COLOUR / 2, 0.0, FULL_COLOUR / 2, FULL_COLOUR):
        legend.append(f" {value:+g} ", style=_colour(value))
    legend.append(" nats; + likelier under its own prompt than the references let expect, - less likely")
    console.print(legend)
    for weighed in weigh_thoughts(trajectory, references, loaded):
        console.print(_line(weighed), soft_wrap=True)


def weigh_thoughts(
    trajectory: Trajectory, references: Sequence[Trajectory], loaded: LoadedModel
) -> list[WeighedThought]:
    """Every thought of an episode against the observations that the references show in the same turn, equal shares."""
    from heedful.scorers.hf import HFScorer

    scorer, weighed = HFScorer(loaded.model), []
    for number, turn in enumerate(trajectory.turns):
        reply = turn.reply
        thought = reply.ids[reply.thought.start : reply.thought.end]
        if not thought:
            continue
        history, own = observed(trajectory, number)
        shown = (observed(other, number)[1] for other in references if number < len(other.turns))
        others = list(dict.fromkeys(observation for observation in shown if observation != own))
        texts = tuple(loaded.renderer.piece(token) for token in thought)
        if not others:
            weighed.append(WeighedThought(number, 0, texts, ()))
            continue
        lead = reply.ids[: reply.thought.start]
        contexts = [(*history, *observation, *lead) for observation in (own, *others)]
        scores = scorer.cross_score(contexts, [thought], [0], trajectory.temperature, keep="tokens")
        assert scores.tokens is not None
        values = pointwise_information(scores.tokens[0], 0, [1 / len(contexts)] * len(contexts))
        weighed.append(WeighedThought(number, len(others), texts, tuple(values.tolist())))
    return weighed


def _line(weighed: WeighedThought) -> Text:
    """One thought in colour, and in words for terminals without any."""
    from rich.text import Text

    line = Text(f"turn {weighed.turn + 1}: ")
    if not weighed.values_T:
        line.append("".join(weighed.texts_T))
        return line.append("\n        no reference shows another observation in this turn")
    for text, value in zip(weighed.texts_T, weighed.values_T, strict=True):
        line.append(text, style=_colour(value))
    most = sorted(zip(weighed.values_T, weighed.texts_T, strict=True), reverse=True)[:_NAMED]
    named = ", ".join(f"{text.strip()!r} {value:+.2f}" for value, text in most)
    against = f"{weighed.references} reference{'s' if weighed.references > 1 else ''}"
    return line.append(
        f"\n        {sum(weighed.values_T):+.2f} nats in all of at most {log(weighed.references + 1):.2f} ({against}); "
        f"most: {named}"
    )


def _colour(value: float) -> str:
    if abs(value) < FAINT:
        return ""
    pale, full = _LISTENS if value > 0 else _MISLEADS
    strength = min(1.0, abs(value) / FULL_COLOUR)
    red, green, blue = (round(a + strength * (b - a)) for a, b in zip(pale, full, strict=True))
    return f"black on rgb({red},{green},{blue})"
