"""Check whether an environment keeps the contract: `check` plays it with everything a model might write, and reports.

The rules are those of docs/environments.md. A broken rule says what was expected, what was found, where, and what to
do. The faults of an environment are reported, never raised.

In a test of your own:

    from heedful.envs.checking.check import QUICK, check

    def test_my_environment_keeps_the_contract():
        report = check(MyEnvironment(), effort=QUICK)
        assert report.ok, str(report)
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from heedful.boundary import cut
from heedful.envs.checking.evidence import Evidence, gather, seeds_of
from heedful.envs.checking.play import QUICK, Bench, Broke, Effort
from heedful.envs.checking.report import Finding, Report, absent, broken, shortened, unchecked
from heedful.envs.checking.rules import calls, episodes, leak, observations, offers, pictures, processes, scores, tasks
from heedful.envs.checking.rules import environment as env
from heedful.guarded import Answered, Raised, guarded_call

Answer = TypeVar("Answer")

__all__ = ["QUICK", "RULES", "Effort", "Report", "check"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its name, its question, and the function that answers it."""

    name: str
    says: str
    look: Callable[[Bench, Evidence], Finding]
    plays: bool = True
    """Looks at episodes that reached their end. Where there is none, the rule cannot be checked."""


RULES = (
    Rule(
        "protocol",
        "the environment, its tasks, observations and steps have the types of the contract",
        env.protocol,
        plays=False,
    ),
    Rule(
        "frozen", "the environment is a frozen dataclass; equal knobs make equal environments", env.frozen, plays=False
    ),
    Rule(
        "knobs",
        "knobs can be set by flags, written into a run's configuration and read back",
        env.knobs,
        plays=False,
    ),
    Rule("summary", "`summary`, if there is one, is one line", env.summary, plays=False),
    Rule("pickle", "the environment and its tasks can be sent to a worker process", env.pickled, plays=False),
    Rule("generators", "random generators that the process shares are left alone", tasks.generators),
    Rule("tasks", "a seed draws the same task whenever it is asked", tasks.pure, plays=False),
    Rule(
        "processes",
        "other processes, with other string hashes and another clock, draw and play the same",
        processes.elsewhere,
    ),
    Rule("splits", "train, val and test are disjoint, and none is empty", tasks.splits, plays=False),
    Rule("members", "the members of a group start alike", tasks.members, plays=False),
    Rule("replay", "task, member and replies replay an episode", episodes.replay),
    Rule("isolation", "episodes played side by side do not disturb one another", episodes.isolation),
    Rule(
        "turns",
        "an episode ends by itself within its limits, and the first observation tells them",
        episodes.turns,
    ),
    Rule(
        "text",
        "any text is answered: empty, broken, a million characters, lone surrogates, ...",
        episodes.text,
        plays=False,
    ),
    Rule("code", "code in a reply is never executed", episodes.code, plays=False),
    Rule("rewards", "rewards are named, finite numbers; their range is told", scores.rewards),
    Rule("outcome", "an outcome in [0, 1] exactly at the end; 1 if and only if it is solved", scores.outcome),
    Rule(
        "endings",
        "episodes end as SOLVED, FAILED or OUT_OF_TURNS, never as ERROR through a reply",
        scores.endings,
    ),
    Rule("echo", "no token of a chat template and no long text of a reply comes back", observations.echo),
    Rule("leak", "the observation does not hold its answer", leak.leak),
    Rule("secrets", "observations do not tell the task's id, seed or tags", tasks.secrets),
    Rule(
        "demonstrations",
        "demonstrated replies are valid, replay, and solve within the limits",
        offers.demonstrations,
    ),
    Rule("openings", "later observations can begin a conversation, all or none", observations.openings),
    Rule(
        "pictures",
        "pictures can be read, show more than one colour, hold no texts and change as the state does",
        pictures.pictures,
    ),
    Rule("players", "the random and the input-blind player know how to play", offers.players),
    Rule("tools", "tools fit a chat template, and calls earn what plain answers earn", calls.tool_calls),
    Rule("speed", "how long a step takes", episodes.speed),
)


