"""What only the whole log shows, and the sentences that say it on the page and in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from heedful.auditing.logs.records import Faults, Misfit, name_of
from heedful.auditing.readers.reader import NO_STEP, step_of_file
from heedful.auditing.recognised import RecognisedLog, counted
from heedful.auditing.settings import AuditSettings
from heedful.auditing.steps import LoggedStep
from heedful.boundary import listed
from heedful.boundary.jsontext import read_json
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags

_CONTRADICTED = {
    "parts": "Some groups go on in a later step, since episodes are logged as they end: each part was read as a group "
    "of its own, so groups are smaller, and fewer of them have spread, than in training.",
    "prompts": "Some groups have several first prompts. If their names begin anew in each file or environment, the "
    "spread within groups is that between tasks.",
    "truths": "Some prompts have several right answers, so equal prompts hide several tasks, and the spread within "
    "groups may be that between tasks. A column `uid` or `group` would tell them apart.",
    "groups": "Completions with the same prompt and the same rewards have different advantages: equal prompts hide "
    "several groups, so the spread within groups may be wrong. A column `uid` or `group` would tell them apart.",
    "order": "The logged advantages do not follow the sum of these columns: some are weighted, or are no rewards. Name "
    "the right ones with --rewards.",
}

CLOSED = 0.05
"""The share of replies that have to close their thoughts."""


@dataclass(slots=True)
class Noticed:
    """Counts on the way through the steps."""

    steps: int = 0
    episodes: int = 0
    groups: int = 0
    replies: int = 0
    closed: int = 0
    """Replies that have closed their thought."""
    empty: int = 0
    """Those of them whose thought is empty, as models write it that were told not to think."""
    last_fingerprint: str = ""
    repeated: int = 0
    highest: int = -1
    """The highest step so far."""
    disorder: str = ""
    """What is said of the first step that comes after a higher one."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Step -> its episodes."""
    members: set[int] = field(default_factory=set)
    """The sizes of groups."""
    unequal: int = 0
    """Steps whose groups have several sizes."""
    parted: int = 0
    contradicted: set[str] = field(default_factory=set)

    def notice(self, step: LoggedStep, tags: ThoughtTags) -> None:
        self.steps += 1
        self.episodes += step.episodes
        self.groups += len(step.groups)
        self.repeated += step.fingerprint == self.last_fingerprint
        self.last_fingerprint = step.fingerprint
        if step.number < self.highest and not self.disorder:
            self.disorder = (
                f"Steps are out of order: step {step.number} comes after step {self.highest}. From there on no alarm "
                "is judged. Sort the log by step."
            )
        self.highest = max(self.highest, step.number)
        members = {len(group.trajectories) for group in step.groups}
        self.members |= members
        self.unequal += len(members) > 1
        turns = [turn for group in step.groups for member in group.trajectories for turn in member.turns]
        self.replies += len(turns)
        closed = [tags.split(turn.reply)[1] for turn in turns if turn.reply.closed]
        self.closed += len(closed)
        self.empty += sum(not thought.removesuffix(tags.close).strip() for thought in closed)
        self.sizes[step.number] = step.episodes
        self.parted += step.parted
        self.contradicted |= step.contradicted

    def untagged(self, log: RecognisedLog) -> str:
        """Why thought and answer cannot be told apart: the log holds texts alone, and hardly a reply, if any, has
        closed its thought. A reply may also talk about the tag. Empty where they can."""
        if not log.foreign or self.closed >= CLOSED * self.replies:
            return ""
        some = f"Only {self.closed} of {self.replies} replies hold" if self.closed else "No reply holds"
        return f"{some} {log.tags.close}"

    def found(
        self,
        log: RecognisedLog,
        settings: AuditSettings,
        faults: Faults,
        interleaved: int,
        files: int,
        kept: Collection[int] = (),
    ) -> Iterator[str]:
        """`files`: how many files were read. `kept`: steps that were measured before other rows were written over."""
        yield (
            f"{log.format}: {counted(files, 'file')}, {counted(self.steps, 'step')}, "
            f"{counted(self.episodes, 'episode')} in {counted(self.groups, 'group')}."
        )
        if log.foreign and (beside := [name for name in log.files.aside if not name.startswith(".")]):
            yield f"Files beside the log that were not read: {listed(beside)}."
        if shared := _of_one_step(log):
            yield f"Files were read as one step, by the number in their names: {listed(shared)}."
        if older := _older(log):
            yield (
                f"{older} and the files after it are older than all before: they may be left from another run, whose "
                "steps would follow those of this one."
            )
        if settings.join > 1:
            yield f"Up to {settings.join} steps were read as one, under the number of the first (--join)."
        if interleaved:
            yield (
                f"Steps are interleaved: {interleaved} episodes came after another step's, as in files of ranks, in "
                "epochs that count anew, or where a resumed run wrote steps again. All rows of a step were read as one."
            )
        if self.disorder:
            yield self.disorder
        # A run that goes on from a checkpoint writes the steps after it again.
        (usual, often), *_ = Counter(self.sizes.values()).most_common(1)
        larger = [number for number, size in self.sizes.items() if size > usual]
        if log.foreign and larger and 2 * often > len(self.sizes):
            yield (
                f"Steps {listed(map(str, larger))} hold more than the {usual} episodes of other steps: a resumed run "
                "may have written them twice, and both writings were read as one."
            )
        if self.repeated and log.foreign:
            yield (
                f"{counted(self.repeated, 'step')} {'repeats' if self.repeated == 1 else 'repeat'} the texts of the "
                "step before: the trainer logged a batch again, and these readings are no new evidence."
            )
        if 2 * self.empty > self.closed:
            yield f"{self.empty} of {self.closed} closed thoughts are empty: no reader finds a prompt in these."
        if self.parted:
            yield (
                f"Equal prompts had different right answers: their episodes were read as {self.parted} more groups, "
                "one for each answer."
            )
        yield from (f"{counted(count, 'row')} {what} left out." for what, count in faults.aside.items() if count)
        yield from _evaluated(log, [step for step in self.sizes if step not in kept])

    def assumed(self, log: RecognisedLog) -> Iterator[str]:
        if self.members == {1}:
            yield "No two episodes share a group, so nothing can be said of spread within groups."
        by_text = any("with the same" in sentence for sentence in log.reader.knowledge.assumed)
        if by_text and 2 * self.unequal > self.steps:
            yield (
                f"Groups of equal prompts have {min(self.members)} to {max(self.members)} episodes. If the trainer's "
                "have one size, a date in the prompts parts them, or a prompt was drawn several times: a column `uid` "
                "or `group` would tell."
            )
        yield from (sentence for kind, sentence in _CONTRADICTED.items() if kind in self.contradicted)
        if why := self.untagged(log):
            yield f"{why}: {'else ' if self.closed else ''}the whole reply was taken as the thought."


