"""Cross-score matrices on disk: the numbers and texts of a report's heat map.

Files hold plain arrays without pickled objects. The same scores give the same bytes.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.boundary.limits import LARGEST_REWARD
from heedful.boundary.open_files import existing_file, open_file
from heedful.storage.files import write_whole
from heedful.types import CrossScores, Image

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_DAMAGED = (zipfile.BadZipFile, zlib.error, RuntimeError, OverflowError, MemoryError)
"""Errors of a damaged archive. Some of its flags ask for what zipfile cannot do: RuntimeError."""

LARGEST = 256 << 20
"""Bytes of all arrays of a file. A small compressed file may hold terabytes of zeros."""

_ARRAYS = ("scores", "lengths", "own", "thoughts", "prompts")
_PICTURES = ("picture_column", "picture_bytes", "picture_size", "picture_width", "picture_height", "picture_alt")
"""Arrays that files of text lack: a number for each picture in all columns, and the files one after another."""
_WORDS = ("words_row", "words_length", "words_text", "words_value")
"""Arrays that a file may lack, if the thoughts were stored without their tokens."""
_REAL, _TEXT, _COUNT = "fiu", "U", "iu"
_KINDS = {"scores": _REAL, "words_value": _REAL} | dict.fromkeys(
    ("thoughts", "prompts", "words_text", "picture_alt"), _TEXT
)
"""Array -> numpy's letters for the types it may have. All others hold numbers of at least 0."""


@dataclass(frozen=True, slots=True)
class TokenValues:
    """One thought token by token, with the information of each token about the thought's own prompt."""

    row: int
    """Row of the thought in the matrix."""
    texts_T: tuple[str, ...]
    values_T: tuple[float, ...]
    """Pointwise information in nats."""


@dataclass(frozen=True, slots=True)
class StoredScores:
    """M thoughts scored under N distinct prompts, with their texts."""

    scores_MN: npt.NDArray[np.float64]
    """log p(thought i | prompt j), summed over the thought's tokens, in nats."""
    lengths_M: npt.NDArray[np.int64]
    own_M: npt.NDArray[np.int64]
    thoughts_M: tuple[str, ...]
    prompts_N: tuple[str, ...]
    words: tuple[TokenValues, ...] = ()
    """Some of the thoughts, token by token. Empty if no tokens were kept."""
    images_N: tuple[tuple[Image, ...], ...] = ()
    """The pictures of each prompt. Empty where none has any."""


def write_scores(
    path: Path | str,
    scores: CrossScores,
    thoughts_M: Sequence[str],
    prompts_N: Sequence[str],
    words: Sequence[TokenValues] = (),
    images_N: Sequence[Sequence[Image]] = (),
) -> None:
    """Write one cross-score matrix with the texts of its rows and columns as a compressed `.npz`.

    `words` are added token by token if there are any. Values are stored in float32. `images_N`: the pictures of each
    prompt, if there are any.

    Raises:
        ValueError: the shapes disagree, or a value of `words` is none that float32 holds.
    """
    import numpy as np

    matrix = _numbers(scores.scores_MN, f"log-probabilities for {path}")
    if not matrix.size and not (thoughts_M and prompts_N):
        matrix = matrix.reshape(len(thoughts_M), len(prompts_N))
    for word in words:
        if not all(abs(value) <= LARGEST_REWARD for value in word.values_T):
            raise ValueError(
                f"Expected finite values of at most {LARGEST_REWARD:g} in size for each token, found others in row "
                f"{word.row}."
            )
    stored = StoredScores(
        matrix,
        _whole(scores.lengths_M, f"lengths of thoughts for {path}"),
        _whole(scores.own_M, f"columns of own prompts for {path}"),
        tuple(thoughts_M),
        tuple(prompts_N),
        tuple(words),
        tuple(map(tuple, images_N)),
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
        **_word_arrays(stored.words),
        **_picture_arrays(stored.images_N),
    )
    write_whole(path, content.getvalue())


def _numbers(values: object, what: str) -> npt.NDArray[np.float64]:
    import numpy as np

    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"Expected numbers, in rows of equal length, as {what}, found others: {error}.") from error


def _whole(values: object, what: str) -> npt.NDArray[np.int64]:
    import numpy as np

    numbers = _numbers(values, what)
    if not (numbers == np.rint(numbers)).all() or not (abs(numbers) < 2**53).all():
        raise ValueError(f"Expected whole numbers as {what}, found {values!r:.100}.")
    return numbers.astype(np.int64)


def read_scores(path: Path | str) -> StoredScores:
    """Read what `write_scores` wrote.

    Raises:
        ValueError: the file is missing, damaged, or holds something else.
    """
    import numpy as np

    path = existing_file(path, "a file of cross-scores")
    try:
        with open_file(path) as stream, np.load(stream, allow_pickle=False) as archive:
            size = sum(each.file_size for each in archive.zip.infolist())
            if size > LARGEST:
                raise ValueError(f"arrays of {size:,} bytes, more than {LARGEST:,}")
            missing = [name for name in _ARRAYS if name not in archive.files]
            if missing:
                raise ValueError(f"no array {', '.join(missing)}")
            arrays = {name: archive[name] for name in (*_ARRAYS, *_WORDS, *_PICTURES) if name in archive.files}
            _check_types(arrays)
    except (OSError, EOFError, ValueError, TypeError, AttributeError, *_DAMAGED) as error:
        # numpy calls whatever it does not know a pickle, and advises to run it.
        found = "no .npz archive of plain arrays" if "pickle" in str(error) else error
        raise ValueError(
            f"Expected cross-scores in {path}, found {found}. Delete the file to do without this heat map."
        ) from error
    stored = StoredScores(
        np.asarray(arrays["scores"], dtype=np.float64),
        np.asarray(arrays["lengths"], dtype=np.int64),
        np.asarray(arrays["own"], dtype=np.int64),
        tuple(str(text) for text in arrays["thoughts"]),
        tuple(str(text) for text in arrays["prompts"]),
        _words_of(arrays, str(path)),
        _pictures_of(arrays, str(path)),
    )
    _check(stored, str(path))
    return stored


