"""The split of rightness at later turns reads the exact values of policies whose probabilities are all known."""

import itertools
import random

import numpy as np
import pytest

from heedful.diagnostics.actions.later import LATER_NAMES, LaterExchange, later_exchange, later_rightness, later_split
from heedful.diagnostics.actions.rightness import split
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, nothing_right

ACTIONS, FACTS = 4, 8
EPISODES = list(itertools.product(range(ACTIONS), range(FACTS)))
"""y, the right next action, and u, a fact that history and observation tell as well."""
Y, U = np.array(EPISODES).T
SAYS = 0.92 * np.eye(ACTIONS) + 0.02
"""p(z | y): the thought names y in 94%."""


def additive(memory: float, thought: float, observation: float):
    """The action follows the history, the thought or the observation, each in a share of the cases."""

    def acts(history, seen, z) -> np.ndarray:
        named = memory * np.eye(ACTIONS)[Y[history]] + observation * np.eye(ACTIONS)[Y[seen]]
        return named + thought * np.eye(ACTIONS)[z] + (1 - memory - thought - observation) / ACTIONS

    return acts


def relative(history, seen, z) -> np.ndarray:
    """The thought says how far the answer is from what the observation shows."""
    return np.eye(ACTIONS)[(z + U[seen]) % ACTIONS]


def believed_if_it_fits(history, seen, z) -> np.ndarray:
    """The thought counts only where history and observation agree with it."""
    fits = np.where((Y[history] == z) | (Y[seen] == z), 0.8, 0.0)
    return fits[..., None] * np.eye(ACTIONS)[z] + (1 - fits[..., None]) / ACTIONS


def names_the_answer(rows) -> np.ndarray:
    return SAYS[Y[rows]]


def names_the_difference(rows) -> np.ndarray:
    return SAYS[(Y[rows] - U[rows]) % ACTIONS]


def whole(acts, says, rows) -> np.ndarray:
    """C[k, m, j, l] of these episodes, over all thoughts with their probabilities."""
    m, j, z = np.meshgrid(rows, rows, np.arange(ACTIONS), indexing="ij")
    acted_MJZA = acts(m, j, z)
    return np.einsum("ka,lz,mjza->kmjl", np.eye(ACTIONS)[Y[rows]], says(rows), acted_MJZA)


def definition(chances_NNNN: np.ndarray) -> list[float]:
    """The means of the docstring, entry by entry."""
    n = range(len(chances_NNNN))
    right = np.mean([chances_NNNN[k, k, k, k] for k in n])
    chance = np.mean([chances_NNNN[each] for each in itertools.permutations(n, 4)])
    alone = np.mean([chances_NNNN[k, k, j, m] for k, j, m in itertools.permutations(n, 3)])
    thought = np.mean([chances_NNNN[k, k, j, k] for k, j in itertools.permutations(n, 2)]) - alone
    seen = np.mean([chances_NNNN[k, k, k, m] for k, m in itertools.permutations(n, 2)]) - alone
    return [right, chance, alone - chance, thought, seen, right - alone - thought - seen]


def all_reads(count: int) -> np.ndarray:
    return np.array(list(itertools.product(range(count), repeat=3)))


def read(chances_NNNN: np.ndarray, reads_R3: np.ndarray, remembers: bool = True) -> np.ndarray:
    return later_split(chances_NNNN[:, reads_R3[:, 0], reads_R3[:, 1], reads_R3[:, 2]], reads_R3, remembers)


def test_shares_that_follow_memory_thought_and_observation_are_read_to_the_last_digit() -> None:
    """By hand: another episode has the same y in 7 of 31 cases, and its thought names mine in (7 x .94 + 24 x .02) of
    31."""
    found = read(whole(additive(0.2, 0.4, 0.3), names_the_answer, np.arange(32)), all_reads(32))
    same, named = 7 / 31, (7 * 0.94 + 24 * 0.02) / 31
    by_hand = [
        0.2 + 0.4 * 0.94 + 0.3 + 0.1 / 4,
        0.5 * same + 0.4 * named + 0.1 / 4,
        0.2 * (1 - same),
        0.4 * (0.94 - named),
        0.3 * (1 - same),
        0,
    ]
    assert found == pytest.approx(by_hand, abs=1e-9)


