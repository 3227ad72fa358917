"""The contract, anyone's to check: every environment of ours keeps it, and whoever breaks a rule is told which."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import broken_environments as broken
import pytest
from test_environment_proofs import ENVIRONMENTS
from test_every_environment import each

from heedful import envs
from heedful.envs.checking import play, replies
from heedful.envs.checking import rules as rules_of_envs
from heedful.envs.checking.check import RULES, Effort, check
from heedful.envs.checking.report import Report, shortened
from heedful.envs.checking.rules import tells
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.remote.environment import Remote
from heedful.envs.toys.chain import UNREWARDED, Chain
from heedful.envs.toys.echo import Echo
from heedful.run.presets import PRESETS
from heedful_envs.adapters.library import LIBRARIES, is_installed
from patience import PATIENCE
from served import serving

SERVED = ("remote", "openenv")

SMALL = Effort(seeds=20, episodes=4, patience=PATIENCE)


class Here:
    """Draws tasks in this process, in place of a worker."""

    def __init__(self, load: Callable[[bytes], Callable[[bytes], bytes]], argument: bytes, *, quiet: bool) -> None:
        self.draw = load(argument)

    def ask(self, question: bytes, seconds: float) -> bytes:
        return self.draw(question)

    def end(self) -> None:
        pass


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are drawn in another process, as users have it."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)


@pytest.fixture(autouse=True)
def _here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `elsewhere` no process is started: processes would cost as much as all the rest of these tests."""
    if "elsewhere" not in request.fixturenames:
        monkeypatch.setattr(rules_of_envs, "Worker", Here)


BREAKS: list[tuple[type, set[str], str]] = [
    (broken.WithoutMake, {"protocol"}, "a WithoutMake without `episode`"),
    (broken.MisnamedInFolders, {"protocol"}, "no spaces, no slashes"),
    (broken.StartsWithText, {"protocol"}, "expected to return an Observation"),
    (broken.StepsWithNothing, {"protocol"}, "expected to return a Step, found None"),
    (broken.SaysMoreThanMemoryHolds, {"protocol"}, "a text of 4,000,001 characters; expected at most 4,000,000"),
    (
        broken.RaisesAtTheStart,
        {"protocol"},
        "`start` raised RuntimeError: no board today (broken_environments.py, line ",
    ),
    (broken.RaisesWhenAskedItsName, {"protocol"}, "RuntimeError: not today"),
    (broken.OneEpisodeForAll, {"protocol"}, "the same object twice"),
    (broken.NoDataclass, {"frozen"}, "NoDataclass is no dataclass"),
    (broken.NotFrozen, {"frozen"}, "the knob turns can be set on the finished object"),
    (broken.NeverEqual, {"frozen"}, "a copy with the same knobs is another environment"),
    (broken.KnobOfNoKind, {"knobs"}, "KnobOfNoKind.slope"),
    (broken.NotForThePost, {"pickle"}, "an open file stays here"),
    (broken.CountsItsTasks, {"tasks"}, "asked again, in another order"),
    (broken.OneSplit, {"splits"}, "no task of val and test in 1,500 seeds"),
    (broken.UnknownSplit, {"splits"}, "the split 'dev'"),
    (broken.SplitBySeed, {"splits"}, "one id stands in two splits"),
    (broken.IdsThatHideNoise, {"splits"}, "equal ids begin with different observations"),
    (broken.IdsOfSeeds, {"splits"}, "held-out tasks begin, and answer the same replies, as one of train does"),
    (broken.MembersStartApart, {"members"}, "You are number 1."),
    (broken.NeverTheSame, {"replay"}, "played again, it says"),
    (broken.SharesItsState, {"isolation"}, "played beside others, it says"),
    (broken.NeverEnds, {"turns"}, "no ending after 3 replies"),
    (broken.EndsTooSoon, {"turns"}, "Ending.OUT_OF_TURNS at reply 2 of 3"),
    (broken.KeepsItsLimitsSecret, {"turns"}, "no 5 in"),
    (broken.RaisesAtEveryStep, {"text"}, "`step` raised RuntimeError: no answer today"),
    (broken.RaisesAtTheLastStep, {"text"}, "`step` raised RuntimeError: no score today"),
    (broken.RaisesWithoutAText, {"text"}, "`step` raised Mute: its text cannot be read"),
    (broken.RaisesWhenAskedItsActions, {"protocol"}, "RuntimeError: no list today"),
    (broken.LeavesTheProcessAtEveryStep, {"text"}, "`step` ended the process: SystemExit(3)"),
    (broken.RaisesGeneratorExit, {"text"}, "`step` raised GeneratorExit: no more"),
    (broken.FearsNul, {"text"}, "`step` raised ValueError: cannot read"),
    (broken.FearsLongNumbers, {"text"}, "integer string conversion"),
    (broken.LeavesTheProcess, {"text"}, "`step` ended the process: SystemExit(3); after 1 of "),
    (broken.PaysNan, {"rewards"}, "'length' as nan"),
    (broken.PaysWithoutAName, {"rewards"}, "the name of a reward as 0"),
    (broken.ScoresBeforeTheEnd, {"outcome"}, "outcome 0.0 without an ending"),
    (broken.FailsWithOutcomeOne, {"outcome"}, "outcome 1.0 with Ending.OUT_OF_TURNS"),
    (broken.PaysNobody, {"paid"}, "the solver's own episodes are not paid"),
    (broken.ReadsItsSolverWrongly, {"paid"}, "20 of 20 tasks"),
    (broken.ErrsOnUnreadableReplies, {"endings"}, "Ending.ERROR"),
    (broken.EndsInWords, {"endings"}, "'out_of_turns'"),
    (broken.StatesAnotherSize, {"protocol"}, "3 x 2 pixels stated, but 2 x 2 in the header"),
    (broken.ShowsOthersOtherPictures, {"members"}, "start from different states"),
]
"""An environment, the rules that it breaks, and a part of what is said about the first of these rules."""

