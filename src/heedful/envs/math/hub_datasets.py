"""Rows of a dataset that the library `datasets` can load: a name on the Hugging Face hub, a folder, or a .json file."""

from __future__ import annotations

from typing import Any

from heedful.boundary.open_files import in_home
from heedful.envs.common.rows import Rows
from heedful.guarded import Raised, guarded_call


def load_rows(name: str, subset: str, part: str) -> Rows:
    """The rows of split `part` of a dataset, in its configuration `subset` (empty: the only one).

    Raises:
        ValueError: there is no such dataset, configuration or split, or the hub cannot be reached.
        ModuleNotFoundError: the library is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise ModuleNotFoundError(
            f'math: {name!r} is read with the library datasets, which is not installed: pip install "heedful[math]", '
            "or give a .jsonl or .parquet file."
        ) from error
    place = in_home(name)
    if name == "pandas" and not place.exists():
        # The library's own builder of this name opens the pickles of the working directory.
        raise ValueError("math: 'pandas' names no dataset. Give a dataset, or a .jsonl or .parquet file.")
    whole = str(place.absolute())
    if place.exists() and (set("*?[]") & set(whole) or "::" in whole):
        raise ValueError(f"math: the library datasets reads *, ?, [, ] and :: in {whole!r} as patterns. Rename it.")

    def load() -> Any:
        if place.is_file():
            return datasets.load_dataset("json", data_files=whole, split="train")
        return datasets.load_dataset(whole if place.exists() else name, subset or None, split=part)

    loaded = guarded_call(load)  # builders of many formats, each with its own errors
    if isinstance(loaded, Raised):
        found = str(loaded.error).strip().partition("\n")[0].rstrip(".")
        raise ValueError(
            f"math: expected a dataset named {name!r}{f' with the configuration {subset!r}' if subset else ''} and the "
            f"split {part!r}, found: {type(loaded.error).__name__}: {found}. Check the name and the network, or give a "
            ".jsonl or .parquet file as --env.path FILE."
        ) from loaded.error
    rows: Rows = loaded.value
    return rows
