"""The model that reads a log, in this process or on a server, and its scores of logged thoughts. Text becomes ids where
the log has none.

Promise: logged ids are used only by a model that reads them as the same text. What a model cannot score leaves a
reason in place of numbers, and the rest of the log goes on.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from heedful.auditing.settings import AuditSettings, OwnRun
from heedful.boundary import Choice, ConfigurationError, from_json
from heedful.diagnostics.actions.exchanged import Exchange
from heedful.diagnostics.actions.grounding import grounding
from heedful.diagnostics.actions.later import later_exchange
from heedful.diagnostics.cross_scores.picture_ids import shows_pictures
from heedful.diagnostics.cross_scores.thoughts import Thoughts, ThoughtTags, first_turn_thoughts
from heedful.envs import ENVIRONMENTS
from heedful.envs.common.contract import rightness_of
from heedful.measuring.budget import IMAGE, LATER_IMAGE
from heedful.measuring.diagnostician import Diagnosis, image_metrics
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.measuring.scope_reader import NO_SCORES, ScopeReader, ScoredThoughts
from heedful.measuring.swapped import exchanged_thoughts, later_metrics
from heedful.measuring.thought_scores import FirstTurns, ThoughtScores
from heedful.models.chat.replies import Tags
from heedful.protocols import Environment, WindowExceeded
from heedful.seeds import stream
from heedful.storage import check_model
from heedful.storage.rollouts import pictures_of
from heedful.types import CrossScores, Group, Prompt, Reply, Rightness, Span, Trajectory, Turn, nothing_right

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from heedful.measuring.swapped import TokenScorer
    from heedful.models.vision import Vision

Ids = tuple[int, ...]
Messages = Sequence[Mapping[str, str]]

_REMEDY = "Give --model a folder with config.json, weights and tokenizer files, or a Hugging Face name."
_TOKENIZER_REMEDY = "Give --tokenizer the folder or the Hugging Face name of the served model."
IMPROBABLE = 2.5
"""Bits per character (byte of UTF-8) above which a text is no text of this model.

