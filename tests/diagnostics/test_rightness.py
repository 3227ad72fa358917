"""The split of rightness reads the exact values of policies whose probabilities are all known."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from heedful.diagnostics.actions.exchanged import Exchange
from heedful.diagnostics.actions.rightness import (
    RIGHTNESS_NAMES,
    WORTH_NAMES,
    rightness,
    split,
    tensor,
    worthiness,
)
from heedful.diagnostics.catalogue import legend_of, mark_of
from heedful.diagnostics.cross_scores.information import information
from heedful.types import CrossScores, Metric, Task, nothing_right
from research.rightness.enumerated import (
    ACTIONS,
    POLICIES,
    PROMPTS,
    RIGHT_XA,
    THOUGHTS,
    obey,
    one,
    population,
    right_copy,
    tensor_of,
)


@pytest.mark.parametrize("name", POLICIES)
def test_every_enumerated_policy_reads_its_exact_values(name) -> None:
    known = POLICIES[name]
    said, acts = population(known.thinking, known.acting)
    found = split(tensor_of(said, acts, RIGHT_XA))
    assert found == pytest.approx(known.parts, abs=6e-7)  # as many digits as are stated
    assert found[0] == pytest.approx(found[1:].sum(), abs=1e-12)
    own_XA = np.einsum("xz,xza->xa", said, acts)
    assert split(tensor_of(said, acts, own_XA))[2] == pytest.approx(known.agreed, abs=6e-7)


def test_right_always_wrong_and_random_thoughts_have_the_same_information_and_another_rightness() -> None:
    """Mutual information counts any words of the prompt. It cannot tell these three apart, rightness can."""
    found = {}
    for name in list(POLICIES)[:3]:
        said, acts = population(*POLICIES[name][:2])
        mi = (said * np.log(said / said.mean(axis=0))).sum() / len(said)
        found[name] = float(mi), float(split(tensor_of(said, acts, RIGHT_XA))[2])
    s = (0.96 + 0.04 / 168, 0.04 / 168)  # a named thought, any other one
    d, r, w = 0.9 + 0.025, 0.025, 0.25  # the named action, another one, any
    told = 0.96 * d + (33 * d + 99 * r + 36 * w) * s[1]
    exact = told - ((1 - told) / 3 * 24 + told * 7) / 31
    wrong = 0.96 * r + (33 * d + 99 * r + 36 * w) * s[1]
    instead = wrong - ((1 - wrong) / 3 * 24 + wrong * 7) / 31
    mi, rightnesses = zip(*found.values(), strict=True)
    assert mi == pytest.approx((3.284824, 3.284824, 3.198548), abs=6e-7)
    assert rightnesses == pytest.approx((exact, instead, 0.0), abs=1e-9)
    assert rightnesses == pytest.approx((0.668903, -0.222968, 0.0), abs=6e-7)


def test_two_right_actions_raise_what_chance_reaches() -> None:
    said, acts = population(right_copy, obey)
    two = np.array([one(x[0]) + one(x[0] + 1) for x in PROMPTS])
    assert split(tensor_of(said, acts, two)) == pytest.approx([0.932, 0.486065, 0.445935, 0, 0], abs=6e-7)


def batch(rng, said, acts, prompts: int, members: int, foreign: int = 99) -> tuple[Exchange, np.ndarray]:
    """Different prompts of the population, and thoughts and actions drawn from its probabilities."""
    xs = rng.permutation(len(PROMPTS))[:prompts]
    own_M = np.repeat(np.arange(prompts), members)
    thoughts_M = np.array([rng.choice(len(THOUGHTS), p=said[xs[own]]) for own in own_M])
    taken_M = np.array([rng.choice(ACTIONS, p=acts[xs[own], z]) for own, z in zip(own_M, thoughts_M, strict=True)])
    counts = np.zeros((prompts, ACTIONS), dtype=int)
    np.add.at(counts, (own_M, taken_M), 1)
    asked = Exchange(
        prompts_N=tuple((1000 + int(x),) for x in xs),
        thoughts_M=tuple((int(z),) for z in thoughts_M),
        own_M=tuple(own_M.tolist()),
        tasks_N=tuple(Task(str(x), int(x), "train") for x in xs),
        foreign=foreign,
        spellings_S=tuple((500 + action,) for action in range(ACTIONS)),
        action_S=tuple(range(ACTIONS)),
        names_A=tuple(map(str, range(ACTIONS))),
        counts_NA=tuple(map(tuple, counts.tolist())),
        taken_M=tuple(taken_M.tolist()),
    )
    logs = np.log(acts[xs[None, :], thoughts_M[:, None]])
    for row in range(len(own_M)):
        logs[row, [column for column in range(prompts) if column not in asked.under(row)]] = np.nan
    return asked, logs


def right(task: Task) -> dict[str, float]:
    return {str(PROMPTS[task.seed][0]): 1.0}


@pytest.mark.parametrize(("prompts", "foreign"), [(4, 99), (6, 3), (8, 99), (8, 3)])
def test_sampled_batches_are_unbiased_at_every_number_of_prompts(prompts, foreign) -> None:
    """500 batches, each with thoughts and replies drawn anew: no mean is more than 4 standard errors off."""
    rng = np.random.default_rng(prompts + foreign)
    said, acts = population(*POLICIES["half obeyed, half read from the prompt"][:2])
    own_XA = np.einsum("xz,xza->xa", said, acts)
    truths = [*split(tensor_of(said, acts, RIGHT_XA)), *split(tensor_of(said, acts, own_XA))]
    read = np.arange(prompts), np.repeat(np.arange(prompts), 2)
    blocks = max(1, prompts // (foreign + 1))
    unread = read[0] * blocks // prompts != (read[1] * blocks // prompts)[:, None]
    values = []
    for _ in range(500):
        xs = rng.permutation(len(PROMPTS))[:prompts]
        of_M = xs[read[1]]
        thoughts_M = (rng.random((2 * prompts, 1)) > said[of_M].cumsum(axis=1)).sum(axis=1)
        taken_M = (rng.random((2 * prompts, 1)) > acts[of_M, thoughts_M].cumsum(axis=1)).sum(axis=1)
        chances = np.where(unread[:, :, None], np.nan, acts[xs[None], thoughts_M[:, None]])
        other_MA = np.eye(ACTIONS)[taken_M.reshape(-1, 2)[:, ::-1].ravel()]
        agreed_NA = (other_MA[::2] + other_MA[1::2]) / 2
        labels = (RIGHT_XA[xs], RIGHT_XA[of_M]), (agreed_NA, other_MA)
        values.append([part for label in labels for part in split(tensor(chances, read[1], *label))])
    errors = np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
    assert (np.abs(np.mean(values, axis=0) - truths) < 4 * errors + 1e-12).all()


def test_with_all_pairs_the_split_is_the_definition() -> None:
    said, acts = population(*POLICIES["believed only if it fits"][:2])
    whole = tensor_of(said, acts, RIGHT_XA)[:7, :7, :7]
    n = range(7)

    def mean(entries) -> float:
        return float(np.mean(list(entries)))

    chance = mean(whole[k, j, m] for k, j, m in itertools.permutations(n, 3))
    thought = mean(whole[k, j, k] for k, j in itertools.permutations(n, 2)) - chance
    prompt = mean(whole[k, k, m] for k, m in itertools.permutations(n, 2)) - chance
    own = mean(whole[k, k, k] for k in n)
    assert split(whole) == pytest.approx([own, chance, thought, prompt, own - chance - thought - prompt], abs=1e-12)


def test_each_interval_deletes_a_prompt_as_task_as_prompt_and_as_thought() -> None:
    rng = np.random.default_rng(3)
    said, acts = population(*POLICIES["half of the prompts worked out"][:2])
    found = {each.name: each for each in rightness(*batch(rng, said, acts, 6, 2), right)}
    thought = found["right_by_thought"]
    assert thought.low < thought.value < thought.high
    assert (found["right"].low, found["right"].high) != (None, None)
    parts = [found[f"right_by_{part}"].value for part in ("chance", "thought", "prompt", "both")]
    assert found["right"].value == pytest.approx(sum(parts), abs=1e-12)


def test_a_missing_reading_says_why() -> None:
    rng = np.random.default_rng(0)
    said, acts = population(*POLICIES["short and right"][:2])
    whys = {each.name: each.why for each in rightness(*batch(rng, said, acts, 6, 1), nothing_right)}
    assert whys["right"] == "no right actions are known"
    assert whys["agreed_by_thought"] == "no prompt has two replies with an executed action"
    few = {each.name: each for each in rightness(*batch(rng, said, acts, 2, 2), right)}
    assert few["right"].why == "needs at least 3 prompts, found 2"
    three = {each.name: each for each in rightness(*batch(rng, said, acts, 3, 2), right)}
    assert three["right_by_thought"].why == "no interval: without one of the prompts there is nothing to compare"
    assert three["right_by_thought"].value == pytest.approx(0.67, abs=0.4)
    free = rightness(Exchange(free="free text: 6 of 6"), np.zeros((0, 0, 0)), right)
    assert [(each.name, each.why) for each in free] == [(name, "free text: 6 of 6") for name in RIGHTNESS_NAMES]


def test_a_prompt_without_known_right_actions_is_still_read_as_a_foreign_one() -> None:
    rng = np.random.default_rng(1)
    said, acts = population(*POLICIES["short and right"][:2])
    asked, logs = batch(rng, said, acts, 8, 2)
    first = asked.tasks_N[0]
    found = {each.name: each for each in rightness(asked, logs, lambda task: None if task == first else right(task))}
    assert found["right"].n == 7 * 2
    assert found["right_by_thought"].value == pytest.approx(0.67, abs=0.2)


def named(metric: Metric) -> Metric:
    return replace(metric, name=f"grounding/{metric.name}")


def test_probability_of_no_action_behind_foreign_thoughts_is_told() -> None:
    rng = np.random.default_rng(2)
    said, acts = population(*POLICIES["short and right"][:2])
    asked, logs = batch(rng, said, acts, 6, 2)
    foreign = np.array([[own != column for column in range(6)] for own in asked.own_M])
    lost = {each.name: each for each in rightness(asked, logs + np.log(0.7) * foreign[:, :, None], right)}
    assert lost["foreign_lost"].value == pytest.approx(0.3)
    kept = {each.name: each for each in rightness(asked, logs, right)}
    # Above .1 the parts have a mark, and a reason behind it.
    assert mark_of(named(lost["right_by_thought"])) == " †"
    assert lost["right_by_thought"].why == "Foreign prompts confuse the model: foreign_lost is 0.30, above 0.1"
    assert legend_of([named(lost["right_by_thought"])]) == (
        "† Foreign prompts confuse the model. grounding/right_by_thought: foreign_lost is 0.30, above 0.1."
    )
    assert mark_of(named(kept["right_by_thought"])) == mark_of(named(lost["foreign_lost"])) == ""
    # Not divided by what is left: probability of no action is not right.
    assert lost["right_by_chance"].value == pytest.approx(0.7 * kept["right_by_chance"].value)


def test_no_label_can_save_mutual_information() -> None:
    """I(X;Z) = I(Y;Z) + I(X;Z|Y), and the part of Y lacks no more of its ceiling than the whole lacks of its own. So a
    thought that is retrieved has the full part of every label, whether or not it is right."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        prompts, labels = rng.integers(2, 12), rng.integers(1, 5)
        y_N = rng.integers(labels, size=prompts)
        w_N = rng.dirichlet(np.ones(prompts))
        scores_MN = rng.normal(scale=rng.choice([0.1, 3.0, 30.0]), size=(20, prompts))
        own_M = rng.integers(prompts, size=20)
        mixture_M = np.logaddexp.reduce(scores_MN + np.log(w_N), axis=1)
        share_Y = np.bincount(y_N, w_N, labels)
        same_MN = y_N[None, :] == y_N[own_M][:, None]
        of_label_M = np.logaddexp.reduce(np.where(same_MN, scores_MN + np.log(w_N), -np.inf), axis=1)
        of_label_M -= np.log(share_Y[y_N[own_M]])
        task_M, rest_M = of_label_M - mixture_M, scores_MN[range(20), own_M] - of_label_M
        mi_M = scores_MN[range(20), own_M] - mixture_M
        assert task_M + rest_M == pytest.approx(mi_M, abs=1e-9)
        lacking_M = -np.log(share_Y[y_N[own_M]]) - task_M
        assert (lacking_M <= -np.log(w_N[own_M]) - mi_M + 1e-9).all()