def _of_one_step(log: RecognisedLog) -> list[str]:
    """The first files that share a step by their names, where rows name none."""
    found: dict[int, list[str]] = {}
    if NO_STEP in log.reader.knowledge.assumed:
        for file in log.files.files:
            with suppress(Misfit):
                found.setdefault(step_of_file(file), []).append(name_of(file))
    return next((names for names in found.values() if len(names) > 1), [])


def _older(log: RecognisedLog) -> str:
    """The first file from which on all were written a minute before any of those ahead of it, or earlier. Empty where
    there is none."""
    files = log.files.files
    with suppress(OSError):
        times = [file.stat().st_mtime for file in files]
        last = [*accumulate(reversed(times), max)][::-1]
        for file, ahead, behind in zip(files[1:], accumulate(times, min), last[1:], strict=False):
            if behind < ahead - 60:
                return name_of(file)
    return ""


def _evaluated(log: RecognisedLog, steps: Iterable[int]) -> Iterator[str]:
    """The steps at which TRL wrote an evaluation over its training rows, by the state that its checkpoints hold."""
    if log.format != "TRL completions" or log.files.scalars:  # scalars that were named set them aside
        return
    folder = log.files.files[0].parent.parent
    states = [folder / "trainer_state.json", *folder.glob("checkpoint-*/trainer_state.json")]
    history: dict[int, dict[str, Any]] = {}
    for state in states:
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            for entry in read_json(state)["log_history"]:
                history.setdefault(entry["step"], {}).update(entry)
    evaluated = [step for step in steps if any(name.startswith("eval_") for name in history.get(step, ()))]
    if evaluated:
        rewards = {step: history[step]["reward"] for step in evaluated if "reward" in history[step]}
        means = f" (mean reward of training there: {listed(f'{at}: {mean:.4g}' for at, mean in rewards.items())})"
        yield (
            f"Steps {listed(map(str, evaluated))} hold completions of an evaluation, which TRL wrote over those of "
            f"training: their readings are not those of training{means if rewards else ''}. Name {folder} after the "
            "log: with its scalars these rows are set aside."
        )
