"""heedful's environments as a `rollout_func` of TRL: whole episodes, several turns, masks for ids not sampled.

The returned ids are the sampled ids, and nothing is tokenised twice. Task, member and replies replay an episode.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch

from heedful.boundary.foreign_text import encodable
from heedful.envs.common.contract import task_of_seed, turns_of
from heedful.envs.common.tagged import in_tags
from heedful.envs.common.tasks import SEEDS_PER_TASK
from heedful.integrations.trl.compatibility import PRIVATE_OF_ROLLOUTS, check
from heedful.integrations.trl.pictures import PausedSight, kinds_of, pixels_of, sight_of
from heedful.integrations.watching.completions import row_of
from heedful.models.chat.calls import tools_of
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags, unanswered
from heedful.protocols import Environment, Policy
from heedful.rollout.player import Player, first_observation, made
from heedful.seeds import derive
from heedful.types import Conversation, Image, Observation, Reply, Task, Trajectory

FIELD = "heedful"
"""The field that passes an episode to reward functions."""

_PICTURES = "pictures"
"""The key of a message of the dataset that names the pictures of its observation."""


class Sampler(Protocol):
    """Factory of the policy for one generation batch, from the trainer and the number of the batch."""

    def __call__(self, trainer: Any, batch: int) -> Policy: ...


class EnvironmentRollouts:
    """One of heedful's environments (or your own, by the same protocol) as TRL's `rollout_func`.

        rollouts = to_trl_rollout_func(FrozenLake())
        GRPOTrainer(model, environment_reward, rollout_func=rollouts, train_dataset=rollouts.dataset(512), ...)

    `tokens_per_turn`: maximum tokens of one reply. `chat_options`: variables of the chat template. `sampler`: makes a
    policy for each batch, for instance heedful's own batched sampler. Without one the trainer's engine samples, as TRL
    is configured (`generate`, or vLLM in one process).
    """

    def __init__(
        self,
        env: Environment,
        *,
        tags: Tags | None = None,
        tokens_per_turn: int = 64,
        chat_options: dict[str, object] | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        self.tags = replace(tags or Tags(), of_model=False)  # prompts are written before a model is known
        self.env = in_tags(env, self.tags)
        self.tokens_per_turn = tokens_per_turn
        self.sampler = sampler
        self._chat_options = dict(chat_options or {})
        self._tasks: dict[tuple[str, str], Task] = {}
        """(text, names of pictures) of the first observation -> task."""
        self._renderer: Renderer | None = None
        self._sight: PausedSight | None = None
        self._batches = 0
        if sampler is None:
            check(PRIVATE_OF_ROLLOUTS)

    def dataset(self, tasks: int, split: str = "train", seed: int = 0) -> Any:
        """A `datasets.Dataset` of `tasks` distinct tasks: the column `prompt` holds the first observation as a message.

        TRL hands only the prompt to a rollout_func. So tasks with equal first observations count as one, and a second
        dataset, of another split, leaves out the prompts of the first. Pictures are named in the message, and shown by
        the rollout. Raises ValueError if the environment has too few tasks in the split, or cannot start one.
        """
        import datasets

        found: dict[tuple[str, str], Task] = {}
        drawn: set[str] = set()
        draw, last = 0, SEEDS_PER_TASK
        while len(found) < tasks:
            if draw == last:
                raise ValueError(
                    f"Expected {tasks} tasks of {self.env.name} in the split {split!r} that differ in what they show "
                    f"first, found {len(found)}: {SEEDS_PER_TASK:,} seeds in a row drew no other. Ask for fewer, or "
                    "choose knobs with more start states."
                )
            task = task_of_seed(self.env, derive(seed, "tasks", split, draw))
            draw += 1
            if task.split != split or task.id in drawn:
                continue
            drawn.add(task.id)
            shown = _name(first_observation(self.env, task))
            known = self._tasks.get(shown, task)  # of an earlier dataset: a prompt identifies one task only
            if known.split == split and shown not in found:
                found[shown], last = known, draw + SEEDS_PER_TASK
        self._tasks |= found
        return datasets.Dataset.from_list(
            [
                {"prompt": [{"role": "user", "content": text, **({_PICTURES: pictures} if pictures else {})}]}
                for text, pictures in found
            ]
        )

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Play one episode per prompt. TRL repeats each prompt once per member of a group.

        Returns `prompt_ids`, `completion_ids`, `logprobs`, `env_mask` (1 = sampled) and the episode as `heedful`.
        Pictures stand in the ids as placeholders. Raises ValueError for a prompt that does not come from `dataset`, and
        for pictures in a trainer whose learner would not see them.
        """
        self._refuse_unseen(trainer)
        policy = self._policy(trainer)
        members = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        first = trainer.accelerator.process_index * len(prompts)
        players = [
            Player(made(self.env.episode), self._task(prompt), (first + place) % members, turns_of(self.env))
            for place, prompt in enumerate(prompts)
        ]
        live = [player for player in players if player.ending is None]
        while live:
            if not self._pictured and any(message.images for one in live for message in one.conversation.messages):
                raise ValueError(
                    f"Expected pictures in first observations, or in none, found some in later turns of "
                    f"{self.env.name} alone: TRL learns from pictures only where the prompts of the dataset name them. "
                    "Show one in the first observation of a task, too, or use an observation in text."
                )
            replies = policy.respond([player.conversation for player in live])
            for player, reply in zip(live, replies, strict=True):
                player.advance(reply)
            live = [player for player in live if player.ending is None]
        played = [player.trajectory(policy.temperature, trainer.state.global_step) for player in players]
        return _as_rows(played, self._rendered(trainer), self._sight)

    @property
    def _pictured(self) -> bool:
        """Whether first observations show pictures."""
        return any(pictures for _, pictures in self._tasks)

    def _refuse_unseen(self, trainer: Any) -> None:
        """Raise ValueError for pictures that the learner, or the sampler, would not see."""
        blind = {
            type(trainer).__name__: not getattr(trainer, "learns_pictures", False),
            "a sampler": self.sampler is not None,
            "vLLM": trainer.use_vllm,
            "continuous batching": trainer.use_transformers_continuous_batching,
            "mask_truncated_completions": trainer.mask_truncated_completions,
        }
        found = next((name for name, used in blind.items() if used), "")
        if found and self._pictured:
            raise ValueError(
                "Expected HeedfulGRPOTrainer, TRL's own engine with `generate`, and all completions in the loss, for "
                f"an environment that shows pictures, found {found}: the sampler and the learner would not see the "
                "same pictures in the same places. Leave it out, or use an observation in text."
            )

    def _policy(self, trainer: Any) -> Policy:
        self._batches += 1
        if self.sampler is not None:
            return self.sampler(trainer, self._batches - 1)
        return _Engine(trainer, self._rendered(trainer), self.tokens_per_turn, self._sight)

    def _rendered(self, trainer: Any) -> Renderer:
        if self._renderer is None:
            ends, tools = trainer.eos_token_ids, tools_of(self.env)
            tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
            self._sight = sight_of(trainer) if self._pictured else None
            self._renderer = Renderer(tokenizer, self.tags, self._chat_options, ends, tools, self._sight)
        return self._renderer

    def _task(self, prompt: Any) -> Task:
        text = prompt[-1]["content"] if isinstance(prompt, list) else prompt
        pictures = prompt[-1].get(_PICTURES) if isinstance(prompt, list) else None
        shown = (text, pictures or "")
        if shown not in self._tasks:
            raise ValueError(
                f"Expected a prompt of the dataset that this rollout_func made ({len(self._tasks)} tasks of "
                f"{self.env.name}), found {str(text)[:60]!r}. Pass rollouts.dataset(...) as train_dataset, and "
                "another one of it as eval_dataset."
            )
        return self._tasks[shown]


