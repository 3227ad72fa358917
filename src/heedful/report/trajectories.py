"""The sample of trajectories that a page lets its reader browse.

Promise: the page shows what was sampled. It is split by role where the roles are certain, and whole otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.report.embedding import embedded_pictures, inert_json, shortened, spread
from heedful.storage import Rollouts, RunFolder, read_rollouts
from heedful.types import Group, Image, Reply, Trajectory, Turn, Verdict

SIZE_BUDGET = 1_500_000
"""Bytes of the embedded sample."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of a step is shown."""

    groups: int
    members: int
    characters: int
    """Most characters of one text."""
    turns: int
    """Most turns of one episode."""


BOUNDS = (
    *(Bounds(8, 4, characters, 1000) for characters in (8000, 4000, 2000, 1000, 500)),
    Bounds(8, 2, 500, 1000),
    Bounds(4, 2, 500, 500),
    Bounds(4, 1, 500, 200),
    Bounds(2, 1, 250, 100),
)
"""Tried in this order until the sample fits its budget."""
_OPENING_TAG = re.compile(r"(<[A-Za-z_][\w-]*>|\[[A-Z_]+\])\s*\Z")


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags around a thought, where the configuration names them."""

    open: str = ""
    close: str = ""


def tags_of(config: Mapping[str, str]) -> Tags:
    """The reasoning tags of a flat configuration: the first `tags.open` and `tags.close` found in it."""
    found = {
        end: next((value for key, value in config.items() if f".{key}".endswith(f".tags.{end}")), "")
        for end in ("open", "close")
    }
    return Tags(found["open"], found["close"])


@dataclass(frozen=True, slots=True)
class Sample:
    """What a page embeds for its browser of trajectories."""

    steps: list[dict[str, object]]
    pictures: dict[str, dict[str, object]]
    """Digest -> size, words, and the file as an address where the budget had room. Empty for runs in text."""


def trajectory_sample(folder: RunFolder, tags: Tags, others: Sequence[Image] = ()) -> Sample:
    """The first, the middle and the last stored step: at most eight groups, four members each, evenly spread.

    `others`: pictures of other places on the page.
    """
    stored = [read_rollouts(folder.rollouts(step)) for step in spread(folder.rollout_steps(), 3)]
    sample: list[dict[str, object]] = []
    bounds = BOUNDS[0]
    for bounds in BOUNDS:
        sample = [_step(rollouts, tags, bounds) for rollouts in stored]
        if len(inert_json(sample)) <= SIZE_BUDGET:
            break
    groups = [group for rollouts in stored for group in spread(rollouts.groups, bounds.groups)]
    shown = [trajectory for group in groups for trajectory in spread(group.trajectories, bounds.members)]
    return Sample(sample, embedded_pictures(shown, others))


def _step(rollouts: Rollouts, tags: Tags, bounds: Bounds) -> dict[str, object]:
    verdicts = rollouts.verdicts or (None,) * len(rollouts.groups)
    numbered = spread(list(zip(range(len(verdicts)), rollouts.groups, verdicts, strict=True)), bounds.groups)
    return {
        "step": rollouts.step,
        "groups_in_all": len(rollouts.groups),
        "groups": [_group(number, group, verdict, tags, bounds) for number, group, verdict in numbered],
    }


def _group(number: int, group: Group, verdict: Verdict | None, tags: Tags, bounds: Bounds) -> dict[str, object]:
    shown = spread(group.trajectories, bounds.members)
    return {
        "number": number,
        "task": shortened(group.task.id, 200),
        "seed": str(group.task.seed),
        "split": group.task.split,
        "verdict": None
        if verdict is None
        else {"weight": verdict.weight, "reason": verdict.reason, "spread": verdict.spread},
        "outcomes": [trajectory.outcome for trajectory in group.trajectories],
        "members": [_member(trajectory, tags, bounds) for trajectory in shown],
    }


def _member(trajectory: Trajectory, tags: Tags, bounds: Bounds) -> dict[str, object]:
    return {
        "member": trajectory.member,
        "ending": trajectory.ending.value,
        "outcome": trajectory.outcome,
        "reward": trajectory.reward,
        "progress": trajectory.progress,
        "error": shortened(trajectory.error, bounds.characters),
        "turns": [_turn(turn, tags, bounds.characters) for turn in trajectory.turns[: bounds.turns]],
        "turns_in_all": len(trajectory.turns),
    }


def _turn(turn: Turn, tags: Tags, most: int) -> dict[str, object]:
    images = [image.digest for image in turn.reply.prompt.images]
    pictures: dict[str, object] = {"images": images} if images else {}
    return pictures | {
        "pieces": [(role, shortened(text, most, keep_end=role == "prompt")) for role, text in pieces(turn.reply, tags)],
        "restarts": turn.reply.prompt.restarts,
        "actions": shortened(" · ".join(turn.actions), most),
        "valid": turn.valid,
        "effect": shortened(turn.effect, most),
        "state": shortened(turn.state, most),
        "reward": turn.reward,
        "components": dict(turn.rewards),
        "tokens": [len(turn.reply.thought), len(turn.reply.answer), len(turn.reply.ids)] if turn.reply.ids else None,
        "closed": turn.reply.closed,
        "cut": turn.reply.cut,
    }


def pieces(reply: Reply, tags: Tags) -> list[tuple[str, str]]:
    """Prompt and reply split by role: `prompt`, `forced`, `thought`, `answer`; `reply` where the roles are not certain.

    The stored ranges count tokens, which only the tokenizer can turn into text, so the text is split at the tags. A
    reply that is known as text alone has no ranges. It is split at the closing tag, or whole.
    """
    prompt, text, forced = reply.prompt.text, reply.text, ""
    opening = tags.open or (match[1] if (match := _OPENING_TAG.search(prompt)) else "")
    if opening and prompt.rstrip().endswith(opening) and text.startswith(opening):
        forced, text = opening, text[len(opening) :]
        prompt = prompt.rstrip().removesuffix(opening)
    closing = tags.close or _closing(forced or _leading_tag(text))
    if reply.ids and not len(reply.thought):
        parts = [("answer", text)]
    elif closing and closing in text and reply.closed:
        end = text.index(closing) + len(closing)
        parts = [("thought", text[:end]), ("answer", text[end:])]
    elif reply.ids and not reply.closed and reply.thought.end >= len(reply.ids) - 1:
        parts = [("thought", text)]
    else:
        parts = [("reply", text)]
    return [(role, part) for role, part in (("prompt", prompt), ("forced", forced), *parts) if part]


def _leading_tag(text: str) -> str:
    match = re.match(r"\s*(<[A-Za-z_][\w-]*>|\[[A-Z_]+\])", text)
    return match[1] if match else ""


def _closing(opening: str) -> str:
    return f"{opening[0]}/{opening[1:]}" if opening else ""