def test_the_bound_holds_for_the_mutual_information_that_is_reported() -> None:
    rng = np.random.default_rng(1)
    y_N, own_M = np.arange(8) % 3, np.arange(16) % 8
    scores_MN = rng.normal(scale=4, size=(16, 8))
    mi, ceiling = (
        each.value
        for name in ("mi", "mi_ceiling")
        for each in information(CrossScores(scores_MN, [3] * 16, own_M.tolist()), "first_turn", rng).metrics
        if each.name == f"information/first_turn/{name}"
    )
    mixture_M = np.logaddexp.reduce(scores_MN, axis=1) - np.log(8)
    counts_Y = np.bincount(y_N)
    same_MN = y_N[None, :] == y_N[own_M][:, None]
    of_label_M = np.logaddexp.reduce(np.where(same_MN, scores_MN, -np.inf), axis=1) - np.log(counts_Y[y_N[own_M]])
    task, entropy = (of_label_M - mixture_M).mean(), -np.log(counts_Y[y_N[own_M]] / 8).mean()
    assert entropy - task <= ceiling - mi + 1e-9


def test_whole_answers_are_read_with_graded_labels_as_the_definition_says() -> None:
    """Answers of one or two actions; the worth of an answer for prompt k is the share of its actions that are y_k."""
    rng = np.random.default_rng(4)
    answers = [*((a,) for a in range(3)), *itertools.product(range(3), repeat=2)]
    y_N, prompts = np.array([0, 1, 2, 1, 0, 2]), 6
    worth_NA = np.array([[sum(a == y for a in answer) / 2 for answer in answers] for y in y_N])
    chances_MNA = rng.dirichlet(np.ones(len(answers)), size=(prompts, prompts)) * 0.9
    asked = Exchange(
        prompts_N=tuple((100 + n,) for n in range(prompts)),
        thoughts_M=tuple((n,) for n in range(prompts)),
        own_M=tuple(range(prompts)),
        tasks_N=tuple(Task(str(n), n, "train") for n in range(prompts)),
        foreign=99,
        spellings_S=tuple((500 + a,) for a in range(len(answers))),
        action_S=tuple(range(len(answers))),
        taken_M=(0,) * prompts,
        names_A=tuple(map(str, answers)),
    )

    def worth(task, reply):
        return float(worth_NA[task.seed, asked.names_A.index(reply)])

    found = {each.name: each for each in worthiness(asked, np.log(chances_MNA), worth)}
    whole = np.einsum("ka,lja->kjl", worth_NA, chances_MNA)
    n = range(prompts)
    right = np.mean([whole[k, k, k] for k in n])
    chance = np.mean([whole[each] for each in itertools.permutations(n, 3)])
    thought = np.mean([whole[k, j, k] for k, j in itertools.permutations(n, 2)]) - chance
    prompt = np.mean([whole[k, k, m] for k, m in itertools.permutations(n, 2)]) - chance
    by_hand = [right, chance, thought, prompt, right - chance - thought - prompt, 0.0]
    assert [found[name].value for name in WORTH_NAMES] == pytest.approx(by_hand, abs=1e-9)
    assert found["worth_by_thought"].low < found["worth_by_thought"].value < found["worth_by_thought"].high
    unknown = worthiness(asked, np.log(chances_MNA), None)
    assert {each.why for each in unknown} == {"how good whole answers are is not known"}
