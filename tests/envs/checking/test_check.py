"""The contract, anyone's to check: every environment of ours keeps it, and whoever breaks a rule is told which."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import broken_environments as broken
import pytest
from test_environment_proofs import ENVIRONMENTS
from test_every_environment import identify

from heedful import envs
from heedful.boundary.limits import LARGEST_REWARD
from heedful.envs.checking import play
from heedful.envs.checking.check import QUICK, RULES, Effort, check
from heedful.envs.checking.evidence import Evidence
from heedful.envs.checking.global_state import moved_generators
from heedful.envs.checking.report import Finding, Report, shortened
from heedful.envs.checking.rules import processes, scores
from heedful.envs.checking.rules.episodes import tells
from heedful.envs.checking.rules.leak import stands_as_answer
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.remote.environment import Remote
from heedful.run.presets import PRESETS
from heedful.types import Observation, Step, Task
from heedful_envs.adapters.extras import LIBRARIES, is_installed
from patience import PATIENCE
from served import serving

SERVED = ("remote", "openenv")

OF_A_LIBRARY = Effort(seeds=20, episodes=4, processes=1)
"""Libraries take seconds to load, in every process, and milliseconds to begin an episode."""

SMALL = Effort(seeds=40, episodes=16, processes=0, slowest=PATIENCE, patience=PATIENCE)

BREAKS: list[tuple[type, set[str], str]] = [
    (broken.PaysLessForCalls, {"tools"}, "tool calls and plain answers earn different things"),
    (broken.WithoutMake, {"protocol"}, "a WithoutMake without `episode`"),
    (broken.MisnamedInFolders, {"protocol"}, "no spaces, no slashes"),
    (broken.StartsWithText, {"protocol"}, "not an Observation"),
    (broken.StepsWithNothing, {"protocol"}, '`step` returned "None", not a Step'),
    (broken.SaysMoreThanMemoryHolds, {"protocol"}, "has 4,000,001 characters; expected at most 4,000,000"),
    (broken.ActionsInAList, {"protocol"}, "not a tuple of texts"),
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
    (broken.LongSummary, {"summary"}, "Then be proud"),
    (broken.LazySummary, {"summary"}, "RuntimeError: no translation today"),
    (broken.NotForThePost, {"pickle"}, "an open file stays here"),
    (broken.CountsItsTasks, {"tasks"}, "asked again, in another order"),
    (broken.DrawsFromTheSharedGenerator, {"generators"}, "the state of random changed in step"),
    (broken.SeedsTheSharedGenerator, {"generators"}, "the state of random changed in task"),
    (broken.TasksOfTheSharedGenerator, {"generators", "tasks"}, "the state of random changed in task"),
    (broken.OneSplit, {"splits"}, "no task of val and test in 1,500 seeds"),
    (broken.UnknownSplit, {"splits"}, "the split 'dev'"),
    (broken.SplitBySeed, {"splits"}, "train and val"),
    (broken.IdsThatHideNoise, {"splits"}, "seeds 0 and 20, both sums-"),
    (broken.MembersStartApart, {"members"}, "You are number 1."),
    (broken.NeverTheSame, {"replay"}, "played again, it says"),
    (broken.SharesItsState, {"isolation"}, "played beside others, it says"),
    (broken.NeverEnds, {"turns"}, "no ending after 3 replies"),
    (broken.EndsTooSoon, {"turns"}, "Ending.OUT_OF_TURNS at reply 2 of 3"),
    (broken.KeepsItsLimitsSecret, {"turns"}, "no 5 in"),
    (broken.TellsAnotherLimit, {"turns"}, "no 19 in"),
    (broken.RaisesAtEveryStep, {"text"}, "`step` raised RuntimeError: no answer today"),
    (broken.RaisesAtTheLastStep, {"text"}, "`step` raised RuntimeError: no score today"),
    (broken.RaisesWhenSolved, {"text", "demonstrations"}, "`step` raised RuntimeError: no score today"),
    (broken.RaisesWithoutAText, {"text"}, "`step` raised Mute: its text cannot be read"),
    (broken.RaisesWhenAskedItsActions, {"protocol"}, "RuntimeError: no list today"),
    (broken.LeavesTheProcessAtEveryStep, {"text"}, "`step` ended the process: SystemExit(3)"),
    (broken.RaisesGeneratorExit, {"text"}, "`step` raised GeneratorExit: no more"),
    (broken.FearsNul, {"text"}, "`step` raised ValueError: cannot read"),
    (broken.FearsLongNumbers, {"text"}, "integer string conversion"),
    (broken.LeavesTheProcess, {"text"}, "`step` ended the process: SystemExit(3); after 1 of "),
    (broken.ExecutesReplies, {"code"}, "a file that only the code inside a reply creates"),
    (broken.PaysNan, {"rewards"}, "'length': \"nan\""),
    (broken.PaysWithoutAName, {"rewards"}, '0: "1.0"'),
    (broken.ScoresBeforeTheEnd, {"outcome"}, "outcome 0.0 without an ending"),
    (broken.NeverScores, {"outcome", "demonstrations"}, "outcome None"),
    (broken.FailsWithOutcomeOne, {"outcome"}, "outcome 1.0 with Ending.OUT_OF_TURNS"),
    (broken.ErrsOnUnreadableReplies, {"endings"}, "Ending.ERROR"),
    (broken.EndsInWords, {"endings"}, "'out_of_turns'"),
    (broken.RepeatsChatTokens, {"echo"}, "<|im_start|> in"),
    (broken.RepeatsSurrogates, {"echo"}, "surrogates not allowed"),
    (broken.RepeatsEverything, {"echo"}, "characters after a reply of 1,000,"),
    (
        broken.TellsTheAnswer,
        {"leak"},
        "copying what is told as the answer or solution (the last such line) as the answer solves 100%",
    ),
    (broken.TellsTheAnswerWhenDemonstrated, {"leak"}, "demonstrations it stands there as a line"),
    (broken.TellsTheAnswerAfterAFault, {"leak"}, "as the answer solves 100%"),
    (broken.TellsItsId, {"secrets"}, "sums-"),
    (broken.TellsItsSeed, {"secrets"}, '"'),
    (broken.DemonstratesWrongly, {"demonstrations"}, "0 of 16 are solved, though nothing is left to chance"),
    (broken.DemonstratesNowAndThen, {"demonstrations"}, "`demonstrate` raised ValueError: sums: that one is too hard"),
    (broken.DemonstratesUnreadably, {"demonstrations"}, "the reply counts as invalid"),
    (broken.DemonstratesAnotherEpisode, {"demonstrations"}, "where the agent is shown"),
    (broken.DemonstratesAtRandom, {"demonstrations"}, "two different episodes"),
    (broken.ShowsOneColour, {"pictures"}, "2 x 2 pixels of one colour"),
    (broken.WritesIntoPictures, {"pictures"}, "the chunk tEXt"),
    (broken.ShowsHalfAFile, {"pictures"}, "a picture cannot be read"),
    (broken.StatesAnotherSize, {"protocol"}, "3 x 2 pixels stated, but 2 x 2 in the header"),
    (broken.ShowsOthersOtherPictures, {"members"}, "4 x 2 pixels"),
    (broken.OpensSometimes, {"openings"}, "later observations without one"),
    (broken.AnswersAtRandomInWords, {"players"}, "only 0 of 20 answers of `random_answer` count as valid"),
    (broken.CannotAnswerAtRandom, {"players"}, "NotImplementedError: no random answers"),
    (broken.ActionsOfNoKind, {"players"}, "a tuple of texts without spaces around them"),
    (broken.NamesAnActionTwice, {"players"}, "holds the same name twice"),
    (broken.ListsWhatItRefuses, {"players"}, "the action 'thirteen' is invalid"),
]
"""An environment, the rules that it breaks, and a part of what is said about the first of these rules."""

ELSEWHERE: list[tuple[type, str]] = [
    (broken.HashesText, "tasks differ"),
    (broken.WalksASet, "tasks differ"),
    (broken.ReadsTheClock, "its clock 400 days ahead"),
    (broken.ReadsTheCalendar, "the answer to reply 1 differs"),
]


DOUBTFUL: list[tuple[type, str, str]] = [
    (broken.IdsThatHoldTheSeed, "splits", "pairs of tasks with different ids begin alike"),
    (broken.AnswerAmongTheNumbers, "leak", "copying the last number as the answer solves 100%"),
    (broken.TellsItsTag, "secrets", "'carrying' stands in the observations"),
    (broken.ShowsTheSameAlways, "pictures", "the state changes and the picture does not"),
]

ONLY_WARNS = {"speed"}
"""Rules that nothing breaks. A fixture is warned of each, in a test of its own."""

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


@pytest.fixture(autouse=True)
def _busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may take as long as it needs to load a library."""
    monkeypatch.setattr(processes, "LIMIT", PATIENCE)


