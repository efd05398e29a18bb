"""Where results go: a table for people, a file, and the first observer of each Broker.

Observers are waited for, so the results are sent while the next ones are computed, several at a time. Source:
docs/reference/lag-job.md; docs/decisions/062-exact-lag.md.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from penstock_api.failure import Failure
from penstock_api.lag_result import LagResult
from penstock_api.observer_api import RESULTS
from penstock_lag.observer_client import ObserverError
from penstock_lag.output_file import write_output
from penstock_lag.settings import STDOUT, LagJobSettings
from penstock_lag.table import as_table
from penstock_lag.targets import Target, observers_of

__all__ = ["Delivery"]

AT_A_TIME: Final = 16


class Delivery:
    """The results of one run. On exit it waits until the observers have answered."""

    def __init__(self, settings: LagJobSettings) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="result")
        self._sent: list[tuple[Target, Future[None]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def deliver(self, target: Target, result: LagResult) -> None:
        """Print it, write it, and send it. Raises Failure if it can't be written; what `refused` returns says if an
        observer did not store it.
        """
        body = result.to_json().encode()
        if self._settings.publish:
            self._sent.append((target, self._pool.submit(self._publish, target, result.run_name, body)))
        if self._settings.table:
            sys.stdout.write(as_table(result))
        if self._settings.output == STDOUT:
            sys.stdout.write(body.decode())
        elif self._settings.output is not None:
            _write(self._path(self._settings.output, target), body)

    def refused(self) -> list[tuple[Target, Failure]]:
        """The Brokers whose observer did not store the result, after waiting for all of them."""
        failed: list[tuple[Target, Failure]] = []
        for target, sent in self._sent:
            try:
                sent.result()
            except Failure as failure:
                failed.append((target, failure))
        return failed

    def _path(self, output: Path, target: Target) -> Path:
        if self._settings.brokers_file is None:
            return output
        return output / f"{target.namespace}.{target.broker}.json"

    def _publish(self, target: Target, run_name: str, body: bytes) -> None:
        observer = observers_of(target, self._settings.patience_seconds)[0]
        try:
            observer.put(RESULTS.format(run_name=run_name), body)
        except ObserverError as error:
            raise Failure(
                f"the result of run {run_name} was not stored: {error}.",
                error.cure("The observer of ordinal 0 keeps results; check that its pod runs, then run again."),
            ) from error


def _write(path: Path, body: bytes) -> None:
    try:
        write_output(path, body)
    except OSError as error:
        raise Failure(f"the result could not be written to {path}: {error}.", "Give another --output.") from error
