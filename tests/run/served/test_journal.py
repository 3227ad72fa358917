"""The journal of replies: what was answered is never asked for again, and costs are added up over interruptions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heedful.policies.servers import Usage
from heedful.run.served.journal import JournaledPolicy, ReplyJournal
from heedful.types import Conversation, Message, Prompt, Reply, Span

REPLY = Reply(Prompt("p", (1, 2), True, 1), (3, 4), "t\ud800é", (-0.5, 0.0), (), Span(0, 1), Span(1, 2), True, False)


class Answers:
    temperature, version, parallel = 0.7, 0, 3

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def answer(self, conversation: Conversation) -> tuple[Reply, Usage]:
        self.asked.append((conversation.key, conversation.turn))
        return REPLY, Usage(10, 2, 5)


def conversation(key: str, turn: int = 0, text: str = "go") -> Conversation:
    return Conversation(key, (Message("user", text),), False, turn)


def told() -> None: ...


def test_a_reply_comes_back_as_it_was_written(tmp_path: Path) -> None:
    journal = ReplyJournal(tmp_path / "replies.jsonl")
    journal.add("a", REPLY, Usage())
    journal.close()
    assert ReplyJournal(tmp_path / "replies.jsonl").get("a") == REPLY


def test_a_second_session_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    first, second = Answers(), Answers()
    for answers, keys in ((first, ["a", "b"]), (second, ["a", "b", "c"])):
        journal = ReplyJournal(tmp_path / "replies.jsonl")
        policy = JournaledPolicy(answers, journal, "sampled/1", told)
        assert policy.respond([conversation(key) for key in keys]) == [REPLY] * len(keys)
        journal.close()
    assert sorted(first.asked) == [("a", 0), ("b", 0)]
    assert second.asked == [("c", 0)]


@pytest.mark.parametrize(
    ("scope", "changed"),
    [
        ("sampled/2", conversation("a")),
        ("sampled/1", conversation("a", turn=1)),
        ("sampled/1", conversation("a", text="stop")),
    ],
)
def test_another_seed_turn_or_text_is_another_reply(tmp_path: Path, scope: str, changed: Conversation) -> None:
    journal, answers = ReplyJournal(tmp_path / "replies.jsonl"), Answers()
    JournaledPolicy(answers, journal, "sampled/1", told).respond([conversation("a")])
    JournaledPolicy(answers, journal, scope, told).respond([changed])
    assert len(answers.asked) == 2


def test_a_line_that_a_kill_has_cut_is_dropped_and_the_next_session_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    journal = ReplyJournal(path)
    journal.add("a", REPLY, Usage(10, 2))
    journal.add("b", REPLY, Usage(10, 2))
    journal.close()
    path.write_bytes(path.read_bytes()[:-20])
    journal = ReplyJournal(path)
    assert (journal.found, journal.get("b")) == (1, None)
    journal.add("b", REPLY, Usage(10, 2))
    journal.close()
    assert ReplyJournal(path).found == 2


def test_tokens_and_seconds_are_added_up_over_sessions(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    for name in ("a", "b"):
        journal = ReplyJournal(path)
        journal.add(name, REPLY, Usage(10, 2, 5))
        journal.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["session"] for line in lines] == [0, 1]
    lines[0]["clock"], lines[1]["clock"] = 4.0, 3.0
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    journal = ReplyJournal(path)
    journal.add("c", REPLY, Usage())
    totals = journal.totals
    assert (totals.replies, totals.prompt_tokens, totals.sampled_tokens, totals.cached_tokens) == (3, 20, 4, 10)
    assert totals.uncounted == 1
    assert totals.seconds == pytest.approx(7.0, abs=0.5)


def test_a_collector_may_ask_for_several_conversations_at_once(tmp_path: Path) -> None:
    journal, answers = ReplyJournal(tmp_path / "replies.jsonl"), Answers()
    policy = JournaledPolicy(answers, journal, "s", told)
    assert (policy.parallel, policy.temperature) == (3, 0.7)
    assert policy.respond([]) == []
