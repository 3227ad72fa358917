"""The outside judge and the shared phrases: hand-computed shares, exact chance, separable and identical thoughts."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from episodes import episode, group, turn
from scipy.special import logsumexp

from heedful.diagnostics import text, word_judge
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.diagnostics.statistics.intervals import jackknife_interval
from heedful.diagnostics.text import text_metrics, text_thoughts
from heedful.types import Prompt, Span

WORDS = [f"word{number}" for number in range(40)]
NAMES = ["text/judge_accuracy", "text/judge_accuracy_8way", "text/judge_chance", "text/template_share"]


def measure(thoughts_by_prompt, seed=0):
    found = text_metrics(thoughts_by_prompt, np.random.default_rng(seed))
    assert [metric.name for metric in found] == NAMES
    return {metric.name.removeprefix("text/"): metric for metric in found}


def sentences(seed, prompts, members, own):
    """Thoughts of ten words; each word with chance `own` from five that belong to the prompt, else from all."""
    rng = random.Random(seed)
    return [
        [
            " ".join(
                WORDS[5 * prompt % 40 + rng.randrange(5)] if rng.random() < own else rng.choice(WORDS)
                for _ in range(10)
            )
            for _ in range(members)
        ]
        for prompt in range(prompts)
    ]


def test_identical_thoughts_earn_exactly_chance_and_are_as_alike_across_prompts_as_within():
    found = measure([["go up and then right"] * members for members in (8, 4, 5, 6, 7, 8, 8, 9, 12)])
    assert found["judge_accuracy"].value == pytest.approx(1 / 9)
    assert found["judge_accuracy_8way"].value == pytest.approx(1 / 8)
    assert found["judge_chance"].value == pytest.approx(1 / 9)
    assert found["template_share"].value == 1.0
    assert found["judge_accuracy"].n == found["template_share"].n == 67


def test_thoughts_that_name_their_prompt_are_always_told_apart():
    found = measure(sentences(0, prompts=8, members=5, own=1.0))
    assert found["judge_accuracy"].value == found["judge_accuracy_8way"].value == 1.0
    assert found["template_share"].value == 0.0


def test_more_of_the_prompt_in_a_thought_is_read_more_often():
    accuracies = [measure(sentences(1, 8, 8, own))["judge_accuracy"].value for own in (0.0, 0.15, 0.3, 0.6)]
    assert accuracies == sorted(accuracies)
    assert accuracies[0] < 0.3 < 0.8 < accuracies[-1]


def test_the_interval_holds_the_value_and_stays_a_share():
    found = measure(sentences(2, 10, 8, 0.25))
    for name in ("judge_accuracy", "judge_accuracy_8way"):
        assert 0 <= found[name].low < found[name].value < found[name].high <= 1


def test_two_prompts_are_judged_too():
    assert measure(sentences(3, 2, 8, 1.0))["judge_accuracy"].value == 1.0
    assert measure([["go up"] * 4] * 2)["judge_accuracy"].value == 0.5


def test_the_judge_never_sees_the_thought_that_it_is_asked_about():
    # Every thought is unlike every other: whoever had memorised it would name its prompt.
    unique = iter(random.Random(4).sample(range(10**8), 80))
    found = measure([[f"{next(unique)} {next(unique)}"[:8] for _ in range(5)] for _ in range(8)])
    assert found["judge_accuracy"].value < 0.35


def test_same_generator_same_readings_and_the_order_of_prompts_does_not_matter():
    thoughts = sentences(5, 8, 6, 0.3)
    assert measure(thoughts, 1) == measure(thoughts, 1)
    assert measure(thoughts, 1)["judge_accuracy"] != measure(thoughts, 2)["judge_accuracy"]
    drawn = [measure(thoughts, seed)["judge_accuracy"].value for seed in range(5)]
    turned = [measure(thoughts[::-1], seed)["judge_accuracy"].value for seed in range(5)]
    assert np.mean(drawn) == pytest.approx(np.mean(turned), abs=0.05)


def test_prompts_with_few_thoughts_are_left_out_and_too_few_prompts_are_no_judgement():
    thoughts = sentences(6, 4, 4, 1.0)
    found = measure([*thoughts, ["alone"], []])
    assert found["judge_chance"].value == 1 / 4
    assert found["judge_accuracy"].n == 16
    assert found["judge_accuracy_8way"].value is None
    lonely = measure([thoughts[0], thoughts[1][:3]])
    assert all(lonely[name].value is None for name in ("judge_accuracy", "judge_accuracy_8way", "judge_chance"))
    assert lonely["judge_accuracy"].why == "needs at least 2 prompts with 4 thoughts each, found 1"


def test_the_narrow_features_keep_all_inner_products_of_the_ngrams():
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = ["P 0 1 G", "P 0 1 G", "", "go  up\n\n é", sentences(0, 1, 1, 0.5)[0][0]]
    ngrams = TfidfVectorizer(analyzer="char", ngram_range=(1, 4), lowercase=False, sublinear_tf=True).fit_transform(
        [f" {thought} " for thought in texts]
    )
    features = word_judge.judge_features(texts)
    assert features.shape == (5, 4), "two thoughts are equal"
    assert features @ features.T == pytest.approx((ngrams @ ngrams.T).toarray(), abs=1e-12)


@pytest.mark.parametrize("prompts", [2, 4])
def test_decisions_are_those_of_a_multinomial_logistic_regression(prompts):
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    own = np.repeat(np.arange(4), [7, 10, 8, 15]) % prompts  # unequal counts, which balance
    own.sort()
    features, fold = rng.normal(size=(40, 5)), np.tile(np.arange(5), 8)
    decisions = word_judge.judge_decisions(features, own, fold)
    seen = fold != 0
    judge = LogisticRegression(C=10.0, class_weight="balanced", max_iter=5000, tol=1e-10)
    # Of two classes scikit-learn fits their difference alone, under twice the penalty.
    judge.C = 20.0 if prompts == 2 else 10.0
    expected = judge.fit(features[seen], own[seen]).predict_log_proba(features[~seen])
    found = decisions[~seen] - logsumexp(decisions[~seen], axis=1, keepdims=True)
    assert found == pytest.approx(expected, abs=word_judge.TOLERANCE)


def test_template_share_by_hand():
    # Every thought has two phrases. Within a prompt each finds both, bar the last thought; across, the first only.
    thoughts = [["a b c x", "a b c x"], ["a b c y", "a b c y"], ["a b c z", "a b c v"]]
    found = measure(thoughts)["template_share"]
    assert found.value == pytest.approx((6 * 1 / 2) / (4 * 1 + 2 * 1 / 2))
    assert found.n == 6
    # Deleting a prompt: 4 x 1/2 over (2 + 1), (2 + 1), 4.
    deleted = np.array([2 / 3, 2 / 3, 2 / 4])
    error = np.sqrt(2 / 3 * np.sum((deleted - deleted.mean()) ** 2))
    assert found.high - found.value == pytest.approx(4.302653 * error, rel=1e-5)


def test_phrases_are_compared_with_equally_many_thoughts_on_both_sides():
    # The one sibling has the phrase; of the nine others one has: a draw of one finds it a ninth of the time.
    found = measure([["a b c", "a b c"], *([f"{letter} b c"] for letter in "adefghijk")])["template_share"]
    assert found.value == pytest.approx(1 / 9)
    # Three others, two siblings of which one has the phrase: a pair of others misses "a b c" in 1 of 3 draws.
    found = measure([["a b c", "a b c", "d e f"], ["a b c"], ["x y z"], ["g h i"]])["template_share"]
    assert found.value == pytest.approx((2 * 2 / 3) / 2)


def test_phrases_are_counted_in_the_order_of_the_text_so_that_two_audits_round_alike():
    assert [*text._phrases(" ".join(WORDS + WORDS[:4]))] == [
        *zip(WORDS, WORDS[1:], WORDS[2:], strict=False),
        *zip(WORDS[-2:], [WORDS[-1], WORDS[0]], WORDS[:2], strict=True),
    ]


def drawn_template_share(thoughts_by_prompt, rng, draws):
    """The definition, drawn: the mean share found among as many thoughts of other prompts and of the own one."""
    across = within = 0.0
    for own, thoughts in enumerate(thoughts_by_prompt):
        others = [thought for j, told in enumerate(thoughts_by_prompt) if j != own for thought in told]
        for place, thought in enumerate(thoughts):
            siblings, phrases = thoughts[:place] + thoughts[place + 1 :], text._phrases(thought)
            size = min(len(siblings), len(others))
            if not (phrases and size):
                continue
            for _ in range(draws):
                for drawn in (rng.sample(others, size), rng.sample(siblings, size)):
                    share = len(phrases & set().union(*map(text._phrases, drawn))) / len(phrases) / draws
                    across, within = (across + share, within) if drawn[0] in others else (across, within + share)
    return across / within


@pytest.mark.parametrize("counts", [(4, 4, 4, 4), (1, 5, 2, 3), (6, 2, 1)])
def test_template_share_is_the_mean_over_draws_and_its_interval_deletes_each_prompt_in_turn(counts):
    words = random.Random(sum(counts))
    thoughts = [
        [f"{prompt} " + " ".join(words.choice("abc") for _ in range(6)) + f" {prompt}" for _ in range(count)]
        for prompt, count in enumerate(counts)
    ]
    found = measure(thoughts)["template_share"]
    assert found.value == pytest.approx(drawn_template_share(thoughts, random.Random(0), draws=500), abs=0.025)
    deleted = [measure(thoughts[:j] + thoughts[j + 1 :])["template_share"].value for j in range(len(counts))]
    low, high = jackknife_interval(found.value, np.array(deleted)).cut(floor=0.0)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_a_sign_is_a_word_and_a_phrase_counts_once():
    assert text._phrases("up, up, up, up") == {("up", ",", "up"), (",", "up", ",")}
    assert text._phrases("two words") == set()


def test_groups_of_one_and_thoughts_without_phrases_have_no_template_share():
    assert "no prompt has two thoughts" in measure([["a b c"], ["a b c"]])["template_share"].why
    assert "at least 2 prompts" in measure([["a b c", "a b c"], []])["template_share"].why
    assert measure([])["template_share"].value is None
    assert "3 words" in measure([["a b", "a"], ["a b c"]])["template_share"].why
    unlike = measure([["a b c", "d e f"], ["a b c", "g h i"]])["template_share"]
    assert (unlike.value, unlike.why) == (
        None,
        "no phrase of 3 words occurs in two thoughts of one prompt: nothing to compare with",
    )
    two = measure([["a b c", "a b c"], ["a b c", "a b c"]])["template_share"]
    assert (two.value, two.low) == (1.0, None)
    assert "at least 3 prompts" in two.why


def test_thoughts_are_gathered_by_prompt_without_their_tags():
    def told(prompt, sentence, closed=True, forced=True):
        one, text = turn(), "<assistant><think>" if forced else "<assistant>"
        reply = replace(one.reply, prompt=Prompt(text, (prompt,)), text=sentence, closed=closed, thought=Span(0, 2))
        return episode(1.0, replace(one, reply=reply))

    groups = [
        group("a", told(1, "<think>go up</think><answer>Up</answer>"), told(1, "<think> a<b is so", closed=False)),
        group("b", told(2, "<think> a <i>tag</i> </think>"), episode(None)),
        group("c", told(1, "Well. <think>go </think> </think>", forced=False)),
        group("d", episode(1.0, replace(turn(), reply=replace(turn().reply, thought=Span(0, 0))))),
    ]
    assert text_thoughts(groups, ThoughtTags()) == [["go up", "a<b is so", "go"], ["a <i>tag</i>"]]


def test_templates_planted_among_demonstrations_lower_the_accuracy_and_raise_the_template_share():
    from heedful.envs.common.tasks import evaluation_tasks
    from heedful.envs.frozen_lake.environment import FrozenLake

    found = []
    for share in (0.0, 0.5, 1.0):
        env, rng = FrozenLake(template=share, imperfect=0.3), random.Random(0)
        replies = [[env.demonstrate(task, rng)[0][1] for _ in range(8)] for task in evaluation_tasks(env, "train", 16)]
        found.append(measure([[re.split("</?think>", reply)[1] for reply in member] for member in replies]))
    accuracies = [reading["judge_accuracy"] for reading in found]
    assert accuracies[0].low > accuracies[1].high
    assert accuracies[1].low > accuracies[2].high
    assert accuracies[2].low <= 1 / 16 <= accuracies[2].high
    assert found[0]["template_share"].high < found[2]["template_share"].low
    assert found[2]["template_share"].low <= 1 <= found[2]["template_share"].high
