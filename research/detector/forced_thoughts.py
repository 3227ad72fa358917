"""Does the thought cause the answer? Success when every turn's thought is put into the policy's mouth.

Promise: nothing but the thought is forced. The answer after it is sampled from the same model at the same temperature,
the environment reads the whole reply as it reads any other, and no weight changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from heedful.envs.common.contract import turns_of
from heedful.models.chat.render import Renderer
from heedful.policies import OpenPolicySource, Sampling
from heedful.protocols import Environment
from heedful.rollout import FULL_HISTORY, Context, LockStep, Request
from heedful.run.evaluation.held_out import success_metric
from heedful.seeds import derive
from heedful.types import Conversation, Metric, Prompt, Reply, Task

Kind = Literal["own", "foreign", "empty"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def forced_thought_success(
    source: OpenPolicySource,
    renderer: Renderer,
    sampling: Sampling,
    env: Environment,
    tasks: Sequence[Task],
    *,
    seed: int = 0,
    context: Context = FULL_HISTORY,
) -> list[Metric]:
    """`forced/own/success`, `forced/foreign/success`, `forced/empty/success`: one episode per task and kind.

    own: a thought that the policy samples for this prompt, as in ordinary play; foreign: one that it sampled for
    another prompt of the same turn; empty: the closing tag alone, which a policy may never have met. Where thoughts
    cause the answers, own stands above both others, and foreign at chance; where they do not, all three are equal.
    Intervals are over tasks (Wilson). The policy is the one whose weights `source` holds. `sampling` and `context` are
    those of training.
    """
    metrics = []
    for kind in KINDS:
        policy = ForcedThoughts(source, renderer, sampling, kind, derive(seed, "forced thoughts", kind))
        groups = LockStep()(policy, Request(env.episode, tasks, 1, turns_of(env), context))
        metrics.append(success_metric(f"forced/{kind}/success", groups))
    return metrics


class ForcedThoughts:
    """A policy whose thoughts are forced and whose answers are sampled after them; see `forced_thought_success`.

    A foreign thought is that of the next conversation in the batch whose last observation differs (else, when all
    others have ended, of an earlier turn). A forced thought that is not closed stays so and gets no answer. In its
    replies the log-probabilities and entropies of forced tokens are NaN.
    """

    def __init__(self, source: OpenPolicySource, renderer: Renderer, sampling: Sampling, kind: Kind, seed: int) -> None:
        self.renderer, self.sampling, self.kind = renderer, sampling, kind
        self._beginnings = _Beginnings(renderer)
        self._thinker = source.policy(renderer, sampling, derive(seed, "thoughts"))
        self._answerer = source.policy(self._beginnings, sampling, derive(seed, "answers"))
        self._seen: list[tuple[str, tuple[int, ...]]] = []

    @property
    def temperature(self) -> float:
        return self.sampling.temperature

    @property
    def version(self) -> int:
        return self._thinker.version

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One reply per conversation: a forced thought and the answer sampled after it."""
        forced_B = self._thoughts(conversations)
        closed_B = [self.renderer.parse(_NOTHING, ids, [0.0] * len(ids)).closed for ids in forced_B]
        answered = [conversation for conversation, closed in zip(conversations, closed_B, strict=True) if closed]
        self._beginnings.of = {conversation.key: ids for conversation, ids in zip(conversations, forced_B, strict=True)}
        rests = {one.key: rest for one, rest in zip(answered, self._answerer.respond(answered), strict=True)}
        return [
            self._join(self.renderer.next_prompt(conversation), ids, rests.get(conversation.key))
            for conversation, ids in zip(conversations, forced_B, strict=True)
        ]

    def _thoughts(self, conversations: Sequence[Conversation]) -> list[tuple[int, ...]]:
        if self.kind == "empty":
            close = self.renderer.tags.close
            tag = close if self.renderer.opening else self.renderer.tags.open + close
            return [self.renderer.as_sampled(self.renderer.opening + tag)[:-1]] * len(conversations)
        own_B = [reply.ids[: reply.thought.end] for reply in self._thinker.respond(conversations)]
        if self.kind == "own":
            return own_B
        prompts_B = [conversation.messages[-1].content for conversation in conversations]
        pool = list(zip(prompts_B, own_B, strict=True))
        donors = [*pool, *pool, *self._seen]
        self._seen = [*pool, *self._seen][:_KEPT]
        return [_foreign(prompt, donors[number + 1 :]) for number, prompt in enumerate(prompts_B)]

    def _join(self, prompt: Prompt, thought: tuple[int, ...], rest: Reply | None) -> Reply:
        ids, logprobs, entropies = (rest.ids, rest.logprobs, rest.entropies) if rest else ((), (), ())
        unknown = (float("nan"),) * len(thought)
        # A source that reports no entropies leaves all of them out.
        known = unknown + entropies if len(entropies) == len(ids) else ()
        return self.renderer.parse(prompt, thought + ids, unknown + logprobs, known)


_KEPT = 256
"""Thoughts of earlier turns that can serve as foreign ones."""

_NOTHING = Prompt("", ())


def _foreign(prompt: str, donors: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    """The first thought that was sampled under another observation."""
    return next(thought for other, thought in donors if other != prompt)


class _Beginnings:
    """A renderer whose contexts end with the given first ids of the reply."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self.of: Mapping[str, tuple[int, ...]] = {}
        self.stop_ids, self.next_prompt, self.parse = renderer.stop_ids, renderer.next_prompt, renderer.parse

    def context_ids(self, conversation: Conversation) -> tuple[int, ...]:
        return (*self._renderer.context_ids(conversation), *self.of[conversation.key])