to_trl_rollout_func = EnvironmentRollouts
"""The name under which scripts know it."""


def environment_reward(prompts: list[Any], completions: list[Any], **fields: Any) -> list[float | None]:
    """The reward function for `to_trl_rollout_func`: the sum of the environment's own components.

    None for an episode that broke. TRL passes all its data by name, so the parameters are open.
    """
    played: list[Trajectory] | None = fields.get(FIELD)
    if played is None:
        raise ValueError(
            "environment_reward expected episodes of to_trl_rollout_func, found completions of another origin. Pass "
            "the rollout_func to the trainer, or another reward function."
        )
    return [trajectory.reward for trajectory in played]


def _name(observation: Observation) -> tuple[str, str]:
    """The text of an observation, as a data set can hold it, and the names of its pictures."""
    return encodable(observation.text), " ".join(image.digest for image in observation.images)


def _written(ids: Sequence[int], sight: PausedSight | None) -> list[int]:
    """The ids as TRL's learner takes them, with placeholders for pictures."""
    return [sight.placeholder if sight is not None and id < 0 else id for id in ids]


def _as_rows(played: Sequence[Trajectory], renderer: Renderer, sight: PausedSight | None = None) -> dict[str, Any]:
    rows: dict[str, Any] = {
        "prompt_ids": [],
        "completion_ids": [],
        "logprobs": [],
        "env_mask": [],
        FIELD: list(played),
    }
    known = all(len(turn.reply.logprobs) == len(turn.reply.ids) for trajectory in played for turn in trajectory.turns)
    for trajectory in played:
        ids, mask, logprobs = row_of(trajectory.turns)
        if not ids:  # the episode broke at its start, but TRL needs a token in every row
            ids, mask, logprobs = [renderer.end_of_turn_id], [0], [0.0]
        first = trajectory.turns[0].reply.prompt.ids if trajectory.turns else (renderer.end_of_turn_id,)
        rows["prompt_ids"].append(_written(first, sight))
        rows["completion_ids"].append(_written(ids, sight))
        rows["env_mask"].append(mask)
        rows["logprobs"].append(logprobs)
    return rows if known else {**rows, "logprobs": None}