@pytest.mark.parametrize(
    ("acts", "says"),
    [
        (relative, names_the_difference),
        (believed_if_it_fits, names_the_answer),
        (additive(0.0, 0.9, 0.0), names_the_difference),
        (additive(0.5, 0.1, 0.2), names_the_answer),
    ],
)
def test_every_enumerated_policy_reads_the_definition(acts, says) -> None:
    tensor = whole(acts, says, np.array([0, 3, 9, 11, 18, 20, 25, 30]))
    found = read(tensor, all_reads(8))
    assert found == pytest.approx(definition(tensor), abs=1e-9)
    assert found[0] == pytest.approx(found[1:].sum(), abs=1e-12)


@pytest.mark.parametrize("acts", [additive(0.3, 0.3, 0.3), believed_if_it_fits])
@pytest.mark.parametrize("episodes", [4, 6, 8])
def test_sampled_batches_are_unbiased_at_every_number_of_episodes(episodes, acts) -> None:
    """500 batches of drawn episodes and thoughts, read in blocks: no mean is more than 4 standard errors off."""
    rng = np.random.default_rng(episodes)
    truth = read(whole(acts, names_the_answer, np.arange(32)), all_reads(32))
    blank = ((),) * episodes
    reads_R3 = np.array(LaterExchange(histories_M=blank, observations_M=blank, thoughts_M=blank).reads)
    values = []
    for _ in range(500):
        rows = rng.permutation(32)[:episodes]
        said = (rng.random((episodes, 1)) > SAYS[Y[rows]].cumsum(axis=1)).sum(axis=1)
        acted_RA = acts(rows[reads_R3[:, 0]], rows[reads_R3[:, 1]], said[reads_R3[:, 2]])
        values.append(later_split(np.eye(ACTIONS)[Y[rows]] @ acted_RA.T, reads_R3, True))
    errors = np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
    assert (np.abs(np.mean(values, axis=0) - truth) < 4 * errors + 1e-12).all()


@pytest.mark.parametrize(("shares", "part"), [((0.3, 0.0, 0.4), 3), ((0.3, 0.4, 0.0), 4)])
def test_what_changes_nothing_has_a_part_of_exactly_0_whichever_episode_is_left_out(shares, part) -> None:
    blank = ((),) * 8
    reads_R3 = np.array(LaterExchange(histories_M=blank, observations_M=blank, thoughts_M=blank).reads)
    tensor = whole(additive(*shares), names_the_answer, np.arange(8) * 4 + np.arange(8) % 3)
    chances_MR = tensor[:, reads_R3[:, 0], reads_R3[:, 1], reads_R3[:, 2]]
    for left_out in range(-1, 8):
        found = later_split(chances_MR, reads_R3, True, left_out)
        assert found[part] == pytest.approx(0, abs=1e-12)
        assert found[5] == pytest.approx(0, abs=1e-12)  # nothing needs observation and thought together


def test_without_a_history_the_split_is_that_of_first_turns() -> None:
    tensor = whole(relative, names_the_difference, np.arange(7) * 4)
    found = read(tensor, all_reads(7), remembers=False)
    assert found[2] == 0
    assert found[[0, 1, 3, 4, 5]] == pytest.approx(split(tensor[:, 0]), abs=1e-12)


def asked(count: int) -> LaterExchange:
    return LaterExchange(
        histories_M=tuple((100 + row,) for row in range(count)),
        observations_M=tuple((200 + row,) for row in range(count)),
        thoughts_M=tuple((300 + row,) for row in range(count)),
        tasks_M=tuple(Task(str(row), row, "train") for row in range(count)),
        before_M=((("1",),),) * count,
        spellings_S=tuple((500 + action,) for action in range(ACTIONS)),
        action_S=tuple(range(ACTIONS)),
        names_A=tuple(map(str, range(ACTIONS))),
    )


def right(task: Task, before=()) -> dict[str, float]:
    assert before == (("1",),)
    return {str(Y[task.seed * 3 % 32]): 1.0}


