"""A run that hangs ends itself, and its log says where it hung.

The Spark operator starts no run before the last one has ended, and has no limit for how long that takes: one run that
hangs would be the last one. So who schedules a run gives it a time. Shortly before its end Python writes where each of
its threads is to the standard error and ends the process with exit code 1, without waiting for anything; the image's
entrypoint ends the whole container if that was not enough. Source: docs/decisions/145-runs-end.md.
"""

from __future__ import annotations

import faulthandler
import logging
import os
from collections.abc import Mapping
from typing import Final

from penstock_api.failure import Misuse

__all__ = ["DEADLINE_VARIABLE", "set_deadline"]

DEADLINE_VARIABLE: Final = "PENSTOCK_LAG_DEADLINE_SECONDS"
_EARLIER_SECONDS: Final = 120
"""So much before others end it, who can't say where it hung: their time began before Java was started."""
_LEAST_SHARE: Final = 0.75
"""Of a short time, at least this."""
log = logging.getLogger(__name__)


def set_deadline(environment: Mapping[str, str] = os.environ) -> None:
    """From now on, until the process ends; nothing without the variable. Raises Misuse if that is no number of seconds
    above 0. What ends the process is a thread of C, which needs nothing of a Python that hangs.
    """
    text = environment.get(DEADLINE_VARIABLE, "")
    if not text:
        return
    if not text.isdecimal() or int(text) == 0:
        raise Misuse(f"{DEADLINE_VARIABLE} can't be {text!r}.", "Give whole seconds above 0.")
    seconds = max(int(text) - _EARLIER_SECONDS, int(text) * _LEAST_SHARE)
    log.info("the run ends itself if it takes longer than %.0f s", seconds)
    faulthandler.dump_traceback_later(seconds, exit=True)
