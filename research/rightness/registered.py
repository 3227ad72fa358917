"""The nine registered tests: rule, prediction, seeds and size of each, written before the first run judges one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Registered:
    """One test. Its seeds were used by no earlier study."""

    title: str
    rule: str
    """When the test passes."""
    prediction: str
    size: str
    """What is run, and where it is smaller than planned."""
    seeds: tuple[int, ...]


TESTS: Mapping[int, Registered] = {
    1: Registered(
        "Exact, unbiased, covered",
        "The enumerated policies read their values to the digits that are stated. The mean of 2,000 batches of 4 "
        "prompts x 1 thought is within 4 standard errors of the truth, for every policy and part. Intervals hold the "
        "truth in at least 90% of batches, or are marked. Batches in another order read the same, to 1e-12. The mean "
        "over all ways to deal 8 prompts into 2 blocks is the value of all pairs, to 1e-12.",
        "passes",
        "21 policies; 2,000 batches a policy for the bias; 60 batches of 8 x 2 and of 16 x 2 a policy for the "
        "coverage.",
        (5301,),
    ),
    2: Registered(
        "No label can save mutual information",
        "H(Y) - I(Y;Z) <= H(X) - I(X;Z) for every row of every random matrix and label, to 1e-9.",
        "passes: it is proved",
        "5,000 random matrices of 2 to 11 prompts, 1 to 4 labels and 20 thoughts.",
        (5302,),
    ),
    3: Registered(
        "Planted shares of templates, of random numbers, of one too high",
        "`right_by_thought` is linear in the share (R^2 >= .98) for all three kinds, and mutual information for "
        "templates alone. Area at a share of .25 against none: >= .95 for `right_by_thought` with each kind; <= .65 "
        "for mutual information and for the gap with random numbers and with one too high.",
        "passes, but a random number breaks the chain that follows it, so mutual information may move with random "
        "numbers, too",
        "7 seedlings on Chain, grown for 100 steps: shares 0, .25 and 1 of each kind; 6 batches of 32 prompts x "
        "2 thoughts each, information of 16 of the prompts. Cut: three shares in place of six, one seedling a cell in "
        "place of three, 6 batches in place of 50. So areas are those of single models.",
        (5303,),
    ),
    4: Registered(
        "Chain: collapsed against healthy, and no lead",
        "Area of collapsed against healthy runs at the last measurement >= .95 for `right_by_thought`, and above that "
        "of mutual information: the difference of the two areas has an interval above 0 (bootstrap over runs, 95%). "
        "With success at the next evaluation, success now held fixed, its correlation within runs has an interval "
        "inside [-.2, .2].",
        "the area passes, and there is no lead. The interval of the correlation will be wider than the rule asks",
        "Four arms, `healthy_quarter`, `healthy_half`, `template`, `noise_mixed`, with 27 steps of 16 x 4 episodes, "
        "evaluated and measured every 3 steps on 96 tasks, one sampled and one greedy episode each. Cut: 12 runs at "
        "most in place of 24, 64 episodes a step in place of 256, the rates of docs/results/chain.md. Runs go seed by "
        "seed, and what is judged is every seed whose four runs are over when time is up. No result is looked at "
        "before.",
        (61, 62, 63),
    ),
    5: Registered(
        "Sokoban: three falls that nobody planted",
        "A part of `right` (first action on a shortest way, or graded whole answer) falls by 2 standard errors no "
        "later than greedy success. If none does, the claim is closed. In full, before the runs: a reading has fallen "
        "at the first evaluation that is below the one before training, with the difference of the two beyond their "
        "half intervals in quadrature. This holds for parts and for success alike. Passes if one of 12 parts (by "
        "thought, by prompt or by both; first actions or whole answers; sampled or greedy) falls no later than greedy "
        "success in every run whose greedy success falls, of two such runs at least. What whole answers are worth is "
        "read beside it and cannot pass: of greedy ones it is nearly success. One part falls by chance at one "
        "evaluation in .025, so one of 12 in three runs by the fourth evaluation in about .01.",
        "`right_by_thought` of first actions shows nothing. The graded whole answer falls at the same evaluation, not "
        "before: the part that falls is `worth_by_prompt` or `worth_by_both`, sampled or greedy.",
        "`early_warning`'s arm `sokoban_keep_all` with all checkpoints. Cut: 18 steps in place of 33, since greedy "
        "success fell at steps 12, 12 and 18 on seeds 31 to 33; 256 held-out tasks x 1 sampled episode in place of 2 "
        "and x 1 greedy one, every 3 steps. 64 of the tasks are exchanged, for first actions and for whole answers, "
        "sampled and greedy.",
        (41, 42, 43),
    ),
    6: Registered(
        "Bypass: Bandit and Echo from half template demonstrations",
        "`right_by_prompt` >= .5 of `right` - `right_by_chance`, in the mean of the seeds, in each environment.",
        "Echo passes. Bandit may learn nothing, as a first try did",
        "Two seedlings an environment, two batches of 32 x 2 each. Left out: training with the answer's attention to "
        "the prompt masked. No model here has such a mask.",
        (5306, 5307),
    ),
    7: Registered(
        "Alarm `thought_unhelpful`",
        "At most 1 false in the healthy runs; raised in at least 10 of 12 noise and 10 of 12 template collapses, or "
        "in the same part of fewer runs. If `action_uninformed` or `entropy_rise` does as well on the same runs, no "
        "alarm is built.",
        "it does no better than `action_uninformed`, and later than `entropy_rise`",
        "The runs of test 4, and Echo, Bandit and FrozenLake as healthy runs (27 steps, read every 3). The alarm: "
        "`right_by_thought` fell by half of its level and by .1 at least, 5 standard errors, 3 readings before, 2 "
        "after. Cut: half of the runs at most, whole seeds that are over.",
        (61, 62, 63),
    ),
    8: Registered(
        "SmolLM2-135M in English: is a foreign prompt out of distribution?",
        "`foreign_lost` < .1 with its interval, and the sufficiency of thoughts under blank prompts within .05 of that "
        "under foreign ones, on Chain and on FrozenLake. Blank: tokens between the beginning and the end that all "
        "prompts share are dots. Not judged where the probability of no action under own prompts is .5 or more.",
        "passes on Chain. On FrozenLake a foreign board contradicts the thought, and the two may differ",
        "The model as it is loaded, with three demonstrated episodes before each prompt; 16 tasks x 1 thought that the "
        "environment demonstrates, up to the opened answer. Cut: no warm start (some 8 CPU minutes an environment), so "
        "its own thoughts are not read. The episodes were added after a look with another seed: without them it gives "
        "no action on FrozenLake in .97, so that the test would pass and say nothing.",
        (5308,),
    ),
    9: Registered(
        "Logs with known truth",
        "Labels of other members (`agreed_by_thought`) and labels of other successful members rank the 7 planted "
        "policies of test 3 as the solver does: Spearman >= .9 over all, and the second are right in at least 90% of "
        "the prompts that have one.",
        "agreement ranks templates and random numbers as the solver does, and not one too high. Labels of successful "
        "members are right on Chain, whose episodes have one action",
        "The batches of test 3 once more, 4 members a prompt: 2 are exchanged, 2 are labels. And `heedful audit` of "
        "one of them in the form of TRL's log. Cut: 2 batches a policy.",
        (5309,),
    ),
}
