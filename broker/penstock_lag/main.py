"""The lag job as a command: one analysis, and its result delivered.

Source: docs/reference/lag-job.md; docs/decisions/062-exact-lag.md.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock_api.failure import Failure
from penstock_api.lag_result import LagResult
from penstock_api.observer_api import RESULTS
from penstock_lag.analysis import Sessions, analyse
from penstock_lag.arguments import parse
from penstock_lag.observer_client import Observer, ObserverError
from penstock_lag.session import local_session
from penstock_lag.settings import STDOUT, LagJobSettings, read_token
from penstock_lag.table import as_table

__all__ = ["main", "run"]


def main(arguments: Sequence[str]) -> int:
    """Run with command-line arguments; errors go to the standard error. Returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        return run(parse(arguments))
    except Failure as failure:
        sys.stderr.write(f"penstock lag: {failure}\n")
        return failure.exit_code


def run(settings: LagJobSettings, sessions: Sessions = local_session) -> int:
    """One run. Returns 0, or raises Failure: Spark failed, or the result could not be delivered."""
    token = read_token(settings.token_file) if settings.observers else ""
    observers = [Observer(url, token, settings.ca_file, settings.patience_seconds) for url in settings.observers]
    result = analyse(settings, observers, sessions)
    body = result.to_json().encode()
    _hand_out(settings, result, body)
    if settings.publish:
        _publish(observers[0], result.run_name, body)
    return 0


def _hand_out(settings: LagJobSettings, result: LagResult, body: bytes) -> None:
    if settings.table:
        sys.stdout.write(as_table(result))
    if settings.output == STDOUT:
        sys.stdout.write(body.decode())
    elif settings.output is not None:
        _write(settings.output, body)


def _write(path: Path, body: bytes) -> None:
    try:
        path.write_bytes(body)
    except OSError as error:
        raise Failure(f"the result could not be written to {path}: {error}.", "Give another --output.") from error


def _publish(observer: Observer, run_name: str, body: bytes) -> None:
    try:
        observer.put(RESULTS.format(run_name=run_name), body)
    except ObserverError as error:
        raise Failure(
            f"the result of run {run_name} was not stored: {error}.",
            "The observer of ordinal 0 keeps results; check that its pod runs, then run again.",
        ) from error
