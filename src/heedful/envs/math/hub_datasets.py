"""Rows of a dataset that the library `datasets` can load: a name on the Hugging Face hub, a folder, or a .json file.

If the hub cannot be reached, the copy of an earlier download is read. Without one, an error comes within seconds. The
offline setting ends with the call.
"""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from heedful.boundary.open_files import in_home
from heedful.guarded import Raised, guarded_call

PROBE_SECONDS = 4.0
"""How long the hub may take to answer at all."""

_ONE_AT_A_TIME = threading.Lock()


class DatasetRows:
    """The rows of a loaded dataset, which stay on disk."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, row: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._dataset[row]
        return found

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for batch in self._dataset.with_format("arrow").iter(batch_size=1000):
            yield from batch.to_pylist()


def load_rows(name: str, subset: str, part: str) -> DatasetRows:
    """The rows of split `part` of a dataset, in its configuration `subset` (empty: the only one).

    Raises:
        ValueError: there is no such dataset, configuration or split, or it can be had from nowhere.
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
    local = place.exists()
    if name == "pandas" and not local:
        # The library's own builder of this name opens the pickles of the working directory.
        raise ValueError("math: 'pandas' names no dataset. Give a dataset, or a .jsonl or .parquet file.")
    whole = str(place.absolute())
    if local and (set("*?[]") & set(whole) or "::" in whole):
        raise ValueError(f"math: the library datasets reads *, ?, [, ] and :: in {whole!r} as patterns. Rename it.")
    reachable = local or hub_answers()

    def load() -> Any:
        with _offline(not reachable):
            if place.is_file():
                return datasets.load_dataset("json", data_files=whole, split="train")
            return datasets.load_dataset(whole if local else name, subset or None, split=part)

    loaded = guarded_call(load)  # builders of many formats, each with its own errors
    if isinstance(loaded, Raised):
        where = "" if reachable else " (the hub could not be reached, and no earlier download was found)"
        raise ValueError(
            f"math: expected a dataset named {name!r}{f' with the configuration {subset!r}' if subset else ''} and the "
            f"split {part!r}, found: {_first_line(loaded.error)}{where}. Check the name, or give a .jsonl or .parquet "
            "file as --env.path FILE."
        ) from loaded.error
    return DatasetRows(loaded.value)


def hub_answers() -> bool:
    """Whether the hub answers at all. False too where its own switch says that it is not to be asked."""
    import huggingface_hub.constants as hub

    if hub.HF_HUB_OFFLINE:
        return False
    try:
        with urllib.request.urlopen(hub.ENDPOINT, timeout=PROBE_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True  # an answer, if not a friendly one
    except (OSError, ValueError):
        return False


@contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    """Both libraries' own switch, for one call: without it each tries for a minute."""
    import datasets
    import huggingface_hub.constants as hub

    with _ONE_AT_A_TIME:
        before = datasets.config.HF_HUB_OFFLINE, hub.HF_HUB_OFFLINE
        if wanted:
            datasets.config.HF_HUB_OFFLINE = hub.HF_HUB_OFFLINE = True
        try:
            yield
        finally:
            datasets.config.HF_HUB_OFFLINE, hub.HF_HUB_OFFLINE = before


def _first_line(error: BaseException) -> str:
    words = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
