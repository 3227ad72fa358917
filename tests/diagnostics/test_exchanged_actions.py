"""Which tokens are the first action, and which thoughts are exchanged between which prompts."""

import random

import pytest
from first_turns import END, OPEN_ANSWER, SHUT, acted, group

from heedful.diagnostics.actions.exchanged import (
    MOST_SPELLINGS,
    Exchange,
    exchange,
    exchange_answers,
    mostly_alone,
    spell,
)
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn

UP, DOWN, BAR = 50, 51, 82


def batch(*turns_of_prompts) -> Exchange:
    return exchange([group(number, *turns) for number, turns in enumerate(turns_of_prompts)])


def spelled(asked: Exchange) -> list[tuple[int, ...]]:
    return [asked.spellings_S[taken] for taken in asked.taken_M]


def test_an_action_ends_with_the_token_that_tells_it() -> None:
    two = (OPEN_ANSWER, UP, BAR, DOWN, SHUT, END)
    asked = batch(
        (acted(1, 5, UP), acted(1, 6, DOWN)),
        (acted(2, 5, UP, name="50"), acted(2, 7, UP, after=two, name="50"), acted(2, 8, DOWN)),
    )
    assert spelled(asked) == [(OPEN_ANSWER, UP), (OPEN_ANSWER, DOWN), *[(OPEN_ANSWER, UP)] * 2, (OPEN_ANSWER, DOWN)]
    assert asked.prompts_N == ((1,), (2,))
    assert asked.own_M == (0, 0, 1, 1, 1)
    assert asked.thoughts_M[3] == (7, 90)
    assert (asked.action_S, asked.actions) == ((0, 1), 2)
    assert (asked.free, asked.why) == ("", "")
    assert list(asked.asked(0)) == [0, 1]


def test_an_action_that_begins_another_takes_the_token_that_ends_it() -> None:
    """1 and 12 are told apart behind the 1: by what ends the answer there."""
    pairs = (acted(1, 5, (1,), name="1"), acted(1, 6, (1, 2), name="12"), acted(1, 7, (3,), name="3"))
    asked = batch(pairs, pairs)
    assert set(asked.spellings_S) == {(OPEN_ANSWER, 1, SHUT), (OPEN_ANSWER, 1, 2), (OPEN_ANSWER, 3)}


def test_two_spellings_are_one_action() -> None:
    turns = (acted(1, 5, UP, name="Up"), acted(1, 6, (49, UP), name="Up"), acted(1, 7, DOWN, name="Down"))
    asked = batch(turns, turns)
    assert asked.spellings_S == ((OPEN_ANSWER, UP), (OPEN_ANSWER, 49), (OPEN_ANSWER, DOWN))
    assert asked.action_S == (0, 0, 1)


def test_a_manner_of_writing_that_only_one_action_has_is_read_to_the_action() -> None:
    """All who begin with a line feed go up; the line feed is no action for all that."""
    broken = (10, OPEN_ANSWER, UP, SHUT, END)
    turns = (acted(1, 5, UP, after=broken, name="50"), acted(1, 6, UP), acted(1, 7, DOWN))
    asked = batch(turns, turns)
    assert asked.spellings_S == ((10, OPEN_ANSWER, UP), (OPEN_ANSWER, UP), (OPEN_ANSWER, DOWN))


def test_what_is_not_a_thought_with_an_action_is_left_out() -> None:
    silent = acted(1, 5, UP, name="")
    unclosed = acted(1, (5, UP), UP, after=())
    asked = batch((acted(1, 5, UP), silent, acted(1, 6, DOWN), unclosed), (acted(2, 5, UP), acted(2, 6, DOWN)))
    assert asked.own_M == (0, 0, 1, 1)
    assert batch((silent,), (unclosed,)).why == "no first turn has a thought and an executed action"
    assert batch().why == "no first turn has a thought and an executed action"


def test_equal_prompts_share_a_column_and_a_sampled_opening_tag_belongs_to_the_prompt() -> None:
    pair = (acted(1, 5, UP, lead=(89,)), acted(1, 6, DOWN, lead=(89,)))
    asked = batch(pair, pair, (acted(1, 5, UP), acted(1, 6, DOWN)))
    assert asked.prompts_N == ((1, 89), (1,))
    assert asked.own_M == (0, 0, 0, 0, 1, 1)
    assert asked.thoughts_M[0] == (5, 90)


def test_where_all_do_the_same_there_is_nothing_to_tell_apart() -> None:
    assert (
        batch((acted(1, 5, UP), acted(1, 6, UP))).why
        == "all first actions are the same: there is nothing to tell apart"
    )


