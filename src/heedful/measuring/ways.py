"""How sampler, scorer and learner read a model, and how many tokens more than behind a shared prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from heedful.scorers.hf import HFScorer


@dataclass(frozen=True, slots=True)
class Way:
    """How one part reads a model."""

    part: str
    words: str
    times: float
    """Tokens that are read, as a multiple of the fewest."""

    def __str__(self) -> str:
        return f"The {self.part} {self.words}" + (f": {self.times:.2g} times the tokens." if self.times > 1 else ".")


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways that the probes of a model found exact."""

    obstacle: str = ""
    """Why replies are sampled without a KV cache, as half a sentence. Empty if with one."""
    method: str = "packed"
    """The scorer's method, with the reasons against faster ones."""
    shares: bool = True
    """Whether the learner computes a prompt once for several rows."""

    @classmethod
    def of(cls, model: PreTrainedModel, scorer: HFScorer | None, samples: bool = True) -> Ways:
        """Reads a few tokens, unless the probes have run. A model that gives NaN is compared with nothing.

        `scorer`: `None` where nothing is scored. `samples`: whether this process samples.
        """
        from heedful.models.forward.exactness import Probe, evaluating
        from heedful.models.forward.token_logits import keeps_prompts
        from heedful.policies.growing import way_of

        with evaluating(model):
            finite = Probe.of(model).finite
        if not finite:
            return FASTEST
        obstacle = way_of(model)[1] if samples else ""
        return cls(obstacle, scorer.way if scorer else FASTEST.method, keeps_prompts(model))

    def sampled(self, groups: int, members: int, prompt: int, reply: int, turns: int = 1, shown: int = 0) -> int:
        """The tokens that the sampler reads. `shown`: tokens of later observations, for each turn but the first."""
        episodes, own = groups * members, turns * reply
        if not self.obstacle:
            return groups * prompt + episodes * ((turns - 1) * shown + own)
        return episodes * (own * prompt + own * (own - 1) // 2 + shown * reply * turns * (turns - 1) // 2)

    def scored(self, columns: int, rows: int, prompt: int, thought: int) -> int:
        """The tokens that the scorer reads for every thought under every prompt."""
        whole = columns * rows * (prompt + thought)
        return whole if self.method.startswith("plain") else columns * (prompt + rows * thought)

    def each(self, groups: int, members: int, prompt: int, reply: int) -> list[Way]:
        """The way of each part, for `groups` prompts with `members` replies of one turn each."""

        def times(found: Callable[[Ways], int]) -> float:
            return found(self) / max(1, found(FASTEST))

        sampler, scorer, learner = "keeps the KV cache", "reads each prompt once", "reads each prompt once"
        if self.obstacle:
            sampler = f"reads the whole context for each token, since {self.obstacle}"
        if self.method.startswith("plain"):
            scorer = "reads each pair of prompt and thought whole"
        if not self.shares:
            learner = "reads each reply with its whole prompt"
        rows = times(lambda ways: members * (prompt + reply) if not ways.shares else prompt + members * reply)
        return [
            Way("sampler", sampler, times(lambda ways: ways.sampled(groups, members, prompt, reply))),
            Way(
                "scorer",
                f"{scorer} ({self.method})",
                times(lambda ways: ways.scored(groups, groups * members, prompt, reply)),
            ),
            Way("learner", learner, rows),
        ]


FASTEST = Ways()