Measured on 30 thoughts of each of three seedlings: 0.07 to 0.13 on text of their own environment, 2.7 to 8.4 with
random weights, 4.6 to 15 with the ids of another tokenizer, 15 to 20 on text of another environment.
"""
RETOKENISED = (
    "Prompts and thoughts were tokenised from text by {}; a thought without its closing tag is scored without an end, "
    "since text does not show the end-of-turn token."
)
_OPEN, _CLOSE = map(re.escape, (Tags().answer_open, Tags().answer_close))
_ANSWER = re.compile(rf"{_OPEN}\s*((?!{_CLOSE})\S.*?)\s*{_CLOSE}", re.DOTALL)  # an empty one is none
_LEAST_BYTES = 64
"""Less text says nothing about the fit."""


@dataclass(slots=True)
class ModelJudge:
    """A causal language model that reads a log, with the few numbers that connect its measurements."""

    make_scorer: Callable[[str], TokenScorer]
    """A scorer with the model's weights. It is given its name, which is empty for the policy that sampled."""
    tokenizer: PreTrainedTokenizerBase
    name: str
    """Names the model in metrics of steps that it did not sample."""
    tags: ThoughtTags
    seed: int
    retokenised: bool = False
    """Ids were made from text."""
    vision: Vision | None = None
    """Of a model that sees. Others read logs of text alone."""
    note: str = ""
    """How the tokenizer was read, where that must be said."""
    nats: float = 0.0
    """Minus the log-probability of all thoughts that were scored, each under its own prompt."""
    read_bytes: int = 0
    """Length of these thoughts in UTF-8."""
    method: str = ""
    """How the scorer read the last step (`CrossScores.method`)."""
    right: Rightness = nothing_right
    """How right each action is, where the run of the log is known and its environment can tell."""
    reader: ScopeReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = ScopeReader(self.seed)

    def assumed(self) -> list[str]:
        """What was assumed to score this log."""
        return [RETOKENISED.format(self.name)] if self.retokenised else []

    def warnings(self) -> list[str]:
        """Sentences about the fit of model and log: another tokenizer, or text that the model finds improbable."""
        bits = self.nats / math.log(2) / max(1, self.read_bytes)
        noted = [self.note] if self.note else []
        if self.method.startswith("plain"):
            slow = f"{self.name} reads each pair of prompt and thought whole ({self.method}). This is exact and slow"
            noted.append(f"{slow}: fewer --prompts and --thoughts cost less.")
        if self.read_bytes < _LEAST_BYTES or bits <= IMPROBABLE:
            return noted
        return [
            *noted,
            f"{self.name} finds the logged thoughts wildly improbable: {bits:.1f} bits per character, and more than "
            f"{IMPROBABLE:g} is no text of this model. Model or tokenizer are probably not those of the log: do not "
            "rely on the readings of this model.",
        ]

    def state(self) -> dict[str, Any]:
        """What an audit that goes on has to know: a JSON tree."""
        kept = {
            "retokenised": self.retokenised,
            "nats": self.nats,
            "read_bytes": self.read_bytes,
            "method": self.method,
        }
        return {**self.reader.state(), **kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned. Older audits lack all but the reader's state."""
        self.reader.load_state(state)
        self.nats, self.read_bytes = float(state.get("nats", 0.0)), int(state.get("read_bytes", 0))
        self.retokenised, self.method = bool(state.get("retokenised", False)), str(state.get("method", ""))

    def reads(self, groups: Sequence[Group]) -> bool:
        """Whether the logged ids are this tokenizer's: the first prompt that has ids decodes to its logged text."""
        decode: Any = self.tokenizer.decode
        vocabulary = len(self.tokenizer)
        for turn in _first_turns(groups):
            prompt = turn.reply.prompt
            if prompt.ids and turn.reply.ids:
                try:
                    ids = prompt.ids if self.vision is None else self.vision.collapsed(prompt.ids)
                except ValueError:  # the ids are those of another picture than the one that is stored
                    return False
                known = min(ids) >= 0 and max(ids) < vocabulary
                return known and bool(decode(list(ids), skip_special_tokens=False) == prompt.text)
        return False

    def with_ids(self, groups: Sequence[Group], messages: Mapping[str, Messages]) -> list[Group]:
        """The groups with ids and ranges of this model's tokenizer. A log that has its ids keeps them."""
        pictures = pictures_of(groups).values()
        if self.vision is not None:
            for image in pictures:
                self.vision.show(image)
        if pictures or self.reads(groups):
            return list(groups)
        self.retokenised = True
        begun = [turn.reply.text.lstrip().startswith(self.tags.open) for turn in _first_turns(groups)]
        opened = bool(begun) and 2 * sum(begun) >= len(begun)
        named = any(turn.actions for turn in _first_turns(groups))
        texts = _Texts(self.tokenizer, self.tags, messages, opened, answers=not named)
        return [
            replace(group, trajectories=tuple(texts.trajectory(trajectory) for trajectory in group.trajectories))
            for group in groups
        ]

    def measure(self, step: int, groups: Sequence[Group], sampled_it: bool) -> Diagnosis:
        """`information/*`, `retrieval/*` and `grounding/*` of the first turns of groups that have ids; `regime/*` where
        it sampled. Pictures are exchanged where prompts show them."""
        thoughts = first_turn_thoughts(groups, self.tags)
        temperatures = {trajectory.temperature for group in groups for trajectory in group.trajectories}
        why, scores = "", NO_SCORES
        if pictures_of(groups) and not self.reads(groups):
            why = f"{self.name} does not read the pictures of this log as the model that sampled it does"
        elif len(temperatures) > 1:
            why = f"sampled at several temperatures: {', '.join(f'{each:g}' for each in sorted(temperatures))}"
        elif thoughts.thoughts_M:
            why, scores = self._scores(thoughts, temperatures.pop())
        if scores is not NO_SCORES:
            self.method = scores.method
            own = (float(row[column]) for row, column in zip(scores.scores_MN, scores.own_M, strict=True))
            self.nats -= sum(own)
            self.read_bytes += sum(len(text.encode()) for text in thoughts.thought_texts_M)
        name = "" if sampled_it else self.name
        found = ScoredThoughts(scores, () if scores is NO_SCORES else thoughts.closed_M, why)
        metrics = self.reader.measure(step, "first_turn", found, scorer=name)
        if why:  # thoughts that could not be scored are not exchanged between prompts either
            metrics = [*metrics, *grounding(Exchange(why=why), np.zeros((0, 0, 0)), scorer=name)]
        else:
            temperature = next((member.temperature for group in groups for member in group.trajectories), 1.0)
            scorer, rng = self.make_scorer(name), stream(self.seed, "later_turn", step)
            metrics = [*metrics, *exchanged_thoughts(scorer, groups, temperature, right=self.right)[0]]
            if self.right is not nothing_right:
                metrics += later_metrics(scorer, later_exchange(groups, rng), temperature, right=self.right)
        if scores is not NO_SCORES and shows_pictures(groups):
            # What moves thoughts, the picture or the text: as a run measures it, with the default sizes.
            asked = ThoughtScores(DiagnosticsConfig(), self.make_scorer(name), self.seed, self.tags, step, groups, "")
            first = FirstTurns(scores, thoughts)
            try:
                metrics += image_metrics(self.reader, asked, first)
            except WindowExceeded as error:
                left_out = dict.fromkeys((IMAGE, LATER_IMAGE), str(error))
                metrics += image_metrics(self.reader, replace(asked, left_out=left_out), first)
        return Diagnosis(metrics) if scores is NO_SCORES else Diagnosis(metrics, scores, thoughts)

    def _scores(self, thoughts: Thoughts, temperature: float) -> tuple[str, CrossScores]:
        from torch import OutOfMemoryError

        scorer = self.make_scorer(self.name)
        try:
            return "", scorer.cross_score(thoughts.prompts_N, thoughts.thoughts_M, thoughts.own_M, temperature)
        except ValueError as error:
            # One prompt that is too long must not cost the other steps their numbers.
            return str(error), NO_SCORES
        except OutOfMemoryError as error:
            raise ValueError(
                f"The device has not enough memory to score {len(thoughts.thoughts_M)} thoughts under "
                f"{len(thoughts.prompts_N)} prompts ({str(error).splitlines()[0]}). Give a smaller --max-tokens, "
                "--dtype bfloat16, or fewer --prompts and --thoughts."
            ) from error


@dataclass(slots=True)
class _Texts:
    """Turns logged texts into ids, each distinct prompt once."""

    tokenizer: PreTrainedTokenizerBase
    tags: ThoughtTags
    messages: Mapping[str, Messages]
    opened: bool
    """Replies begin with the opening tag; one that does not has no thought."""
    answers: bool
    """The log names no actions: what a reply writes between the usual tags of answers, behind its thought, is one."""
    prompts: dict[str, Prompt] = field(default_factory=dict)

    def trajectory(self, trajectory: Trajectory) -> Trajectory:
        turns = tuple(self._turn(turn, place == 0) for place, turn in enumerate(trajectory.turns))
        return replace(trajectory, turns=turns)

    def _turn(self, turn: Turn, first: bool) -> Turn:
        logged = turn.reply
        prompt = self._prompt(logged.prompt.text) if first else Prompt(logged.prompt.text, ())
        forced = prompt.text.rstrip().endswith(self.tags.open)
        text = logged.text
        if forced and text.lstrip().startswith(self.tags.open):
            text = text.partition(self.tags.open)[2]
        ids, starts = self._encode(text)
        thought, actions = self._thought(text, starts, forced), turn.actions
        answer = Span(thought.end, thought.end)
        if self.answers and (found := _ANSWER.search(text, max(0, text.find(self.tags.close)))):
            answer, actions = Span(*(bisect_left(starts, at) for at in found.span(1))), (found[1],)
        reply = Reply(prompt, ids, logged.text, (), (), thought, answer, logged.closed, logged.cut)
        return replace(turn, reply=reply, actions=actions)

    def _thought(self, text: str, starts: Sequence[int], forced: bool) -> Span:
        """From after the opening tag, if the reply begins with one, to the end of the closing one."""
        begin = 0
        if not forced and text.lstrip().startswith(self.tags.open):
            begin = bisect_left(starts, text.index(self.tags.open) + len(self.tags.open))
        elif not forced and self.opened:
            return Span(0, 0)
        at = text.find(self.tags.close)
        return Span(begin, len(starts) if at < 0 else bisect_left(starts, at + len(self.tags.close)))

    def _prompt(self, text: str) -> Prompt:
        """A list of messages through the model's chat template. Plain text as it is, begun as the model begins text."""
        from heedful.models.chat.template import render_chat

        if text not in self.prompts:
            tokenizer: Any = self.tokenizer
            messages = self.messages.get(text)
            if messages:
                if not tokenizer.chat_template:
                    raise ValueError(
                        "The log holds prompts as lists of messages, but the tokenizer of --model has no chat "
                        "template. Give a chat model."
                    )
                rendered = render_chat(tokenizer, messages, {})
                ids = tokenizer(rendered, add_special_tokens=False).input_ids
            else:
                rendered, begin = text, tokenizer.bos_token
                starts_itself = bool(begin) and text.startswith(begin)
                ids = tokenizer(text, add_special_tokens=False).input_ids
                if tokenizer("").input_ids == [tokenizer.bos_token_id] and not starts_itself:
                    ids = [tokenizer.bos_token_id, *ids]
            self.prompts[text] = Prompt(rendered, tuple(map(int, ids)))
        return self.prompts[text]

    def _encode(self, text: str) -> tuple[Ids, list[int]]:
        """Ids, and where in the text each token begins."""
        tokenizer: Any = self.tokenizer
        if not tokenizer.is_fast:
            raise ValueError(
                "The log holds text, and finding the thought among its tokens needs a tokenizer that reports offsets: "
                "the one of --model does not. Give a model with a fast tokenizer (tokenizer.json)."
            )
        found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return tuple(map(int, found.input_ids)), [int(start) for start, _ in found.offset_mapping]


def _first_turns(groups: Sequence[Group]) -> list[Turn]:
    return [member.turns[0] for group in groups for member in group.trajectories if member.turns]


@contextmanager
def judge_of(settings: AuditSettings, tags: ThoughtTags, seed: int, own: OwnRun | None) -> Iterator[ModelJudge]:
    """The model that the settings name, in this process or on a server. `own`: the run of ours that sampled the log.

    Raises ValueError, a sentence, if there is no such model or it cannot be scored exactly, and ServerUnreachable or
    ServerRefused if a server gives no answer.
    """
    right = nothing_right if own is None else rightness(own)
    if settings.model is not None:
        yield replace(model_judge(settings.model, settings, tags, seed), right=right)
        return
    from heedful.models.load import read_own_tokenizer
    from heedful.policies.servers import Client, Limits, read_key
    from heedful.policies.servers.examination import base_of, check_tokenizer, examine, refuse_unknown
    from heedful.scorers.judge import judge_name
    from heedful.scorers.server import ServerScorer

    url, model, source = str(settings.server), str(settings.model_name), str(settings.tokenizer)
    client = Client([base_of(url)], Limits(settings.connections), key=read_key(settings.api_key_env))
    try:
        facts = examine(client, client.servers[0])
        refuse_unknown(facts, model)
        read = read_own_tokenizer(source, _TOKENIZER_REMEDY)
        tokenizer: Any = read.tokenizer
        check_tokenizer(client, model, lambda text: tokenizer(text, add_special_tokens=False).input_ids, source)

        def make_scorer(name: str) -> ServerScorer:
            return ServerScorer(client, model, facts, name=name)

        yield ModelJudge(make_scorer, tokenizer, judge_name(model), tags, seed, note=read.note, right=right)
    finally:
        client.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    env: Annotated[Any, Choice(ENVIRONMENTS, Environment)]


def rightness(own: OwnRun) -> Rightness:
    """How right actions are, where one of heedful's own environments was played and draws the same tasks.

    Code that a run names itself, as module:Class, is not imported for this.
    """
    env = own.config.get("env") or {}
    if env.get("type") not in ENVIRONMENTS:
        return nothing_right
    try:
        played = from_json(_Played, {"env": env}).env
    except ConfigurationError:  # of another version of heedful
        return nothing_right
    told = rightness_of(played)
    return lambda task, before=(): told(task, before) if played.task(task.seed).id == task.id else None


def model_judge(source: str, settings: AuditSettings, tags: ThoughtTags, seed: int) -> ModelJudge:
    """A model in this process. `source`: its folder, or a Hugging Face name. Raises ValueError, a sentence."""
    import torch

    from heedful.models.forward.attention import refuse_unless_causal
    from heedful.models.load import pick_device, read_model, read_own_tokenizer, read_vision
    from heedful.models.vision import vision_of
    from heedful.scorers.hf import HFScorer
    from heedful.scorers.judge import judge_name

    check_model(source)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    model = read_model(source, {"float32": torch.float32, "bfloat16": torch.bfloat16}[settings.dtype], _REMEDY)
    refuse_unless_causal(model)
    read = read_own_tokenizer(source, _REMEDY)
    moved: Any = model
    moved.to(pick_device(settings.device))
    read_vision(model, read.tokenizer, source, _REMEDY)
    name = judge_name(str(Path(source).resolve()) if Path(source).exists() else source)

    @cache
    def make_scorer(name: str) -> HFScorer:  # its probes run once
        return HFScorer(model, name=name, max_tokens=settings.max_tokens)

    return ModelJudge(make_scorer, read.tokenizer, name, tags, seed, vision=vision_of(model), note=read.note)
