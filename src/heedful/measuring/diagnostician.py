"""Takes every measurement of a training step, with the weights that sampled it and before they are updated.

Promise: reads only. Its random numbers are its own, so training with and without it gives the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from heedful.configuration import refuse_below
from heedful.diagnostics.alarms.early_check import Suspicion, cheap_rows, suspect
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.diagnostics.alarms.watch import Alarm, Alarms
from heedful.diagnostics.cross_scores.information import ZScoreState, information
from heedful.diagnostics.cross_scores.mixture import gap_per_token
from heedful.diagnostics.cross_scores.pointwise import pointwise_information
from heedful.diagnostics.cross_scores.score_matrix import score_matrix, select_rows
from heedful.diagnostics.cross_scores.thoughts import (
    Thoughts,
    ThoughtTags,
    any_turn_thoughts,
    by_environment,
    first_turn_thoughts,
    swapped_observations,
)
from heedful.diagnostics.regimes import RegimeState, label_regime
from heedful.diagnostics.signal import rollout_metrics
from heedful.diagnostics.strategies import input_to_action
from heedful.diagnostics.text import text_metrics, text_thoughts
from heedful.diagnostics.unavailable import withheld
from heedful.measuring.grounded import grounding_metrics
from heedful.measuring.swapped import TokenScorer, score_swapped
from heedful.protocols import WindowExceeded
from heedful.seeds import derive, stream
from heedful.storage import TokenValues
from heedful.types import CrossScores, Group, Metric, Verdict

if TYPE_CHECKING:
    from heedful.scorers.judge import Judge


@dataclass(frozen=True, slots=True)
class DiagnosticsConfig:
    """How often, and on how many thoughts, the dependence of the reasoning on the input is measured."""

    enabled: bool = True
    every: int = 4
    """Steps between cheap measurements."""
    full_every: int = 20
    """Steps between full measurements (every prompt and every member)."""
    prompts: int = 16
    """Prompts of a cheap measurement."""
    thoughts: int = 2
    """Thoughts per prompt of a cheap measurement."""
    any_turn: int = 32
    """Thoughts of a full measurement whose turn is drawn, at most 64; 0 = none."""
    swapped_rows: int = 16
    """Thoughts of a full measurement that are read under swapped observations, at most 32; 0 = none."""
    swapped_columns: int = 8
    """Observations that are swapped among them, at most 16."""
    grounding_rows: int = 16
    """Thoughts of a full measurement that are exchanged between prompts, to see what their actions follow; at most 128,
    0 = none."""
    grounding_columns: int = 8
    """Prompts whose thoughts are exchanged, at most 32."""
    words: int = 64
    """Thoughts of a full measurement that are stored token by token, with what each token tells of the prompt; at most
    64, 0 = none."""
    judge: str | None = None
    """Another causal model, a folder or a Hugging Face name, that reads prompts and thoughts as text at full
    measurements; none = only the policy judges itself."""
    max_tokens: int = 4096
    """Most padded tokens scored in one forward pass."""
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    """When a change of what is measured is an alarm."""

    def __post_init__(self) -> None:
        refuse_below(self, every=1, full_every=1, prompts=1, thoughts=1, max_tokens=1)
        refuse_below(self, any_turn=0, swapped_rows=0, swapped_columns=2, words=0)
        refuse_below(self, grounding_rows=0, grounding_columns=2)
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise ValueError(f"{name} must be at most {most}, found {getattr(self, name)}")


MOST = {
    "any_turn": 64,
    "swapped_rows": 32,
    "swapped_columns": 16,
    "grounding_rows": 128,
    "grounding_columns": 32,
    "words": 64,
}
"""Upper ends of the knobs: beyond them a full measurement would be no measurement but most of the run."""

NOTHING = CrossScores([], [], [])


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The metrics of one step and, after a full measurement, the matrix they came from.

    In a batch of several environments the matrix is that of the first one."""

    metrics: list[Metric]
    scores: CrossScores | None = None
    thoughts: Thoughts | None = None
    words: tuple[TokenValues, ...] = ()
    """What each token of some of the thoughts tells of its prompt."""
    raised: tuple[Alarm, ...] = ()
    """Alarms that were not raised at the step before."""