def _check_types(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise ValueError for an array that `write_scores` would not write, by its type or dimensions."""
    for name, array in arrays.items():
        kinds = _KINDS.get(name, _COUNT)
        negative = kinds == _COUNT and array.dtype.kind in "i" and array.size and array.min() < 0
        if array.ndim != (2 if name == "scores" else 1) or array.dtype.kind not in kinds or negative:
            found = "a number below 0" if negative else f"{array.dtype} in {array.ndim} dimensions"
            raise ValueError(f"{found} in the array {name}")


def _word_arrays(words: Sequence[TokenValues]) -> dict[str, Any]:
    """The tokens of all thoughts, concatenated. Empty if there are none."""
    import numpy as np

    if not words:
        return {}
    return {
        "words_row": np.array([thought.row for thought in words], dtype=np.int64),
        "words_length": np.array([len(thought.texts_T) for thought in words], dtype=np.int64),
        "words_text": np.array([text for thought in words for text in thought.texts_T], dtype=np.str_),
        "words_value": np.array([value for thought in words for value in thought.values_T], dtype=np.float32),
    }


def _words_of(arrays: Mapping[str, npt.NDArray[np.generic]], where: str) -> tuple[TokenValues, ...]:
    if not any(name in arrays for name in _WORDS):
        return ()
    row, length, text, value = (arrays[name].tolist() if name in arrays else [] for name in _WORDS)
    if len(row) != len(length) or not sum(length) == len(text) == len(value):
        raise ValueError(
            f"Expected a text and a value for each of {sum(length)} tokens of {len(row)} thoughts in {where}, found "
            f"{len(text)} texts and {len(value)} values. Delete the file to do without this heat map."
        )
    words, start = [], 0
    for number, tokens in zip(row, length, strict=True):
        part = slice(start, start + tokens)
        words.append(TokenValues(number, tuple(text[part]), tuple(value[part])))
        start += tokens
    return tuple(words)


def _picture_arrays(images_N: Sequence[Sequence[Image]]) -> dict[str, Any]:
    """The pictures of all columns, one after another. Empty if there are none."""
    import numpy as np

    placed = [(column, image) for column, images in enumerate(images_N) for image in images]
    if not placed:
        return {}
    files = b"".join(image.png for _, image in placed)
    return {
        "picture_column": np.array([column for column, _ in placed], dtype=np.int64),
        "picture_bytes": np.frombuffer(files, dtype=np.uint8),
        "picture_width": np.array([image.width for _, image in placed], dtype=np.int64),
        "picture_height": np.array([image.height for _, image in placed], dtype=np.int64),
        "picture_alt": np.array([image.alt for _, image in placed], dtype=np.str_),
        "picture_size": np.array([len(image.png) for _, image in placed], dtype=np.int64),
    }


def _pictures_of(arrays: Mapping[str, npt.NDArray[Any]], where: str) -> tuple[tuple[Image, ...], ...]:
    if not any(name in arrays for name in _PICTURES):
        return ()
    if missing := [name for name in _PICTURES if name not in arrays]:
        raise ValueError(f"Expected cross-scores in {where}, found no array {', '.join(missing)}. Delete the file.")
    lists = {name: arrays[name].tolist() for name in _PICTURES if name != "picture_bytes"}
    files, prompts = arrays["picture_bytes"].astype("uint8").tobytes(), len(arrays["prompts"])
    columns, sizes = lists["picture_column"], lists["picture_size"]
    wrong = len({len(values) for values in lists.values()}) > 1 or sum(sizes) != len(files)
    if wrong or any(size < 0 for size in sizes) or any(not 0 <= column < prompts for column in columns):
        raise ValueError(
            f"Expected a column below {prompts}, a size and words for each of {len(columns)} pictures in {where}, "
            f"found {len(sizes)} sizes and {len(files)} bytes. Delete the file to do without this heat map."
        )
    found: list[list[Image]] = [[] for _ in range(prompts)]
    start = 0
    for place, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        shape = (lists[f"picture_{name}"][place] for name in ("width", "height", "alt"))
        found[column].append(Image(files[start : start + size], *shape))
        start += size
    return tuple(map(tuple, found))


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
    for thought in stored.words:
        if not 0 <= thought.row < rows or len(thought.texts_T) != len(thought.values_T):
            raise ValueError(
                f"Expected the tokens of one of {rows} thoughts, each with a value, in {where}, found thought "
                f"{thought.row} with {len(thought.texts_T)} texts and {len(thought.values_T)} values."
            )