LIFELESS = [
    broken.WithoutMake,
    broken.StartsWithText,
    broken.RaisesAtTheStart,
    broken.StepsWithNothing,
    broken.RaisesAtEveryStep,
    broken.RaisesAtTheLastStep,
    broken.LeavesTheProcessAtEveryStep,
]
"""Environments of which no ordinary episode reaches its end."""


def told(report: Report, rule: str) -> str:
    finding = next(each for each in report.findings if each.rule == rule)
    return " ".join([finding.sentence, finding.expected, finding.found, finding.where, finding.remedy])


def test_an_environment_that_keeps_every_rule_passes_them_all(elsewhere: None) -> None:
    report = check(broken.Right(), SMALL)
    assert {finding.rule: finding.status for finding in report.findings} == {rule.name: "pass" for rule in RULES}


@pytest.mark.parametrize("name", envs.ENVIRONMENTS)
def test_every_environment_of_ours_keeps_the_contract(name: str) -> None:
    if name in SERVED:
        pytest.skip(f"{name} plays what a server serves, and none is running")
    if name == "verifiers":
        pytest.skip("verifiers plays what --env.id names; the tests of the adapter check some")
    if name in LIBRARIES and not is_installed(name):
        pytest.skip(f"the extra {name} is not installed")
    knobs = {"id": "FrozenLake-v1"} if name == "gymnasium" else {}  # Taxi builds its 500 states in each episode
    env = envs.ENVIRONMENTS.get_class(name)(**knobs)
    report = check(env, SMALL)
    assert report.ok, str(report)


def test_tasks_that_differ_between_processes_are_named(elsewhere: None) -> None:
    report = check(broken.DrawsFromAHash(), SMALL)
    assert list(report.broken) == ["tasks"], str(report)
    assert "asked in another process: Task(" in told(report, "tasks")


