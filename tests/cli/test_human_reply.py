"""What a person types: understood in one way, or refused without costing a turn."""

from dataclasses import dataclass

import pytest

from heedful.cli.human_reply import reply_of, ways_to_answer
from heedful.envs.common.actions import answer_text
from heedful.envs.common.tasks import task_of
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.protocols import Episode
from heedful.types import Task
from tool_toy import TOOLS, Dictionary


@dataclass(frozen=True)
class Words:
    """An environment with a list of actions, or none."""

    actions: tuple[str, ...]
    actions_per_turn: int = 3
    name = "words"
    turns = 1

    def task(self, seed: int) -> Task:
        return task_of(self.name, str(seed), seed)

    def episode(self) -> Episode:
        raise NotImplementedError


@pytest.mark.parametrize(
    "line",
    ["Down || Right", "down right", "Down, Right", "  DOWN ,right ", "d r", "do;ri", "down|right", "down,, right"],
)
def test_bare_actions_become_a_tagged_reply(line: str) -> None:
    assert reply_of(line.strip(), FrozenLake()) == "<think></think><answer>Down || Right</answer>"


def test_a_reply_with_tags_is_handed_on_as_it_is() -> None:
    for line in ("<answer>Down || Fly</answer>", "<think>never closed"):
        assert reply_of(line, FrozenLake()) == line


@pytest.mark.parametrize("word", ["quit", "Exit", "q"])
def test_some_words_leave(word: str) -> None:
    assert reply_of(word, FrozenLake()) is None


def test_an_action_called_like_a_word_that_leaves_is_an_action() -> None:
    assert reply_of("quit", Words(("Quit", "Stay"))) == "<think></think><answer>Quit</answer>"


def test_a_line_that_cannot_be_read_is_answered_by_a_sentence() -> None:
    env = FrozenLake()
    with pytest.raises(ValueError, match="'fly' is no action here; expected one of Left, Down, Right, Up"):
        reply_of("down fly", env)
    with pytest.raises(ValueError, match=r"^'a{79} is no action here"):  # a long paste is cut
        reply_of("a" * 1_000_000, env)
    with pytest.raises(ValueError, match="at most 2 in one turn, found 3: Down, Down, Down"):
        reply_of("d d d", env)
    with pytest.raises(ValueError, match="Expected one of Left"):
        reply_of("", env)


def test_the_beginning_of_several_actions_is_ambiguous_unless_it_is_one_of_them() -> None:
    env = Words(("Go", "Gone", "Stay"))
    with pytest.raises(ValueError, match="'g' could be Go or Gone"):
        reply_of("g", env)
    assert reply_of("go", env) == "<think></think><answer>Go</answer>"


def test_actions_with_spaces_in_them_are_separated_by_commas() -> None:
    env = Words(("Turn left", "Turn right"))
    assert reply_of("turn left, turn r", env) == "<think></think><answer>Turn left || Turn right</answer>"


def test_without_a_list_of_actions_the_text_is_handed_on() -> None:
    assert reply_of("open the door", Words(())) == "open the door"
    assert "as it is" in ways_to_answer(Words(()))


ENV = Dictionary(actions="tool_calls")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("search[oak]", "search[oak]"),
        ("FINISH[elm 3]", "finish[elm 3]"),
        ('{"name": "search", "parameters": {"query": "oak"}}', "search[oak]"),
        ('<tool_call>{"name": "finish", "arguments": {"answer": "elm"}}</tool_call>', "finish[elm]"),
    ],
)
def test_a_plain_answer_or_json_becomes_a_call(line: str, answer: str) -> None:
    reply = reply_of(line, ENV)
    assert reply is not None
    assert answer_text(reply, TOOLS) == answer


def test_a_line_that_is_no_call_costs_no_turn() -> None:
    with pytest.raises(ValueError, match=r"Expected a call of search\(query\), finish\(answer\)"):
        reply_of("look at oak", ENV)
    assert reply_of("quit", ENV) is None
    assert "search[...], finish[...]" in ways_to_answer(ENV)
