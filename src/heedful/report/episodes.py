"""The rollouts of a run as its page reads them: a small index of all steps, and one packed part per step.

Promise: the page shows what was sampled. It is split by role where the roles are certain, and whole otherwise.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.signal import cause_of
from heedful.diagnostics.statistics.group_statistics import scored
from heedful.diagnostics.text import GRAM
from heedful.diagnostics.words import words_of
from heedful.report.embedding import embedded_pictures, packed, shortened
from heedful.report.record import RunRecord
from heedful.storage import read_rollouts, read_scores
from heedful.types import Group, Reply, Trajectory, Turn, Verdict

LONGEST = 20_000
"""Most characters of one text."""
NATS, LEVELS = 20, (35, 126)
"""An entropy is one character: its code is 35 and 20 times the nats, at most 126."""
_OPENING_TAG = re.compile(r"(<[A-Za-z_][\w-]*>|\[[A-Z_]+\])\s*\Z")
_LEADING_TAG = re.compile(r"\s*(<[A-Za-z_][\w-]*>|\[[A-Z_]+\])")
_TAGS = re.compile(r"\A\s*[<\[][\w-]+[>\]]|[<\[]/[\w-]+[>\]]\s*\Z")
"""Those around a thought."""

Words = Mapping[tuple[str, str], list[tuple[str, int]]]
"""Prompt and thought -> its tokens, and what each tells of the prompt in hundredths of a nat."""


def tags_of(config: Mapping[str, str]) -> ThoughtTags:
    """The reasoning tags of a flat configuration: the first `tags.open` and `tags.close` found in it, or an audit's.
    Empty where it names none."""
    if audited := json.loads(config.get("settings.tags", "null")):
        return ThoughtTags(*audited)
    found = {
        end: next((value for key, value in config.items() if f".{key}".endswith(f".tags.{end}")), "")
        for end in ("open", "close")
    }
    return ThoughtTags(found["open"], found["close"])


@dataclass(slots=True)
class Episodes:
    """The stored rollouts of a run."""

    index: dict[str, Any]
    """`tasks`: id, seed, split. `reasons` of verdicts. `steps`: step -> a row for each group: number of the task,
    outcomes, rewards, weight, number of the reason, spread, what moved, kind by outcomes. `play`: how an episode is
    played again: the run's folder, empty where heedful did not train it."""
    parts: dict[str, str] = field(default_factory=dict)
    """Step -> its texts, packed."""


def episodes_of(run: RunRecord, newest: int | None = None) -> Episodes:
    """Read the training rollouts of all measured steps. `newest`: of so many last steps alone."""
    tasks: dict[tuple[str, str, str], int] = {}
    reasons: dict[str, int] = {}
    measured = {point.step for series in run.series.values() for point in series.points}
    steps = [step for step in run.folder.rollout_steps() if step in measured]
    trained = not run.audited and "trainer" not in run.config and "env.type" in run.config
    found = Episodes({"play": str(run.folder.path) if trained else "", "steps": {}})
    tags = tags_of(run.config)
    for step in steps[-newest:] if newest else steps:
        stored = read_rollouts(run.folder.rollouts(step))
        verdicts: Sequence[Verdict | None] = stored.verdicts or (None,) * len(stored.groups)
        rows = []
        for group, verdict in zip(stored.groups, verdicts, strict=True):
            task = (group.task.id, str(group.task.seed), group.task.split)
            outcomes = [trajectory.outcome for trajectory in group.trajectories]
            rewards = [trajectory.reward for trajectory in group.trajectories]
            row: list[object] = [tasks.setdefault(task, len(tasks)), outcomes, [_short(reward) for reward in rewards]]
            if verdict is not None:
                reason = reasons.setdefault(verdict.reason, len(reasons))
                row += [_short(verdict.weight), reason, _short(verdict.spread)]
            else:
                row += [None, None, None]
            known = scored(outcomes)
            rows.append([*row, _short(moved(rewards, verdict)), cause_of(group, known) if len(known) > 1 else ""])
        found.index["steps"][str(step)] = rows
        found.parts[str(step)] = packed(_part(stored.groups, tags, _words(run, step)))
    found.index |= {"tasks": [*tasks], "reasons": [*reasons]}
    return found


def moved(rewards: Sequence[float | None], verdict: Verdict | None) -> float:
    """The mean size of reward less the group's mean, times the filter's weight: what the group adds to an update."""
    known = [reward for reward in rewards if reward is not None and reward == reward]
    mean = fmean(known) if known else 0.0
    return (
        sum(abs(reward - mean) for reward in known) / max(1, len(known)) * (1.0 if verdict is None else verdict.weight)
    )


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _words(run: RunRecord, step: int) -> Words:
    """The thoughts of a step that were stored token by token."""
    path = run.folder.scores(step)
    if not path.exists():
        return {}
    stored = read_scores(path)
    return {
        (stored.prompts_N[int(stored.own_M[one.row])], "".join(one.texts_T)): [
            (text, round(100 * value)) for text, value in zip(one.texts_T, one.values_T, strict=True)
        ]
        for one in stored.words
    }