def test_an_action_that_its_tokens_do_not_tell_is_left_out() -> None:
    """The environment named the same words differently: nothing that is read says which action it was."""
    north, south = acted(1, 5, UP, name="north"), acted(1, 6, UP, name="south")
    assert batch((north, south)).why == "the tokens of the replies do not tell their first actions apart"
    clear = (acted(2, 5, DOWN), acted(2, 6, DOWN), acted(2, 7, DOWN))
    asked = batch((north, south), clear)
    assert asked.prompts_N == ((2,),)


def test_replies_that_all_go_on_differently_are_free_text() -> None:
    turns = [acted(prompt, 5 + member, 100 + 2 * prompt + member) for prompt in range(3) for member in range(2)]
    asked = batch(turns[:2], turns[2:4], turns[4:])
    assert asked.free == "free text: 6 of 6 replies go on behind the thought as no other does"
    assert asked.why == ""
    # Then the action is all up to the end of the answer, asked about behind the thoughts of its own prompt.
    assert spelled(asked)[3] == (OPEN_ANSWER, 103, SHUT)
    assert [list(asked.asked(row)) for row in range(6)] == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]


def test_too_many_ways_to_go_on_are_free_text() -> None:
    turns = [acted(0, 5, 100 + number) for number in range(65) for _ in range(2)]
    asked = exchange([group(0, *turns)])
    assert asked.free == "free text: 65 different ways to go on behind the thought, more than 64"
    assert exchange([group(0, *turns[2:])]).free == ""


def test_the_first_thoughts_of_the_first_prompts_are_taken_in_equal_numbers() -> None:
    groups = [group(prompt, *(acted(prompt, member, member % 2) for member in range(6))) for prompt in range(5)]
    asked = exchange(groups, rows=9, columns=3)
    assert asked.prompts_N == ((0,), (1,), (2,))
    assert asked.own_M == (0, 0, 0, 1, 1, 1, 2, 2, 2)
    assert [thought[0] for thought in asked.thoughts_M] == [0, 1, 2] * 3
    few = exchange(groups[:2], rows=9, columns=8)
    assert few.own_M == (0, 0, 0, 0, 1, 1, 1, 1)


def test_no_spelling_begins_another_and_each_settles_its_action() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        after = [tuple(rng.randrange(3) for _ in range(rng.randint(0, 4))) for _ in range(rng.randint(1, 12))]
        actions = [str(rng.randrange(3)) for _ in after]
        least = [rng.randint(0, 3) for _ in after]
        found = spell(after, actions, least)
        known = {ids for ids in found if ids is not None}
        assert not [1 for one in known for other in known if one != other and other[: len(one)] == one]
        for ids, whole, action in zip(found, after, actions, strict=True):
            alike = {
                other for text, other in zip(after, actions, strict=True) if ids is not None and text[: len(ids)] == ids
            }
            if ids is None:  # it ends where others with another action go on, or in the same place
                assert {other for text, other in zip(after, actions, strict=True) if text[: len(whole)] == whole} != {
                    action
                }
            else:
                assert alike == {action}
                assert whole[: len(ids)] == ids


@pytest.mark.parametrize(("taken", "alone"), [("", 0), ("ab", 2), ("aab", 0), ("aabcd", 3), ("aabc", 0)])
def test_text_is_what_more_than_half_do_alone(taken: str, alone: int) -> None:
    assert mostly_alone(taken) == alone


def answered(number: int, *written: int, executed: tuple[str, ...] = ()) -> Group:
    """A first turn whose ids are a thought (7), an answer of these ids between 1 and 3, and an end (0)."""
    ids = (7, 1, *written, 3, 0)
    reply = Reply(
        Prompt("", (100 + number,)), ids, str(written), (), (), Span(0, 1), Span(1, len(ids) - 1), True, False
    )
    task = Task(f"lake-{number}", number, "train")
    return Group(task, (Trajectory(task, 0, (Turn(reply, {}, executed, True, "", ""),), Ending.FAILED, 0.0),))


def test_whole_answers_are_asked_about_as_they_were_written() -> None:
    batch = [answered(0, 10, executed=("Up",)), answered(1, 10, 11, executed=("Up",)), answered(2, 10), answered(3, 12)]
    asked = exchange_answers(batch)
    # The third was not executed, and the second only in part: both count as written.
    assert asked.own_M == (0, 1, 2, 3)
    assert asked.spellings_S == ((1, 10, 3), (1, 10, 11, 3), (1, 12, 3))
    assert asked.names_A == ("(10,)", "(10, 11)", "(12,)")
    assert asked.action_S == (0, 1, 2)
    assert exchange_answers([answered(0, 10), answered(1, 10)]).why.startswith("all first answers are the same")
    assert exchange_answers([]).why == "no first turn has a thought and an answer"


def test_of_many_answers_the_most_frequent_are_asked_about() -> None:
    batch = [answered(number, 10 + number // 2) for number in range(140)]
    assert len(exchange_answers([*batch, answered(140, 5)]).spellings_S) == MOST_SPELLINGS
