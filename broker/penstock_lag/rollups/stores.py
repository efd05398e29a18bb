"""Where rollups are read and written: at the first observer, or in a folder beside a ledger.

Source: docs/reference/lag-job.md, "Rollups".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pydantic import ValidationError

from penstock_api.rollup_format import ROLLUP, ROLLUPS, RollupInfo, RollupList, RollupName
from penstock_api.validation_messages import validation_messages
from penstock_api.whole_files import write_whole
from penstock_lag.observer_client import Observer, ObserverError
from penstock_lag.rollups.files import BadRollup, about_of

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
    """Those of one Broker in a folder on this machine. Nothing is deleted there."""

    folder: Path
    broker: str
    namespace: str

    def stored(self) -> dict[RollupName, RollupInfo] | None:
        """See RollupStore. A file that is no rollup is left out, with a line in the log."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            paths = [path for path in self.folder.iterdir() if RollupName.parse(path.name) is not None]
            found = [info for path in paths if (info := self._info(path)) is not None]
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
        except OSError as error:
            raise RollupsUnavailable(f"the rollup {name} could not be written: {error}") from error

    def _info(self, path: Path) -> RollupInfo | None:
        """Only the end of the file is read: there may be those of years. What another Broker has done, whose
        subscriptions may have the same names, would pass for the past of this one.
        """
        try:
            about = about_of(path)
        except BadRollup as error:
            log.error("%s is left out: %s", path, error)
            return None
        if (about.namespace, about.broker) != (self.namespace, self.broker):
            raise RollupsUnavailable(f"{path} is of {about.namespace}/{about.broker}: each Broker needs its own folder")
        size = path.stat().st_size
        return RollupInfo(
            name=path.name, bytes=size, rows=0, ordinals=about.ordinals, hours=about.hours, clock_set=about.clock_set
        )


def _by_name(infos: Sequence[RollupInfo]) -> dict[RollupName, RollupInfo]:
    """Names of later releases are left out."""
    return {name: info for info in infos if (name := RollupName.parse(info.name)) is not None}
