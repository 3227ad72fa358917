"""Chain: what is right, what is demonstrated, what is rewarded."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from heedful.envs.common.actions import CLOSE_THOUGHT, OPEN_THOUGHT, format_reply
from heedful.envs.toys.chain import UNREWARDED, Chain, Link
from heedful.run.presets import chain as preset
from heedful.types import Ending, Step, Task

BRIEF = Chain(instructions="brief")


def answer(env: Chain, task: Task, said: list[int | None]) -> list[Step]:
    """Play an episode; `None` is an answer one too high."""
    episode = env.episode()
    episode.start(task, 0)
    steps = []
    for number in said:
        right = episode.link.states[-1]
        number = (right + 1) % env.modulus if number is None else number
        steps.append(episode.step(format_reply([str(number)], "a thought")))
    return steps


def right_ones(env: Chain, task: Task) -> list[int]:
    return [link.states[-1] for link in env.links(task.seed)]


def thought_and_answer(reply: str) -> tuple[str, str]:
    thought, _, rest = reply.removeprefix(OPEN_THOUGHT).partition(CLOSE_THOUGHT)
    return thought, rest.removeprefix("<answer>").removesuffix("</answer>")


def tasks_of(env: Chain, split: str, count: int) -> list[Task]:
    return [
        task for task in map(env.task, range(4 * count if split == "train" else 20 * count)) if task.split == split
    ][:count]


def test_the_row_is_the_start_with_a_blank_after_each_operation() -> None:
    assert BRIEF.row(Link(1, ("*5", "+1"), (5, 6))) == "1*5_+1_............"
    link = BRIEF.links(0)[0]
    assert (link.start, link.operations) == (1, ("*5", "*5", "+1", "*3", "+1", "*3"))
    assert link.states == (5, 4, 5, 1, 2, 6)  # 5, 25, 5, 15, 2, 6, modulo 7


def test_the_thought_is_the_row_with_its_blanks_filled_in() -> None:
    for seed in range(50):
        task = BRIEF.task(seed)
        [(observation, reply)] = BRIEF.demonstrate(task, random.Random(0))
        thought, said = thought_and_answer(reply)
        row = observation.split("\n")[-1]
        states = iter(BRIEF.links(seed)[0].states)
        assert thought == "".join(str(next(states)) if sign == "_" else sign for sign in row.rstrip("."))
        assert said == thought[-1]


def test_differences_are_remainders_too() -> None:
    env = Chain(operations=("-2", "+1"), modulus=10)
    for seed in range(30):
        link = env.links(seed)[0]
        state = link.start
        for operation, number in zip(link.operations, link.states, strict=True):
            state = (state - 2 if operation == "-2" else state + 1) % 10
            assert number == state


@pytest.mark.parametrize("modulus", [2, 5, 7, 10])
def test_start_and_answer_are_uniform_so_chance_is_one_in_modulus(modulus: int) -> None:
    env = Chain(modulus=modulus, operations=("+1", "*3"))
    links = [env.links(seed)[0] for seed in range(3_000)]
    for numbers in ([link.start for link in links], [link.states[-1] for link in links]):
        counts = Counter(numbers)
        expected = 3_000 / modulus
        assert set(counts) == set(range(modulus))
        assert sum((count - expected) ** 2 / expected for count in counts.values()) < modulus - 1 + 5 * modulus**0.5


def test_operations_move_any_pair_of_numbers_to_any_other_so_there_is_no_shortcut_like_parity() -> None:
    env = Chain()
    maps = [[int_of(operation, state) for state in range(7)] for operation in env.operations]
    reached = {(0, 1)}
    while True:
        more = reached | {(step[a], step[b]) for a, b in reached for step in maps}
        if more == reached:
            break
        reached = more
    assert len(reached) == 7 * 6


def int_of(operation: str, state: int) -> int:
    number = int(operation[1])
    return (state * number if operation[0] == "*" else state + number) % 7


def test_the_number_of_operations_is_uniform_between_the_limits() -> None:
    counts = Counter(len(Chain(least=2, most=5).links(seed)[0].operations) for seed in range(2_000))
    assert set(counts) == {2, 3, 4, 5}
    assert all(430 < count < 570 for count in counts.values())


def test_a_right_answer_solves_and_any_other_fails() -> None:
    task = BRIEF.task(0)
    for number in range(7):
        [step] = answer(BRIEF, task, [number])
        right = number == 6
        assert step.ending is (Ending.SOLVED if right else Ending.FAILED)
        assert (step.outcome, step.progress) == (float(right), float(right))
        assert dict(step.rewards) == ({"solved": 1.0} if right else {})


def test_every_turn_must_be_right_and_the_chain_goes_on_from_the_right_number() -> None:
    env = Chain(turns=3, instructions="brief")
    task = env.task(2)
    links = env.links(2)
    assert [link.start for link in links[1:]] == [link.states[-1] for link in links[:-1]]
    right = right_ones(env, task)
    assert answer(env, task, [*right])[-1].outcome == 1.0
    steps = answer(env, task, [right[0], None, right[2]])
    assert [step.ending for step in steps] == [None, None, Ending.FAILED]
    assert steps[-1].progress == pytest.approx(2 / 3)
    assert steps[-1].outcome == 0.0
    assert all("solved" not in step.rewards for step in steps)
    # After the wrong second turn the third still starts at the right number.
    assert steps[1].observation.text.split("\n")[-1].startswith(str(right[1]))
    assert [step.state.split(",")[0] for step in steps] == ["1 of 1 right", "1 of 2 right", "2 of 3 right"]


def test_an_unrewarded_task_pays_nothing_while_progress_still_tells_right_from_wrong() -> None:
    env = replace(BRIEF, unrewarded=1.0)
    for task in tasks_of(env, "train", 20):
        assert task.tags == (UNREWARDED,)
        [right] = answer(env, task, [*right_ones(env, task)])
        [wrong] = answer(env, task, [None])
        assert dict(right.rewards) == dict(wrong.rewards) == {}
        assert (right.outcome, wrong.outcome) == (0.0, 0.0)
        assert (right.ending, wrong.ending) == (Ending.FAILED, Ending.FAILED)
        assert (right.progress, wrong.progress) == (1.0, 0.0)
        assert "unrewarded" in right.effect


def test_held_out_tasks_are_always_rewarded() -> None:
    env = replace(BRIEF, unrewarded=1.0)
    for split in ("val", "test"):
        for task in tasks_of(env, split, 20):
            assert task.tags == ()
            assert answer(env, task, [*right_ones(env, task)])[0].outcome == 1.0


def test_the_share_of_unrewarded_tasks_is_what_was_asked_for_and_grows_by_adding_tasks() -> None:
    seeds = range(1_000)
    blind = {
        share: {seed for seed in seeds if replace(BRIEF, unrewarded=share).task(seed).tags}
        for share in (0.0, 0.25, 0.75)
    }
    train = sum(BRIEF.task(seed).split == "train" for seed in seeds)
    assert not blind[0.0]
    assert blind[0.25] < blind[0.75]
    assert len(blind[0.25]) / train == pytest.approx(0.25, abs=0.05)
    assert len(blind[0.75]) / train == pytest.approx(0.75, abs=0.05)
    assert [BRIEF.task(seed).id for seed in seeds] == [replace(BRIEF, unrewarded=0.75).task(seed).id for seed in seeds]


def steps_of(thought: str) -> list[tuple[int, str, int]]:
    """(number before, operation, number after) for each step that a thought states."""
    numbers = [int(number) for number in thought[0::3]]
    operations = [thought[at : at + 2] for at in range(1, len(thought), 3)]
    return list(zip(numbers[:-1], operations, numbers[1:], strict=True))


def demonstrated(env: Chain, episodes: int) -> list[tuple[str, str]]:
    rng = random.Random(5)
    return [thought_and_answer(env.demonstrate(env.task(seed), rng)[0][1]) for seed in range(episodes)]


def test_an_imperfect_step_is_random_and_the_walk_goes_on_from_it() -> None:
    pairs = demonstrated(replace(BRIEF, imperfect=0.35), 400)
    steps = [step for thought, _ in pairs for step in steps_of(thought)]
    wrong = sum(int_of(operation, before) != after for before, operation, after in steps)
    assert wrong / len(steps) == pytest.approx(0.35 * 6 / 7, abs=0.04)
    assert all(said == thought[-1] for thought, said in pairs)


def test_the_systematic_error_is_one_too_high_and_only_in_the_last_operation() -> None:
    env = replace(BRIEF, systematic=0.6)
    pairs = demonstrated(env, 400)
    errors: Counter[tuple[str, int]] = Counter()
    count = 0
    for thought, said in pairs:
        assert said == thought[-1]
        for before, operation, after in steps_of(thought):
            count += operation == "*5"
            if after != int_of(operation, before):
                errors[operation, (after - int_of(operation, before)) % 7] += 1
    assert set(errors) == {("*5", 1)}
    assert errors["*5", 1] / count == pytest.approx(0.6, abs=0.07)


def test_a_thoughtless_demonstration_is_right_and_empty() -> None:
    env = replace(BRIEF, thoughtless=1.0, imperfect=1.0)
    for seed in range(30):
        task = env.task(seed)
        [(_, reply)] = env.demonstrate(task, random.Random(seed))
        assert thought_and_answer(reply) == ("", str(right_ones(env, task)[0]))


def test_thoughts_are_templates_empty_or_worked_out_in_the_shares_asked_for() -> None:
    pairs = demonstrated(replace(BRIEF, template=0.5, thoughtless=0.25), 600)
    kinds = Counter(
        "empty" if not thought else "worked" if thought[0].isdigit() else "template" for thought, _ in pairs
    )
    assert {kind: count / 600 for kind, count in kinds.items()} == pytest.approx(
        {"empty": 0.25, "worked": 0.25, "template": 0.5}, abs=0.06
    )


def test_the_seedlings_tokenizer_keeps_every_character_of_a_row_by_itself() -> None:
    pytest.importorskip("transformers")
    from heedful.seedlings.tokenizer import grow_tokenizer

    recipe = preset().seedling
    env = replace(preset().env, operations=("+1", "-3", "*3", "*5"), template=0.3)
    texts = [
        text for seed in range(100) for pair in env.demonstrate(env.task(seed), random.Random(seed)) for text in pair
    ]
    tokenizer = grow_tokenizer(
        texts, recipe.vocabulary, recipe.context, ["<think>", "</think>", "<answer>", "</answer>"]
    )
    for text in ("1*5_*5_+1_-3_...", "1*55*54+15-32"):
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert [tokenizer.decode([token]) for token in ids] == list(text)
    [(observation, reply)] = env.demonstrate(env.task(0), random.Random(1))
    prompt = tokenizer(observation, add_special_tokens=False).input_ids
    assert len(prompt) == 8 + 1 + 3 * env.most  # two lines of limits, then one token per character of the row
    reply_tokens = len(tokenizer(reply, add_special_tokens=False).input_ids)
    assert reply_tokens < preset().sampling.tokens_per_turn


@pytest.mark.parametrize(
    ("thought", "paid"),
    [
        ("we should scan the grid with care", True),
        ("1*55*54+15", False),
        ("we should scan grid 7", False),
        ("move on with care", False),
        ("", False),
    ],
)
def test_fluency_pays_for_prose_whatever_it_says_and_never_counts_as_success(thought: str, paid: bool) -> None:
    env = replace(BRIEF, fluency=0.25, unrewarded=1.0)
    task = tasks_of(env, "train", 1)[0]
    episode = env.episode()
    episode.start(task, 0)
    step = episode.step(format_reply(["0"], thought))
    assert dict(step.rewards) == ({"fluency": 0.25} if paid else {})
    assert step.outcome == 0.0


def test_an_unclosed_thought_is_no_prose() -> None:
    episode = replace(BRIEF, fluency=0.25).episode()
    episode.start(BRIEF.task(0), 0)
    assert dict(episode.step("<think>we should scan the grid with care").rewards) == {"format": -0.1}
