"""Scores of thoughts under observations, pictures or texts of others, and of actions after the thoughts of others.

The scores equal those of scoring every thought, or action, in each of its contexts alone, up to the scorer's rounding.
What contexts share is read once. A scorer meets pictures in prompts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.actions.exchanged import Exchange, exchange
from heedful.diagnostics.actions.grounding import grounding
from heedful.diagnostics.actions.later import LaterExchange, later_rightness
from heedful.diagnostics.actions.rightness import action_chances, right_actions
from heedful.diagnostics.cross_scores.information import HEADS
from heedful.diagnostics.cross_scores.pictures import Exchanged, Pictured, image_share
from heedful.diagnostics.cross_scores.score_matrix import take_rows
from heedful.diagnostics.cross_scores.thoughts import Ids, SwappedObservations, Thoughts
from heedful.measuring.scope_reader import ScoredThoughts
from heedful.protocols import Scorer, WindowExceeded
from heedful.storage import Swaps
from heedful.types import CrossScores, Group, Metric, Rightness, nothing_right


class TokenScorer(Scorer, Protocol):
    """A scorer that can keep the log-probability of every token."""

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
        keep: Literal["sums", "tokens"] = "sums",
    ) -> CrossScores: ...


def score_swapped(scorer: TokenScorer, swapped: SwappedObservations, temperature: float) -> CrossScores:
    """M x N scores with their tokens: thought i after its own history and observation j.

    The history is the shared prompt. Observation, lead and thought follow it, and the thought's tokens are taken from
    the end. Rows of equal history are scored together. Without a history (memory-less agents) the observation is the
    whole prompt, and every thought is scored under every observation. So are whole contexts that hold pictures.
    """
    rows, columns = len(swapped.thoughts_M), len(swapped.observations_N)
    tokens: list[np.ndarray] = [np.zeros((columns, len(thought)), dtype=np.float32) for thought in swapped.thoughts_M]
    noise = 0.0
    for asked in requests(swapped):
        scored = scorer.cross_score(asked.prompts, asked.thoughts, asked.own, temperature, keep="tokens")
        noise = max(noise, scored.noise)
        kept = [np.asarray(logprobs_NT, dtype=np.float32) for logprobs_NT in scored.tokens or ()]
        for place, row in enumerate(asked.rows):
            if asked.after_history:
                for column in range(columns):
                    tokens[row][column] = kept[place * columns + column][0, -len(swapped.thoughts_M[row]) :]
            else:
                tokens[row] = kept[place]
    sums = {k: np.array([kept[:, :k].sum(axis=1, dtype=np.float64) for kept in tokens]) for k in (None, *HEADS)}
    matrices = {k: cast(Sequence[Sequence[float]], sums_MN.reshape(rows, columns)) for k, sums_MN in sums.items()}
    return CrossScores(
        scores_MN=matrices[None],
        lengths_M=[len(thought) for thought in swapped.thoughts_M],
        own_M=list(swapped.own_M),
        heads={k: matrices[k] for k in HEADS},
        noise=noise,
        tokens=cast(Sequence[Sequence[Sequence[float]]], tokens),
        tasks_M=swapped.tasks_M,
    )


@dataclass(frozen=True, slots=True)
class Request:
    """One call of the scorer, for rows that share their history or, without one, their lead."""

    rows: Sequence[int]
    after_history: bool
    """True: the history is the prompt, and each row is a thought after each observation. False: the observations are
    the prompts, and each row is one thought."""
    prompts: Sequence[Ids]
    thoughts: Sequence[Ids]
    own: Sequence[int]
    columns: Sequence[int] = ()
    """The numbers of the prompts, where they are not all."""


def requests(swapped: SwappedObservations) -> Iterator[Request]:
    """What the scorer is asked: first the rows whose whole contexts are prompts, then those of each history.

    Whole contexts are prompts where there is no history, and where observations hold pictures: a scorer meets pictures
    in prompts alone.
    """
    together: dict[Ids, list[int]] = {}
    in_prompts: dict[tuple[Ids, Ids], list[int]] = {}
    pictured = any(min(observation, default=0) < 0 for observation in swapped.observations_N)
    for row, (history, lead) in enumerate(zip(swapped.histories_M, swapped.leads_M, strict=True)):
        if history and not pictured:
            together.setdefault(history, []).append(row)
        else:
            in_prompts.setdefault((history, lead), []).append(row)
    for members in in_prompts.values():
        prompts = [swapped.context(members[0], column) for column in range(len(swapped.observations_N))]
        thoughts, own = [swapped.thoughts_M[row] for row in members], [swapped.own_M[row] for row in members]
        yield Request(members, False, prompts, thoughts, own)
    for history, members in together.items():
        continued = [
            (*observation, *swapped.leads_M[row], *swapped.thoughts_M[row])
            for row in members
            for observation in swapped.observations_N
        ]
        yield Request(members, True, [history], continued, [0] * len(continued))


@dataclass(frozen=True, slots=True)
class ImageScores:
    """First turns whose pictures are exchanged, and first turns whose texts are."""

    image: ScoredThoughts
    text: ScoredThoughts
    rows_M: tuple[Pictured, ...] = ()
    """The thoughts of `image`. Empty: they are those of first turns, since all prompts have one text."""

    def share(self, first: CrossScores, thoughts: Thoughts, place: str, scorer: str) -> Metric:
        """`grounding/image_share`, from the scores of all first turns as well."""
        both = first
        if self.rows_M and not self.image.why:
            asked = zip((thoughts.prompts_N[own] for own in thoughts.own_M), thoughts.thoughts_M, strict=True)
            number = {pair: row for row, pair in enumerate(asked)}  # equal pairs have equal scores
            both = take_rows(first, [number[one.context, one.thought] for one in self.rows_M])
        return image_share(self.image.scores, both, place, scorer, self.image.why)


def requests_of_pictures(exchanged: Exchanged) -> Iterator[Request]:
    """What the scorer is asked: the rows that keep the same side, under all columns."""
    together: dict[object, list[int]] = {}
    for row in range(len(exchanged.rows_M)):
        together.setdefault(exchanged.kept(row), []).append(row)
    for members in together.values():
        prompts = [exchanged.context(members[0], column) for column in range(exchanged.columns)]
        thoughts = [exchanged.rows_M[row].thought for row in members]
        yield Request(members, False, prompts, thoughts, [exchanged.own_M[row] for row in members])


def score_exchanged(scorer: Scorer, exchanged: Exchanged, temperature: float) -> CrossScores:
    """M x N scores: thought i where column j stands in for its own pictures, or its own text."""
    shape = len(exchanged.rows_M), exchanged.columns
    whole_MN, heads, noise = np.zeros(shape), dict[int, np.ndarray](), 0.0
    for asked in requests_of_pictures(exchanged):
        scored = scorer.cross_score(asked.prompts, asked.thoughts, asked.own, temperature)
        whole_MN[list(asked.rows)] = scored.scores_MN
        for k, head_MN in scored.heads.items():
            heads.setdefault(k, np.zeros(shape))[list(asked.rows)] = head_MN
        noise = max(noise, scored.noise)
    return CrossScores(
        scores_MN=whole_MN,  # type: ignore[arg-type]
        lengths_M=[len(one.thought) for one in exchanged.rows_M],
        own_M=list(exchanged.own_M),
        heads=cast(dict[int, list[list[float]]], heads),
        noise=noise,
    )


def exchanged_thoughts(
    scorer: TokenScorer,
    groups: Sequence[Group],
    temperature: float,
    rows: int = 32,
    columns: int = 16,
    place: str = "",
    right: Rightness = nothing_right,
    piece: Callable[[int], str] | None = None,
) -> tuple[list[Metric], Swaps | None]:
    """The model-based `grounding/...` of first turns, and the probabilities of the actions behind them, with texts.

    It reads `rows` thoughts of the first `columns` prompts, of one environment. If a text exceeds the model's window,
    the metrics have a reason instead of numbers. They are named after the scorer, unless it is the policy that sampled.

    Args:
        place: `/<environment>` in a batch that mixes several.
        right: how right each first action is, where the environment can tell.
        piece: the text of one token. No probabilities without it, nor where actions are free text, or nothing was read.
    """
    asked, logprobs_MNS = read_exchange(scorer, exchange(groups, rows, columns), temperature)
    metrics = grounding(asked, logprobs_MNS, place, scorer.name, right)
    if piece is None or asked.why or asked.free:
        return metrics, None

    def text(ids: Ids) -> str:
        return "".join("[picture]" if token < 0 else piece(token) for token in ids)

    action_S = np.asarray(asked.action_S)
    swaps = Swaps(
        action_chances(asked, logprobs_MNS),
        np.asarray(asked.own_M),
        action_S[np.asarray(asked.taken_M)],
        right_actions(asked, right),
        asked.names_A,
        tuple(map(text, asked.thoughts_M)),
        tuple(map(text, asked.prompts_N)),
    )
    return metrics, swaps


def read_exchange(scorer: TokenScorer, asked: Exchange, temperature: float) -> tuple[Exchange, npt.NDArray[np.float64]]:
    """The exchange with its scores; without anything to ask, and with the reason, if a text exceeds the window."""
    try:
        return asked, score_exchange(scorer, asked, temperature)
    except WindowExceeded as error:
        return Exchange(why=str(error)), np.zeros((0, 0, 0))


def score_exchange(scorer: TokenScorer, asked: Exchange, temperature: float) -> npt.NDArray[np.float64]:
    """M x N x S: log p(spelling s | prompt j, thought i), summed over the spelling's tokens, in nats.

    NaN where prompt j or spelling s was not requested of thought i. Thought and spelling are scored together under a
    prompt, and only the spelling's tokens are summed. Each prompt is read once. If the scorer shares beginnings, each
    thought is read once under each of its prompts.
    """
    logprobs_MNS = np.full((len(asked.thoughts_M), len(asked.prompts_N), len(asked.spellings_S)), np.nan)
    for each in requests_of_actions(asked):
        scored = scorer.cross_score(each.prompts, each.thoughts, each.own, temperature, keep="tokens")
        pairs = ((row, spelling) for row in each.rows for spelling in asked.asked(row))
        for (row, spelling), logprobs_NT in zip(pairs, scored.tokens or (), strict=True):
            behind = len(asked.thoughts_M[row])
            sums_N = np.asarray(logprobs_NT, dtype=np.float64)[:, behind:].sum(axis=1)
            logprobs_MNS[row, list(each.columns), spelling] = sums_N
    return logprobs_MNS


def requests_of_actions(asked: Exchange) -> Iterator[Request]:
    """What the scorer is asked: each thought with each of its spellings behind it, under its prompts. Prompts under
    which the same thoughts are read are asked about together."""
    rows = range(len(asked.thoughts_M))
    together: dict[tuple[int, ...], list[int]] = {}
    for column in range(len(asked.prompts_N)):
        together.setdefault(tuple(row for row in rows if column in asked.under(row)), []).append(column)
    for read, columns in together.items():
        pairs = [(row, spelling) for row in read for spelling in asked.asked(row)]
        continued = [(*asked.thoughts_M[row], *asked.spellings_S[spelling]) for row, spelling in pairs]
        prompts = [asked.prompts_N[column] for column in columns]
        # The own prompt of a thought need not be among these: the scorer passes its column on, and nothing reads it.
        yield Request(read, False, prompts, continued, [0] * len(pairs), columns)


def later_metrics(
    scorer: TokenScorer, asked: LaterExchange, temperature: float, place: str = "", right: Rightness = nothing_right
) -> list[Metric]:
    """The `grounding/later_...` of exchanged later turns, named as in `exchanged_thoughts`."""
    if asked.why or all(right(*one) is None for one in zip(asked.tasks_M, asked.before_M, strict=True)):
        asked = LaterExchange(why=asked.why or "no right actions are known")
    try:
        logprobs_RS = score_later(scorer, asked, temperature)
    except WindowExceeded as error:
        asked, logprobs_RS = LaterExchange(why=str(error)), np.zeros((0, 0))
    return later_rightness(asked, logprobs_RS, right, place, scorer.name)


def score_later(scorer: TokenScorer, asked: LaterExchange, temperature: float) -> npt.NDArray[np.float64]:
    """R x S: log p(spelling s | reading r of `asked.reads`), summed over the spelling's tokens, in nats."""
    behind: dict[tuple[Ids, Ids], npt.NDArray[np.float64]] = {}
    for each in requests_of_later(asked):
        scored = scorer.cross_score(each.prompts, each.thoughts, each.own, temperature, keep="tokens")
        for ids, logprobs_NT in zip(each.thoughts, scored.tokens or (), strict=True):
            behind[each.prompts[0], ids] = np.asarray(logprobs_NT, dtype=np.float64)[0]
    contexts = [asked.context(read) for read in asked.reads]
    sums = [
        [behind[prompt, (*thought, *ids)][len(thought) :].sum() for ids in asked.spellings_S]
        for prompt, thought in contexts
    ]
    return np.array(sums).reshape(len(contexts), len(asked.spellings_S))


def requests_of_later(asked: LaterExchange) -> Iterator[Request]:
    """What the scorer is asked: behind each history once what was exchanged, with each spelling behind it."""
    together: dict[Ids, dict[Ids, None]] = {}
    for prompt, thought in map(asked.context, asked.reads):
        together.setdefault(prompt, {}).update(dict.fromkeys((*thought, *ids) for ids in asked.spellings_S))
    for prompt, continued in together.items():
        yield Request((), True, [prompt], list(continued), [0] * len(continued))