def told(report: Report, rule: str) -> str:
    finding = next(each for each in report.findings if each.rule == rule)
    return " ".join([finding.sentence, *(text for _, text in finding.details)])


def warnings_of(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings if finding.status == "warning"}


def test_an_environment_that_keeps_every_rule_passes_them_all() -> None:
    report = check(broken.Right(), replace(QUICK, slowest=PATIENCE))
    expected = {rule.name: "pass" for rule in RULES} | {"tools": "not applicable", "pictures": "not applicable"}
    assert {finding.rule: finding.status for finding in report.findings} == expected


@pytest.mark.parametrize("name", envs.ENVIRONMENTS)
def test_every_environment_of_ours_keeps_the_contract(name: str) -> None:
    if name in SERVED:
        pytest.skip(f"{name} plays what a server serves, and none is running")
    if name == "verifiers":
        pytest.skip("verifiers plays what --env.id names; the tests of the adapter check some")
    if name in LIBRARIES and not is_installed(name):
        pytest.skip(f"the extra {name} is not installed")
    effort = OF_A_LIBRARY if name in LIBRARIES else replace(QUICK, processes=2)
    knobs = {"id": "FrozenLake-v1"} if name == "gymnasium" else {}  # Taxi builds its 500 states in each episode
    env = envs.ENVIRONMENTS.get_class(name)(**knobs)
    report = check(env, replace(effort, patience=PATIENCE), origin="" if knobs else envs.ENVIRONMENTS.origin(name))
    assert report.ok, str(report)