def test_our_environments_draw_the_same_tasks_in_every_process() -> None:
    names = [name for name in envs.ENVIRONMENTS if name not in SERVED and name not in LIBRARIES]
    program = (
        "import sys; from heedful.envs import ENVIRONMENTS\n"
        "for name in sys.argv[1:]: print([ENVIRONMENTS.get_class(name)().task(seed) for seed in range(10)])"
    )
    drawn = {
        subprocess.run(
            [sys.executable, "-c", program, *names],
            env=os.environ | {"PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    }
    (told_by_all,) = drawn
    assert len(told_by_all.splitlines()) == len(names)


def test_tasks_that_begin_alike_and_differ_in_what_is_hidden_are_in_order() -> None:
    report = check(broken.GuessesInTwoThemes(), SMALL)
    assert report.ok, str(report)


def test_tasks_that_do_not_pay_their_solver_are_named() -> None:
    env = Chain(turns=3, unrewarded=0.25)
    report = check(env, SMALL)
    unpaid = [seed for seed in range(3) if UNREWARDED in env.task(seed).tags]
    assert set(report.broken) == {"paid"}, str(report)
    assert unpaid == [2], "the example needs one"
    assert "(seed 2)" in told(report, "paid")
    assert "is paid on" in told(check(FrozenLake(slip=0.5), SMALL), "paid"), "chance may end the solver's episode"


def test_replies_of_a_million_letters_are_answered(full_size: None) -> None:
    report = check(FrozenLake(), SMALL)
    assert report.ok, str(report)


@pytest.mark.parametrize(("env", "rules", "words"), BREAKS, ids=[case[0].__name__ for case in BREAKS])
def test_who_breaks_a_rule_is_told_which_and_no_other(env: type, rules: set[str], words: str) -> None:
    report = check(env(), SMALL)
    assert set(report.broken) == rules, str(report)
    assert words in told(report, report.broken[0])
    # Every rule applies to `Right`, of which these environments are copies with one fault.
    lifeless = {"not checked", "not applicable"} & {finding.status for finding in report.findings}
    assert env not in LIFELESS or lifeless == {"not checked"}
    for finding in report.findings:
        if finding.status == "broken":
            assert finding.expected, finding
            assert finding.found, finding
            assert finding.remedy, finding


def test_every_rule_is_broken_by_an_environment_made_for_it() -> None:
    found = {rule for _, rules, _ in BREAKS for rule in rules}
    assert found == {rule.name for rule in RULES}, "A new rule needs an environment that breaks it."


def test_an_environment_whose_broken_rules_are_left_out_is_still_not_in_order() -> None:
    report = check(broken.RaisesAtEveryStep(), SMALL, skip=["text"])
    assert report.broken == ()
    assert "no episode of ordinary replies reached its end" in told(report, "rewards")
    assert not report.ok


def test_steps_that_all_hang_are_found_before_the_patience_of_a_person_is_over() -> None:
    report = check(broken.HangsAtEveryStep(), Effort(seeds=20, episodes=4, patience=0.5))
    assert report.broken == ("text",)
    assert "`step` did not return within 0.5 s" in told(report, "text")


def test_an_environment_without_an_end_in_sight_is_played_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "MOST_REPLIES", 20)
    report = check(broken.HasTheTimeOfTheWorld(), SMALL)
    assert "an episode was played for 20 of its 1,000,000 turns only" in told(report, "turns")
    assert not report.ok


@pytest.fixture
def full_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "HUGE", 1_000_000)
    monkeypatch.setattr(replies, "GENERATED", 100)


@pytest.mark.proof
@each(ENVIRONMENTS)
def test_our_environments_keep_the_contract_at_full_size(
    env: Any, full_size: None, record_property: Callable[[str, object], None]
) -> None:
    report = check(env)
    record_property("cases", report.replies)
    assert report.ok, str(report)


def test_an_environment_keeps_the_contract_behind_a_server() -> None:
    with serving(Echo()) as server:
        report = check(Remote(server.url, timeout=PATIENCE), SMALL)
    assert report.ok, str(report)


@pytest.mark.parametrize("letters", [40, 5_000])
def test_a_refusal_to_demonstrate_is_fine_however_long_it_is(letters: int) -> None:
    class Refusing(broken.Right):
        def demonstrate(self, task: Any, rng: random.Random) -> Any:
            raise ValueError("no " * letters)

    report = check(Refusing(), SMALL, skip=["pickle"])
    assert report.ok, str(report)


def test_the_presets_keep_the_contract_with_their_own_knobs() -> None:
    usual = {name: envs.ENVIRONMENTS.get_class(name)() for name in envs.ENVIRONMENTS if name not in SERVED}
    for name, make in PRESETS.items():
        env = make().env
        # Not asked for here: what is downloaded when it is played, and adapters, whose presets are their defaults.
        unasked = env.name in (*SERVED, *LIBRARIES) or bool(str(getattr(env, "path", "")))
        if unasked or env == usual.get(env.name):
            continue
        report = check(env, SMALL)
        assert report.ok, f"{name}: {report}"


def test_a_reply_that_is_never_answered_counts_as_hanging() -> None:
    report = check(broken.HangsOnLongReplies(), Effort(seeds=20, episodes=4, patience=0.5))
    assert report.broken == ("text",)
    assert "`step` did not return within 0.5 s; after 1 of " in told(report, "text")


def test_a_missing_library_is_nothing_of_the_environment_s() -> None:
    with pytest.raises(ImportError, match=r"pip install sums"):
        check(broken.NeedsALibrary(), SMALL)


def test_rules_are_left_out_by_name_and_no_others() -> None:
    report = check(broken.UnknownSplit(), SMALL, skip=["splits"])
    assert report.ok
    assert told(report, "splits").strip() == "left out, as asked"
    with pytest.raises(ValueError, match="There is no rule named 'leaks' to skip; the rules are protocol, "):
        check(broken.Right(), skip=["leaks"])


def test_the_same_check_twice_says_the_same_in_plain_json() -> None:
    first, second = (check(broken.FearsNul(), SMALL) for _ in range(2))
    assert first.findings == second.findings
    read: dict[str, Any] = json.loads(first.write_json())
    assert read["ok"] is False
    assert [finding["rule"] for finding in read["findings"]] == [rule.name for rule in RULES]


def test_checking_leaves_the_shared_generators_as_they_were() -> None:
    before = random.getstate()
    check(broken.SeedsTheSharedGenerator(), SMALL)
    moved = random.getstate() != before
    random.setstate(before)
    assert moved, "this environment seeds the generator outside the watched calls, too"


def test_text_of_an_environment_is_shown_escaped_and_short() -> None:
    assert shortened("a\x1b[2J\ud800") == '"a\\x1b[2J\\ud800"'
    assert shortened("x" * 100, 5) == '"xxxxx..." (100 characters)'


@pytest.mark.parametrize(
    ("text", "number", "stated"),
    [
        ("You have 3 turns", 3, True),
        ("turns 3 moves 1", 3, True),
        ("You have three attempts", 3, True),
        ("You may answer once", 1, True),
        ("You have 13 turns", 3, False),
        ("33 and 30", 3, False),
        ("version 2.3", 3, False),
        ("Good luck", 1, False),
    ],
)
def test_a_limit_is_told_in_digits_or_words(text: str, number: int, stated: bool) -> None:
    assert tells(text, number) == stated
