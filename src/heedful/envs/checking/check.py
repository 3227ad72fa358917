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
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.boundary import cut
from heedful.boundary.http import ServerUnreachable
from heedful.envs.checking import rules
from heedful.envs.checking.play import QUICK, Bench, Broke, Effort
from heedful.envs.checking.report import Finding, Report, broken, shown, unchecked
from heedful.envs.checking.rules import Evidence, gather, open_environment, seeds_of
from heedful.guarded import Raised, guarded_call

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
    Rule("protocol", "tasks, observations and steps have the types of the contract", rules.protocol, plays=False),
    Rule("frozen", "the environment is frozen; equal knobs make equal environments", rules.frozen, plays=False),
    Rule("knobs", "knobs can be set by flags, written into a configuration and read back", rules.knobs, plays=False),
    Rule("pickle", "the environment and its tasks can be sent to a worker process", rules.pickled, plays=False),
    Rule("tasks", "a seed draws the same task whenever it is asked", rules.tasks, plays=False),
    Rule("splits", "train, val and test are disjoint, and none is empty", rules.splits, plays=False),
    Rule("members", "the members of a group start alike", rules.members, plays=False),
    Rule("replay", "task, member and replies replay an episode", rules.replay),
    Rule("isolation", "episodes played side by side do not disturb one another", rules.isolation),
    Rule("turns", "an episode ends by itself within its limits, and the first observation tells them", rules.turns),
    Rule("text", "any text is answered: empty, broken, a million characters, ...", rules.text, plays=False),
    Rule("rewards", "rewards are named, finite numbers; their range is told", rules.rewards),
    Rule("outcome", "an outcome in [0, 1] exactly at the end; 1 if and only if it is solved", rules.outcome),
    Rule("endings", "episodes end as SOLVED, FAILED or OUT_OF_TURNS, never as ERROR by a reply", rules.endings),
)


def check(
    env: Any,
    effort: Effort | None = None,
    skip: Sequence[str] = (),
    progress: Callable[[str, Finding | None], None] | None = None,
) -> Report:
    """Play `env` and say, rule by rule, whether it keeps the contract.

    `skip`: names of rules to leave out. `progress` is told what is looked at next (with None), and each rule's name
    with its finding.

    Raises ValueError for an unknown rule in `skip`, and the environment's own ImportError or ServerUnreachable where it
    needs a library that is not installed, or a server that does not answer.
    """
    unknown = sorted(set(skip) - {rule.name for rule in RULES})
    if unknown:
        known = ", ".join(rule.name for rule in RULES)
        raise ValueError(f"There is no rule named {unknown[0]!r} to skip; the rules are {known}.")
    began = time.perf_counter()
    bench, tell = Bench(env, effort or Effort()), progress or (lambda name, finding: None)
    tell("the environment", None)
    played = _looked("the environment was played", lambda: open_environment(bench) or gather(bench, tell))
    findings = []
    for rule in RULES:
        tell(rule.name, None)
        if rule.name in skip:
            finding = Finding("not applicable", "left out, as asked")
        elif isinstance(played, Finding):
            finding = played if rule is RULES[0] else unchecked("the environment cannot be played: see protocol")
        elif rule.plays and not played.sound and played.fault_of(rule.name) is None:
            finding = unchecked("no episode of ordinary replies reached its end: see protocol and text")
        else:
            found = _looked(rule.says, lambda rule=rule: rule.look(bench, played))  # type: ignore[misc]
            assert isinstance(found, Finding)
            finding = found
        findings.append(dataclasses.replace(finding, rule=rule.name))
        tell(rule.name, findings[-1])
    named = guarded_call(lambda: str(env.name))
    name = type(env).__name__ if isinstance(named, Raised) else cut(named.value, 100)
    seeds = len(seeds_of(bench.effort.seeds)) if bench.episodes else 0
    return Report(name, tuple(findings), seeds, bench.episodes, bench.replies, time.perf_counter() - began)


def _looked(what: str, look: Callable[[], Finding | Evidence]) -> Finding | Evidence:
    """What `look` returns. Values of an environment run its code when they are read, compared or shown."""
    answer = guarded_call(look)
    if not isinstance(answer, Raised):
        return answer.value
    if isinstance(answer.error, ImportError | ServerUnreachable):
        raise answer.error  # a library or a server is missing, which is no fault of the environment
    return broken(
        f"a call failed while it was looked at whether {what}",
        expected="an environment that answers whenever it is asked, with values that can be read, compared and shown",
        found=str(answer.error) if isinstance(answer.error, Broke) else shown(answer.located),
        where=answer.error.where if isinstance(answer.error, Broke) else "",
        remedy="mend the call; the other rules are looked at once it answers",
    )