def _part(groups: Sequence[Group], tags: ThoughtTags, words: Words) -> dict[str, object]:
    """All texts of a step. Prompts stand in a table, since members of a group share them."""
    prompts: dict[str, int] = {}
    templates = iter(template_shares(groups, tags))
    shown = [
        [_member(trajectory, tags, words, prompts, next(templates)) for trajectory in group.trajectories]
        for group in groups
    ]
    pictures = embedded_pictures(trajectory for group in groups for trajectory in group.trajectories)
    return {"groups": shown, "prompts": [*prompts], "pictures": pictures}


def template_shares(groups: Sequence[Group], tags: ThoughtTags) -> Iterator[float | None]:
    """Of each member's first thought: the share of other tasks whose thoughts hold a phrase of it, mean over phrases.

    1 = every phrase of three words stands in thoughts of all other tasks. `None` where there is no phrase, or no other
    task.
    """
    phrases_PG = [[_phrases(trajectory, tags) for trajectory in group.trajectories] for group in groups]
    holders: Counter[tuple[str, ...]] = Counter()
    owns: dict[str, set[tuple[str, ...]]] = {}
    for group, phrases_G in zip(groups, phrases_PG, strict=True):
        owns.setdefault(group.task.id, set()).update(*phrases_G)
    for own in owns.values():
        holders.update(own)
    others = len(owns) - 1
    for phrases_G in phrases_PG:
        for phrases in phrases_G:
            yield round(fmean(holders[one] - 1 for one in phrases) / others, 3) if phrases and others else None


def _phrases(trajectory: Trajectory, tags: ThoughtTags) -> set[tuple[str, ...]]:
    parts = dict(pieces(trajectory.turns[0].reply, tags)) if trajectory.turns else {}
    words = words_of(_TAGS.sub("", parts.get("thought", "")))
    return {tuple(words[start : start + GRAM]) for start in range(len(words) - GRAM + 1)}


def _member(
    trajectory: Trajectory, tags: ThoughtTags, words: Words, prompts: dict[str, int], template: float | None
) -> dict[str, object]:
    return {
        "member": trajectory.member,
        "ending": trajectory.ending.value,
        "outcome": trajectory.outcome,
        "reward": _short(trajectory.reward),
        "progress": trajectory.progress,
        "error": shortened(trajectory.error, LONGEST),
        "template": template,
        "turns": [_turn(turn, tags, words, prompts) for turn in trajectory.turns],
    }


def _turn(turn: Turn, tags: ThoughtTags, words: Words, prompts: dict[str, int]) -> dict[str, object]:
    reply = turn.reply
    split = pieces(reply, tags)
    (prompt,) = [text for role, text in split if role == "prompt"] or [""]
    thought = next((text for role, text in split if role == "thought"), "")
    found: dict[str, object] = {
        "prompt": prompts.setdefault(shortened(prompt, LONGEST, keep_end=True), len(prompts)),
        "pieces": [(role, shortened(text, LONGEST)) for role, text in split if role != "prompt"],
        "actions": shortened(" · ".join(turn.actions), LONGEST),
        "valid": turn.valid,
        "effect": shortened(turn.effect, LONGEST),
        "state": shortened(turn.state, LONGEST),
        "components": {name: _short(value) for name, value in turn.rewards.items()},
        "closed": reply.closed,
        "cut": reply.cut,
    }
    more = {
        "restarts": reply.prompt.restarts,
        "images": [image.digest for image in reply.prompt.images],
        "tokens": [len(reply.thought), len(reply.answer), len(reply.ids)] if reply.ids else [],
        "entropies": "".join(chr(min(LEVELS[1], LEVELS[0] + round(NATS * value))) for value in reply.entropies),
        "words": words.get((reply.prompt.text, thought)),
    }
    return found | {name: value for name, value in more.items() if value}


def pieces(reply: Reply, tags: ThoughtTags) -> list[tuple[str, str]]:
    """Prompt and reply split by role: `prompt`, `forced`, `thought`, `answer`; `reply` where the roles are not certain.

    The stored ranges count tokens, which only the tokenizer can turn into text, so the text is split at the tags. A
    reply that is known as text alone has no ranges. It is split at the closing tag, or whole.
    """
    prompt, text, forced = reply.prompt.text, reply.text, ""
    opening = tags.open or (match[1] if (match := _OPENING_TAG.search(prompt)) else "")
    if opening and prompt.rstrip().endswith(opening) and text.startswith(opening):
        forced, text = opening, text[len(opening) :]
        prompt = prompt.rstrip().removesuffix(opening)
    leading = forced or (match[1] if (match := _LEADING_TAG.match(text)) else "")
    closing = tags.close or (f"{leading[0]}/{leading[1:]}" if leading else "")
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
