import random
from dataclasses import replace

import pytest

from heedful.diagnostics.cross_scores.thoughts import (
    ThoughtTags,
    any_turn_thoughts,
    by_environment,
    first_turn_thoughts,
    observed,
    swapped_observations,
)
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn

TAGS = ThoughtTags()


def turn(prompt, ids, thought=(0, 2), closed=True, cut=False, text="<think>go</think>x", prompt_text="see<think>"):
    spans = Span(*thought), Span(0, 0)
    prompt = Prompt(prompt_text, tuple(prompt))
    reply = Reply(prompt, tuple(ids), text, (0.0,) * len(ids), (), *spans, closed, cut)
    return Turn(reply, {}, (), True, "", "")


def episode(*turns, task="lake-0123456789abcdef", member=0):
    return Trajectory(Task(task, 0, "train"), member, turns, Ending.FAILED, 0.0)


def group(*episodes, task="lake-0123456789abcdef"):
    return Group(Task(task, 0, "train"), episodes)


def two_turns(first, observation, **second):
    """Prompt `first`, reply 1 2, then `observation` and reply 3 4."""
    return episode(turn([first], [1, 2]), turn(observation, [3, 4], **second))


def many_groups(count=10, members=4, turns=3):
    """Every turn shows an observation of its own; replies differ, too."""
    return [
        group(
            *(
                episode(*(turn([10 + number, 50 + place, 80 + at], [member, at], (0, 2)) for at in range(turns)))
                for member in range(members)
            )
        )
        for number, place in enumerate(range(count))
    ]


def test_first_turns_share_the_column_of_equal_prompts() -> None:
    groups = [
        group(episode(turn([7], [1, 2, 3])), episode(turn([7], [4, 5, 6], closed=False))),
        group(episode(turn([8], [1, 2, 3]))),
        group(episode(turn([7], [9, 9, 9], (0, 1)))),
    ]
    thoughts = first_turn_thoughts(groups, TAGS)
    assert thoughts.prompts_N == ((7,), (8,))
    assert thoughts.thoughts_M == ((1, 2), (4, 5), (1, 2), (9,))
    assert thoughts.own_M == (0, 0, 1, 0)
    assert thoughts.closed_M == (True, False, True, True)
    assert first_turn_thoughts(groups, TAGS, prompts=1, thoughts=1).thoughts_M == ((1, 2),)


def test_a_thought_without_a_token_and_a_broken_episode_are_left_out() -> None:
    groups = [group(episode(), episode(turn([7], [1], (0, 0))), episode(turn([7], [1, 2])))]
    assert first_turn_thoughts(groups, TAGS).thoughts_M == ((1, 2),)
    assert any_turn_thoughts(groups, TAGS, random.Random(0)).thoughts_M == ((1, 2),)


def test_a_sampled_opening_tag_belongs_to_the_prompt() -> None:
    groups = [group(episode(turn([7], [5, 1, 2], (1, 3), text="so <think>go</think>x", prompt_text="see ")))]
    thoughts = first_turn_thoughts(groups, TAGS)
    assert thoughts.prompts_N == ((7, 5),)
    assert thoughts.thoughts_M == ((1, 2),)
    assert thoughts.prompt_texts_N == ("see so <think>",)
    assert thoughts.thought_texts_M == ("go</think>",)


@pytest.mark.parametrize(
    ("prompt", "reply", "closed", "split"),
    [
        ("see<think>", "<think>go</think><answer>", True, ("see<think>", "go</think>")),
        ("see<think>\n", "<think>\ngo</think>", True, ("see<think>\n", "go</think>")),
        ("see<think>", "<think>go on and", False, ("see<think>", "go on and")),
        ("see ", "<think>go</think>x", True, ("see <think>", "go</think>")),
        ("see ", "no tag", False, ("see ", "no tag")),
    ],
)
def test_a_text_is_split_where_the_thought_begins_and_ends(
    prompt: str, reply: str, closed: bool, split: tuple[str, str]
) -> None:
    assert TAGS.split(turn([1], [2], (0, 1), closed, text=reply, prompt_text=prompt).reply) == split


