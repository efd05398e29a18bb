"""The users of a listener: salted records of their passwords, made from the settings or from a folder of files.

A password given in plain text is hashed when it is first needed, and only the record is kept. Files are looked at in
each login (a `stat`); one that changed is read and hashed again, on the login thread: `load` is the slow part.

What a login depends on (`Proof`): a user's record, or a signed token. When it goes, the connection is closed
(`login_revalidation`). Must not know SASL or connections. Source: docs/decisions/025-password-hashing.md.
"""

from __future__ import annotations

import hmac
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
    CredentialRecord,
    fake_record,
    make_record,
    parse_record,
    user_salt,
)
from penstock_core.login_end import LoginEnd

__all__ = ["NoRecord", "Proof", "SignedToken", "Source", "Users", "in_folder", "one_user"]

logger = logging.getLogger(__name__)

Source: TypeAlias = Path | None
Stamp: TypeAlias = tuple[int, int, int]

MAX_FILE_BYTES = 4096

KNOWN_WITHOUT_LOOK = 1000
"""So many users with files are remembered before those are looked for whose files are gone."""


class NoRecord(Enum):
    """Why `Users.ready` has no record."""

    NO_USER = auto()
    NOT_LOADED = auto()
    """`Users.load` has to be called."""


@dataclass(frozen=True, slots=True)
class _Known:
    stamp: Stamp | None
    record: CredentialRecord | None
    """None: the file is there and can't be used."""
    digest: bytes
    """Keyed hash of the file's content: a mounted Secret gets new files whenever any of its users changes."""


class Users:
    """The users of one listener."""

    def __init__(
        self,
        given: Mapping[str, str],
        file_of: Callable[[str], Source],
        *,
        key: bytes,
        rounds: int = ROUNDS,
        has_files: bool = True,
    ) -> None:
        """`given`: password or record by user, hashed at once. `file_of`: the file of any other user.

        `key`: random bytes of this broker. It salts passwords, and makes up the salts of users that do not exist.
        """
        self._file_of = file_of
        self._key = key
        self._rounds = rounds
        self._given = {user: self._made(user, text) for user, text in given.items()}
        self._known: dict[str, _Known] = {}
        self._most_known = KNOWN_WITHOUT_LOOK
        self._unread: set[str] = set()
        """Users whose files could not be read, which is told once."""
        self._lock = threading.Lock()
        self.has_files = has_files
        """False: all users stand in the settings, and none can be removed."""

    def fake(self, user: str) -> CredentialRecord:
        """A record to show for a user that does not exist."""
        return fake_record(self._key, user, self._rounds)

    def ready(self, user: str) -> CredentialRecord | NoRecord:
        """The record of a user if it is known already. Fast."""
        record = self._given.get(user)
        if record is not None:
            return record
        stamp = _stamp(self._file_of(user))
        known = self._known.get(user)
        if stamp is None:
            if known is not None:
                self._known.pop(user, None)
            return NoRecord.NO_USER
        if known is None or known.stamp != stamp:
            return NoRecord.NOT_LOADED
        return known.record if known.record is not None else NoRecord.NO_USER

    def load(self, user: str) -> CredentialRecord | None:
        """The record of a user, read and hashed if necessary; None if there is none. Slow: on the login thread.

        Raises `OSError` if the file can't be read now; nothing is remembered of it then.
        """
        record = self._given.get(user)
        path = self._file_of(user)
        stamp = _stamp(path)
        if record is not None or path is None or stamp is None:
            return record
        with self._lock:
            known = self._known.get(user)
            if known is None or known.stamp != stamp:
                known = self._known[user] = self._read(user, path, stamp, known)
                if len(self._known) > self._most_known:
                    self._forget_removed()
        return known.record

    @property
    def remembered(self) -> int:
        """How many users with files are remembered."""
        return len(self._known)

    def _forget_removed(self) -> None:
        """Forget the users whose files are gone: nobody may log in as them again, and so ask for them."""

        def is_there(user: str) -> bool:
            return _stamp(self._file_of(user)) is not None

        left = {user: known for user, known in self._known.copy().items() if is_there(user)}
        self._known, self._most_known = left, max(KNOWN_WITHOUT_LOOK, 2 * len(left))
        self._unread = set(filter(is_there, self._unread))

    def end_of(self, user: str, record: CredentialRecord) -> LoginEnd | None:
        """Why a login by this record has ended; None: it holds, also while the file can't be used.

        Slow: on the login thread.
        """
        if user not in self._given and _stamp(self._file_of(user)) is None:
            return LoginEnd.USER_REMOVED
        try:
            now = self.load(user)
        except OSError:
            return None
        return None if now is None or now == record else LoginEnd.SECRET_CHANGED

    def _read(self, user: str, path: Path, stamp: Stamp, known: _Known | None) -> _Known:
        content = self._content(user, path)
        digest = hmac.digest(self._key, content or b"", "sha256")
        if known is not None and known.digest == digest:
            return _Known(stamp, known.record, digest)
        return _Known(stamp, self._record(user, path, content) if content is not None else None, digest)

    def _content(self, user: str, path: Path) -> bytes | None:
        """What the file holds; None if it is a folder. Raises `OSError`."""
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES).rstrip(b"\r\n")
        except OSError as error:
            if user not in self._unread:
                logger.warning("The password file %s can't be read: %s", path, error.strerror)
            if isinstance(error, IsADirectoryError):
                return None
            self._unread.add(user)
            raise
        self._unread.discard(user)
        return content

    def _record(self, user: str, path: Path, content: bytes) -> CredentialRecord | None:
        try:
            return self._made(user, content.decode())
        except UnicodeDecodeError:
            logger.warning("The password file %s is not UTF-8", path)
            return None
        except CredentialError as error:
            logger.warning("The password file %s can't be used: %s", path, error)
            return None

    def _made(self, user: str, text: str) -> CredentialRecord:
        record = parse_record(text)
        return record if record is not None else make_record(text, user_salt(self._key, user), self._rounds)


def in_folder(folder: Path | None) -> Callable[[str], Source]:
    """The file of a user is named like the user; a name that could lead out of the folder has none."""

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


@dataclass(frozen=True, slots=True)
class SignedToken:
    """The token by which a user logged in: who signed it with which key, and when it expires, leeway included."""

    issuer: str
    key: bytes
    ends_us: int


Proof: TypeAlias = CredentialRecord | SignedToken
"""What a login depends on. A login without proof (ANONYMOUS, EXTERNAL) can't be taken back."""
