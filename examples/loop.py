"""The whole training loop, flat: tasks, episodes, filter, samples, measurement, update. `heedful train` does the same.

    pip install torch && pip install 'heedful[train]'
    python examples/loop.py            # about a minute on two cores; Echo, 10 steps

`heedful.run` adds evaluation, checkpoints, resuming, several processes, trackers and the report.
"""

import sys

import numpy as np

from heedful.algorithms import Grpo
from heedful.boundary import to_json
from heedful.diagnostics import behaviour
from heedful.diagnostics.cross_scores.information import information
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags, first_turn_thoughts
from heedful.envs.common import TaskStream
from heedful.envs.toys.echo import Echo
from heedful.filters import TopP
from heedful.models import Renderer, Tags
from heedful.policies import HFPolicy, Sampling
from heedful.rollout import LockStep, Request
from heedful.scorers import HFScorer
from heedful.seedlings import load_seedling, nano
from heedful.seeds import derive, stream
from heedful.training import Learner, OptimizerConfig, UpdateSettings, make_samples

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
SEED, TASKS, MEMBERS = 0, 8, 8

env = Echo(instructions="brief")
sampling, algorithm, keep = Sampling(tokens_per_turn=24), Grpo(), TopP(p=0.9)

# A small model that was trained on the environment's demonstrations. Any causal chat model works as well.
model, tokenizer, _ = load_seedling(nano(), env, to_json(env), Tags(), lambda step, steps, loss: None)
renderer = Renderer(tokenizer, Tags())
learner = Learner(model, algorithm, OptimizerConfig(lr=1e-3), UpdateSettings(sampling.temperature))
scorer = HFScorer(model)
tasks = TaskStream(env, "train", derive(SEED, "tasks"))

for step in range(STEPS):
    # 1. Episodes: each task is played several times by the current weights.
    policy = HFPolicy(model, renderer, sampling, seed=derive(SEED, "rollout", step), version=step)
    groups = LockStep()(policy, Request(env.episode, tasks.next(TASKS), MEMBERS, env.turns))

    # 2. Filter: a verdict with a reason for each group. A group whose outcomes are all equal gives no gradient.
    outcomes = [[member.outcome for member in group.trajectories] for group in groups]
    verdicts = keep(outcomes, stream(SEED, "filter", step))

    # 3. Measure, before the update: do the thoughts still depend on their prompts?
    thoughts = first_turn_thoughts(groups, ThoughtTags())
    scores = scorer.cross_score(thoughts.prompts_N, thoughts.thoughts_M, thoughts.own_M, sampling.temperature)
    rng = np.random.default_rng(derive(SEED, "permutations", step))
    measured = {metric.name: metric for metric in information(scores, "first_turn", rng).metrics}

    # 4. Update: advantages within each group, the ids that were sampled, one step of the optimizer.
    samples = make_samples(groups, verdicts, algorithm.advantage)
    updated = {metric.name: metric for metric in learner.update(samples, token_budget=sampling.tokens_per_turn)}

    success = next(metric for metric in behaviour(groups) if metric.name == "success/rate")
    mi, ceiling = measured["information/first_turn/mi"], measured["information/first_turn/mi_ceiling"]
    kept = sum(verdict.kept for verdict in verdicts)
    norm = updated["policy/gradient_norm"].value or 0.0
    print(
        f"step {step}: success {success.value:.2f}, kept {kept} of {TASKS} groups, "
        f"mutual information {mi.value:.2f} of {ceiling.value:.2f} nats, gradient norm {norm:.2f}"
    )