def test_any_turn_draws_trajectories_without_replacement_and_one_turn_from_each() -> None:
    groups = many_groups()
    drawn = any_turn_thoughts(groups, TAGS, random.Random(3), rows=25)
    assert len(drawn.thoughts_M) == 25
    # Ids of a thought: (member, turn); of a context the first prompt names the group.
    rows = zip(drawn.own_M, drawn.thoughts_M, strict=True)
    assert len({(drawn.prompts_N[own][0], thought[0]) for own, thought in rows}) == 25
    assert {thought[1] for thought in drawn.thoughts_M} == {0, 1, 2}
    assert drawn == any_turn_thoughts(groups, TAGS, random.Random(3), rows=25)
    assert drawn != any_turn_thoughts(groups, TAGS, random.Random(4), rows=25)
    assert len(any_turn_thoughts(groups, TAGS, random.Random(0)).thoughts_M) == 40


def test_turns_are_drawn_uniformly() -> None:
    groups = many_groups(count=100, members=6, turns=3)
    thoughts = any_turn_thoughts(groups, TAGS, random.Random(0), rows=600).thoughts_M
    counts = [sum(thought[1] == at for thought in thoughts) for at in range(3)]
    assert all(150 < count < 250 for count in counts)


def test_any_turn_contexts_are_all_that_stood_before_the_thought() -> None:
    one = two_turns(7, [8, 9])
    seen = {any_turn_thoughts([group(one)], TAGS, random.Random(seed)).prompts_N[0] for seed in range(20)}
    assert seen == {(7,), (7, 1, 2, 8, 9)}


def test_swapped_observations_keep_each_history_and_exchange_the_last_observation() -> None:
    groups = [group(two_turns(7, [20, 21])), group(two_turns(8, [30]))]
    swapped = swapped_observations(groups, random.Random(0))
    rows = {swapped.histories_M[row]: row for row in range(2)}
    seven, eight = rows[7, 1, 2], rows[8, 1, 2]
    assert swapped.context(seven, swapped.own_M[seven]) == (7, 1, 2, 20, 21)
    assert swapped.context(seven, swapped.own_M[eight]) == (7, 1, 2, 30)
    assert swapped.context(eight, swapped.own_M[eight]) == (8, 1, 2, 30)
    assert swapped.context(eight, swapped.own_M[seven]) == (8, 1, 2, 20, 21)
    assert swapped.thoughts_M == ((3, 4), (3, 4))


def test_the_own_column_is_the_context_that_was_sampled_under() -> None:
    groups = many_groups()
    swapped = swapped_observations(groups, random.Random(1))
    sampled = {trajectory.context_ids(1) for each in groups for trajectory in each.trajectories}
    assert {swapped.context(row, own) for row, own in enumerate(swapped.own_M)} <= sampled


def test_the_end_of_a_cut_reply_is_history_and_not_swapped() -> None:
    END = 99
    cut = episode(turn([7], [1, 2], cut=True), turn([END, 20], [3, 4]))
    whole = episode(turn([8], [1, END], cut=False), turn([30], [3, 4]))
    assert observed(cut, 1) == ((7, 1, 2, END), (20,))
    swapped = swapped_observations([group(cut, whole)], random.Random(0))
    contexts = {swapped.context(row, column) for row in range(2) for column in range(2)}
    assert contexts == {(7, 1, 2, END, 20), (7, 1, 2, END, 30), (8, 1, END, 20), (8, 1, END, 30)}


def restarted(prompt, history, ids=(3, 4)):
    """A turn whose prompt is the whole context."""
    one = turn(prompt, ids)
    return replace(one, reply=replace(one.reply, prompt=Prompt("see<think>", tuple(prompt), True, history)))