def test_each_interval_leaves_an_episode_out_in_all_its_roles() -> None:
    exchanged = asked(12)
    rows = np.arange(12) * 3 % 32
    acted = np.array([additive(0.2, 0.4, 0.2)(rows[h], rows[o], Y[rows[z]]) for h, o, z in exchanged.reads])
    found = {each.name: each for each in later_rightness(exchanged, np.log(acted), right)}
    assert list(found) == [f"grounding/{name}" for name in LATER_NAMES]
    thought = found["grounding/later_right_by_thought"]
    assert thought.low < thought.value < thought.high
    parts = [found[f"grounding/{name}"].value for name in LATER_NAMES[1:6]]
    assert found["grounding/later_right"].value == pytest.approx(sum(parts), abs=1e-12)
    assert found["grounding/later_foreign_lost"].value == 0
    chances = np.eye(ACTIONS)[Y[rows]] @ acted.T
    without_3 = [row for row in range(12) if row != 3]
    reads = np.array([[without_3.index(place) for place in each] for each in exchanged.reads if 3 not in each])
    kept = [number for number, each in enumerate(exchanged.reads) if 3 not in each]
    again = later_split(chances[np.ix_(without_3, kept)], reads, True)
    assert later_split(chances, np.array(exchanged.reads), True, left_out=3) == pytest.approx(again, abs=1e-12)


def test_a_missing_reading_says_why() -> None:
    exchanged = asked(8)
    logs = np.log(np.full((len(exchanged.reads), ACTIONS), 0.25))
    unknown = later_rightness(exchanged, logs, nothing_right)
    assert {each.why for each in unknown[:6]} == {"no right actions are known"}
    few = later_rightness(asked(3), logs, right)
    assert {each.why for each in few} == {"needs at least 4 tasks with a later turn, found 3"}
    four = later_rightness(asked(4), logs[: len(asked(4).reads)], right)
    assert four[1].why == "no interval: without one of the episodes there is nothing to compare"


def played(number: int, actions: list[str], keeps: bool = True) -> Trajectory:
    """Turns of the ids `number, turn` (seen) and `7, action, 9` (sampled): the thought is `7`."""
    task, turns = Task(f"lake-{number}", number, "train"), []
    for turn, action in enumerate(actions):
        prompt = Prompt("", (1000 + number, turn), restarts=not keeps and turn > 0)
        reply = Reply(prompt, (7, 10 + int(action), 9), "", (), (), Span(0, 1), Span(1, 2), True, False)
        turns.append(Turn(reply, {}, (action,), True, "", ""))
    return Trajectory(task, 0, tuple(turns), Ending.FAILED, 0.0)


def groups(*trajectories: Trajectory) -> list[Group]:
    return [Group(one.task, (one,)) for one in trajectories]


def test_a_later_turn_is_read_with_its_history_and_the_actions_before_it() -> None:
    batch = groups(played(0, ["1", "2", "1"]), played(1, ["2"]), played(2, ["1", "1"]), played(0, ["2", "2"]))
    found = later_exchange(batch, random.Random(0))
    assert [task.id for task in found.tasks_M] == ["lake-0", "lake-2"]  # one for each task that has a later turn
    assert found.before_M[1] == (("1",),)
    assert found.histories_M[1] == (1002, 0, 7, 11, 9)
    assert found.observations_M[1] == (1002, 1)
    assert found.thoughts_M == ((7,), (7,))
    assert (found.names_A, found.spellings_S) == (("2", "1"), ((12,), (11,)))
    turns = {later_exchange(batch, random.Random(seed)).before_M[0] for seed in range(20)}
    assert turns == {(("1",),), (("1",), ("2",))}
    forgetful = groups(*(played(number, ["1", "2", "1"], keeps=False) for number in range(4)))
    assert later_exchange(forgetful, random.Random(0)).histories_M == ((),) * 4
    single = later_exchange(groups(played(0, ["1"]), played(1, ["2"])), random.Random(0))
    assert single.why == "no later turn has a thought and an executed action"


def test_what_is_read_holds_all_four_cases_in_equal_numbers() -> None:
    reads = asked(8).reads
    assert len(reads) == 8 * 10
    assert len(set(reads)) == len(reads)
    for own in range(8):
        of_own = [each for each in reads if each[0] == own]
        others = set(range(4 * (own // 4), 4 * (own // 4) + 4)) - {own}
        assert sorted(o for h, o, z in of_own if z == own) == sorted({own, *others})
        assert sorted(z for h, o, z in of_own if o == own) == sorted({own, *others})
        neither = [(o, z) for _, o, z in of_own if o != own and z != own]
        assert sorted(o for o, _ in neither) == sorted(z for _, z in neither) == sorted(others)
        assert all(o != z for o, z in neither)
