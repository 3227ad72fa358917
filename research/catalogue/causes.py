"""Studies of causes: which removal forks name, what one term alone does to the gap, and a bonus that is cut."""

from __future__ import annotations

from dataclasses import replace

from heedful.studies.declaration import Arm, Measure, Pair, Pool, Study, settings, train
from heedful.studies.jobs import TrainingJob
from research.catalogue.collapse import BLIND, FLUENT, MIXED
from research.catalogue.paper.hunt import candidate_flags
from research.catalogue.paper.lean_runs import CURVES, GREEDY, INFORMATION, SUCCESS, WATCHED
from research.causes.chains import COMPONENTS, NullChain
from research.causes.jobs import ForkedJob, PulledJob
from research.causes.outcomes import ForkCauses, Kept, Slopes
from research.detector.candidates import Hunt

GAP = f"{INFORMATION}/gap"


def fork_causes() -> Study:
    """Runs with a planted cause, and healthy ones, forked before their first alarm."""
    kept = (
        "--steps 24 --checkpoint-every 2 --keep-checkpoints all --diagnostics.every 1 --diagnostics.full-every 12 "
        "--attribution.moments --attribution.every 4 --attribution.prompts 72 --evaluation.times 5 "
        "--evaluation.tasks 256 --evaluation.samples 2 --filter keep_all"
    )
    trained = {
        "prose": (f"{FLUENT} --optimizer.lr 5e-5", "no_fluency"),
        "bonus": (f"{MIXED} 0.5 {BLIND} --algorithm.entropy 0.1", "no_bonus"),
        "rate": ("--seedling.imperfect 0.1 --optimizer.lr 1.2e-3", "half_rate"),
        "kl": ("--seedling.imperfect 0.1 --algorithm.kl 0.3", "no_kl"),
        "format": ("--seedling.imperfect 0.1 --env.format-penalty 2 --env.unrewarded 0.9", "no_format"),
        "healthy": ("--seedling.imperfect 0.1", ""),
    }
    arms = [Arm(name, train("chain", f"{flags} {kept}")) for name, (flags, _) in trained.items()]
    arms += [Arm(f"{name}_forked", ForkedJob(settings("chain"), after=name)) for name in trained]
    return Study(
        "fork_causes",
        "Does the removal that helps most name the cause that was planted, and none where nothing was?",
        tuple(arms),
        seeds=(6101, 6102),
        measures=(Measure("sampled success at the end", SUCCESS), Measure("greedy success at the end", GREEDY)),
        curves=(SUCCESS, GAP),
        outcomes=(ForkCauses(tuple((f"{name}_forked", right) for name, (_, right) in trained.items())),),
        minutes=3.5,
        keep_checkpoints=True,
        notes=(
            "Rule, declared before the runs: the right removal is first in at least 9 of 10 runs with a cause, and "
            "none is named in 2 healthy ones. The largest negative part of success in the newest split update agrees "
            "in at least 7 of 10. Falsified below 7 of 10 that are first.",
            "The design asked for 4 seeds a cause, 6 seeds a fork, every second update split, and for a removal that "
            "is named in 17 of 20. 2, 3 and every fourth are what two cores pay for. By its simulation 3 seeds of "
            "forks name the cause in .20 to .73 of the runs and put it first in all. So the rule is about the first.",
            "Prediction: it passes for prose, bonus and format. For the rate the removal is half of it, which is four "
            "times the preset's, so it may help too little to be named. For KL the run may raise no alarm, and is "
            "then forked before step 10.",
            "Rival: the first likely cause that the alarm's own text names, in the last column.",
        ),
    )


