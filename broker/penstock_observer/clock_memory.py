"""What an observer that is started again knows of the broker's clock: a small file beside the segments of the ledger.

It is written only when the clock was set. A time from before would otherwise be taken for one of the present clock as
soon as the observer is started again. Source: docs/decisions/068-lag-rules.md, "A clock that is set".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from penstock_api.validation_messages import validation_messages
from penstock_api.whole_files import write_whole
from penstock_observer.broker_clock import ClockSpan

__all__ = ["ClockMemory"]

log = logging.getLogger(__name__)

NAME: Final = "clock-steps.json"


class _Steps(BaseModel):
    """The file. Later releases may add keys."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    instance: str
    """The broker's data folder: in another one nothing is of these clocks."""
    clocks: tuple[ClockSpan, ...]


class ClockMemory:
    """The clocks that a broker had, in a folder that is there when one of these functions is called."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, instance: str) -> tuple[ClockSpan, ...]:
        """The clocks of the broker with this data folder; none if nothing is known; a damaged file is logged."""
        path = self._folder / NAME
        try:
            steps = _Steps.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            reason = validation_messages(error)[0] if isinstance(error, ValidationError) else error
            log.error(
                "%s can't be read: %s; ages of what is older than the last step of the clock are wrong", path, reason
            )
            return ()
        return steps.clocks if steps.instance == instance else ()

    def save(self, instance: str, clocks: Sequence[ClockSpan]) -> None:
        """Replace the file. A failure is logged: this observer goes on, and one that is started later does not know."""
        path, steps = self._folder / NAME, _Steps(instance=instance, clocks=tuple(clocks))
        try:
            write_whole(path, lambda hidden: hidden.write_bytes(steps.model_dump_json().encode()))
        except OSError as error:
            log.error("%s can't be written: %s; an observer that is started later takes old times for new", path, error)
