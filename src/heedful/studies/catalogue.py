"""The studies that heedful declares itself, as functions. `heedful study NAME --print` shows every setting of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from heedful.algorithms.table import ALGORITHMS
from heedful.configuration import Choice
from heedful.models.cache import SMOLLM2
from heedful.run.config import TrainConfig
from heedful.studies.declaration import Arm, Lead, Measure, Pair, Separation, Study, settings, train
from heedful.studies.jobs import SamplingJob, TrainingJob

SUCCESS = "eval/val/sampled/success"
INFORMATION = "information/first_turn"

_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)

_LEAN = "--keep-rollouts evaluations --checkpoint-every 10"

_MIXED = "--seedling.imperfect 0.1 --seedling.steps 300 --seedling.template"
_BLIND = "--env.unrewarded 0.75 --filter keep_all"
"""Three of four training prompts pay nothing, and no filter keeps them out of the loss."""

_FLUENT = f"{_MIXED} 0.25 --env.unrewarded 0.75 --env.fluency 0.1"
"""A quarter of the demonstrated thoughts are templates, and prose that does not read the prompt earns a little."""

_WATCHED = (
    "--groups 32 --steps 40 --diagnostics.every 1 --diagnostics.full-every 12 --diagnostics.thoughts 4 "
    "--diagnostics.any-turn 0 --diagnostics.swapped-rows 0 --diagnostics.words 0 --diagnostics.grounding-rows 32 "
    "--evaluation.times 11"
)

_EVALUATED = "--evaluation.tasks 512 --evaluation.samples 2"
"""1,024 episodes per evaluation."""


_OF_COLLAPSE = (
    "alarm/*_collapse",
    "alarm/entropy_*",
    "alarm/thought_bypassed",
    "alarm/input_blind",
    "alarm/oscillation",
)
"""Alarms that look at thoughts and actions, not at the reward or at success."""

_SIDES = ("template", "noise", "noise_mixed"), ("healthy", "healthy_mixed", "healthy_blind")
"""Arms of the detector study: made to collapse, and healthy."""


def planted() -> Study:
    """Warm starts that carry a known share of templates, sampled from without any training."""
    config = settings(
        "chain", "--groups 16 --group-size 4 --keep-rollouts none --diagnostics.words 0 --diagnostics.grounding-rows 32"
    )

    def job(share: float) -> SamplingJob:
        seedling = replace(config.seedling, template=share)
        return SamplingJob(replace(config, seedling=seedling), batches=50, forced=32, own_seedling=True)

    arms = tuple(Arm(f"share_{round(100 * share):03d}", job(share), share) for share in _SHARES)
    healthy, collapsed = arms[0].name, tuple(arm.name for arm in arms if arm.level is not None and arm.level >= 0.5)
    return Study(
        "planted",
        "Which metric tells thoughts that are templates from thoughts that read their prompt, and from what share on?",
        arms,
        seeds=(0, 1),
        dial="planted share of templates",
        measures=(
            Measure("gap per token", f"{INFORMATION}/gap_per_token", "mean"),
            Measure("mutual information", f"{INFORMATION}/mi", "mean"),
            Measure("retrieval accuracy", "retrieval/first_turn/accuracy", "mean"),
            Measure("accuracy of a judge of the texts", "text/judge_accuracy", "mean"),
            Measure("influence of the thought", "grounding/thought_influence", "mean"),
            Measure("entropy given the prompt", f"{INFORMATION}/entropy_conditional_per_token", "mean"),
            Measure("token entropy", "policy/entropy_per_token", "mean"),
            Measure("success", "success/rate", "mean"),
            Measure("success under own thoughts", "forced/own/success", "mean"),
            Measure("success under foreign thoughts", "forced/foreign/success", "mean"),
            Measure("success under empty thoughts", "forced/empty/success", "mean"),
        ),
        separations=(Separation("Share of at least one half against none", collapsed, (healthy,)),),
        minutes=2.5,
        notes=(
            "Every batch is 16 prompts x 4 thoughts of a warm start that was never trained by reward; each seed grows "
            "warm starts of its own, so areas are not those of one lucky model.",
        ),
    )


def detector() -> Study:
    """Healthy and induced training runs on Chain, and what warns before success falls."""

    def arm(name: str, flags: str) -> Arm:
        return Arm(name, train("chain", f"{flags} {_LEAN} {_WATCHED} {_EVALUATED}"))

    return Study(
        "detector",
        "Does any alarm come before success has fallen by 10 points, and does it keep quiet where nothing is wrong?",
        (
            arm("healthy", ""),
            arm("healthy_mixed", f"{_MIXED} 0.25"),
            arm("healthy_blind", f"{_MIXED} 0.25 {_BLIND} --optimizer.lr 5e-5"),
            arm("template", f"{_FLUENT} --filter keep_all --optimizer.lr 5e-5"),
            arm(
                "noise",
                "--seedling.imperfect 0.1 --env.unrewarded 0.9 --env.format-penalty 0 --algorithm.entropy 0.1 "
                "--filter keep_all --optimizer.lr 3e-5",
            ),
            arm("noise_mixed", f"{_MIXED} 0.5 {_BLIND} --algorithm.entropy 0.1 --optimizer.lr 1.5e-4"),
        ),
        seeds=(0, 1, 2, 3),
        measures=(
            Measure("sampled success at the end", SUCCESS),
            Measure("change of sampled success", SUCCESS, "change"),
            Measure("lowest sampled success", SUCCESS, "lowest"),
            Measure("gap per token at the end", f"{INFORMATION}/gap_per_token"),
            Measure("template share of the texts at the end", "text/template_share"),
        ),
        curves=(
            SUCCESS,
            f"{INFORMATION}/mi",
            f"{INFORMATION}/gap_per_token",
            "retrieval/first_turn/accuracy",
            "grounding/thought_influence",
            f"{INFORMATION}/entropy_conditional_per_token",
            "policy/entropy_per_token",
            "format/valid_rate",
            "text/template_share",
        ),
        separations=(Separation("Induced against healthy, from step 20 on", *_SIDES, from_step=20),),
        leads=(
            Lead("Alarms of collapse", *_SIDES, SUCCESS, alarms=_OF_COLLAPSE, replayed=True, from_step=10),
            Lead("All alarms", *_SIDES, SUCCESS, replayed=True, from_step=10),
        ),
        minutes=4.0,
        notes=(
            "Collapse is forced: 3 of 4 training prompts (9 of 10 under noise) pay nothing, and either a little reward "
            "for prose (template) or an entropy bonus (noise, noise_mixed) fills the gap. Learning rates were chosen "
            "so that it takes 10 to 20 steps, on a run of another seed each.",
            "healthy_blind trains on the same blind prompts without the push: what pays nothing does no harm by "
            "itself.",
            "Each point of success rests on 1,024 episodes.",
            "Among all alarms, reward_blind names the forced cause and success_drop is success itself: neither "
            "foresees anything, so the alarms of collapse are counted alone as well.",
        ),
    )


def filter_on_collapse() -> Study:
    """The filter against no filter and against as many prompts drawn at random, where collapse is forced."""
    induced = f"{_FLUENT} {_LEAN} {_EVALUATED} --evaluation.times 4"
    filters = ("top_p", "keep_all", "random_subset")
    return Study(
        "filter_on_collapse",
        "Does choosing prompts by the spread of their rewards prevent a forced collapse, beyond training on fewer?",
        tuple(Arm(name, train("chain", f"{induced} --filter {name}")) for name in filters),
        seeds=(0, 1, 2, 3, 4),
        pairs=(Pair("top_p", "keep_all"), Pair("top_p", "random_subset"), Pair("random_subset", "keep_all")),
        measures=(
            Measure("sampled success at the end", SUCCESS),
            Measure("greedy success at the end", "eval/val/greedy/success"),
            Measure("mutual information at the end", f"{INFORMATION}/mi"),
            Measure("gap per token at the end", f"{INFORMATION}/gap_per_token"),
            Measure("token entropy at the end", "policy/entropy_per_token"),
        ),
        curves=(
            SUCCESS,
            f"{INFORMATION}/mi",
            f"{INFORMATION}/gap_per_token",
            "policy/entropy_per_token",
            "filter/kept_ratio",
        ),
        minutes=2.0,
        notes=(
            "Forced: 3 of 4 training prompts pay nothing but a little for prose, and the filter looks at the outcome, "
            "so it leaves them out; the random subset separates which prompts are kept from how many.",
        ),
    )


def algorithms() -> Study:
    """The paper's table: four algorithms, each without a filter, with it, and with as many prompts drawn at random."""
    lean = (
        "--algorithm.minibatches 1 --steps 60 --evaluation.times 2 --evaluation.samples 2 --keep-rollouts evaluations "
        "--checkpoint-every 20 --diagnostics.every 20 --diagnostics.full-every 59 --diagnostics.words 0 "
        "--diagnostics.swapped-rows 0 --diagnostics.any-turn 0"
    )
    names, filters = ("ppo", "grpo", "dapo", "dr_grpo"), ("top_p", "keep_all", "random_subset")
    arms = tuple(
        Arm(f"{name}_{filter}", train("frozen_lake", f"--algorithm {name} --filter {filter} {lean}"))
        for name in names
        for filter in filters
    )
    pairs = tuple(Pair(f"{name}_top_p", f"{name}_{control}") for name in names for control in filters[1:])
    return Study(
        "algorithms",
        "What does choosing prompts by the spread of their rewards give PPO, GRPO, DAPO and Dr. GRPO on FrozenLake?",
        arms,
        seeds=(0, 1, 2),
        pairs=pairs,
        measures=(
            Measure("gain of sampled success", SUCCESS, "change"),
            Measure("sampled success at the end", SUCCESS),
            Measure("greedy success at the end", "eval/val/greedy/success"),
            Measure("share of prompts kept", "filter/kept_ratio", "mean"),
            Measure("sampled tokens per step", "tokens/collect", "mean"),
            Measure("trained tokens per step", "tokens/update", "mean"),
            Measure("gap per token at the end", f"{INFORMATION}/gap_per_token"),
            Measure("token entropy at the end", "policy/entropy_per_token"),
        ),
        curves=(
            SUCCESS,
            "success/rate",
            "policy/entropy_per_token",
            "filter/kept_ratio",
            f"{INFORMATION}/gap_per_token",
        ),
        minutes=2.5,
        notes=(
            "All runs start from one seedling; a seed changes tasks, sampling and which prompts are drawn at random.",
            "Each algorithm has the settings of its row of the table, at one learning rate and one optimizer step per "
            "batch (the row of PPO takes two): they were not tuned one by one, so compare within an algorithm, not "
            "across.",
            "DAPO draws further prompts until enough groups vary, whatever the filter: its keep_all trains on no "
            "constant group either, and it samples more.",
            "Under keep_all the averages run over constant groups too, so the filter also changes the scale of the "
            "loss, which AdamW divides out; the random subset separates which prompts are kept from how many.",
        ),
    )