def check(
    env: Any,
    effort: Effort | None = None,
    skip: Sequence[str] = (),
    origin: str = "",
    progress: Callable[[str, Finding | None], None] | None = None,
) -> Report:
    """Play `env` and say, rule by rule, whether it keeps the contract.

    `skip`: names of rules to leave out. `origin`: `module:factory` that makes an equal environment, if there is one, so
    that other processes can make it themselves. Without it the environment is sent to them pickled. `progress` is told
    what is looked at next (with None), and each rule's name with its finding.

    Raises ValueError for an unknown rule in `skip`, and the environment's own ImportError where it needs a library that
    is not installed.
    """
    unknown = sorted(set(skip) - {rule.name for rule in RULES})
    if unknown:
        known = ", ".join(rule.name for rule in RULES)
        raise ValueError(f"There is no rule named {unknown[0]!r} to skip; the rules are {known}.")
    began = time.perf_counter()
    bench = Bench(env, effort or Effort(), origin)
    tell = progress or (lambda name, finding: None)
    with tempfile.TemporaryDirectory(prefix="heedful-check-") as folder:
        findings = _findings(bench, Path(folder) / "executed", frozenset(skip), tell)
    named = guarded_call(lambda: str(env.name))
    name = type(env).__name__ if isinstance(named, Raised) else cut(named.value, 100)
    seeds = len(seeds_of(bench.effort.seeds)) if bench.episodes else 0
    took = time.perf_counter() - began
    return Report(name, tuple(findings), seeds, bench.episodes, bench.replies, took)


def _findings(
    bench: Bench, canary: Path, skip: frozenset[str], tell: Callable[[str, Finding | None], None]
) -> list[Finding]:
    tell("the environment", None)
    stopped = _looked_at("it is opened", lambda: env.open_environment(bench))
    evidence = None
    if stopped is None:

        def played() -> Evidence | Finding:
            try:
                tell(f"{bench.effort.seeds} tasks", None)
                drawn = [bench.task(seed) for seed in seeds_of(bench.effort.seeds)]
                tell("episodes with all kinds of replies", None)
                return gather(bench, drawn, canary)
            except Broke as broke:
                return _unplayable(broke)

        found = _looked_at("it is played", played)
        evidence, stopped = (found, None) if isinstance(found, Evidence) else (None, found)
    findings = []
    for rule in RULES:
        tell(rule.name, None)
        if rule.name in skip:
            finding = absent("left out, as asked")
        elif evidence is None:
            assert stopped is not None
            finding = stopped if rule is RULES[0] else unchecked("the environment cannot be played: see protocol")
        elif rule.plays and not evidence.sound:
            finding = unchecked("no episode of ordinary replies reached its end: see protocol and text")
        else:
            finding = _look(rule, bench, evidence)
        findings.append(dataclasses.replace(finding, rule=rule.name))
        tell(rule.name, findings[-1])
    return findings


def _looked_at(moment: str, look: Callable[[], Answer]) -> Answer | Finding:
    """What `look` returns. Values of an environment run its code when they are read, compared or shown."""
    answer = guarded_call(look)
    if isinstance(answer, Answered):
        return answer.value
    if isinstance(answer.error, ImportError):
        raise answer.error  # a library is missing, which is no fault of the environment
    place = f" ({answer.place})" if answer.place else ""
    return broken(
        "what the environment returns cannot be looked at",
        expected="values that can be read, compared and shown",
        found=f"{shortened(str(answer), 200)}{place} while {moment}",
        remedy="return plain texts, numbers, tuples and mappings",
    )


def _look(rule: Rule, bench: Bench, evidence: Evidence) -> Finding:
    return _looked_at(f"the rule {rule.name} is looked at", lambda: _ruled(rule, bench, evidence))


def _ruled(rule: Rule, bench: Bench, evidence: Evidence) -> Finding:
    try:
        return rule.look(bench, evidence)
    except Broke as broke:
        return broken(
            f"a call failed while the rule was looked at: {rule.says}",
            expected="an environment that answers whenever and as often as it is asked",
            found=str(broke),
            where=broke.where,
            remedy="mend the call; the rule is looked at once it answers",
        )


def _unplayable(broke: Broke) -> Finding:
    return broken(
        "the environment cannot be played",
        expected="`task`, `episode`, `start` and `random_answer` answer for every seed",
        found=str(broke),
        where=broke.where,
        remedy="mend the call; the other rules are looked at once it answers",
    )