def test_what_stood_before_a_reply_begins_with_the_last_restart() -> None:
    one = episode(turn([7], [1, 2]), turn([8], [1, 2]), restarted([20, 3, 4, 30], 3), turn([9], [5]))
    assert [one.context_ids(number) for number in range(4)] == [
        (7,),
        (7, 1, 2, 8),
        (20, 3, 4, 30),
        (20, 3, 4, 30, 3, 4, 9),
    ]
    late = any_turn_thoughts([group(episode(restarted([20, 3, 4, 30], 3)))], TAGS, random.Random(0))
    assert late.prompts_N == ((20, 3, 4, 30),)


def test_in_a_window_the_kept_turns_are_history_and_the_newest_observation_is_swapped() -> None:
    one = episode(turn([7], [1, 2]), restarted([20, 1, 2, 30], 3))
    other = episode(turn([7], [1, 2]), restarted([20, 1, 2, 1, 40], 3))
    assert observed(one, 1) == ((20, 1, 2), (30,))
    swapped = swapped_observations([group(one, other)], random.Random(0))
    assert set(swapped.histories_M) == {(20, 1, 2)}
    assert set(swapped.observations_N) == {(30,), (1, 40)}


def test_a_memory_less_prompt_has_no_history_even_after_a_reply_that_was_cut() -> None:
    one = episode(turn([7], [1, 2], cut=True), restarted([20, 30], 0))
    other = episode(turn([7], [1, 2]), restarted([20, 40], 0))
    assert observed(one, 1) == ((), (20, 30))
    swapped = swapped_observations([group(one, other)], random.Random(0))
    assert {swapped.context(row, column) for row in range(2) for column in range(2)} == {(20, 30), (20, 40)}


def test_a_sampled_opening_tag_stays_with_its_thought_when_observations_are_swapped() -> None:
    late = turn([20], [5, 3, 4], (1, 3))
    groups = [group(episode(turn([7], [1, 2]), late), two_turns(8, [30]))]
    swapped = swapped_observations(groups, random.Random(0))
    row = swapped.leads_M.index((5,))
    assert swapped.context(row, 1 - swapped.own_M[row]) == (7, 1, 2, 30, 5)
    assert swapped.thoughts_M[row] == (3, 4)


def test_rows_and_columns_are_bounded_and_every_column_has_a_row() -> None:
    for seed in range(10):
        swapped = swapped_observations(many_groups(), random.Random(seed), rows=12, columns=5)
        assert len(swapped.thoughts_M) == 12
        assert len(swapped.observations_N) == 5
        assert set(swapped.own_M) == set(range(5))
    # Four members of a group share an observation: with room for all there are ten columns of four.
    swapped = swapped_observations(many_groups(), random.Random(0), rows=99, columns=99)
    assert sorted(swapped.own_M) == [column for column in range(10) for _ in range(4)]


def test_the_turn_is_the_later_one_that_most_thoughts_have() -> None:
    groups = [group(two_turns(7, [20]), two_turns(7, [30]), episode(*(turn([at], [1, 2]) for at in (7, 40, 50))))]
    assert set(swapped_observations(groups, random.Random(0)).observations_N) == {(20,), (30,), (40,)}


def test_a_turn_whose_observations_are_all_alike_is_passed_over() -> None:
    groups = [group(*(episode(turn([7], [1, 2]), turn([20], [1, 2]), turn([at], [3, 4])) for at in (40, 50)))]
    assert set(swapped_observations(groups, random.Random(0)).observations_N) == {(40,), (50,)}


def test_without_later_turns_or_with_one_observation_it_says_why() -> None:
    nothing = swapped_observations([group(episode(turn([7], [1, 2])))], random.Random(0))
    assert (nothing.thoughts_M, nothing.why) == ((), "no episode has a second turn with a thought")
    alike = swapped_observations([group(two_turns(7, [20]), two_turns(8, [20]))], random.Random(0))
    assert alike.why == "all later turns of a kind show the same observation"


def test_groups_are_told_apart_by_the_environment_of_their_task() -> None:
    lake, echo = (replace(group(), task=Task("1", 0, "train", environment=name)) for name in ("lake", "echo"))
    assert by_environment([lake, echo, lake]) == {"lake": [lake, lake], "echo": [echo]}