def pretrained() -> Study:
    """SmolLM2 after its warm start: all weights and LoRA, with the filter and without."""
    lean = (
        "--threads 1 --keep-rollouts all --checkpoint-every 5 "
        "--diagnostics.share none --diagnostics.any-turn 0 --diagnostics.swapped-rows 0"
    )
    lora = "--lora.rank 16 --optimizer.lr 5e-4"
    # Each answer of Math is an action of its own, so exchanging thoughts costs more there.
    environments = {"bandit": "", "math": "--diagnostics.grounding-rows 10 --diagnostics.grounding-columns 5"}
    arms = tuple(
        Arm(f"{env}_{name}{end}", train(env, f"{weights} {filter} {lean} {watched}", model=SMOLLM2))
        for env, watched in environments.items()
        for name, weights in (("full", ""), ("lora", lora))
        for end, filter in (("", ""), ("_keep_all", "--filter keep_all"))
    )
    return Study(
        "pretrained",
        "What does RL give a pretrained model after its warm start, and does its reasoning collapse?",
        arms,
        seeds=(0, 1),
        pairs=tuple(Pair(arm.name, f"{arm.name}_keep_all") for arm in arms if not arm.name.endswith("_keep_all")),
        measures=(
            Measure("sampled success before", SUCCESS, "first", to_step=0),
            Measure("gain of sampled success", SUCCESS, "change"),
            Measure("gain of greedy success", "eval/val/greedy/success", "change"),
            Measure("change of mutual information", f"{INFORMATION}/mi", "change"),
            Measure("change of the gap per token", f"{INFORMATION}/gap_per_token", "change"),
            Measure("change of retrieval accuracy", "retrieval/first_turn/accuracy", "change"),
            Measure("change of the influence of the thought", "grounding/thought_influence", "change"),
            Measure("change of the accuracy of a judge of the texts", "text/judge_accuracy", "change"),
            Measure("share of prompts kept", "filter/kept_ratio", "mean"),
        ),
        curves=(SUCCESS, "success/rate", "policy/entropy_per_token", "filter/kept_ratio"),
        minutes=25.0,
        notes=(
            "Needs the extra smollm2. All runs of an environment start from one warm start of all weights, about a "
            "quarter of an hour on two cores.",
            "LoRA (rank 16) learns with 5e-4, and all weights with 8e-5 on Bandit and 3e-5 on Math.",
        ),
        keep_checkpoints=True,
    )