@pytest.mark.parametrize(("env", "rules", "words"), BREAKS, ids=[case[0].__name__ for case in BREAKS])
def test_who_breaks_a_rule_is_told_which_and_no_other(env: type, rules: set[str], words: str) -> None:
    report = check(env(), SMALL)
    assert set(report.broken) == rules, str(report)
    assert words in told(report, report.broken[0])
    for finding in report.findings:
        if finding.status == "broken":
            assert finding.expected, finding
            assert finding.found, finding
            assert finding.remedy, finding


@pytest.mark.parametrize(
    "place",
    [
        *("task", "episode", "start", "step", "exit", "endless rewards", "long outcome"),
        *("observation", "rewards", "ending", "outcome", "progress", "actions", "valid", "effect", "state"),
    ],
)
def test_a_value_that_raises_when_it_is_looked_at_is_a_finding(place: str) -> None:
    report = check(broken.ReturnsTheUnreadable(place=place), replace(SMALL, seeds=20, episodes=4))
    assert not report.ok
    assert report.broken, str(report)
    assert len(str(report)) < 9_000


@pytest.mark.parametrize(("env", "words"), ELSEWHERE, ids=[case[0].__name__ for case in ELSEWHERE])
def test_what_depends_on_hashes_or_the_clock_is_found_in_other_processes(env: type, words: str) -> None:
    report = check(env(), Effort(seeds=60, episodes=8, processes=2))
    assert report.broken == ("processes",), str(report)
    assert words in told(report, "processes")


def test_every_rule_is_broken_by_an_environment_made_for_it() -> None:
    found = {rule for _, rules, _ in BREAKS for rule in rules} | {"processes" for _ in ELSEWHERE}
    assert found | ONLY_WARNS == {rule.name for rule in RULES}, "A new rule needs an environment that breaks it."


def test_pictures_that_can_be_read_and_show_the_state_pass() -> None:
    report = check(broken.ShowsPictures(), replace(SMALL, processes=2))
    assert report.ok, str(report)
    assert "4 distinct pictures of 3 x 2 pixels" in told(report, "pictures")
    report = check(FrozenLake(observation="image", cell=8), replace(SMALL, processes=2))
    assert report.ok, str(report)
    assert "distinct pictures of 32 x 32 pixels, which change as the state does" in told(report, "pictures")


@pytest.mark.parametrize("env", LIFELESS, ids=lambda env: env.__name__)
def test_no_rule_is_inapplicable_for_lack_of_a_living_episode(env: type) -> None:
    # Every rule applies to `Right`, of which these environments are copies with one fault.
    report = check(env(), Effort(seeds=20, episodes=4, processes=1))
    assert not report.ok
    assert "not applicable" not in {finding.status for finding in report.findings}, str(report)
    assert "not checked" in {finding.status for finding in report.findings}, str(report)


