"""Writing of whole files: a reader or a resumed run never sees half of one.

After `write_whole` the path holds either its old bytes or all of the new bytes, even after a crash in between. No
writer follows a symbolic link that someone has put into a folder: see `create` and `append`.
"""

from __future__ import annotations

import errno
import glob
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from heedful.boundary.system_errors import NO_ROOM, sentence_of

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class DiskFull(OSError, ValueError):
    """The disk, or the user's quota on it, has no room left. The message says what was kept."""


@contextmanager
def naming_a_full_disk(path: Path, kept: str) -> Iterator[None]:
    """Turn "no space left" while writing `path` into a sentence. `kept` says what is still valid on disk.

    Raises:
        DiskFull: the disk or the quota is full. Other errors pass unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        found, _, advice = sentence_of(OSError(error.errno, error.strerror, str(path))).rpartition(". ")
        raise DiskFull(f"{found}. Kept: {kept}. {advice}") from error


@contextmanager
def advising(command: str) -> Iterator[None]:
    """Add to the sentence about a full disk the command that goes on with the work."""
    try:
        yield
    except DiskFull as error:
        raise DiskFull(f"{str(error).removesuffix('.')} with: {command}") from error


def create(path: Path) -> BinaryIO:
    """Make the file `path` and open it for writing.

    What a killed process left under that name is removed first, a symbolic link itself and not its target.
    """
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666), "wb")


def append(path: Path) -> BinaryIO:
    """Open `path` for writing at its end; it is made if it is not there. Raises OSError where a link or a pipe is."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | _NO_LINK  # a pipe is not waited for
    return os.fdopen(os.open(path, flags, 0o666), "ab")


def write_whole(path: Path | str, content: bytes | str) -> None:
    """Write `content` (text as UTF-8) to a temporary name in the same folder, flush it, and rename it to `path`.

    A symbolic link at `path` is replaced. Its target stays as it is.

    Raises DiskFull where there was no room. The temporary file is removed and the old file at `path` is unchanged.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")  # two commands may write a page at the same time
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        if not is_alive(int(left.suffixes[-2][1:])):  # of a process that was killed
            left.unlink(missing_ok=True)
    # Names of files may hold bytes that are no UTF-8. JSON reads their escapes back as they were.
    content = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    earlier = f"the earlier {path.name} and" if path.exists() else "nothing of this file, but"
    with naming_a_full_disk(path, kept=f"{earlier} all that was written before it"):
        try:
            with create(partial) as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # so that the rename survives a power cut
        finally:
            os.close(folder)


def refuse_unwritable(path: Path) -> None:
    """Raise now what `write_whole` would raise for `path` after a long measurement, which would be lost."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:  # it names a file that nobody typed
        raise OSError(error.errno, error.strerror, str(path)) from error


def refuse_typed(path: Path, beginning: bytes) -> None:
    """Refuse a typed place that cannot be written, or where something stands that the command did not write earlier.

    `beginning`: how all files of this kind begin. A mistyped name would replace a file of a run, and a link such as
    /dev/stdout would itself become the file. An empty file may be replaced.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError(
            f"Expected a file, or nothing, at {path}, found a folder, a link, a pipe or a device. Give another name."
        )
    refuse_unwritable(path)
    if path.exists():
        with path.open("rb") as stream:
            found = stream.read(len(beginning))
        if found not in (b"", beginning):
            raise ValueError(
                f"Expected nothing, or a file that the same command wrote earlier, at {path}, found another file. "
                f"Give another name, or remove it."
            )


def is_alive(process: int) -> bool:
    """Whether a process of this host runs."""
    with suppress(PermissionError):  # somebody else's
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    with suppress(OSError):  # Linux: one that has ended is there until its parent asks how
        return not Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].startswith(" Z")
    return True


def claim_folder(candidates: Iterable[Path]) -> Path:
    """Make the first of these folders that does not exist yet, and return it. Safe among processes."""
    for folder in candidates:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise ValueError("Expected the name of a folder that is not there yet, found that all are taken. Give others.")