@dataclass(slots=True)
class Diagnostician:
    """Measures at two cadences and carries the few numbers that connect measurements.

    Every `config.every` steps a cheap measurement of first turns; every `config.full_every` steps, and when the cheap
    one leaves its baseline (at most once in half of `full_every`), one of all scopes.
    """

    config: DiagnosticsConfig
    scorer: TokenScorer | None
    """`None` where `unreadable` says why."""
    seed: int
    tags: ThoughtTags
    piece: Callable[[int], str]
    """The text of one token."""
    judge: Judge | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Metric -> why the trainer that is watched cannot give it."""
    unreadable: str = ""
    """Why thoughts cannot be scored here, if they cannot: a truncating sampler, weights spread over devices."""
    zscores: dict[str, ZScoreState] = field(default_factory=dict)
    regimes: dict[str, RegimeState] = field(default_factory=dict)
    suspicions: dict[str, Suspicion] = field(default_factory=dict)
    alarms: Alarms = field(init=False)

    def __post_init__(self) -> None:
        self.alarms = Alarms(self.config.alarms)

    def measure(
        self, step: int, groups: Sequence[Group], verdicts: Sequence[Verdict], on: str, read: int | None = None
    ) -> Diagnosis:
        """All metrics of this step's groups, information and retrieval only when they are due, and the alarms.

        Steps have to come in order: alarms compare a step with those before it. `read`: how many groups, from the first
        on, have their thoughts read, so that readings of steps that collected more rest on equally many prompts.
        """
        diagnosis = self._measure(step, groups, verdicts, on, len(groups) if read is None else read)
        seen = self.alarms.observe(step, diagnosis.metrics)
        return replace(diagnosis, metrics=[*diagnosis.metrics, *seen.metrics], raised=seen.raised)

    def _measure(
        self, step: int, groups: Sequence[Group], verdicts: Sequence[Verdict], on: str, read: int
    ) -> Diagnosis:
        metrics = withheld(rollout_metrics(groups, verdicts, on), self.unknown)
        groups = groups[:read]
        scheduled = step % self.config.full_every == 0
        if not self.config.enabled or not (scheduled or step % self.config.every == 0):
            return Diagnosis(metrics)
        environments = by_environment(groups)
        stored = Diagnosis([])
        for name, members in environments.items():
            place = f"/{name or 'other'}" if len(environments) > 1 else ""
            metrics += input_to_action(members, np.random.default_rng(derive(self.seed, "actions", step, place)), place)
            if self.unreadable:
                metrics += self._unread(step, place, self.unreadable)
                continue
            try:
                measured = None if scheduled else self._cheap(step, place, members)
                if measured is None:
                    found = self._full(step, place, members)
                    stored, measured = (found if stored.scores is None else stored), found.metrics
            except WindowExceeded as error:  # long thoughts under long prompts are no reason to end a run
                measured = self._unread(step, place, str(error))
            metrics += measured
        if stored.scores is not None or (self.unreadable and scheduled):
            rng = np.random.default_rng(derive(self.seed, "text", step))
            metrics += text_metrics(text_thoughts(groups, self.tags), rng)
        if stored.thoughts is not None and not stored.thoughts.thoughts_M:
            stored = Diagnosis([])  # nobody thought: there is no matrix to keep
        return replace(stored, metrics=metrics)

    def _unread(self, step: int, place: str, why: str) -> list[Metric]:
        """The metrics of first turns, all of them missing."""
        unread = self._both(step, "first_turn", place, NOTHING, ())
        return [replace(metric, why=why) for metric in unread if metric.value is None]

    def _cheap(self, step: int, place: str, groups: Sequence[Group]) -> list[Metric] | None:
        """The cheap measurement; `None` if it calls for a full one."""
        thoughts = first_turn_thoughts(groups, self.tags, self.config.prompts, self.config.thoughts)
        scores = self._score(thoughts, groups)
        if self._suspect(step, place, scores):
            return None
        return self._both(step, "first_turn", place, scores, thoughts.closed_M)

    def _full(self, step: int, place: str, groups: Sequence[Group]) -> Diagnosis:
        config = self.config
        thoughts = first_turn_thoughts(groups, self.tags)
        scores = self._score(thoughts, groups, tokens=config.words > 0)
        if step % config.full_every == 0:
            as_cheap = cheap_rows(thoughts.own_M, config.prompts, config.thoughts)
            self._suspect(step, place, select_rows(scores, as_cheap))
        metrics = self._both(step, "first_turn", place, scores, thoughts.closed_M)
        if config.any_turn:
            rng = stream(self.seed, f"any_turn{place}", step)
            drawn = any_turn_thoughts(groups, self.tags, rng, config.any_turn)
            metrics += self._both(step, "any_turn", place, self._score(drawn, groups), drawn.closed_M)
        if config.swapped_rows:
            metrics += self._swapped(step, place, groups)
        if config.grounding_rows:
            assert self.scorer is not None
            exchanged = config.grounding_rows, config.grounding_columns
            metrics += grounding_metrics(self.scorer, groups, _temperature(groups), *exchanged, place)
        if self.judge is not None:
            metrics += self._judged(step, place, thoughts)
        return Diagnosis(metrics, replace(scores, tokens=None), thoughts, self._words(thoughts, scores))

    def _swapped(self, step: int, place: str, groups: Sequence[Group]) -> list[Metric]:
        config = self.config
        rng = stream(self.seed, f"observation{place}", step)
        swapped = swapped_observations(groups, rng, config.swapped_rows, config.swapped_columns)
        assert self.scorer is not None
        scores = score_swapped(self.scorer, swapped, _temperature(groups)) if swapped.thoughts_M else NOTHING
        metrics = self._both(step, "observation", place, scores, swapped.closed_M)
        if not swapped.why:
            return metrics
        return [replace(metric, why=swapped.why) if metric.value is None else metric for metric in metrics]

    def _judged(self, step: int, place: str, thoughts: Thoughts) -> list[Metric]:
        assert self.judge is not None
        scores, readable_M = self.judge.score(thoughts.prompt_texts_N, thoughts.thought_texts_M, thoughts.own_M)
        closed_M = [closed for closed, readable in zip(thoughts.closed_M, readable_M, strict=True) if readable]
        return self._both(step, "first_turn", place, scores, closed_M, scorer=self.judge.name)

    def _score(self, thoughts: Thoughts, groups: Sequence[Group], tokens: bool = False) -> CrossScores:
        if not thoughts.thoughts_M:
            return NOTHING
        rows = thoughts.thoughts_M, thoughts.own_M
        keep: Literal["sums", "tokens"] = "tokens" if tokens else "sums"
        assert self.scorer is not None
        return self.scorer.cross_score(thoughts.prompts_N, *rows, _temperature(groups), keep=keep)

    def _suspect(self, step: int, place: str, scores: CrossScores) -> bool:
        before = self.suspicions.get(place, Suspicion())
        gap = gap_per_token(score_matrix(scores))
        # A full measurement that fell due anyway answers the suspicion, too.
        pause = 0 if step % self.config.full_every == 0 else self.config.full_every // 2
        self.suspicions[place], suspicious = suspect(before, gap, step, pause)
        return suspicious

    def _both(
        self, step: int, scope: str, place: str, scores: CrossScores, closed_M: Sequence[bool], scorer: str = ""
    ) -> list[Metric]:
        """The readings of a scope: all thoughts, then the closed ones."""
        closed = select_rows(scores, closed_M) if closed_M else scores
        return [
            *self._read(step, f"{scope}{place}", scores, scorer),
            *self._read(step, f"{scope}_closed{place}", closed, scorer),
        ]

    def _read(self, step: int, scope: str, scores: CrossScores, scorer: str) -> list[Metric]:
        key = f"{scope}@{scorer}" if scorer else scope
        rng = np.random.default_rng(derive(self.seed, "permutations", step, key))
        reading = information(scores, scope, rng, self.zscores.get(key), scorer=scorer)
        self.zscores[key] = reading.state
        if scorer:  # regimes are the policy's own
            return reading.metrics
        self.regimes[scope], label = label_regime(self.regimes.get(scope), reading.metrics, scope)
        return [*reading.metrics, label]

    def _words(self, thoughts: Thoughts, scores: CrossScores) -> tuple[TokenValues, ...]:
        """Some thoughts of every prompt, the first ones, up to `config.words` in all."""
        if scores.tokens is None:
            return ()
        count_N = np.bincount(thoughts.own_M)
        seen: dict[int, int] = {}
        ranked = []
        for row, own in enumerate(thoughts.own_M):
            seen[own] = seen.get(own, 0) + 1
            ranked.append((seen[own], row))
        rows = sorted(row for _, row in sorted(ranked)[: self.config.words])
        shares_N = count_N / count_N.sum()
        return tuple(
            TokenValues(
                row,
                tuple(map(self.piece, thoughts.thoughts_M[row])),
                tuple(pointwise_information(scores.tokens[row], thoughts.own_M[row], shares_N).tolist()),
            )
            for row in rows
        )

    def state(self) -> dict[str, Any]:
        """The numbers to checkpoint, as a JSON tree."""
        return {
            "zscores": {scope: state.to_json() for scope, state in self.zscores.items()},
            "regimes": {scope: state.to_json() for scope, state in self.regimes.items()},
            "suspicions": {place: state.to_json() for place, state in self.suspicions.items()},
            "alarms": self.alarms.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.zscores = {scope: ZScoreState.from_json(tree) for scope, tree in state["zscores"].items()}
        self.regimes = {scope: RegimeState.from_json(tree) for scope, tree in state["regimes"].items()}
        self.suspicions = {place: Suspicion.from_json(tree) for place, tree in state["suspicions"].items()}
        self.alarms.load_state(state["alarms"])


def _temperature(groups: Sequence[Group]) -> float:
    return next(trajectory.temperature for group in groups for trajectory in group.trajectories)
