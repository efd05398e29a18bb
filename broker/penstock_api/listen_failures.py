"""Why a process can't listen on an address, and what to do about it, in words for a person. Pure."""

from __future__ import annotations

import errno
import os
from typing import Final

__all__ = ["listen_failure"]

_TCP: Final = {
    errno.EADDRINUSE: "End what listens there, or name another port.",
    errno.EACCES: "Name a port from 1024 on: those below need a right that this process lacks.",
    errno.EADDRNOTAVAIL: "Name an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them.",
}
_UNIX: Final = {
    errno.EADDRINUSE: "End what listens there, or name another path.",
    errno.EEXIST: "Name another path: a file that is no socket is there.",
    errno.EACCES: "Name a folder in which this user may write.",
    errno.ENOENT: "Make the folder first.",
    errno.EROFS: "Name a folder in which this user may write.",
}
_NAME: Final = "Name an address of this machine, such as 127.0.0.1."
_PATH: Final = "Name another path, of at most 107 bytes, in a folder in which this user may write."


def listen_failure(error: OSError, *, is_path: bool = False) -> tuple[str, str]:
    """A clause that says why, without its full stop, and a sentence with the cure. `is_path`: of a Unix socket."""
    number = error.errno if error.errno is not None and error.errno > 0 else None  # getaddrinfo has some below 0
    why = os.strerror(number) if number is not None else error.strerror or str(error)
    cures, otherwise = (_UNIX, _PATH) if is_path else (_TCP, _NAME)
    return why, otherwise if number is None else cures.get(number, otherwise)
