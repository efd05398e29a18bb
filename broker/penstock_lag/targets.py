"""The Brokers of a run: the one that the options name, or those of the file that `--brokers` names.

Source: penstock_api.lag_targets; docs/reference/lag-job.md, "Many Brokers in one run".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from penstock_api.failure import Misuse
from penstock_api.lag_targets import LagTarget, LagTargets
from penstock_api.validation_messages import validation_messages
from penstock_lag.observer_client import Observer
from penstock_lag.settings import LagJobSettings, read_token

__all__ = ["Target", "observers_of", "targets_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One Broker, where its ledgers are, and its window."""

    namespace: str
    broker: str
    observers: tuple[str, ...]
    """Base URLs in the order of the pods' ordinals. The first one stores the result."""
    ledgers: tuple[str, ...] = ()
    """Folders in the order of the pods' ordinals, which are read instead of asking the observers."""
    token_file: Path | None = None
    ca_file: Path | None = None
    window_seconds: int
    stale_seconds: int

    @property
    def name(self) -> str:
        """As in messages and in the names of result files."""
        return f"{self.namespace}/{self.broker}"

    @property
    def expected(self) -> int:
        """How many brokers should report."""
        return len(self.ledgers or self.observers)


def targets_of(settings: LagJobSettings) -> tuple[Target, ...]:
    """In the order of the file. Raises Misuse if the file can't be read, or is not of this form."""
    if settings.brokers_file is None:
        return (
            Target(
                namespace=settings.namespace,
                broker=settings.broker,
                observers=settings.observers,
                ledgers=settings.ledgers,
                token_file=settings.token_file,
                ca_file=settings.ca_file,
                window_seconds=settings.window_seconds,
                stale_seconds=settings.stale_seconds,
            ),
        )
    folder = settings.brokers_file.absolute().parent
    return tuple(_of_file(target, folder) for target in _read(settings.brokers_file).brokers)


def observers_of(target: Target, patience_seconds: float) -> list[Observer]:
    """In the order of the pods' ordinals. Raises Misuse if their token can't be read."""
    token = read_token(target.token_file)
    return [Observer(url, token, target.ca_file, patience_seconds) for url in target.observers]


def _read(path: Path) -> LagTargets:
    try:
        return LagTargets.model_validate_json(path.read_bytes())
    except OSError as error:
        raise Misuse(f"the file {path} of --brokers can't be read: {error}.", "Give a readable file.") from error
    except ValidationError as error:
        raise Misuse(
            f"the file {path} of --brokers can't be used: {'; '.join(validation_messages(error))}.",
            'docs/reference/lag-job.md, "Many Brokers in one run", says what it looks like.',
        ) from error


def _of_file(target: LagTarget, folder: Path) -> Target:
    return Target(
        namespace=target.namespace,
        broker=target.broker,
        observers=target.observers,
        token_file=folder / target.token_file,
        ca_file=None if target.ca_file is None else folder / target.ca_file,
        window_seconds=target.window_seconds,
        stale_seconds=target.stale_seconds,
    )
