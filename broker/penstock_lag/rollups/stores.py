"""Where rollups are read and written: at the first observer, or in a folder beside a ledger.

Source: docs/reference/lag-job.md, "Rollups".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pydantic import ValidationError

from penstock_api.rollup_format import ROLLUP, ROLLUPS, RollupInfo, RollupList, RollupName
from penstock_api.validation_messages import validation_messages
from penstock_api.whole_files import write_whole
from penstock_lag.observer_client import Observer, ObserverError
from penstock_lag.rollups.files import BadRollup, about_of
from penstock_lag_rules.rollup_retention import deletable

__all__ = ["FolderRollups", "ObserverRollups", "RollupStore", "RollupsUnavailable"]

log = logging.getLogger(__name__)

UNKNOWN_PATH: Final = frozenset({403, 404})
"""An observer of an earlier release has no rollups: its path is not there, or only for the token for everything."""


class RollupsUnavailable(Exception):
    """Rollups can't be read or written there; the message is a sentence without its full stop."""


class RollupStore(Protocol):
    """Reads and writes rollups. Each method raises RollupsUnavailable."""

    def stored(self) -> dict[RollupName, RollupInfo] | None:
        """The rollups that are there; None if they can't be kept there, because the observer is of an earlier
        release.
        """
        ...

    def get(self, name: RollupName) -> bytes:
        """The file of one."""
        ...

    def put(self, name: RollupName, content: bytes) -> None:
        """Keep a file, in place of one of this name."""
        ...


@dataclass(frozen=True, slots=True)
class ObserverRollups:
    """Those that an observer keeps."""

    observer: Observer
    broker: str
    namespace: str

    def stored(self) -> dict[RollupName, RollupInfo] | None:
        """See RollupStore."""
        try:
            found = RollupList.model_validate_json(self.observer.get(ROLLUPS))
        except ObserverError as error:
            if error.status in UNKNOWN_PATH:
                return None
            raise RollupsUnavailable(f"the rollups could not be listed: {error}") from error
        except ValidationError as error:
            raise RollupsUnavailable(
                f"the observer's list of rollups was not understood: {validation_messages(error)[0]}"
            ) from error
        if (found.namespace, found.broker) != (self.namespace, self.broker):
            raise RollupsUnavailable(f"the observer has the rollups of {found.namespace}/{found.broker}")
        return _by_name(found.rollups)

    def get(self, name: RollupName) -> bytes:
        """See RollupStore."""
        try:
            return self.observer.get(ROLLUP.format(name=name))
        except ObserverError as error:
            raise RollupsUnavailable(f"the rollup {name} could not be read: {error}") from error

    def put(self, name: RollupName, content: bytes) -> None:
        """See RollupStore."""
        try:
            self.observer.put(ROLLUP.format(name=name), content)
        except ObserverError as error:
            raise RollupsUnavailable(f"the rollup {name} was not stored: {error}") from error


@dataclass(frozen=True, slots=True)
class FolderRollups:
    """Those of one Broker in a folder on this machine."""

    folder: Path
    broker: str
    namespace: str

    def stored(self) -> dict[RollupName, RollupInfo] | None:
        """See RollupStore. A file that is no rollup is left out, with a line in the log."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            found = [info for name in self._names() if (info := self._info(self.folder / str(name))) is not None]
        except OSError as error:
            raise RollupsUnavailable(f"{self.folder} can't be read: {error}") from error
        return _by_name(found)

    def get(self, name: RollupName) -> bytes:
        """See RollupStore."""
        try:
            return (self.folder / str(name)).read_bytes()
        except OSError as error:
            raise RollupsUnavailable(f"the rollup {name} could not be read: {error}") from error

    def put(self, name: RollupName, content: bytes) -> None:
        """See RollupStore."""
        try:
            write_whole(self.folder / str(name), lambda hidden: hidden.write_bytes(content))
        except FileNotFoundError as error:
            # Another run made the same rollup at the same time, and has moved the file that both were writing.
            if not self._has(name, content):
                raise RollupsUnavailable(f"the rollup {name} could not be written: {error}") from error
        except OSError as error:
            raise RollupsUnavailable(f"the rollup {name} could not be written: {error}") from error

    def _has(self, name: RollupName, content: bytes) -> bool:
        try:
            return (self.folder / str(name)).read_bytes() == content
        except OSError:
            return False

    def prune(self, stored: Mapping[RollupName, RollupInfo], now_ms: int) -> list[RollupName]:
        """Delete what is past its retention, as far as nothing is to be made of it any more; which these are. In: what
        is there, and the time of the newest row by the broker's clock.

        Another run may do the same meanwhile. What can't be deleted is logged, and is tried again by the next run.
        """
        gone: list[RollupName] = []
        try:
            for name in deletable(stored, set(self._names()) - set(stored), now_ms):
                (self.folder / str(name)).unlink(missing_ok=True)
                gone.append(name)
        except OSError as error:
            log.error("old rollups in %s can't be deleted: %s; the next run tries again", self.folder, error)
        if gone:
            log.info("deleted %d rollups past their retention in %s, the first %s", len(gone), self.folder, gone[0])
        return gone

    def _names(self) -> list[RollupName]:
        """Those of all files that are named as a rollup."""
        return [name for path in self.folder.iterdir() if (name := RollupName.parse(path.name)) is not None]

    def _info(self, path: Path) -> RollupInfo | None:
        """Only the end of the file is read: there may be those of years. What another Broker has done, whose
        subscriptions may have the same names, would pass for the past of this one.
        """
        try:
            about, size = about_of(path), path.stat().st_size
        except FileNotFoundError:  # another run has pruned it since the folder was listed
            return None
        except BadRollup as error:
            log.error("%s is left out: %s", path, error)
            return None
        if (about.namespace, about.broker) != (self.namespace, self.broker):
            raise RollupsUnavailable(f"{path} is of {about.namespace}/{about.broker}: each Broker needs its own folder")
        return RollupInfo(
            name=path.name, bytes=size, rows=0, ordinals=about.ordinals, hours=about.hours, clock_set=about.clock_set
        )


def _by_name(infos: Sequence[RollupInfo]) -> dict[RollupName, RollupInfo]:
    """Names of later releases are left out."""
    return {name: info for info in infos if (name := RollupName.parse(info.name)) is not None}
