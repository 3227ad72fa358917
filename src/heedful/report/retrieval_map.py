"""The heat map of prompts against prompts, and of the words of thoughts: what looks likely under which prompt?

Each row of the map is a probability distribution over the batch's prompts. Each word's value is the stored one. Only
the stored scores are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from heedful.report.embedding import embedded_pictures, packed, shortened, spread
from heedful.storage import RunFolder, StoredScores, Swaps, TokenValues, read_scores

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_FRAMES = 12
MOST_PROMPTS = 64
THOUGHTS_SHOWN = 3
SIZE_BUDGET = 500_000
"""Bytes of all frames, packed."""
CHARACTERS = (800, 400, 200, 100, 40)
"""Lengths of one text, tried in this order until the frames fit their budget."""


def posterior_NN(stored: StoredScores) -> npt.NDArray[np.float64]:
    """Row a, column b: the posterior of prompt b for thoughts sampled under prompt a, mean over those thoughts.

    The posterior of one thought is softmax_j(log p(z | x_j) + log w_j), w = the prompts' shares of the thoughts. A
    prompt without thoughts has a row of NaN.
    """
    columns = len(stored.prompts_N)
    count_N = np.bincount(stored.own_M, minlength=columns)
    with np.errstate(divide="ignore"):
        joint_MN = stored.scores_MN + np.log(count_N / max(1, len(stored.own_M)))
    posterior_MN = np.exp(joint_MN - joint_MN.max(axis=1, keepdims=True))
    posterior_MN /= posterior_MN.sum(axis=1, keepdims=True)
    total_NN = np.zeros((columns, columns))
    np.add.at(total_NN, stored.own_M, posterior_MN)
    with np.errstate(invalid="ignore"):
        mean_NN: npt.NDArray[np.float64] = total_NN / count_N[:, None]
    return mean_NN


@dataclass(frozen=True, slots=True)
class Frames:
    """The maps of a run, as its page reads them."""

    frames: list[dict[str, object]]
    """One per stored step (at most twelve, evenly spread), with texts to read next to the map."""
    pictures: dict[str, dict[str, object]]
    """Of all frames by their digests, as `embedded_pictures` gives them."""
    scale: float | None
    """Nats from which a token has the full colour in all frames; `None` = no tokens."""


def retrieval_frames(folder: RunFolder) -> Frames:
    """The maps of the stored cross-scores, with texts as long as the budget allows."""
    stored = [(step, read_scores(folder.scores(step))) for step in spread(folder.score_steps(), MOST_FRAMES)]
    usable = [(step, scores) for step, scores in stored if len(scores.thoughts_M) and len(scores.prompts_N) > 1]
    frames: list[dict[str, object]] = []
    for characters in CHARACTERS:
        frames = [_frame(step, scores, characters) for step, scores in usable]
        if len(packed(frames)) <= SIZE_BUDGET:
            break
    shown = [image for _, scores in usable for images in scores.images_N[:MOST_PROMPTS] for image in images]
    scales = [scale for _, scores in usable if (scale := colour_scale(scores)) is not None]
    return Frames(frames, embedded_pictures((), shown), max(scales, default=None))


def _frame(step: int, stored: StoredScores, most: int) -> dict[str, object]:
    full_NN = posterior_NN(stored)
    shown = min(len(stored.prompts_N), MOST_PROMPTS)
    thoughts: list[list[str]] = [[] for _ in range(shown)]
    words: list[list[object]] = [[] for _ in range(shown)]
    by_row = {thought.row: thought for thought in stored.words}
    for row, (text, own) in enumerate(zip(stored.thoughts_M, stored.own_M.tolist(), strict=True)):
        if own < shown and len(thoughts[own]) < THOUGHTS_SHOWN:
            thoughts[own].append(shortened(text, most))
            words[own].append(_words(by_row[row], most) if row in by_row else None)
    per_mille = [
        [None if np.isnan(value) else round(1000 * value) for value in row] for row in full_NN[:shown, :shown].tolist()
    ]
    images = [[image.digest for image in images] for images in stored.images_N[:shown]]
    return ({"images": images} if images else {}) | {
        "step": step,
        "prompts_in_all": len(stored.prompts_N),
        "thoughts_in_all": len(stored.thoughts_M),
        "diagonal": float(np.nanmean(np.diag(full_NN))),
        "matrix": per_mille,
        "prompts": [shortened(text, most, keep_end=True) for text in stored.prompts_N[:shown]],
        "thoughts": thoughts,
        "words": words,
        "swaps": None if stored.swaps is None else _swaps(stored.swaps, most),
    }


def _swaps(swaps: Swaps, most: int) -> dict[str, object]:
    """What first actions follow, in thousandths. Null for a pair that was not read, and for a prompt of which nothing
    is known."""
    read_MN = np.asarray(np.isfinite(swaps.chances_MNA).all(axis=2))
    known_N = np.asarray(np.isfinite(swaps.right_NA).all(axis=1))
    per_mille_MNA = np.where(read_MN[:, :, None], 1000 * swaps.chances_MNA, 0).round().astype(int).tolist()
    return {
        "chances": [
            [chances if read else None for chances, read in zip(row, reads, strict=True)]
            for row, reads in zip(per_mille_MNA, read_MN.tolist(), strict=True)
        ],
        "own": swaps.own_M.tolist(),
        "taken": swaps.taken_M.tolist(),
        "right": [row if known else None for row, known in zip(swaps.right_NA.tolist(), known_N.tolist(), strict=True)],
        "names": [shortened(name, most) for name in swaps.names_A],
        "thoughts": [shortened(text, most) for text in swaps.thoughts_M],
        "prompts": [shortened(text, most, keep_end=True) for text in swaps.prompts_N],
    }


def colour_scale(stored: StoredScores) -> float | None:
    """Nats from which a token has the full colour: what one in fifty exceeds, at least .5; `None` = no tokens."""
    sizes = [abs(value) for thought in stored.words for value in thought.values_T]
    return max(0.5, round(float(np.quantile(sizes, 0.98)), 1)) if sizes else None


def _words(thought: TokenValues, most: int) -> dict[str, object]:
    """One thought token by token, cut where its text would be. Values in hundredths of a nat."""
    tokens: list[tuple[str, int]] = []
    characters = 0
    for text, value in zip(thought.texts_T, thought.values_T, strict=True):
        if characters >= most:
            break
        tokens.append((text, round(100 * value)))
        characters += len(text)
    return {"tokens": tokens, "left_out": len(thought.texts_T) - len(tokens), "sum": sum(thought.values_T)}
