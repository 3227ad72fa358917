"""How sampler, scorer and learner read a model, and how many tokens more than behind a shared prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from heedful.scorers.hf import HFScorer


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

    def slower(self, groups: int, members: int, prompt: int, reply: int) -> list[str]:
        """A sentence about each part that is not the fastest, for `groups` prompts with `members` replies of a turn."""
        sizes, rows = (groups, members, prompt, reply), groups * members
        found = []
        if self.obstacle:
            times = self.sampled(*sizes) / FASTEST.sampled(*sizes)
            found.append(f"The sampler reads the whole context for each token, since {self.obstacle}: {times:.2g}")
        if self.method.startswith("plain"):
            times = self.scored(groups, rows, prompt, reply) / FASTEST.scored(groups, rows, prompt, reply)
            found.append(f"The scorer reads each pair of prompt and thought whole ({self.method}): {times:.2g}")
        if not self.shares:
            times = members * (prompt + reply) / (prompt + members * reply)
            found.append(f"The learner reads each reply with its whole prompt: {times:.2g}")
        return [f"{sentence} times the tokens." for sentence in found]


FASTEST = Ways()
