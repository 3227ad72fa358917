"""Cross-score matrices on disk: the numbers and texts behind the heat map of a report.

Promise: plain arrays without pickled objects, and the same scores give the same bytes.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.storage.files import write_whole
from heedful.types import CrossScores

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_ARRAYS = ("scores", "lengths", "own", "thoughts", "prompts")


@dataclass(frozen=True, slots=True)
class StoredScores:
    """M thoughts scored under N distinct prompts, with their texts."""

    scores_MN: npt.NDArray[np.float64]
    """log p(thought i | prompt j), summed over the thought's tokens, in nats."""
    lengths_M: npt.NDArray[np.int64]
    own_M: npt.NDArray[np.int64]
    thoughts_M: tuple[str, ...]
    prompts_N: tuple[str, ...]


def write_scores(path: Path | str, scores: CrossScores, thoughts_M: Sequence[str], prompts_N: Sequence[str]) -> None:
    """Write one cross-score matrix with the texts of its rows and columns as a compressed `.npz`.

    Raises:
        ValueError: the shapes disagree.
    """
    import numpy as np

    matrix = np.asarray(scores.scores_MN, dtype=np.float64).reshape(len(thoughts_M), -1)
    stored = StoredScores(
        matrix,
        np.asarray(scores.lengths_M, dtype=np.int64),
        np.asarray(scores.own_M, dtype=np.int64),
        tuple(thoughts_M),
        tuple(prompts_N),
    )
    _check(stored, f"the scores for {path}")
    content = io.BytesIO()
    np.savez_compressed(
        content,
        scores=stored.scores_MN,
        lengths=stored.lengths_M,
        own=stored.own_M,
        thoughts=np.array(stored.thoughts_M, dtype=np.str_),
        prompts=np.array(stored.prompts_N, dtype=np.str_),
    )
    write_whole(path, content.getvalue())


def read_scores(path: Path | str) -> StoredScores:
    """Read what `write_scores` wrote.

    Raises:
        ValueError: the file is missing, damaged, or holds something else.
    """
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in _ARRAYS if name not in archive.files]
            if missing:
                raise ValueError(f"no array {', '.join(missing)}")
            arrays = {name: archive[name] for name in _ARRAYS}
    except (OSError, EOFError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"Expected cross-scores in {path}, found {error}. Delete the file to do without this heat map."
        ) from error
    stored = StoredScores(
        np.asarray(arrays["scores"], dtype=np.float64),
        np.asarray(arrays["lengths"], dtype=np.int64),
        np.asarray(arrays["own"], dtype=np.int64),
        tuple(str(text) for text in arrays["thoughts"]),
        tuple(str(text) for text in arrays["prompts"]),
    )
    _check(stored, str(path))
    return stored


def _check(stored: StoredScores, where: str) -> None:
    rows, columns = len(stored.thoughts_M), len(stored.prompts_N)
    shapes = (stored.scores_MN.shape, stored.lengths_M.shape, stored.own_M.shape)
    if shapes != ((rows, columns), (rows,), (rows,)):
        raise ValueError(
            f"Expected {rows} thoughts by {columns} prompts in {where}, found scores {shapes[0]}, lengths {shapes[1]} "
            f"and own {shapes[2]}. Pass one row per thought and one column per distinct prompt."
        )
    if rows and not (stored.own_M.min() >= 0 and stored.own_M.max() < columns):
        raise ValueError(f"Expected `own` between 0 and {columns - 1} in {where}, found {stored.own_M.tolist()}.")
