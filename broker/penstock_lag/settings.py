"""The settings of one run of the lag job, checked once. Source: docs/reference/lag-job.md, "Run it by hand"."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from penstock_api.failure import Misuse
from penstock_api.lag_targets import DEFAULT_STALE_SECONDS, DEFAULT_WINDOW_SECONDS
from penstock_api.observer_api import RUN_NAME

__all__ = [
    "MEMORY_VARIABLE",
    "RUN_NAME_VARIABLE",
    "STDOUT",
    "TOKEN_VARIABLE",
    "LagJobSettings",
    "check_run_name",
    "read_token",
]

TOKEN_VARIABLE: Final = "PENSTOCK_OBSERVER_TOKEN"
RUN_NAME_VARIABLE: Final = "PENSTOCK_RUN_NAME"
MEMORY: Final = "[1-9][0-9]{0,5}[mg]"
MEMORY_VARIABLE: Final = "PENSTOCK_LAG_MEMORY"
STDOUT: Final = Path("-")
ONE_TOKEN: Final = "one line of ASCII with the observer's token"


@dataclass(frozen=True, slots=True, kw_only=True)
class LagJobSettings:
    """Settings of one run. Raises Misuse when made with values that can't work."""

    observers: tuple[str, ...] = ()
    """Base URLs in the order of the pods' ordinals, one per expected broker. The first one stores the result."""
    ledgers: tuple[str, ...] = ()
    """Folders in the order of the pods' ordinals, which are read instead of asking the observers."""
    broker: str = ""
    namespace: str = ""
    brokers_file: Path | None = None
    """The Brokers of the run (penstock_api.lag_targets), instead of the one that the other settings name."""
    run_name: str | None = None
    """None: the environment variable PENSTOCK_RUN_NAME, else the name of the Spark application."""
    token_file: Path | None = None
    """None: the environment variable PENSTOCK_OBSERVER_TOKEN."""
    window_seconds: int = DEFAULT_WINDOW_SECONDS
    stale_seconds: int = DEFAULT_STALE_SECONDS
    """A broker whose last row is older than this at the end of the window is missing."""
    patience_seconds: int = 30
    """How long an observer that does not answer is asked again; then it is missing."""
    ca_file: Path | None = None
    """Certificates that the observers' are checked against; None: those of the system."""
    as_of: datetime | None = None
    """End of the window; None: the last sealed row."""
    publish: bool = True
    """PUT the result to the first observer."""
    from_time: datetime | None = None
    """Not None: compute the rollups from here on again, and tell the history, instead of the lag of a window."""
    to_time: datetime | None = None
    """Until here; None: until now."""
    rollups: Path | None = None
    """Folder in which rollups are kept, instead of at the first observer."""
    output: Path | None = None
    """Write the result here too; ``-`` is the standard output. With `brokers_file`: the folder of all results."""
    memory: str = "1g"
    """Heap of Spark's driver; under spark-submit the application sets it."""
    table: bool = False
    """Print a table for people to the standard output."""

    def __post_init__(self) -> None:
        """Check the values; raises Misuse with the name of the option."""
        if self.brokers_file is None:
            if not (self.observers or self.ledgers):
                raise Misuse("there is no ledger to read.", "Give --observer, or --ledger.")
            _check(bool(self.observers) or not self.publish, "--ledger", "be used with --observer or with --no-publish")
            if not (self.broker and self.namespace):
                raise Misuse("it is not said which Broker is meant.", "Give --broker and --namespace, or --brokers.")
        else:
            _check(self.output != STDOUT, "--output -", "be a folder if --brokers is given")
        for url in self.observers:
            _check(
                url.startswith(("http://", "https://")), "--observer", f"be http:// or https:// URLs; {url!r} is not"
            )
        _check(1 <= self.window_seconds <= 7 * 86_400, "--window", "be 1 second to 7 days")
        _check(self.stale_seconds >= 1, "--stale", "be at least 1 second")
        _check(self.patience_seconds >= 0, "--patience", "be 0 seconds or more")
        _check(self.from_time is not None or self.to_time is None, "--to", "be used with --from")
        _check(self.from_time is None or self.brokers_file is None, "--from", "not be used with --brokers")
        _check(self.from_time is None or self.as_of is None, "--as-of", "not be used with --from")
        _check(
            self.from_time is None or bool(self.observers) or self.rollups is not None,
            "--ledger with --from",
            "be used with --rollups, or with --observer",
        )
        _check(self.as_of is None or self.as_of.tzinfo is not None, "--as-of", "have a time zone, such as a final Z")
        _check(re.fullmatch(MEMORY, self.memory) is not None, "--memory", "be a number and m or g, such as 1g or 1536m")
        if self.run_name is not None:
            check_run_name(self.run_name)
        _check(not (self.table and self.output == STDOUT), "--table and --output -", "not be used together")


def check_run_name(name: str) -> str:
    """The name, if an observer accepts it; else raises Misuse."""
    _check(
        re.fullmatch(RUN_NAME, name) is not None and name != "latest", "--run-name", f"match {RUN_NAME}, not {name!r}"
    )
    return name


def read_token(path: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """The bearer token from its file, else from the environment. Raises Misuse if there is none, or if it can't be one:
    the client's own error would end a run about other Brokers, too, and show the token.
    """
    if path is None:
        token = environment.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise Misuse("no token for the observers.", f"Give --token-file, or set {TOKEN_VARIABLE}.")
        if not _fits_a_header(token):
            raise Misuse(f"{TOKEN_VARIABLE} has something else than one token.", f"Set it to {ONE_TOKEN}.")
        return token
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"the token file {path} can't be read: {error}.", "Give a readable --token-file.") from error
    if not token:
        raise Misuse(f"the token file {path} is empty.", "Put one line with the observer's token into it.")
    if not _fits_a_header(token):
        raise Misuse(f"the token file {path} has something else than one token.", f"Put {ONE_TOKEN} into it.")
    return token


def _fits_a_header(token: str) -> bool:
    return token.isascii() and token.isprintable()


def _check(good: bool, option: str, rule: str) -> None:
    if not good:
        raise Misuse(f"{option} can't be used.", f"{'They' if ' and ' in option else 'It'} must {rule}.")
