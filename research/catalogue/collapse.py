"""Studies of collapse that is planted or forced."""

from __future__ import annotations

from dataclasses import replace

from heedful.run.config import AttributionConfig
from heedful.studies.declaration import Arm, Measure, Pair, Study, settings, train
from heedful.studies.jobs import TrainingJob
from research.catalogue.paper.lean_runs import FIRST_TURNS, GREEDY, INFORMATION, SUCCESS
from research.causes.named import NamedCauses
from research.detector.early_warning import Lead
from research.detector.separation import Separation
from research.jobs import SamplingJob

_LEAN = "--keep-rollouts evaluations --checkpoint-every 10"

_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)

MIXED = "--seedling.imperfect 0.1 --seedling.steps 300 --seedling.template"
BLIND = "--env.unrewarded 0.75 --filter keep_all"
"""Three of four training prompts pay nothing, and no filter keeps them out of the loss."""

FLUENT = f"{MIXED} 0.25 --env.unrewarded 0.75 --env.fluency 0.1"
"""A quarter of the demonstrated thoughts are templates, and prose that does not read the prompt earns a little."""

_WATCHED = (
    "--groups 32 --steps 40 --diagnostics.every 1 --diagnostics.full-every 12 --diagnostics.thoughts 4 "
    f"--diagnostics.grounding-rows 32 --evaluation.times 11 {FIRST_TURNS}"
)

_EVALUATED = "--evaluation.tasks 512 --evaluation.samples 2"
"""1,024 episodes per evaluation."""

OF_COLLAPSE = (
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
        seeds=(0, 1, 2),
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
        outcomes=(Separation("Share of at least one half against none", collapsed, (healthy,)),),
        minutes=4.5,
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
            arm("healthy_mixed", f"{MIXED} 0.25"),
            arm("healthy_blind", f"{MIXED} 0.25 {BLIND} --optimizer.lr 5e-5"),
            arm("template", f"{FLUENT} --filter keep_all --optimizer.lr 5e-5"),
            arm(
                "noise",
                "--seedling.imperfect 0.1 --env.unrewarded 0.9 --env.format-penalty 0 --algorithm.entropy 0.1 "
                "--filter keep_all --optimizer.lr 3e-5",
            ),
            arm("noise_mixed", f"{MIXED} 0.5 {BLIND} --algorithm.entropy 0.1 --optimizer.lr 1.5e-4"),
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
        outcomes=(
            Separation("Induced against healthy, from step 20 on", *_SIDES, from_step=20),
            Lead("Alarms of collapse", *_SIDES, SUCCESS, alarms=OF_COLLAPSE, replayed=True, from_step=10),
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


def attribution_causes() -> Study:
    """The runs of `detector` on fresh seeds, with every fourth update split by the parts of the loss."""

    def split(arm: Arm) -> Arm:
        config = arm.job.config
        evaluation = replace(config.evaluation, times=6, tasks=256, samples=1)
        attribution = AttributionConfig(every=4, prompts=72, moments=True)
        return replace(arm, job=TrainingJob(replace(config, steps=25, attribution=attribution, evaluation=evaluation)))

    induced, healthy = ("template", "noise", "noise_mixed"), ("healthy", "healthy_mixed", "healthy_blind")
    return Study(
        "attribution_causes",
        "Does the split of updates name the planted cause before the first alarm, and no cause in a healthy run?",
        tuple(map(split, detector().arms)),
        seeds=(9201, 9202, 9203, 9204),
        measures=(
            Measure("change of sampled success", SUCCESS, "change"),
            Measure("lowest sampled success", SUCCESS, "lowest"),
        ),
        curves=(SUCCESS, "attribution/success/total", "attribution/success/measured"),
        outcomes=(
            NamedCauses(
                "What took success before the first alarm",
                induced,
                ("fluency_constant", "entropy", "entropy"),
                ("alarm/template_collapse", "alarm/noise_collapse", "alarm/noise_collapse"),
                healthy,
                OF_COLLAPSE,
            ),
        ),
        minutes=4.0,
        notes=(
            "Registered before the first run: the planted part is named in at least 11 of 12 induced runs, and a part "
            "that is not of the task in at most 1 of 12 healthy ones. Predicted: template names the reward for prose "
            "in groups of one outcome in 4 of 4 seeds; noise and noise_mixed name the entropy bonus in 7 of 8. In "
            "healthy runs a tiny part of the format reward may be clear of 0, so the first rule may fail there; with a "
            "sum below -.01 none is named.",
            "The design asked for updates 2, 6, ... 22. Every fourth from 0 to 24 is split, each by 72 held-out tasks "
            "with 4 episodes. A pilot on seed 900 chose nothing but the length of the runs.",
            "Rivals of the design that are not built: the largest norm of a gradient, and the largest part of the "
            "advantages.",
        ),
    )


def filter_on_collapse() -> Study:
    """The filter against no filter and against as many prompts drawn at random, where collapse is forced."""
    induced = f"{FLUENT} {_LEAN} {_EVALUATED} --evaluation.times 4"
    filters = ("top_p", "keep_all", "random_subset")
    return Study(
        "filter_on_collapse",
        "Does choosing prompts by the spread of their rewards prevent a forced collapse, beyond training on fewer?",
        tuple(Arm(name, train("chain", f"{induced} --filter {name}")) for name in filters),
        seeds=(0, 1, 2, 3, 4),
        pairs=(Pair("top_p", "keep_all"), Pair("top_p", "random_subset"), Pair("random_subset", "keep_all")),
        measures=(
            Measure("sampled success at the end", SUCCESS),
            Measure("greedy success at the end", GREEDY),
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
