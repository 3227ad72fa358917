"""Files of folders that others made, opened for reading: a pipe or a device in the place of a file is refused.

To open a pipe waits for its writer, who may never come. A device may never end.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading, without waiting.

    Raises OSError where there is no file: nothing, a folder, a pipe, a socket or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise _no_file(path)


def in_home(path: Path | str) -> Path:
    """The path with `~` and `~name` as home folders. A name that this machine does not know stays as it is.

    A file may name any path. `Path.expanduser` raises a RuntimeError for a name that is not known.
    """
    return Path(os.path.expanduser(path))


def refuse_pipes(path: Path) -> None:
    """Raise OSError for a pipe, a socket or a device, at `path` or directly in a folder there.

    For what a library opens by its name.
    """
    for place in sorted(path.iterdir()) if path.is_dir() else [path]:
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise _no_file(place)


def has_pyarrow() -> bool:
    """Whether pyarrow, which reads and writes parquet files, is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def require_pyarrow(path: Path) -> None:
    """Raise ValueError where pyarrow is not installed."""
    if not has_pyarrow():
        raise ValueError(
            f"Expected pyarrow (pip install 'heedful[parquet]') for the parquet file {path}, found that it is not "
            "installed."
        )


def _no_file(path: Path) -> OSError:
    return OSError(errno.ENXIO, "Expected a file, found a pipe or a device", str(path))