def test_an_environment_whose_broken_rules_are_left_out_is_still_not_in_order() -> None:
    report = check(broken.RaisesAtEveryStep(), Effort(seeds=20, episodes=4, processes=0), skip=["text"])
    assert report.broken == ()
    assert "no episode of ordinary replies reached its end" in told(report, "rewards")
    assert not report.ok


def test_steps_that_all_hang_are_found_before_the_patience_of_a_person_is_over() -> None:
    report = check(broken.HangsAtEveryStep(), Effort(seeds=20, episodes=4, processes=0, patience=0.5))
    assert report.broken == ("text",)
    assert "`step` did not return within 0.5 s" in told(report, "text")


@pytest.mark.parametrize(
    ("env", "patience", "words"),
    [
        (broken.ListsActionsWithoutEnd, PATIENCE, "`actions` with more than 10,000 names"),
        (broken.TakesMoreActionsThanMemoryHolds, PATIENCE, "; at most 1,000 was expected"),
        (broken.NeverFindsItsActions, 0.5, "`members` did not return within 0.5 s"),
        (broken.NeverFindsARandomAnswer, 0.5, "`random_answer` did not return within 0.5 s"),
        (broken.AnswersBlindlyWithoutEnd, PATIENCE, "`blind_answers` returned more than 10,000 answers"),
    ],
)
def test_what_an_environment_offers_without_end_is_named(env: type, patience: float, words: str) -> None:
    report = check(env(), Effort(seeds=20, episodes=4, processes=0, patience=patience), skip=["speed"])
    assert words in told(report, report.broken[-1])


def test_an_environment_without_an_end_in_sight_is_played_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "MOST_REPLIES", 20)
    report = check(broken.HasTheTimeOfTheWorld(), Effort(seeds=20, episodes=4, processes=0), skip=["speed"])
    assert "an episode was played for 20 of its 1,000,000 turns only" in told(report, "turns")
    assert not report.ok


@pytest.mark.proof
@pytest.mark.parametrize("env", ENVIRONMENTS, ids=identify)
def test_our_environments_keep_the_contract_at_full_size(
    env: Any, record_property: Callable[[str, object], None]
) -> None:
    report = check(env)
    record_property("cases", report.replies)
    assert report.ok, str(report)


def test_an_environment_keeps_the_contract_behind_a_server() -> None:
    with serving(FrozenLake()) as server:
        report = check(Remote(server.url, timeout=PATIENCE), Effort(seeds=40, episodes=8, processes=1))
    assert report.ok, str(report)
    assert "draw the same 40 tasks and play the same 8 episodes" in told(report, "processes")


def test_the_presets_keep_the_contract_with_their_own_knobs() -> None:
    usual = {name: envs.ENVIRONMENTS.get_class(name)() for name in envs.ENVIRONMENTS if name not in SERVED}
    for name, make in PRESETS.items():
        env = make().env
        # Not asked for here: what is downloaded when it is played, and adapters, whose presets are their defaults.
        unasked = env.name in (*SERVED, *LIBRARIES) or bool(str(getattr(env, "path", "")))
        if unasked or env == usual.get(env.name):
            continue
        report = check(env, Effort(seeds=40, episodes=8, processes=0))
        assert report.ok, f"{name}: {report}"


def test_a_reply_that_is_never_answered_counts_as_hanging() -> None:
    report = check(broken.HangsOnLongReplies(), Effort(seeds=20, episodes=4, processes=0, patience=5.0))
    assert report.broken == ("text",)
    assert "`step` did not return within 5 s; after 1 of " in told(report, "text")


@pytest.mark.parametrize(("env", "rule", "words"), DOUBTFUL)
def test_what_may_be_as_it_should_is_a_warning(env: type, rule: str, words: str) -> None:
    report = check(env(), SMALL)
    assert report.ok, str(report)
    assert warnings_of(report) == {rule}
    assert words in told(report, rule)


def test_a_missing_library_is_nothing_of_the_environment_s() -> None:
    with pytest.raises(ImportError, match=r"pip install sums"):
        check(broken.NeedsALibrary(), SMALL)


def test_an_environment_may_refuse_to_demonstrate_under_some_knobs() -> None:
    report = check(broken.RefusesToDemonstrate(), SMALL)
    assert report.ok, str(report)
    assert "nothing can be demonstrated: sums: there is no solver for three turns" in told(report, "demonstrations")


