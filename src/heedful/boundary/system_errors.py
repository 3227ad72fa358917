"""Errors of the system, such as a folder in the place of a file, as sentences that say what to do."""

from __future__ import annotations

import errno
import os
import re

from heedful.boundary.foreign_text import cut

_KNOWN = {
    errno.ENOENT: "Expected a file or a folder at {path}, found nothing. Give another path.",
    errno.ENOTDIR: "Expected a folder at {path}, and folders above it, found a file. Give another path.",
    errno.EISDIR: "Expected a file at {path}, found a folder. Give another path.",
    errno.EEXIST: "Expected nothing at {path}, found a file or a folder. Move it away, or give another path.",
    errno.ENOTEMPTY: "Expected an empty folder at {path}, found files in it. Move them away, or give another path.",
    errno.ENXIO: "Expected a file at {path}, found a pipe or a device. Give another path.",
    errno.EACCES: "Expected the right to use {path}, found none. Change its permissions, or give another path.",
    errno.EPERM: "Expected the right to use {path}, found none. Change its permissions, or give another path.",
    errno.EROFS: "Expected to write {path}, found a disk that can only be read. Give a path on another disk.",
    errno.ENOSPC: "Expected room on the disk to write {path}, but it is full. Free some space, then go on.",
    errno.EDQUOT: "Expected room on the disk to write {path}, but the quota is full. Free some space, then go on.",
    errno.EFBIG: "Expected to write {path}, but files may not be so large. Raise the limit (`ulimit -f`), then go on.",
}
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NUMBER = re.compile(r"\[Errno -?\d+\] ")
LONGEST_PATH = 200
_NO_MEMORY = re.compile(r"(?:can't allocate memory|not enough memory|[Tt]ried to allocate)")


def sentence_of(error: BaseException) -> str:
    """What an error says to a user. An error of the system about a path gets a sentence with what to do.

    The numbers of system errors that others quote are left out.
    """
    if is_out_of_memory(error) or (isinstance(error, MemoryError) and not str(error)):
        return "The memory does not suffice. Choose a smaller model or smaller batches, or free some memory."
    if not isinstance(error, OSError) or error.errno is None or error.strerror is None:
        return _NUMBER.sub("", str(error)) or type(error).__name__
    if error.filename is None and error.errno in NO_ROOM:
        return _KNOWN[error.errno].format(path="the output")
    if error.filename is None:
        return f"The system says: {error.strerror}."
    path = cut(os.fsdecode(error.filename) if not isinstance(error.filename, int) else "a file", LONGEST_PATH)
    known = _KNOWN.get(error.errno, "Expected to use {path}, but the system says: {reason}. Give another path.")
    return known.format(path=path, reason=error.strerror)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it is torch's error where memory ends: a RuntimeError, on a CPU one like any other."""
    return isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error)) is not None
