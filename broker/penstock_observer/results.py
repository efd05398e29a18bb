"""The store of lag results: takes what the lag job PUTs, keeps the newest ones, names the latest.

A result is decided on before anything is written; the decision is pure. Source: docs/reference/observer.md, "Lag
results".
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, assert_never

from pydantic import ValidationError

from penstock_api.lag_result import VERSION, LagResult
from penstock_api.ledger_format import HIDDEN_PREFIX
from penstock_api.observer_api import RUN_NAME
from penstock_api.validation_messages import validation_messages
from penstock_api.whole_files import write_whole
from penstock_observer.volume import at_start

__all__ = ["OTHER_BROKER", "OTHER_VERSION", "BrokerPod", "RejectedResult", "ResultStore", "read_result"]

log = logging.getLogger(__name__)

SUFFIX: Final = ".json"
OTHER_VERSION: Final = "OtherVersion"
"""Refused because it is of another release, which may read it."""
OTHER_BROKER: Final = "OtherBroker"
"""Refused because it is of a Broker of another name or namespace."""
CLOCK_TOLERANCE: Final = timedelta(hours=1)
_RUN_NAME: Final = re.compile(RUN_NAME)


@dataclass(frozen=True, slots=True)
class BrokerPod:
    """The broker pod to which the results belong."""

    broker: str
    namespace: str
    ordinal: int

    def check_keeps(self, what: str) -> None:
        """Raises RejectedResult unless this is the pod whose observer keeps such documents of all pods."""
        if self.ordinal != 0:
            raise RejectedResult(
                "NotKeptHere",
                f"only the observer of ordinal 0 keeps {what}; this one has another ordinal",
                conflict=True,
            )

    def check_owns(self, what: str, broker: str, namespace: str) -> None:
        """Raises RejectedResult if a document is of another Broker."""
        if (broker, namespace) != (self.broker, self.namespace):
            raise RejectedResult(
                OTHER_BROKER,
                f"the {what} is of broker {namespace}/{broker}, but this observer belongs to "
                f"{self.namespace}/{self.broker}",
                conflict=True,
            )


class RejectedResult(Exception):
    """A result is refused; nothing was changed."""

    def __init__(self, error: str, message: str, conflict: bool = False) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.conflict = conflict
        """True: the document is valid, but conflicts with the stored results or belongs to another broker. False: it is
        invalid.
        """


@dataclass(frozen=True, slots=True)
class Store:
    """Write the candidate, then remove these runs."""

    remove: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefuseResult:
    """Do not write the candidate."""

    error: str
    message: str


def decide(stored: Mapping[str, datetime], run_name: str, window_end: datetime, keep: int) -> Store | RefuseResult:
    """Whether a result is stored, given the window ends of the stored results."""
    before = stored.get(run_name)
    if before is not None and window_end < before:
        return RefuseResult(
            "OlderThanStored", f"run {run_name} is stored with a window until {before}, later than {window_end}"
        )
    others = sorted(((end, name) for name, end in stored.items() if name != run_name), reverse=True)
    if len(others) >= keep and window_end < others[keep - 1][0]:
        return RefuseResult("OlderThanKept", f"the newest {keep} results are kept and all end later than {window_end}")
    return Store(tuple(name for _, name in others[keep - 1 :]))


def beyond_size(stored: Mapping[str, tuple[datetime, int]], limit_bytes: int) -> tuple[str, ...]:
    """The runs to remove, the oldest first, until the rest is within the limit. The latest stays, however large.

    `stored`: window end and bytes of each run.
    """
    by_end = sorted((end, name, size) for name, (end, size) in stored.items())
    total = sum(size for _, _, size in by_end)
    gone: list[str] = []
    for _, name, size in by_end[:-1]:
        if total <= limit_bytes:
            break
        gone.append(name)
        total -= size
    return tuple(gone)


def read_result(body: bytes) -> LagResult:
    """Parse a result document. Raises RejectedResult with the first thing that is wrong."""
    try:
        result = LagResult.model_validate_json(body)
    except ValidationError as error:
        raise RejectedResult(
            "NotAResult", f"{validation_messages(error)[0]} ({error.error_count()} faults in all)"
        ) from error
    if result.version != VERSION:
        raise RejectedResult(
            OTHER_VERSION,
            f"the document has version {result.version}, but this observer accepts version {VERSION}: "
            "run the lag job of the same release as the broker",
        )
    return result


class ResultStore:
    """A folder of results, one file per run. Synchronous; the caller keeps it off the event loop, and may have several
    calls on the way.
    """

    def __init__(self, folder: Path, place: BrokerPod, keep: int, keep_bytes: int = 1 << 62) -> None:
        """Keeps the newest `keep` results, and fewer if they are larger than `keep_bytes` together."""
        self._folder = folder
        self._place = place
        self._keep = keep
        self._keep_bytes = keep_bytes
        self._ends: dict[str, datetime] = {}
        self._sizes: dict[str, int] = {}
        self._tags: dict[str, str] = {}
        self._latest: LagResult | None = None
        self._putting = threading.Lock()
        with at_start("result", folder):
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.iterdir()):
                with at_start("result", folder):
                    self._adopt(path)

    def latest_result(self) -> LagResult | None:
        """The result with the latest window end (of equals, the last run name), if there is any."""
        return self._latest

    def latest_run(self) -> str | None:
        """The run name of the latest result."""
        return None if self._latest is None else self._latest.run_name

    def tag(self, run_name: str) -> str | None:
        """The entity tag of a run's bytes: other bytes have another. None if there is none of that name."""
        return self._tags.get(run_name)

    def get(self, run_name: str) -> bytes | None:
        """The stored bytes of a run, None if there is none of that name."""
        return self._path(run_name).read_bytes() if run_name in self._ends else None

    def put(self, run_name: str, body: bytes, now: datetime) -> bool:
        """Store a result; False if the same bytes are stored already. Raises RejectedResult, or OSError if the disk
        fails.

        Results that are yet to come by the clock as it is now, because it was ahead, and later than this one, make
        place for it.
        """
        result = self._checked(run_name, body, now)
        with self._putting:
            return self._put(result, body, now)

    def _put(self, result: LagResult, body: bytes, now: datetime) -> bool:
        run_name = result.run_name
        # Of the former clock: no row of the present one is later, and this result would be behind it until then.
        latest = max(now, result.window_end)
        future = [name for name, end in self._ends.items() if end > latest]
        present = {name: end for name, end in self._ends.items() if name not in future}
        decision = decide(present, run_name, result.window_end, self._keep)
        match decision:
            case RefuseResult(error, message):
                raise RejectedResult(error, message, conflict=True)
            case Store(remove):
                if self.get(run_name) == body:
                    return False
                self._folder.mkdir(parents=True, exist_ok=True)  # the volume may have been read-only at the start
                write_whole(self._path(run_name), lambda path: path.write_bytes(body))
                self._ends[run_name] = result.window_end
                self._tags[run_name] = _tag(body)
                self._sizes[run_name] = len(body)
                self._remove(name for name in (*remove, *future) if name != run_name)
                self._remove(beyond_size(self._stored(), self._keep_bytes))
                self._note(result)
                return True
            case _:
                assert_never(decision)

    def _checked(self, run_name: str, body: bytes, now: datetime) -> LagResult:
        self._place.check_keeps("results")
        if _RUN_NAME.fullmatch(run_name) is None or run_name == "latest":
            raise RejectedResult(
                "BadRunName", f"{run_name!r} can't name a run: it must match {RUN_NAME} and not be 'latest'"
            )
        result = read_result(body)
        if result.run_name != run_name:
            raise RejectedResult(
                "BadRunName", f"the document is of run {result.run_name!r}, but the URL names {run_name!r}"
            )
        self._place.check_owns("document", result.broker, result.namespace)
        if result.window_end > now + CLOCK_TOLERANCE:
            raise RejectedResult("FutureWindow", f"the window ends in the future, at {result.window_end}; it is {now}")
        return result

    def _remove(self, run_names: Iterable[str]) -> None:
        for run_name in run_names:
            self._path(run_name).unlink(missing_ok=True)
            del self._ends[run_name]
            del self._tags[run_name]
            del self._sizes[run_name]

    def _stored(self) -> dict[str, tuple[datetime, int]]:
        return {name: (end, self._sizes[name]) for name, end in self._ends.items()}

    def _adopt(self, path: Path) -> None:
        if path.name.startswith(HIDDEN_PREFIX):
            path.unlink()
            return
        if path.suffix != SUFFIX:
            return
        try:
            body = path.read_bytes()
            result = read_result(body)
            self._place.check_owns("result", result.broker, result.namespace)
        except OSError as error:  # it may be readable later, and the other files are
            log.error("result %s is left out, because it can't be read: %s", path.name, error)
            return
        except RejectedResult as error:
            if error.error == OTHER_VERSION:
                return
            if error.error == OTHER_BROKER:
                log.error("result %s is left out: %s", path.name, error)
                return
            path.unlink()  # no run has this name again, so that nothing would ever take its place
            log.error(
                "result %s is damaged and is deleted; the next run of the lag job makes one: %s", path.name, error
            )
            return
        if self._path(result.run_name) == path:
            self._ends[result.run_name] = result.window_end
            self._tags[result.run_name] = _tag(body)
            self._sizes[result.run_name] = len(body)
            self._note(result)

    def _note(self, result: LagResult) -> None:
        """One is stored: it is the latest, or another that is stored."""
        name = max(self._ends, key=lambda run_name: (self._ends[run_name], run_name))
        if name == result.run_name:
            self._latest = result
        elif self._latest is None or self._latest.run_name != name:  # what was the latest is gone
            self._latest = read_result(self._path(name).read_bytes())

    def _path(self, run_name: str) -> Path:
        return self._folder / f"{run_name}{SUFFIX}"


def _tag(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
