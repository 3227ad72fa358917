"""Takes every measurement of a training step, with the weights that sampled it and before they are updated.

Promise: reads only. Its random numbers are its own, so training with and without it gives the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.diagnostics.actions.strategies import input_to_action
from heedful.diagnostics.alarms.early_check import EarlyCheck, cheap_rows, check_gap
from heedful.diagnostics.alarms.watch import Alarm, Alarms, StepAlarms
from heedful.diagnostics.cross_scores.mixture import gap_per_token
from heedful.diagnostics.cross_scores.score_matrix import score_matrix, select_rows
from heedful.diagnostics.cross_scores.thoughts import Thoughts, ThoughtTags, by_environment
from heedful.diagnostics.names import unavailable
from heedful.diagnostics.signal import rollout_metrics
from heedful.diagnostics.text import text_metrics, text_thoughts
from heedful.measuring.budget import step_tokens
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.measuring.scope_reader import ScopeReader, ScoredThoughts
from heedful.measuring.spending import Spending
from heedful.measuring.swapped import TokenScorer
from heedful.measuring.thought_scores import FirstTurns, ThoughtScores
from heedful.protocols import WindowExceeded
from heedful.seeds import derive
from heedful.storage import Swaps, TokenValues, write_scores
from heedful.types import CrossScores, Group, Metric, Rightness, Verdict, nothing_right

if TYPE_CHECKING:
    from heedful.scorers.judge import Judge

__all__ = ["Diagnosis", "Diagnostician", "DiagnosticsConfig"]


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
    swaps: Swaps | None = None
    """What first actions do when thoughts are exchanged."""

    def store_scores(self, path: Path) -> None:
        """Write the matrix with its texts to a file, if there is one."""
        if self.scores is not None and self.thoughts is not None:
            texts = self.thoughts.thought_texts_M, self.thoughts.prompt_texts_N
            write_scores(path, self.scores, *texts, self.words, self.thoughts.images_N, self.swaps)


@dataclass(slots=True)
class Diagnostician:
    """Decides what is measured at a step, and carries what connects the measurements.

    Every `config.every` steps a cheap measurement of first turns. Every `config.full_every` steps a full one of all
    scopes. A full one also replaces a cheap one that leaves its baseline, at most once in half of `full_every` steps.
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
    right: Rightness = nothing_right
    """How right each action is, where the environment can tell."""
    reader: ScopeReader = field(init=False)
    early_checks: dict[str, EarlyCheck] = field(default_factory=dict)
    """`/<environment>`, or nothing -> the baseline that a cheap measurement is compared with."""
    alarms: Alarms = field(init=False)

    def __post_init__(self) -> None:
        self.reader = ScopeReader(self.seed)
        self.alarms = Alarms(self.config.alarms)

    def measure(
        self,
        step: int,
        groups: Sequence[Group],
        verdicts: Sequence[Verdict],
        on: str,
        read: int | None = None,
        unreadable: str = "",
        alike: Sequence[Group] | None = None,
    ) -> Diagnosis:
        """All metrics of this step's groups, information and retrieval only when they are due, and the alarms.

        Steps have to come in order: alarms compare a step with those before it. `read`: the number of groups, from the
        first on, whose thoughts are read. Steps that collected more groups then rest on equally many prompts.
        `unreadable`: why thoughts of this step cannot be scored, if they cannot. `alike`: see `rollout_metrics`.
        """
        alike = groups if alike is None else alike
        metrics = unavailable(rollout_metrics(groups, verdicts, on, alike), self.unknown)
        due = self.config.enabled and (self.config.full_is_due(step) or step % self.config.every == 0)
        diagnosis = Diagnosis([])
        if due:
            tokens: dict[str, int] = {}  # of collecting and updating with the groups of each environment
            for group, verdict in zip(groups, verdicts, strict=True):
                name = group.task.environment
                tokens[name] = tokens.get(name, 0) + step_tokens([group], [verdict])
            diagnosis = self._thoughts(step, alike[:read], tokens, self.unreadable or unreadable)
        metrics += diagnosis.metrics
        seen = self.alarms.observe(step, metrics, of_update=False)
        return replace(diagnosis, metrics=[*metrics, *seen.metrics], raised=seen.raised)

    def watch_update(self, step: int, metrics: Sequence[Metric]) -> StepAlarms:
        """The alarms on the metrics of the update, which ended after `measure`."""
        return self.alarms.observe(step, metrics, of_update=True)

    def _thoughts(self, step: int, groups: Sequence[Group], tokens: Mapping[str, int], unreadable: str) -> Diagnosis:
        """The metrics of thoughts and first actions, environment by environment. `tokens`: of each, in this step."""
        metrics: list[Metric] = []
        read = 0
        environments = by_environment(groups)
        full: Diagnosis | None = None
        for name, members in environments.items():
            place = f"/{name or 'other'}" if len(environments) > 1 else ""
            metrics.append(input_to_action(members, place))
            spending = Spending(self.config, step, tokens[name])
            measured = self._environment(step, members, place, spending, unreadable)
            metrics += measured.metrics
            read += spending.read
            full = measured if full is None and measured.scores is not None else full
        if self.config.share is not None:
            metrics.append(Metric("tokens/diagnose", float(read)))
        if full is not None or (unreadable and self.config.full_is_due(step)):
            rng = np.random.default_rng(derive(self.seed, "text", step))
            metrics += text_metrics(text_thoughts(groups, self.tags), rng)
        if full is None or full.thoughts is None or not full.thoughts.thoughts_M:  # nobody thought: no matrix to keep
            return Diagnosis(metrics)
        return replace(full, metrics=metrics)

    def _environment(
        self, step: int, groups: Sequence[Group], place: str, spending: Spending, unreadable: str
    ) -> Diagnosis:
        """The cheap or the full measurement; without scores after a cheap one, and where thoughts cannot be scored."""
        if unreadable or self.scorer is None:
            return Diagnosis(self._unread(step, place, unreadable, spending))
        asked = ThoughtScores(self.config, self.scorer, self.seed, self.tags, step, groups, place, right=self.right)
        try:
            if not self.config.full_is_due(step):
                first = spending.fitted(asked, full=False).cheap()
                if not (self.config.full_every and self._early(step, place, first.scores)):
                    metrics = self.reader.measure(step, "first_turn", first, place)
                    return Diagnosis([*metrics, *spending.metrics(place)])
            return self._full(spending.fitted(asked, full=True), spending)
        except WindowExceeded as error:  # long thoughts under long prompts are no reason to end a run
            return Diagnosis(self._unread(step, place, str(error), spending))

    def _unread(self, step: int, place: str, why: str, spending: Spending) -> list[Metric]:
        """The metrics of first turns and of their cost, all of them missing."""
        return [
            *self.reader.measure(step, "first_turn", ScoredThoughts(why=why), place),
            *spending.metrics(place, why),
        ]

    def _early(self, step: int, place: str, cheap: CrossScores) -> bool:
        """Whether the scores of a cheap measurement call for a full one now; extends or compares the baseline."""
        before = self.early_checks.get(place, EarlyCheck())
        # A full measurement that fell due anyway answers the call, too.
        pause = 0 if self.config.full_is_due(step) else self.config.full_every // 2
        self.early_checks[place], called = check_gap(before, gap_per_token(score_matrix(cheap)), step, pause)
        return called

    def _full(self, asked: ThoughtScores, spending: Spending) -> Diagnosis:
        """All scopes, the exchanged thoughts and the judge."""
        config, step, place = self.config, asked.step, asked.place
        first = asked.first_turns()
        if self.config.full_is_due(step):
            small = spending.like_cheap(asked)
            as_cheap = cheap_rows(first.thoughts.own_M, small.prompts, small.thoughts)
            self._early(step, place, select_rows(first.scores, as_cheap))
        metrics = self.reader.measure(step, "first_turn", first.scored, place)
        if config.any_turn:
            metrics += self.reader.measure(step, "any_turn", asked.any_turn(), place)
        if config.swapped_rows:
            metrics += self.reader.measure(step, "observation", asked.observation(), place)
        swaps = None
        if config.grounding_rows:
            grounded, swaps = asked.exchanged(self.piece)
            metrics += grounded
        if config.later_rows:
            metrics += asked.later()
        if asked.shows_pictures:
            metrics += image_metrics(self.reader, asked, first)
        if self.judge is not None:
            judged = asked.judged(self.judge, first.thoughts)
            metrics += self.reader.measure(step, "first_turn", judged, place, self.judge.name)
        metrics += spending.metrics(place)
        words = first.token_values(config.words, self.piece)
        return Diagnosis(metrics, replace(first.scores, tokens=None), first.thoughts, words, swaps=swaps)

    def state(self) -> dict[str, Any]:
        """The numbers to checkpoint, as a JSON tree."""
        return {
            **self.reader.state(),
            # The name that checkpoints have had from the start.
            "suspicions": {place: asdict(state) for place, state in self.early_checks.items()},
            "alarms": self.alarms.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.reader.load_state(state)
        self.early_checks = {place: EarlyCheck.from_json(tree) for place, tree in state["suspicions"].items()}
        self.alarms.load_state(state["alarms"])


def image_metrics(reader: ScopeReader, asked: ThoughtScores, first: FirstTurns) -> list[Metric]:
    """The scopes in which pictures, or texts, are exchanged, and what they say together."""
    scorer = asked.scorer.name
    found = asked.images(first)
    newest, whole = asked.later_images()
    scopes = {"image": found.image, "text": found.text, "image_newest": newest, "image_all": whole}
    metrics: list[Metric] = []
    for scope, scored in scopes.items():
        metrics += reader.measure(asked.step, scope, scored, asked.place, scorer)
    return [*metrics, found.share(first.scores, first.thoughts, asked.place, scorer)]
