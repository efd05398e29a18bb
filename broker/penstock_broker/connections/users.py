"""What is stored of each user: salted records, made of what the settings or a folder of files say.

A password given in plain is hashed when it is first needed, and only the record is kept. Files are looked at in each
log-in (a `stat`); one that changed is read and hashed again, on the thread of `logins`. `load` is the slow part.
Must not know SASL or connections. Source: design, section 4.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TypeAlias

from penstock_amqp.sasl.credentials import (
    ROUNDS,
    CredentialError,
    Record,
    fake_record,
    make_record,
    parse_record,
    user_salt,
)

__all__ = ["Absent", "Source", "Users", "in_folder", "one_user"]

logger = logging.getLogger(__name__)

Source: TypeAlias = Path | None
Stamp: TypeAlias = tuple[int, int, int]

MAX_FILE_BYTES = 4096


class Absent(Enum):
    """Why there is no record at hand."""

    NO_USER = auto()
    NOT_LOADED = auto()
    """`load` has to be asked."""


@dataclass(frozen=True, slots=True)
class _Known:
    stamp: Stamp | None
    record: Record | None
    """None: the file is there and can't be used."""


class Users:
    """The users of one listener."""

    def __init__(
        self,
        given: Mapping[str, str],
        file_of: Callable[[str], Source],
        *,
        key: bytes,
        rounds: int = ROUNDS,
    ) -> None:
        """`given`: password or record by user, hashed at once. `file_of`: where that of another user would be.

        `key`: random bytes of this broker. It salts, and makes up what is shown of users that do not exist.
        """
        self._file_of = file_of
        self._key = key
        self._rounds = rounds
        self._given = {user: self._made(user, text) for user, text in given.items()}
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def fake(self, user: str) -> Record:
        """What is shown of a user that does not exist."""
        return fake_record(self._key, user, self._rounds)

    def ready(self, user: str) -> Record | Absent:
        """The record of a user, if it is known already. Quick."""
        record = self._given.get(user)
        if record is not None:
            return record
        stamp = _stamp(self._file_of(user))
        known = self._known.get(user)
        if stamp is None:
            if known is not None:
                self._known.pop(user, None)
            return Absent.NO_USER
        if known is None or known.stamp != stamp:
            return Absent.NOT_LOADED
        return known.record if known.record is not None else Absent.NO_USER

    def load(self, user: str) -> Record | None:
        """The record of a user, read and hashed if need be; None if there is none. Slow: on a thread."""
        record = self._given.get(user)
        path = self._file_of(user)
        stamp = _stamp(path)
        if record is not None or path is None or stamp is None:
            return record
        with self._lock:
            known = self._known.get(user)
            if known is None or known.stamp != stamp:
                known = self._known[user] = _Known(stamp, self._read(user, path))
        return known.record

    def _read(self, user: str, path: Path) -> Record | None:
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES).rstrip(b"\r\n").decode()
        except OSError as error:
            logger.warning("The password file %s can't be read: %s", path, error.strerror)
            return None
        except UnicodeDecodeError:
            logger.warning("The password file %s is not UTF-8", path)
            return None
        try:
            return self._made(user, content)
        except CredentialError as error:
            logger.warning("The password file %s can't be used: %s", path, error)
            return None

    def _made(self, user: str, text: str) -> Record:
        record = parse_record(text)
        return record if record is not None else make_record(text, user_salt(self._key, user), self._rounds)


def in_folder(folder: Path | None) -> Callable[[str], Source]:
    """Where the file of a user is: a name that could lead out of the folder has none."""

    def file_of(user: str) -> Source:
        if folder is None or "/" in user or "\0" in user or user.startswith(".") or len(user) > 255:
            return None
        return folder / user

    return file_of


def one_user(name: str, path: Path) -> Callable[[str], Source]:
    """A single user whose password file has any name."""
    return lambda user: path if user == name else None


def _stamp(path: Path | None) -> Stamp | None:
    if path is None:
        return None
    try:
        stat = os.stat(path)
    except (OSError, ValueError):
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