def visual() -> Study:
    """The same boards as a picture, as text, and as both, with the filter and without."""
    small = "--keep-rollouts evaluations --checkpoint-every 20"
    shown = {
        "image": "",
        "image_and_text": "--env.observation image_and_text",
        "text": "--env.observation both --seedling.vision-width 0",
    }
    arms = tuple(
        Arm(f"{env}_{form}{end}", train(f"{env}_image", f"{small} {flags} {filter}"))
        for env in ("frozen_lake", "sokoban")
        for form, flags in shown.items()
        for end, filter in (("", ""), ("_keep_all", "--filter keep_all"))
    )
    names = [arm.name for arm in arms if not arm.name.endswith("_keep_all")]
    return Study(
        "visual",
        "Does an agent learn from pictures what it learns from text, and does it go on reading them?",
        arms,
        seeds=(0, 1, 2),
        pairs=(
            *(Pair(name, f"{name}_keep_all") for name in names),
            *(Pair(f"{env}_image", f"{env}_text") for env in ("frozen_lake", "sokoban")),
            *(Pair(f"{env}_image_and_text", f"{env}_text") for env in ("frozen_lake", "sokoban")),
        ),
        measures=(
            Measure("sampled success before", SUCCESS, "first", to_step=0),
            Measure("gain of sampled success", SUCCESS, "change"),
            Measure("gain of greedy success", "eval/val/greedy/success", "change"),
            Measure("change of mutual information", f"{INFORMATION}/mi", "change"),
            Measure("gap per token before", f"{INFORMATION}/gap_per_token", "first", to_step=0),
            Measure("change of the gap per token", f"{INFORMATION}/gap_per_token", "change"),
            Measure("share of prompts kept", "filter/kept_ratio", "mean"),
        ),
        curves=(SUCCESS, "success/rate", f"{INFORMATION}/gap_per_token"),
        minutes=12.0,
        notes=(
            "The seedlings of all arms have the same Llama and the same number of demonstrated episodes. Those of text "
            "have no vision tower.",
        ),
    )


