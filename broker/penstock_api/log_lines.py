"""How Penstock's processes write their logs: as text, or as JSON with one object a line.

All of them use the formatters of this module, so that one rule of a log collector reads them all. The keys of the JSON
objects are `KEYS`; later releases may add some. Source: docs/reference/log-lines.md.
"""

from __future__ import annotations

import json
import logging
import time
from enum import StrEnum
from typing import Final

__all__ = ["KEYS", "LEVELS", "JsonFormatter", "LogFormat", "handler_of", "text_formatter"]

LEVELS: Final = ("debug", "info", "warning", "error")
"""Words for the least severe lines that are written."""

KEYS: Final = ("time", "level", "logger", "message", "exception")
"""Keys of a JSON line, in this order; `exception` only if there was one."""

_TEXT: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s [%(name)s]"
_TIME: Final = "%Y-%m-%dT%H:%M:%S"


class LogFormat(StrEnum):
    """The words of `--log-format`."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """One JSON object a line, whatever the message contains: line breaks are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record. Times are UTC, in RFC 3339, to the millisecond."""
        moment = time.strftime(_TIME, time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info is not None and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def text_formatter() -> logging.Formatter:
    """One line per event with its time in UTC; an exception takes further lines."""
    formatter = logging.Formatter(_TEXT, _TIME)
    formatter.converter = time.gmtime
    return formatter


def handler_of(form: LogFormat) -> logging.Handler:
    """What writes to standard error in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else text_formatter())
    return handler
