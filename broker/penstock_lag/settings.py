"""The settings of one run of the lag job, checked once. Source: docs/reference/lag-job.md, "Run it by hand"."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
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
    """Settings of one run. Raises Misuse when made with values that can't work, and names all of them."""

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
        """Check the values; raises Misuse that names every option that is wrong."""
        mistakes = [*self._missing(), *self._broken_rules()]
        if len(mistakes) == 1:
            raise Misuse(*mistakes[0])
        if mistakes:
            lines = [f"{len(mistakes)} things are wrong with the options:"]
            lines += [f"  {cause} {cure}" for cause, cure in mistakes]
            raise Misuse("\n".join(lines), "Correct all of them.")

    def _missing(self) -> Iterator[tuple[str, str]]:
        """What nobody has said: cause and cure of each mistake."""
        if self.brokers_file is not None:
            return
        if not (self.observers or self.ledgers):
            yield "there is no ledger to read.", "Give --observer, or --ledger."
        if not (self.broker and self.namespace):
            yield "it is not said which Broker is meant.", "Give --broker and --namespace, or --brokers."

    def _broken_rules(self) -> Iterator[tuple[str, str]]:
        """What can't be so: cause and cure of each mistake."""
        is_one, is_lag = self.brokers_file is None, self.from_time is None
        alone = bool(self.ledgers) and not self.observers
        if is_one:
            yield from _check(not alone or not self.publish, "--ledger", "be used with --observer or with --no-publish")
        else:
            yield from _check(self.output != STDOUT, "--output -", "be a folder if --brokers is given")
        for url in self.observers:
            is_url = url.startswith(("http://", "https://"))
            yield from _check(is_url, "--observer", f"be http:// or https:// URLs; {url!r} is not")
        yield from _check(1 <= self.window_seconds <= 7 * 86_400, "--window", "be 1 second to 7 days")
        yield from _check(self.stale_seconds >= 1, "--stale", "be at least 1 second")
        yield from _check(self.patience_seconds >= 0, "--patience", "be 0 seconds or more")
        yield from _check(not is_lag or self.to_time is None, "--to", "be used with --from")
        yield from _check(is_lag or is_one, "--from", "not be used with --brokers")
        yield from _check(is_lag or self.as_of is None, "--as-of", "not be used with --from")
        has_place = is_lag or not alone or self.rollups is not None
        yield from _check(has_place, "--ledger with --from", "be used with --rollups, or with --observer")
        has_zone = self.as_of is None or self.as_of.tzinfo is not None
        yield from _check(has_zone, "--as-of", "have a time zone, such as a final Z")
        is_size = re.fullmatch(MEMORY, self.memory) is not None
        yield from _check(is_size, "--memory", "be a number and m or g, such as 1g or 1536m")
        if self.run_name is not None:
            yield from _check_run_name(self.run_name)
        is_both = self.table and self.output == STDOUT
        yield from _check(not is_both, "--table and --output -", "not be used together")


def check_run_name(name: str) -> str:
    """The name, if an observer accepts it; else raises Misuse."""
    for mistake in _check_run_name(name):
        raise Misuse(*mistake)
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


def _check_run_name(name: str) -> Iterator[tuple[str, str]]:
    is_name = re.fullmatch(RUN_NAME, name) is not None and name != "latest"
    letters = "1 to 253 letters, digits, dots, - and _, with a letter or digit at both ends"
    yield from _check(is_name, "--run-name", f"have {letters}, and not be 'latest', but it is {name!r}")


def _check(good: bool, option: str, rule: str) -> Iterator[tuple[str, str]]:
    """Cause and cure, unless the rule is kept."""
    if not good:
        yield f"{option} can't be used.", f"{'They' if ' and ' in option else 'It'} must {rule}."