def test_a_slow_step_is_warned_of() -> None:
    slow = check(broken.Slow(), Effort(seeds=20, episodes=4, processes=0, slowest=0.02))
    assert "speed" in warnings_of(slow)
    assert "(--slowest)" in told(slow, "speed")
    assert "[empty]" in told(slow, "speed")


def test_an_environment_of_a_script_is_not_handed_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken.Right, "__module__", "__main__")
    report = check(broken.Right(), Effort(seeds=20, episodes=4, processes=1), skip=["pickle"])
    assert "which other processes cannot import" in told(report, "processes")


def test_an_environment_that_cannot_be_pickled_is_not_called_checked_in_other_processes() -> None:
    report = check(broken.NotForThePost(), Effort(seeds=20, episodes=4, processes=1))
    assert report.broken == ("pickle",)
    assert "so no other process can be handed it: see pickle" in told(report, "processes")


def test_rules_are_left_out_by_name_and_no_others() -> None:
    report = check(broken.TellsTheAnswer(), SMALL, skip=["leak"])
    assert report.ok
    assert told(report, "leak") == "left out, as asked"
    with pytest.raises(ValueError, match="There is no rule named 'leaks' to skip; the rules are protocol, "):
        check(broken.Right(), skip=["leaks"])


def test_the_same_check_twice_says_the_same() -> None:
    first, second = (check(broken.FearsNul(), SMALL, skip=["speed"]) for _ in range(2))
    assert first.findings == second.findings


def test_checking_leaves_the_shared_generators_as_they_were() -> None:
    before = random.getstate()
    check(broken.SeedsTheSharedGenerator(), Effort(seeds=20, episodes=4, processes=0))
    moved = random.getstate() != before
    random.setstate(before)
    assert moved, "this environment seeds the generator outside the watched calls, too"
    with moved_generators(3) as touched:
        random.random()
    assert touched == {"random"}
    assert random.getstate() == before


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


@pytest.mark.parametrize(
    ("answer", "text", "stands"),
    [
        ("42", "The answer is 42.", True),
        ("42", "Solution: 42", True),
        ("42", "add\n 42 \n", True),
        ("Up", "as in <answer>Up</answer>", True),
        ("blue whale", "The secret word is 'blue whale'", True),
        ("42", "41 and 42 and 43", False),
        ("", "The answer is", False),
    ],
)
def test_an_answer_stands_as_one_where_it_is_marked(answer: str, text: str, stands: bool) -> None:
    assert stands_as_answer(answer, text) == stands


def finding_on_rewards(rewards: dict[str, float]) -> Finding:
    exchange = play.Exchange("ordinary", "a", Step(Observation("b"), rewards), 0.0)
    played = play.Played(Task("game-1", 1, "train"), 0, Observation("a"), (exchange,))
    return scores.rewards(play.Bench(None, SMALL), Evidence((), (played,), (), (), Path("canary")))


def test_a_reward_that_ends_an_episode_of_training_breaks_the_rule() -> None:
    assert finding_on_rewards({"solved": LARGEST_REWARD}).status == "pass"
    told = finding_on_rewards({"solved": -2 * LARGEST_REWARD})
    assert told.status == "broken"
    assert "at most 1e+30 in size" in told.expected
    assert "-2e+30" in told.found


def test_the_name_of_a_reward_fakes_no_line_of_the_report() -> None:
    (line,) = finding_on_rewards({"x\npass  leak\x1b[2J": 1.0}).lines()
    assert line.isprintable()
    assert "x\\npass" in line


def test_the_check_needs_no_torch() -> None:
    program = """
import sys
sys.modules["torch"] = None
sys.modules["transformers"] = None
from heedful.envs.checking.rules import processes
from heedful.envs.checking.check import Effort, check
from heedful.envs.toys.echo import Echo
print(check(Echo(), Effort(seeds=60, episodes=4, processes=0)).ok)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.stdout == "True\n", ended.stderr


def test_a_report_is_plain_json() -> None:
    report = check(broken.FearsNul(), Effort(seeds=20, episodes=4, processes=0))
    read: dict[str, Any] = json.loads(report.write_json())
    assert read["ok"] is False
    assert [finding["rule"] for finding in read["findings"]] == [rule.name for rule in RULES]
