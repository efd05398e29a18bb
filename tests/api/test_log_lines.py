"""The forms of log lines: one JSON object a line, whatever is in it."""

from __future__ import annotations

import json
import logging
import sys

from penstock_api.log_lines import KEYS, JsonFormatter, LogFormat, handler_of, text_formatter


def record(message: str, *arguments: object, failed: bool = False) -> logging.LogRecord:
    made = logging.LogRecord(
        "penstock_broker.main", logging.WARNING, "main.py", 1, message, arguments, sys.exc_info() if failed else None
    )
    made.created, made.msecs = 1_795_662_727.482, 482.0
    return made


def test_a_line_has_time_severity_logger_and_message() -> None:
    line = JsonFormatter().format(record("The queue %r\nis \u20ac full", "a"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-26T03:12:07.482Z",
        "level": "WARNING",
        "logger": "penstock_broker.main",
        "message": "The queue 'a'\nis \u20ac full",
    }


def test_a_stack_trace_is_part_of_the_object() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        line = JsonFormatter().format(record("It failed", failed=True))
    found = json.loads(line)
    assert list(found) == list(KEYS)
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("ValueError: no")


def test_text_has_the_same_time() -> None:
    assert text_formatter().format(record("x")) == "2026-11-26T03:12:07.482Z WARNING x [penstock_broker.main]"


def test_each_form_has_its_handler() -> None:
    assert isinstance(handler_of(LogFormat.JSON).formatter, JsonFormatter)
    assert not isinstance(handler_of(LogFormat.TEXT).formatter, JsonFormatter)
