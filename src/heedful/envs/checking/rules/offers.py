"""Rules on what an environment offers beyond the contract: demonstrations, and what scripted players need.

An offer is optional. An offer that is made must be right.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

from heedful.diagnostics.statistics.intervals import wilson
from heedful.envs.checking.evidence import Evidence
from heedful.envs.checking.play import Bench, Played, scripted
from heedful.envs.checking.report import Finding, absent, broken, doubtful, holds, in_words, shortened
from heedful.envs.common.actions import CLOSE_ANSWER, CLOSE_THOUGHT, OPEN_ANSWER, OPEN_THOUGHT, SEPARATOR, format_reply
from heedful.envs.common.contract import MOST_ACTIONS
from heedful.envs.common.tools import in_form
from heedful.protocols import AnswersBlindly, AnswersFreely, Demonstrates
from heedful.types import Task

MOST_DEMONSTRATED = 60

_KNOBS_OF_FLAWS = ("imperfect", "systematic", "slip")


def demonstrations(bench: Bench, evidence: Evidence) -> Finding:
    """Valid replies that solve within the limits, and that replay as member 0."""
    if not isinstance(bench.env, Demonstrates):
        return absent("the environment offers no `demonstrate`, so no seedling can be grown for it")
    tasks = evidence.tasks[: min(MOST_DEMONSTRATED, bench.effort.episodes)]
    refusal = _refusal(bench, tasks[:5])
    if refusal:
        return absent(f"with these knobs nothing can be demonstrated: {refusal}")
    solved = 0
    unsolved: Played | None = None
    for task in tasks:
        where = f"task {task.id} (seed {task.seed})"
        pairs = bench.demand("demonstrate", partial(_demonstrated, bench, task), where)
        fault = _pairs_misfit(pairs)
        if fault:
            return _demonstration_broken("demonstrations are not what they must be", fault, where)
        if pairs != bench.demand("demonstrate", partial(_demonstrated, bench, task), where):
            return _demonstration_broken(
                "demonstrations differ under equal generators", "two different episodes", where
            )
        if len(pairs) > bench.turns:
            return _demonstration_broken(
                "a demonstration is too long", f"{len(pairs)} turns of at most {bench.turns}", where
            )
        played = bench.play(task, 0, scripted([reply for _, reply in pairs]), len(pairs))
        finding = _replayed(played, pairs)
        if finding is not None:
            return finding
        solved += played.solved
        unsolved = unsolved if played.solved else unsolved or played
    if unsolved is None:
        return holds(
            f"{len(tasks)} demonstrations are valid, replay as member 0, and solve their tasks within the limits"
        )
    return _not_all_solve(bench, solved, len(tasks), unsolved)


def _demonstrated(bench: Bench, task: Task) -> Any:
    return bench.env.demonstrate(task, random.Random(7))


def _refusal(bench: Bench, tasks: Sequence[Task]) -> str:
    """The sentence with which an environment refuses to demonstrate: a ValueError, always the same one."""
    faults = [bench.ask("demonstrate", partial(_demonstrated, bench, task))[1] for task in tasks]
    causes = {fault.cause if fault is not None else "" for fault in faults}
    refused = len(causes) == 1 and next(iter(causes)).startswith("ValueError")
    return str(faults[0]).partition("raised ValueError: ")[2] if refused else ""


def _pairs_misfit(pairs: Any) -> str:
    if not isinstance(pairs, list) or not pairs:
        return f"{in_words(pairs)}; a list of (observation, reply) was expected"
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            return f"{in_words(pair)} among them; a pair of texts, (observation, reply), was expected"
    return ""


def _replayed(played: Played, pairs: Sequence[tuple[str, str]]) -> Finding | None:
    """What is wrong with a demonstration when it is played. `None` if nothing is."""
    if played.fault is not None:
        return _demonstration_broken(
            "a demonstrated reply breaks the episode", str(played.fault), played.where(len(played.exchanges))
        )
    shown = [played.first.text, *(exchange.step.observation.text for exchange in played.exchanges)]
    for turn, (text, _) in enumerate(pairs):
        if turn > len(played.exchanges) - 1:
            found = f"the episode is over after {len(played.exchanges)} of {len(pairs)} replies"
            return _demonstration_broken("a demonstration does not replay", found, played.where())
        if text != shown[turn]:
            found = f"it says {shortened(text)} where the agent is shown {shortened(shown[turn])}"
            return _demonstration_broken("a demonstration does not replay", found, played.where(turn))
        if not played.exchanges[turn].step.valid:
            found = f"the reply counts as invalid: {played.exchanges[turn].step.effect}"
            return _demonstration_broken("a demonstrated reply is invalid", found, played.where(turn))
    if not played.ended:
        found = f"no ending after its {len(pairs)} replies"
        return _demonstration_broken("a demonstration stops before the end", found, played.where())
    return None


def _not_all_solve(bench: Bench, solved: int, count: int, unsolved: Played) -> Finding:
    flaws = [name for name in _KNOBS_OF_FLAWS if getattr(bench.env, name, 0)]
    noisy = any(
        bench.play(unsolved.task, member, scripted(unsolved.replies), len(unsolved.exchanges)).transcript()
        != unsolved.transcript()
        for member in (1, 2, 3)
    )
    found = f"{solved} of {count} are solved"
    if solved and (flaws or noisy):
        why = f"the knob {flaws[0]}" if flaws else "noise, by which members differ"
        return holds(f"valid, and replay as member 0; {found}, which {why} may explain")
    return _demonstration_broken(
        "a demonstration does not solve its task", f"{found}, though nothing is left to chance", unsolved.where()
    )


def _demonstration_broken(sentence: str, found: str, where: str) -> Finding:
    return broken(
        sentence,
        expected="`demonstrate(task, rng)` returns the (observation, reply) pairs of one episode, played as member 0: "
        "valid replies, within the limits, to the end",
        found=found,
        where=where,
        remedy="play an episode of your own inside `demonstrate` and note what it shows; draw from the generator that "
        "is handed in",
    )


def players(bench: Bench, evidence: Evidence) -> Finding:
    """What the random and the input-blind player need: a list of actions, or answers in free text."""
    env = bench.env
    listed = getattr(env, "actions", None)
    listed = None if isinstance(listed, str) else listed  # the knob that chooses between plain actions and tool calls
    if not listed and not isinstance(env, AnswersFreely):
        return absent(
            "the environment offers neither `actions` and `actions_per_turn` nor `random_answer`, so evaluations show "
            "no random player beside the agent"
        )
    fault = _actions_misfit(bench, evidence) if listed else ""
    fault = fault or (_answers_misfit(bench, evidence) if isinstance(env, AnswersFreely) else "")
    if fault:
        return broken(
            "scripted players cannot play",
            expected="names of actions that the environment accepts, or random answers in the form that it asks for",
            found=fault,
            remedy="see ListsActions and AnswersFreely in heedful.protocols",
        )
    count = len(evidence.sound)
    solved = sum(played.solved for played in evidence.sound)
    low, high = wilson(solved, count)
    sentence = f"a random player solves {solved / count:.0%} [{low:.0%}, {high:.0%}] of {count} episodes"
    if solved == count:
        return doubtful(sentence, remedy="there is nothing to learn: make the tasks harder")
    return holds(sentence)


def _actions_misfit(bench: Bench, evidence: Evidence) -> str:
    names, most = bench.env.actions, getattr(bench.env, "actions_per_turn", None)
    if not isinstance(names, tuple) or not all(
        isinstance(name, str) and name.strip() == name and name for name in names
    ):
        return f"`actions` is {in_words(names)}; a tuple of texts without spaces around them was expected"
    if len({name.lower() for name in names}) < len(names):
        return f"`actions` holds the same name twice (case does not count): {in_words(names)}"
    marks = (SEPARATOR, OPEN_ANSWER, CLOSE_ANSWER, OPEN_THOUGHT, CLOSE_THOUGHT)
    marked = [name for name in names if any(mark in name for mark in marks)]
    if marked:
        return f"the action {marked[0]!r} holds a mark of the grammar ({', '.join(marks)})"
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        return f"`actions_per_turn` is {most!r}; a whole number of at least 1 was expected"
    for name in names[:64]:
        played = (bench.play(task, 0, scripted([format_reply([name], "")]), 1) for task in evidence.tasks[:20])
        if not any(one.exchanges and one.exchanges[0].step.valid for one in played):
            return f"the action {name!r} is invalid as the first one in each of {min(20, len(evidence.tasks))} tasks"
    return ""


def _answers_misfit(bench: Bench, evidence: Evidence) -> str:
    env = bench.env
    if not isinstance(bench.env, AnswersBlindly):
        return "`random_answer` without `blind_answers`: the best player that does not read needs both"
    valid = 0
    tasks = evidence.tasks[:20]
    for task in tasks:
        answer, fault = bench.ask("random_answer", partial(env.random_answer, task, random.Random(3)))
        again, _ = bench.ask("random_answer", partial(env.random_answer, task, random.Random(3)))
        if fault is not None:
            return str(fault)
        if not isinstance(answer, str):
            return f"`random_answer` returned {in_words(answer)}; a text was expected"
        if answer != again:
            return "`random_answer` gives different answers under equal generators; draw from the one that is handed in"
        played = bench.play(task, 0, scripted([in_form(env, format_reply([answer], ""))]), 1)
        valid += bool(played.exchanges) and played.exchanges[0].step.valid
    if valid < len(tasks) / 2:
        return f"only {valid} of {len(tasks)} answers of `random_answer` count as valid"
    blind, fault = bench.ask("blind_answers", lambda: list(islice(env.blind_answers(tasks), MOST_ACTIONS + 1)))
    if fault is not None:
        return str(fault)
    if len(blind or ()) > MOST_ACTIONS:
        return f"`blind_answers` returned more than {MOST_ACTIONS:,} answers"
    if not blind or not all(isinstance(answer, str) for answer in blind):
        return f"`blind_answers` returned {in_words(blind)}; one or more texts were expected"
    return ""
