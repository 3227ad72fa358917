"""heedful's environments as an agent loop of verl, registered as `heedful`. `playing` plays; this file knows verl.

The sampled ids are the ids trained on. verl's builder of prompts is not used, because it cuts long prompts.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.utils.fs import copy_to_local
from verl.utils.model import get_generation_config

from heedful.boundary import clean, cut
from heedful.models import Renderer, Tags, named_stop_ids, tools_of
from heedful.protocols import Environment
from heedful.types import Task
from heedful_verl.batch.limits import plain
from heedful_verl.play.episodes import ENVIRONMENT, FIELD, outputs_of, write_episode
from heedful_verl.play.playing import (
    Aborted,
    Limits,
    Played,
    Sampled,
    environment_of,
    play,
    reward_and_measures,
)
from heedful_verl.settings import SECTION, HeedfulConfig, read_section
from heedful_verl.tasks import LOOP, VerlTask, read_task_row

_log = logging.getLogger("heedful")
_renderers: dict[tuple[int, str], Renderer] = {}
"""Tokenizer and settings -> renderer. verl makes a loop for each episode, and the checks of a template take time."""
_sections: dict[int, tuple[Any, HeedfulConfig]] = {}
"""Configuration (held, so that its id stays its own) and its section."""
_told: set[int] = set()
"""The limits of which a warning has said that an episode is longer."""


@register(LOOP)
class HeedfulAgentLoop(AgentLoopBase):
    """Plays one episode of the environment that its row names."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """The rows of the episode. Empty for one that broke or had no room: its group goes on without it."""
        settings = _settings(self.config)
        given, member = read_task_row(row), _member(row)
        threads = _threads(settings.play.threads)
        running = asyncio.get_running_loop()
        env, task = await running.run_in_executor(threads, _drawn, given, settings.play.trust)
        rollout = self.rollout_config
        limits = Limits(settings.play.tokens_per_turn or rollout.response_length, window_of(rollout))
        renderer = self._renderer(settings.tags, env)
        sampler = _Client(
            self.server_manager,
            f"{row['uid']}-{row['session_id']}",
            _with_stops(sampling_params, renderer, self.tokenizer),
        )
        seat = env, task, member
        temperature = float(sampling_params.get("temperature") or 1.0)  # 0 = greedy, read at temperature 1
        try:
            played = await play(seat, settings.play.context, renderer, sampler, limits, temperature, threads)
        except Aborted as error:
            _warn(f"Episode {row['session_id']} of task {given.task} is left out: {error}")
            return []
        return self._outputs(played, given, int(row.get("global_steps", 0)))

    def _renderer(self, tags: Tags, env: object) -> Renderer:
        tools, options = tools_of(env), plain(self.apply_chat_template_kwargs)
        key = (
            id(self.tokenizer),
            json.dumps([repr(tags), options, [tool.schema for tool in tools]], sort_keys=True, default=str),
        )
        if key not in _renderers:
            model = self.config.actor_rollout_ref.model
            found = get_generation_config(
                copy_to_local(model.path), trust_remote_code=model.get("trust_remote_code", False)
            )
            _renderers[key] = Renderer(self.tokenizer, tags, options, stop_ids(found, self.tokenizer), tools)
        return _renderers[key]

    def _outputs(self, played: Played, given: VerlTask, step: int) -> list[AgentLoopOutput]:
        scored = reward_and_measures(played.trajectory)
        if scored is None:
            why = (
                played.trajectory.error
                or f"its first prompt leaves no room for a reply ({window_of(self.rollout_config)} tokens)"
            )
            _warn(f"Episode {played.trajectory.member} of task {given.task} is left out: {why}")
            return []
        reward, measures = scored
        first, last = played.versions or (step, step)
        rows = outputs_of(played.trajectory)
        longest, most = max(len(row.response_ids) for row in rows), self.rollout_config.response_length
        if longest > most and most not in _told:
            _told.add(most)
            _warn(
                f"An episode has {longest} tokens after its first prompt, more than data.max_response_length={most}. "
                "verl trains on all of them. Set it to the longest episode, because verl derives limits of memory "
                "from it. This is said once."
            )
        outputs = [
            AgentLoopOutput(
                prompt_ids=list(row.prompt_ids),
                response_ids=list(row.response_ids),
                response_mask=list(row.response_mask),
                response_logprobs=None if row.logprobs is None else list(row.logprobs),
                num_turns=2 * len(played.trajectory.turns),
                metrics=AgentLoopMetrics(generate_sequences=played.sampling, tool_calls=played.stepping),
                extra_fields={
                    "min_global_steps": first,
                    "max_global_steps": last,
                    "turn_scores": [],
                    "tool_rewards": [],
                },
            )
            for row in rows
        ]
        outputs[-1].reward_score = reward
        episode = {FIELD: write_episode(played.trajectory), ENVIRONMENT: given.environment}
        outputs[-1].extra_fields |= {"reward_extra_info": measures, **episode}
        return outputs


@dataclass(frozen=True, slots=True)
class _Client:
    """verl's client of the inference servers as a sampler. One id per episode, so its turns reach the same server."""

    manager: Any
    request: str
    params: Mapping[str, Any]

    async def __call__(self, ids: Sequence[int], most: int) -> Sampled:
        asked = {**self.params, "max_tokens": most}
        output = await self.manager.generate(request_id=self.request, prompt_ids=list(ids), sampling_params=asked)
        if output.stop_reason in ("aborted", "abort"):
            raise Aborted("the inference server stopped before its reply ended")
        first, last = (output.extra_fields.get(f"{end}_global_steps") for end in ("min", "max"))
        versions = None if first is None or last is None else (int(first), int(last))
        return Sampled(output.token_ids, output.log_probs or (), versions)


