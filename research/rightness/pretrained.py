"""Test 8: a pretrained model that reads English thoughts under own, foreign and blank prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from heedful.diagnostics.actions.exchanged import Exchange, Ids, spell
from heedful.diagnostics.actions.rightness import rightness
from heedful.diagnostics.statistics.intervals import mean_interval
from heedful.envs.common.actions import CLOSE_ANSWER, OPEN_ANSWER
from heedful.envs.common.contract import rightness_of
from heedful.envs.common.tasks import TaskStream
from heedful.measuring.swapped import score_exchange
from heedful.models.cache import SMOLLM2
from heedful.models.chat.render import Renderer
from heedful.run.config import TrainConfig
from heedful.run.evaluation.subjects import LoadedModel
from heedful.run.presets import preset
from heedful.scorers.hf import HFScorer
from heedful.seedlings.recipe import WarmStart
from heedful.seeds import derive, stream
from heedful.types import Conversation, Message, Metric, Task
from research.rightness.figures import Figure, Result, figure_of, once
from research.rightness.readings import loading

READ = ("right", "right_by_chance", "right_by_thought", "right_by_prompt", "right_by_both", "foreign_lost")


def pretrained(seed: int, folder: Path, small: bool = False) -> Result:
    """Test 8. What is measured of each environment is stored as soon as it is."""
    found = {
        name: once(folder / f"{name}.json", partial(_measured, name, seed, 4 if small else 16))
        for name in ("chain", "frozen_lake")
    }
    figures: list[Figure] = []
    holds: list[bool] = []
    for name, stored in found.items():
        metrics = {title: Metric(**tree) for title, tree in stored.items()}
        figures += [figure_of(f"{name}: {title}", metric) for title, metric in metrics.items()]
        lost, blank = metrics["foreign_lost"], metrics["sufficiency under blank prompts, less under foreign ones"]
        silent = metrics["probability of no action under own prompts"]
        if silent.number is None or silent.number >= 0.5:
            return Result(None, figures)
        holds.append(lost.high is not None and lost.high < 0.1)
        holds.append(blank.number is not None and abs(blank.number) <= 0.05)
    return Result(all(holds), figures)


def _measured(name: str, seed: int, prompts: int) -> dict[str, dict[str, Any]]:
    config = preset(name, SMOLLM2)
    config = replace(
        config,
        env=replace(config.env, thoughts="english", instructions="brief"),
        warm_start=WarmStart(),
        dtype="float32",
    )
    with loading(replace(config, threads=1)) as loaded:
        return _read(loaded, config, seed, prompts)


def _read(loaded: LoadedModel, config: TrainConfig, seed: int, prompts: int) -> dict[str, dict[str, Any]]:
    env, rng = config.env, stream(seed, "demonstrator")
    shots, tasks = (
        TaskStream(env, "train", derive(seed, name)).next(n) for name, n in (("shots", 3), ("tasks", prompts))
    )
    shown = [
        Message(role, text)
        for task in shots
        for role, text in zip(("user", "assistant"), env.demonstrate(task, rng)[0], strict=True)
    ]
    played = [(task, env.demonstrate(task, rng)[0]) for task in tasks]
    asked = demonstrated_exchange(loaded.renderer, env.actions, played, shown)
    scorer = HFScorer(loaded.model)
    logs_MNS = score_exchange(scorer, asked, 1.0)
    right = rightness_of(env)
    found = {each.name: each for each in rightness(asked, logs_MNS, right) if each.name in READ}
    label_NS = np.array([[(right(task) or {}).get(asked.names_A[a], 0.0) for a in asked.action_S] for task in tasks])
    chances_MN = (np.exp(logs_MNS) * label_NS[:, None]).sum(axis=2)
    np.fill_diagonal(chances_MN, np.nan)
    foreign_M = np.nanmean(chances_MN, axis=1)
    blanks = blanked(asked.prompts_N, *loaded.renderer.tokenizer.encode(".", add_special_tokens=False))
    columns = list(dict.fromkeys(blanks))
    own = tuple(columns.index(blank) for blank in blanks)
    under_blank_MS = np.exp(
        score_exchange(scorer, replace(asked, prompts_N=tuple(columns), own_M=own, foreign=len(columns)), 1.0)
    )[np.arange(prompts), own]
    blank_M = (under_blank_MS * label_NS).sum(axis=1)
    found["sufficiency under foreign prompts"] = _mean(foreign_M)
    found["sufficiency under blank prompts"] = _mean(blank_M)
    found["sufficiency under blank prompts, less under foreign ones"] = _mean(blank_M - foreign_M)
    found["probability of no action under blank prompts"] = _mean(1 - under_blank_MS.sum(axis=1))
    mass_MN = np.exp(logs_MNS).sum(axis=2)
    found["probability of no action under own prompts"] = _mean(1 - mass_MN.diagonal())
    return {title: asdict(each) for title, each in found.items()}


def _mean(values_M: Any) -> Metric:
    interval = mean_interval(values_M.tolist())
    ends = (None, None) if interval is None else interval
    return Metric("", float(values_M.mean()), len(values_M), *ends)


def demonstrated_exchange(
    renderer: Renderer,
    actions: Sequence[str],
    played: Sequence[tuple[Task, tuple[str, str]]],
    shown: Sequence[Message],
) -> Exchange:
    """Each task's observation, its demonstrated thought up to the opened answer, and the actions that may follow.

    `shown`: demonstrated episodes that stand before every observation.
    """
    prompts: list[Ids] = []
    thoughts: list[Ids] = []
    replies: list[list[Ids]] = []
    for _, (observation, reply) in played:
        prompts.append(renderer.context_ids(Conversation("", (*shown, Message("user", observation)))))
        opened = reply[: reply.index(OPEN_ANSWER) + len(OPEN_ANSWER)]
        replies.append([renderer.as_sampled(f"{opened}{action}{CLOSE_ANSWER}") for action in actions])
        thoughts.append(_common(replies[-1]))
    # What follows the opened answer is the same after every thought.
    after = [ids[len(thoughts[0]) :] for ids in replies[0]]
    spelled = spell(after, list(actions), [1] * len(after))
    return Exchange(
        prompts_N=tuple(prompts),
        thoughts_M=tuple(thoughts),
        own_M=tuple(range(len(prompts))),
        spellings_S=tuple(ids for ids in spelled if ids is not None),
        action_S=tuple(range(len(actions))),
        taken_M=(0,) * len(prompts),
        tasks_N=tuple(task for task, _ in played),
        names_A=tuple(actions),
        counts_NA=((0,) * len(actions),) * len(prompts),
    )


def blanked(prompts_N: Sequence[Ids], dot: int) -> list[Ids]:
    """Every prompt with dots between the beginning and the end that all prompts have in common."""
    start = len(_common(prompts_N))
    end = len(_common([ids[start:][::-1] for ids in prompts_N]))
    return [(*ids[:start], *([dot] * (len(ids) - start - end)), *ids[len(ids) - end :]) for ids in prompts_N]


def _common(rows: Sequence[Ids]) -> Ids:
    """The ids with which all rows begin."""
    shared = 0
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        shared += 1
    return rows[0][:shared]