def several_seeds(config: TrainConfig, seeds: Sequence[int]) -> Study:
    """The study of `heedful train ENV --seeds 0,1,2`: one arm, and what training gains."""
    split, algorithm = config.evaluation.split, Choice(ALGORITHMS).name_of(type(config.algorithm))
    measures = []
    for kind in ("sampled", "greedy"):
        metric = f"eval/{split}/{kind}/success"
        measures += [
            Measure(f"{kind} before", metric, "first", to_step=0),
            Measure(f"{kind} after", metric, from_step=1),
            Measure(f"{kind} gain", metric, "change"),
        ]
    return Study(
        re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{config.env.name}-{algorithm}").lstrip("_.-"),
        f"What does training with {algorithm} gain on held-out tasks of {config.env.name}?",
        (Arm("run", TrainingJob(replace(config, seed=0))),),
        tuple(seeds),
        measures=tuple(measures),
        curves=(
            f"eval/{split}/sampled/success",
            "success/rate",
            f"{INFORMATION}/mi",
            f"{INFORMATION}/gap_per_token",
            "policy/entropy_per_token",
            "filter/kept_ratio",
        ),
        notes=(
            "Gains are paired by task: the same held-out tasks are played before and after training.",
            "All seeds start from one warm start; a seed changes tasks, sampling and random choices.",
        ),
        keep_checkpoints=True,
        flat=True,
    )


def smoke() -> Study:
    """Seconds on Echo: both kinds of jobs, a pair, a separation and leads, to see the machinery work."""
    small = (
        "--steps 4 --groups 4 --group-size 4 --evaluation.tasks 16 --evaluation.samples 2 --evaluation.times 3 "
        "--diagnostics.every 1 --diagnostics.full-every 2 --keep-rollouts evaluations --checkpoint-every 1"
    )
    sampled = settings("echo", "--groups 6 --group-size 4 --keep-rollouts none --diagnostics.words 0")
    return Study(
        "smoke",
        "Does the machinery of studies work?",
        (
            Arm("top_p", train("echo", small)),
            Arm("keep_all", train("echo", f"{small} --filter keep_all")),
            Arm("sampled", SamplingJob(sampled, batches=4)),
        ),
        seeds=(0, 1),
        pairs=(Pair("top_p", "keep_all"),),
        measures=(
            Measure("sampled success at the end", SUCCESS),
            Measure("gap per token", f"{INFORMATION}/gap_per_token", "mean"),
            Measure("first step with half of the prompts kept", "filter/kept_ratio", "first_at_least", 0.5),
        ),
        curves=(SUCCESS, "success/rate", f"{INFORMATION}/gap_per_token"),
        separations=(Separation("Trained against sampled", ("keep_all",), ("sampled",)),),
        leads=(Lead("Alarms", ("keep_all",), ("top_p",), SUCCESS, drift_free=10),),
        minutes=0.2,
    )