def window_of(rollout: Any) -> int:
    """The most tokens of a context with its reply: the server's limit, else prompt and response as verl adds them."""
    return int(rollout.max_model_len or rollout.prompt_length + rollout.response_length)


def stop_ids(generation: Any, tokenizer: Any) -> list[int]:
    """Every id that ends a reply: the model's and the tokenizer's."""
    ids = named_stop_ids(generation)
    own = tokenizer.eos_token_id
    return ids if own is None or own in ids else [*ids, own]


def _with_stops(params: Mapping[str, Any], renderer: Renderer, tokenizer: Any) -> dict[str, Any]:
    """The sampling parameters, with the template's end of turn where the server would not stop at it by itself."""
    if renderer.end_of_turn_id == tokenizer.eos_token_id:
        return dict(params)
    return {**params, "stop_token_ids": sorted(renderer.stop_ids)}


def _member(row: Mapping[str, Any]) -> int:
    if "session_id" not in row or "uid" not in row:
        raise ValueError(
            "Expected rows with `session_id` and `uid`, which verl's default trainer gives, found neither. Leave "
            "trainer.use_v1 at true."
        )
    return int(row["session_id"])


def _drawn(given: VerlTask, trust: tuple[str, ...]) -> tuple[Environment, Task]:
    """The environment and the task of a row. Both may read files, or ask another machine."""
    env = environment_of(given.environment, trust)
    return env, given.draw(env)


@lru_cache(4)
def _threads(most: int) -> ThreadPoolExecutor:
    """The threads of all environments of this process."""
    return ThreadPoolExecutor(most, thread_name_prefix="environment")


def _settings(config: Any) -> HeedfulConfig:
    """The section `heedful`, read once per configuration object, since every episode asks for it."""
    if id(config) not in _sections:
        section = config.get(SECTION)
        _sections[id(config)] = config, read_section(None if section is None else plain(section))
    return _sections[id(config)][1]


def _warn(sentence: str) -> None:
    """Log a warning, which may quote an environment."""
    _log.warning("%s", cut(clean(sentence)))
