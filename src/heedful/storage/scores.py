"""Cross-score matrices on disk: the numbers and texts of a report's heat map.

Files hold plain arrays without pickled objects. The same scores give the same bytes.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.boundary.open_files import open_file
from heedful.storage.files import write_whole
from heedful.types import CrossScores, Image

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TokenValues:
    """One thought token by token, with the information of each token about the thought's own prompt."""

    row: int
    """Row of the thought in the matrix."""
    texts_T: tuple[str, ...]
    values_T: tuple[float, ...]
    """Pointwise information in nats."""


@dataclass(frozen=True, slots=True)
class Swaps:
    """First actions after exchanged thoughts: M thoughts read under N prompts, and the A actions of the batch."""

    chances_MNA: npt.NDArray[np.float64]
    """p(action a | prompt j, thought i). NaN where the thought was not read under the prompt."""
    own_M: npt.NDArray[np.int64]
    taken_M: npt.NDArray[np.int64]
    """The action that followed each thought when it was sampled."""
    right_NA: npt.NDArray[np.float64]
    """How right each action is for each prompt, from 0 to 1. NaN where the environment does not say."""
    names_A: tuple[str, ...]
    thoughts_M: tuple[str, ...]
    prompts_N: tuple[str, ...]


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
    swaps: Swaps | None = None


_SWAP_TEXTS = ("names_A", "thoughts_M", "prompts_N")


def write_scores(
    path: Path | str,
    scores: CrossScores,
    thoughts_M: Sequence[str],
    prompts_N: Sequence[str],
    words: Sequence[TokenValues] = (),
    images_N: Sequence[Sequence[Image]] = (),
    swaps: Swaps | None = None,
) -> None:
    """Write one cross-score matrix with the texts of its rows and columns as a compressed `.npz`.

    `words` are added token by token if there are any. Values are stored in float32. `images_N`: the pictures of each
    prompt, if there are any. `swaps`: what first actions follow, if it was measured.
    """
    import numpy as np

    matrix = np.asarray(scores.scores_MN, dtype=np.float64)
    arrays: dict[str, npt.NDArray[Any]] = {
        "scores": matrix if matrix.size else matrix.reshape(len(thoughts_M), len(prompts_N)),
        "lengths": np.asarray(scores.lengths_M, dtype=np.int64),
        "own": np.asarray(scores.own_M, dtype=np.int64),
        "thoughts": np.array(tuple(thoughts_M), dtype=np.str_),
        "prompts": np.array(tuple(prompts_N), dtype=np.str_),
    }
    if words:  # the tokens of all thoughts, concatenated
        arrays |= {
            "words_row": np.array([thought.row for thought in words], dtype=np.int64),
            "words_length": np.array([len(thought.texts_T) for thought in words], dtype=np.int64),
            "words_text": np.array([text for thought in words for text in thought.texts_T], dtype=np.str_),
            "words_value": np.array([value for thought in words for value in thought.values_T], dtype=np.float32),
        }
    placed = [(column, image) for column, images in enumerate(images_N) for image in images]
    if placed:  # a number for each picture in all columns, and their files one after another
        arrays |= {
            "picture_column": np.array([column for column, _ in placed], dtype=np.int64),
            "picture_bytes": np.frombuffer(b"".join(image.png for _, image in placed), dtype=np.uint8),
            "picture_width": np.array([image.width for _, image in placed], dtype=np.int64),
            "picture_height": np.array([image.height for _, image in placed], dtype=np.int64),
            "picture_alt": np.array([image.alt for _, image in placed], dtype=np.str_),
            "picture_size": np.array([len(image.png) for _, image in placed], dtype=np.int64),
        }
    if swaps is not None:
        kinds = {"chances_MNA": np.float32, "right_NA": np.float32, "own_M": np.int64, "taken_M": np.int64}
        arrays |= {f"swap_{name}": np.asarray(getattr(swaps, name), dtype=kind) for name, kind in kinds.items()}
        arrays |= {f"swap_{name}": np.array(getattr(swaps, name), dtype=np.str_) for name in _SWAP_TEXTS}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    write_whole(path, content.getvalue())


def read_scores(path: Path | str) -> StoredScores:
    """Read what `write_scores` wrote.

    Raises:
        ValueError: the file is missing, damaged, or holds something else.
    """
    import numpy as np

    path = Path(path)
    try:
        with open_file(path) as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return StoredScores(
            arrays["scores"].astype(np.float64),
            arrays["lengths"].astype(np.int64),
            arrays["own"].astype(np.int64),
            tuple(arrays["thoughts"].tolist()),
            tuple(arrays["prompts"].tolist()),
            _words_of(arrays),
            _pictures_of(arrays),
            _swaps_of(arrays),
        )
    except (OSError, EOFError, ValueError, LookupError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        # numpy calls whatever it does not know a pickle, and advises to run it.
        found = "no .npz archive of plain arrays" if "pickle" in str(error) else error
        raise ValueError(
            f"Expected cross-scores in {path}, found {found}. Delete the file to do without this heat map."
        ) from error


def _words_of(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[TokenValues, ...]:
    if "words_row" not in arrays:
        return ()
    row, length, text, value = (arrays[f"words_{name}"].tolist() for name in ("row", "length", "text", "value"))
    words, start = [], 0
    for number, tokens in zip(row, length, strict=True):
        part = slice(start, start + tokens)
        words.append(TokenValues(number, tuple(text[part]), tuple(value[part])))
        start += tokens
    return tuple(words)


def _swaps_of(arrays: Mapping[str, npt.NDArray[Any]]) -> Swaps | None:
    if "swap_own_M" not in arrays:
        return None
    found: dict[str, Any] = {field.name: arrays[f"swap_{field.name}"] for field in fields(Swaps)}
    return Swaps(**found | {name: tuple(found[name].tolist()) for name in _SWAP_TEXTS})


def _pictures_of(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[tuple[Image, ...], ...]:
    if "picture_column" not in arrays:
        return ()
    names = ("column", "size", "width", "height", "alt")
    files, start = arrays["picture_bytes"].tobytes(), 0
    found: list[list[Image]] = [[] for _ in arrays["prompts"]]
    for column, size, *shape in zip(*(arrays[f"picture_{name}"].tolist() for name in names), strict=True):
        found[column].append(Image(files[start : start + size], *shape))
        start += size
    return tuple(map(tuple, found))
