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

import time
from collections.abc import Callable, Sequence
from typing import Any

from heedful.boundary import cut
from heedful.boundary.foreign_text import brief
from heedful.envs.checking.evidence import Evidence, gather, seeds_of
from heedful.envs.checking.play import ABSENT, QUICK, Bench, Effort, Fault, failed
from heedful.envs.checking.report import Breach, Finding, Report, Unchecked
from heedful.envs.checking.rules import RULES, Rule
from heedful.guarded import Answered, guarded_call

__all__ = ["QUICK", "RULES", "Effort", "Report", "check"]

LONGEST_FOUND = 2_000
"""Characters of what was found, which quotes the environment."""


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
    played = _looked(RULES[0], "the environment was played", lambda: gather(bench, tell))
    findings = []
    for rule in RULES:
        tell(rule.name, None)
        findings.append(_finding(rule, bench, played, rule.name in skip))
        tell(rule.name, findings[-1])
    named = bench.ask("name", lambda: str(env.name))
    name = type(env).__name__ if isinstance(named, Fault) else cut(named, 100)
    seeds = len(seeds_of(bench.effort.seeds)) if bench.episodes else 0
    return Report(name, tuple(findings), seeds, bench.episodes, bench.replies, time.perf_counter() - began)


def _finding(rule: Rule, bench: Bench, played: Finding | Evidence, skipped: bool) -> Finding:
    if skipped:
        return Finding(rule.name, "not applicable", "left out, as asked")
    if isinstance(played, Finding):
        unseen = Finding(rule.name, "not checked", "the environment cannot be played: see protocol")
        return played if rule is RULES[0] else unseen
    if rule.plays and not played.sound and played.fault_of(rule.name) is None:
        unseen_end = "no episode of ordinary replies reached its end: see protocol and text"
        return Finding(rule.name, "not checked", unseen_end)
    found = _looked(rule, f"it was looked at whether {rule.says}", lambda: rule.look(bench, played))
    return found if isinstance(found, Finding) else Finding(rule.name, "pass", found)


def _looked(rule: Rule, when: str, look: Callable[[], Any]) -> Any:
    """What `look` returns. Values of an environment run its code when they are read, compared or shown."""
    answer = guarded_call(look)
    if isinstance(answer, Answered):
        return answer.value
    error = answer.error
    if isinstance(error, ABSENT):
        raise error
    if isinstance(error, Unchecked):
        return Finding(rule.name, "not checked", str(error))
    breach = error if isinstance(error, Breach) else failed(when, brief(answer.located))
    found, where = cut(breach.found, LONGEST_FOUND), cut(breach.where, LONGEST_FOUND)
    expected, remedy = breach.expected or rule.expected, breach.remedy or rule.remedy
    return Finding(rule.name, "broken", breach.sentence, expected, found, where, remedy)
