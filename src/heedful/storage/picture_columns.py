"""The columns of pictures in rollout files: a row names its pictures, and each file is stored once.

A step without pictures has neither column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heedful.types import Group, Image

IMAGES = "new_prompt_images"
"""The digests of the pictures of a row's prompt, in order."""
PICTURES = "pictures"
"""The files of those that no earlier row names."""

_FIELDS = {"digest": "text", "png": "bytes", "width": "int32", "height": "int32", "alt": "text"}


def pictures_of(groups: Sequence[Group]) -> dict[str, Image]:
    """The pictures of all prompts by their digests, each once, in order."""
    turns = (turn for group in groups for trajectory in group.trajectories for turn in trajectory.turns)
    return {image.digest: image for turn in turns for image in turn.reply.prompt.images}


def add_files(rows: Sequence[dict[str, Any]], pictures: Mapping[str, Image]) -> None:
    """Put the file of each picture into the first row that names it."""
    left = dict(pictures)
    for row in rows:
        if IMAGES in row:
            found = [digest for digest in dict.fromkeys(row[IMAGES] or ()) if digest in left]
            row[PICTURES] = [_file(digest, left.pop(digest)) for digest in found]


def find_pictures(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Put pictures in the place of their digests. Raises ValueError for one that the file lacks."""
    files = [file for row in rows for file in row.get(PICTURES) or ()]
    whole = [file for file in files if file is not None and None not in file.values()]
    known = {file["digest"]: Image(file["png"], file["width"], file["height"], file["alt"]) for file in whole}
    for row in rows:
        digests = row.get(IMAGES) or ()
        lost = [digest for digest in digests if digest not in known or known[digest].digest != digest]
        if lost:
            raise ValueError(
                f"Expected the picture {lost[0]} in the column `{PICTURES}` of {path}, found it missing or changed "
                f"(turn {row['turn']} of task {row['task_id']}). Restore the file from a copy. Without replies "
                "(read_rollouts(path, replies=False)) the rest of it can be read."
            )
        row[IMAGES] = tuple(known[digest] for digest in digests)


def picture_columns() -> dict[str, Any]:
    """Both columns, for a schema of pyarrow, and the ids of prompts, which are wider where pictures have some."""
    import pyarrow

    kinds = {"text": pyarrow.string(), "bytes": pyarrow.binary(), "int32": pyarrow.int32()}
    file = pyarrow.struct([(name, kinds[kind]) for name, kind in _FIELDS.items()])
    return {
        "new_prompt_ids": pyarrow.list_(pyarrow.int64()),
        IMAGES: pyarrow.list_(pyarrow.string()),
        PICTURES: pyarrow.list_(file),
    }


def _file(digest: str, image: Image) -> dict[str, Any]:
    return {"digest": digest, **{name: getattr(image, name) for name in _FIELDS if name != "digest"}}