class _Engine:
    """The trainer's own sampling engine as a policy."""

    def __init__(self, trainer: Any, renderer: Renderer, tokens_per_turn: int, sight: PausedSight | None) -> None:
        shared = trainer.use_vllm and (trainer.vllm_mode == "server" or trainer.vllm_tensor_parallel_size > 1)
        if shared and trainer.accelerator.num_processes > 1:
            raise ValueError(
                "to_trl_rollout_func expected one process, or an engine of vLLM in each (vllm_mode='colocate', "
                f"vllm_tensor_parallel_size=1), found {trainer.accelerator.num_processes} processes with one engine: "
                "their calls must keep step, which episodes of different lengths do not. Pass a sampler otherwise."
            )
        self._trainer = trainer
        self._renderer = renderer
        self._sight = sight
        self._most = tokens_per_turn
        self.temperature = float(trainer.temperature)
        self.version = int(trainer.state.global_step)

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        config = self._trainer.model.config.get_text_config(decoder=True)
        renderer, limit = self._renderer, getattr(config, "max_position_embeddings", None) or 1 << 30
        prompts = [renderer.next_prompt(conversation) for conversation in conversations]
        contexts = [renderer.context_ids(conversation) for conversation in conversations]
        fits = [row for row, context in enumerate(contexts) if len(context) + self._most <= limit]
        replies = [unanswered(prompt) for prompt in prompts]
        if not fits:
            return replies
        shown = [[image for message in conversations[row].messages for image in message.images] for row in fits]
        ids, logprobs = self._sample([_written(contexts[row], self._sight) for row in fits], shown)
        for place, row in enumerate(fits):
            said = [] if logprobs is None else logprobs[place]
            replies[row] = renderer.parse(prompts[row], ids[place], said)
        return replies

    def _sample(
        self, contexts: list[list[int]], images_B: Sequence[Sequence[Image]]
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """Sample through the trainer's engine. Its only limit is that of whole completions."""
        trainer, fields = self._trainer, dict[str, Any]()
        if any(images_B):
            fields = pixels_of(trainer, images_B)
            del fields["num_images"]
            kinds = [kinds_of(trainer, torch.tensor(context)) for context in contexts]
            fields |= {name: [each[name].tolist() for each in kinds] for name in kinds[0]}
        with _at_most(trainer, self._most, self._sight):
            ids, logprobs = trainer._generate_single_turn(contexts, None, fields, 1)
        return ids, logprobs


@contextmanager
def _at_most(trainer: Any, tokens: int, sight: PausedSight | None) -> Iterator[None]:
    """Limit the trainer's engine to `tokens` tokens per call, and to no placeholder of a picture."""
    owner: Any = trainer.vllm_generation if trainer.use_vllm else trainer
    name = "max_completion_length" if trainer.use_vllm else "generation_config"
    limited: Any = tokens
    if not trainer.use_vllm:  # with vLLM, TRL makes no generation_config
        limited = copy.deepcopy(trainer.generation_config)
        limited.max_new_tokens = tokens
        if sight is not None and limited.suppress_tokens is None:  # TRL sets it from 1.16 on
            limited.suppress_tokens = [sight.placeholder]
    before = getattr(owner, name)
    setattr(owner, name, limited)
    try:
        yield
    finally:
        setattr(owner, name, before)