def null_terms() -> Study:
    """One term of the loss at a time, on prompts that pay nothing for the task."""
    base = settings(
        "chain",
        f"{MIXED} 0.25 --env.unrewarded 1 --env.format-penalty 0 --filter keep_all --steps 20 --optimizer.lr 5e-5 "
        "--diagnostics.every 1 --diagnostics.full-every 10 --diagnostics.grounding-rows 0 --attribution.every 4 "
        "--attribution.moments --evaluation.times 3 --evaluation.tasks 256 --evaluation.samples 2 "
        "--checkpoint-every 20 --keep-rollouts none",
    )

    # One environment, and so one seedling: each arm leaves out the components that it does not try.
    env = NullChain(instructions="brief", unrewarded=1.0, format_penalty=0.0, coin=1.0, length=0.01, fluency=0.1)

    def arm(name: str, *paid: str, **algorithm: float) -> Arm:
        left_out = tuple(component for component in COMPONENTS if component not in paid)
        changed = replace(base.algorithm, **algorithm)  # type: ignore[arg-type]
        return Arm(name, TrainingJob(replace(base, env=env, algorithm=changed, without_rewards=left_out)))

    signs = {"none": 0, "coin": 0, "prose": -1, "length": -1, "bonus": -1, "kl": 1, "clip": 0}
    return Study(
        "null_terms",
        "Which term of the loss moves the information of thoughts, where no task is paid?",
        (
            arm("none"),
            arm("coin", "coin"),
            arm("prose", "fluency"),
            arm("length", "length"),
            arm("bonus", entropy=0.1),
            Arm("kl", PulledJob(replace(base, env=env), after="prose")),
            arm("clip", "coin", epochs=4),
        ),
        seeds=(6201, 6202, 6203),
        pairs=tuple(Pair(name, "none") for name in signs if name not in ("none", "kl")),
        measures=(
            Measure("change of the gap", GAP, "change"),
            Measure("templates at the end", "text/template_share"),
            Measure("entropy of thoughts at the end", "policy/thought_entropy_per_token"),
            Measure("sampled success at the end", SUCCESS),
        ),
        curves=(GAP, "text/template_share", SUCCESS),
        outcomes=(Slopes(GAP, tuple(signs.items())),),
        minutes=2.5,
        keep_checkpoints=True,
        notes=(
            "Rule, declared before the runs: no registered sign is contradicted by a slope whose 95% interval over "
            "seeds leaves 0, and attribution summed over the split updates is within 25% of the change that was "
            "measured in them in 6 of 7 arms. Every fourth update is split, on 3 seeds. The design asked for all, "
            "on 5.",
            "Prediction: none and coin 0, prose below 0, bonus below 0, KL from a collapsed checkpoint above 0 (toward "
            "the start's gap), clip under the coin 0. Length below 0, since prose is shorter than work here; if it is "
            "longer in a seedling, above 0.",
        ),
    )


def cut() -> Study:
    """The candidates of the hunt with a bonus that is cut at the alarm, and cut at step 6 without looking."""
    blind = "--algorithm.entropy-control step --algorithm.entropy-control.updates 6"
    ways = {"warned": "", "cut": "--on-collapse cut", "blind_cut": blind}
    flags = candidate_flags()
    arms = [
        Arm(f"{stem}_{way}", train("chain", f"{of_stem} --filter keep_all --diagnostics.every 2 {more}"))
        for stem, of_stem in flags.items()
        for way, more in ways.items()
    ]
    pools = tuple(Pool(way, tuple(f"{stem}_{way}" for stem in flags)) for way in ways)
    hunt = Hunt("Collapse", (f"{INFORMATION}/mi", "grounding/thought_influence"))
    return Study(
        "cut",
        "Does an entropy bonus that is cut at the first alarm keep the input, and does a cut without looking as well?",
        tuple(arms),
        seeds=(6301, 6302),
        pairs=(Pair("cut", "warned"), Pair("blind_cut", "warned"), Pair("cut", "blind_cut")),
        pools=pools,
        measures=WATCHED,
        curves=CURVES,
        outcomes=(Kept(hunt, pools),),
        minutes=3.0,
        notes=(
            "Rule, declared before the runs: with the cut at the alarm all 6 runs keep the input, without a filter. A "
            "run has lost it if it is a candidate by the rule of `natural`. The design asked for 12 runs of each way.",
            "Prediction: it passes, and the blind cut at step 6 keeps as many. Then looking is worth nothing here.",
            "Settings of `natural_repeated`, without a filter, on fresh seeds. The alarm is read every 2 steps.",
        ),
    )
