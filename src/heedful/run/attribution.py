"""Which part of the loss moved the thoughts in one update: of a stored step, or in training.

A stored step is replayed: the checkpoint's weights and optimizer, the step's own rollouts and verdicts. Fresh episodes
read the update. The run is not changed but for its file of the measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from heedful.diagnostics.attribution import GREEDY, Attribution, attribution_metrics, with_greedy
from heedful.run.config import AttributionConfig, TrainConfig
from heedful.run.fresh import fresh_tasks, play_fresh
from heedful.run.terminal import GrowthBar, progress_bar
from heedful.storage import Rollouts, RunFolder, read_rollouts, refuse_unwritable, write_gradients
from heedful.training.ranks.parallel import DataParallel
from heedful.types import Group, Metric

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.policies import OpenPolicySource
    from heedful.protocols import Environment
    from heedful.run.parts import Parts

CONDITION = (
    "of this one update, with AdamW's second moment and the clipped norm held: not what would have been without a part"
)
"""What the numbers are, beside every table of them."""


def attribute_update(
    folder: RunFolder, config: TrainConfig, step: int, asked: AttributionConfig, seed: int, console: Console
) -> None:
    """Replay the update of a step from its checkpoint, split it, and store the parts.

    Raises ValueError where the step's rollouts are missing, or were sampled by other weights, and for a run that
    replays successes.
    """
    from heedful.envs.common.tagged import in_tags
    from heedful.policies import Weights, open_with
    from heedful.rollout import isolated
    from heedful.run.checkpoint import Checkpoint, checkpoints
    from heedful.run.parts import assemble
    from heedful.run.update import update_policy

    if "replay" in config.treat:
        raise ValueError(
            f"Expected a run whose updates can be split, found {folder.path} with --treat replay: a replayed success "
            f"is no episode of the step. heedful fork {folder.path} tries what this run does without one thing at a "
            "time. To split updates, train a new run without --treat replay."
        )
    rollouts = _batch(folder, step)
    refuse_unwritable(folder.attribution(step))
    asked = replace(asked, every=1)
    config = replace(  # of a run in shards, whose checkpoints are whole, this process holds the whole model
        config,
        attribution=asked,
        diagnostics=replace(config.diagnostics, enabled=False),
        parallel=DataParallel(),
    )
    checkpoint = Checkpoint(folder.checkpoint(step), step) if step else None
    origin = next((each.began() for each in checkpoints(folder.path / "checkpoints")), None)
    if checkpoint is not None:
        checkpoint.check("Restore it, or choose another checkpoint.")
    began = time.perf_counter()
    with GrowthBar(console) as bar:
        parts = assemble(config, bar, checkpoint, began=origin)
    assert parts.attributor is not None
    env = in_tags(config.env, parts.renderer.tags)
    total = asked.prompts * asked.thoughts
    with isolated(env, config.env_workers, config.env_timeout) as played:
        with (
            open_with(config.policy, Weights(parts.model, step, parts.saveable)) as source,
            progress_bar(console, f"step {step}: playing {total} fresh episodes") as tell,
        ):
            finish = read_update(config, parts, played, source, step, seed, step, tell=tell)
        with progress_bar(console, f"step {step}: splitting the update of {len(rollouts.groups)} groups"):
            update_policy(config, parts.learner, rollouts.groups, rollouts.verdicts or (), parts.attributor)
            found = finish()
    assert found is not None
    facts = {"seed": seed, "seconds": round(time.perf_counter() - began, 1)}
    store_attribution(folder, config, parts, step, rollouts.groups, found, facts)


def read_update(
    config: TrainConfig,
    parts: Parts,
    env: Environment,
    source: OpenPolicySource,
    step: int,
    *numbers: int,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Callable[[], Attribution | None]:
    """Play fresh episodes and read them before the update of `step`. The result is called after it, and says what it
    did. `numbers` decide the tasks and the noise. `tell`: told of the episodes done, of how many.
    """
    from heedful.policies import Local, Weights, open_with

    attributor, asked = parts.attributor, config.attribution
    assert attributor is not None
    names: tuple[str | int, ...] = ("attribution", *numbers)
    tasks = fresh_tasks(config, env, config.evaluation.split, asked.prompts, *names)
    attributor.read(step, play_fresh(config, parts, env, source, tasks, asked.thoughts, *names, tell=tell))
    # Replies of the learner's own model: where servers sample, they do not hold the updated weights yet.
    greedy = replace(config, policy=Local(), sampling=replace(config.sampling, greedy=True))

    def outcomes() -> list[float]:
        with open_with(greedy.policy, Weights(parts.model, step, parts.saveable)) as own:
            played = play_fresh(greedy, parts, env, own, tasks, 1, *names)
        return [float(group.trajectories[0].outcome or 0.0) for group in played]

    if GREEDY not in asked.readings:
        return attributor.finish
    before = outcomes()

    def finish() -> Attribution | None:
        found = attributor.finish()
        return None if found is None else with_greedy(found, before, outcomes(), asked.blocks)

    return finish


def _batch(folder: RunFolder, step: int) -> Rollouts:
    """The stored batch of a step, whose episodes the weights of its checkpoint sampled."""
    if not folder.rollouts(step).exists():
        raise ValueError(
            f"Expected the episodes of step {step} in {folder.rollouts(step)}, found none: an update is split from its "
            "own batch. Choose a checkpoint of a step that has one, or train with --keep-rollouts all."
        )
    rollouts = read_rollouts(folder.rollouts(step))
    versions = {one.policy_version for group in rollouts.groups for one in group.trajectories}
    if versions != {step}:
        raise ValueError(
            f"Expected episodes that the weights of step {step} sampled in {folder.rollouts(step)}, found those of "
            f"{', '.join(map(str, sorted(versions)))}: their update cannot be replayed from this checkpoint."
        )
    return rollouts


def store_attribution(
    folder: RunFolder,
    config: TrainConfig,
    parts: Parts,
    step: int,
    groups: Sequence[Group],
    found: Attribution,
    facts: Mapping[str, str | int | float | None] | None = None,
) -> list[Metric]:
    """Write the parts of one update beside the run, and return them as metrics."""
    assert parts.attributor is not None
    asked, metrics = config.attribution, attribution_metrics(found)
    piece = parts.renderer.piece
    moved = [
        {
            "reading": one.reading,
            "group": one.group,
            "member": one.member,
            "task": groups[one.group].task.id,
            "total": one.total,
            "terms": dict(one.of_terms),
            "tokens": [[piece(token), value] for token, value in one.tokens],
        }
        for one in found.moved
    ]
    own = {
        "environment": config.env.name,
        "what": CONDITION,
        "prompts": asked.prompts,
        "thoughts": found.thoughts,
        "blocks": asked.blocks,
        "moments of terms": "kept" if parts.attributor.moments is not None else "not kept: carried has no name",
        **({"why": found.why} if found.why else {}),
        **(facts or {}),
    }
    write_gradients(folder.attribution(step), step, own, metrics, moved)
    return metrics
