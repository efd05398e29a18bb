"""What a subscription takes from an exchange: binding keys and filter, in a form that compares by meaning.

"Different" means another exchange, other binding keys or another filter, compared after parsing (decision 6). So keys
are a set, and a selector is kept in its normalised text. It must not know messages; ``routing`` and ``selector`` match
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock_core.reason import Reason, Refuse
from penstock_core.terms import ExchangeType

__all__ = [
    "MAX_KEYS",
    "MAX_KEY_LENGTH",
    "NO_FILTER",
    "Binding",
    "ByConnection",
    "ByContainer",
    "Filter",
    "NoLocal",
    "check_keys",
    "default_keys",
]

MAX_KEY_LENGTH: Final = 255
MAX_KEYS: Final = 256


@dataclass(frozen=True, slots=True)
class Filter:
    """What a subscription leaves out of the messages that its binding keys let through."""

    selector: str | None = None
    """The selector's normalised text; None takes every message."""
    no_local: bool = False
    """Leave out messages of one's own (decision 17); never set for a shared subscription."""

    @property
    def is_empty(self) -> bool:
        """True if nothing is left out."""
        return self.selector is None and not self.no_local


NO_FILTER: Final = Filter()


@dataclass(frozen=True, slots=True)
class Binding:
    """One exchange, the binding keys, the filter."""

    exchange: str
    keys: frozenset[str]
    filter: Filter = NO_FILTER

    @property
    def ordered_keys(self) -> tuple[str, ...]:
        """The keys in a stable order, for whoever writes them down."""
        return tuple(sorted(self.keys))


@dataclass(frozen=True, slots=True)
class ByContainer:
    """No-local of a durable subscription: messages of this container-id are left out (decision 17)."""

    container_id: str


@dataclass(frozen=True, slots=True)
class ByConnection:
    """No-local of a volatile subscription: messages of the link's own connection are left out (decision 17)."""


NoLocal = ByContainer | ByConnection

_DEFAULT_KEYS: Final[dict[ExchangeType, frozenset[str]]] = {
    ExchangeType.TOPIC: frozenset({"#"}),
    ExchangeType.DIRECT: frozenset({""}),
    ExchangeType.FANOUT: frozenset({""}),
    ExchangeType.HEADERS: frozenset({""}),
}


def default_keys(exchange_type: ExchangeType) -> frozenset[str]:
    """The keys of an address that names an exchange alone: ``#`` on Topic, the empty key elsewhere (Fanout ignores
    keys).
    """
    return _DEFAULT_KEYS[exchange_type]


def check_keys(keys: frozenset[str]) -> Refuse | None:
    """None if the binding keys can be bound, else why not. Limits: 1 to 256 keys of at most 255 characters each."""
    if not 0 < len(keys) <= MAX_KEYS:
        return Refuse(
            Reason.INVALID_BINDING_KEY,
            f"{len(keys)} binding keys were given; name between 1 and {MAX_KEYS}.",
        )
    for key in sorted(keys):
        if len(key) > MAX_KEY_LENGTH:
            return Refuse(
                Reason.INVALID_BINDING_KEY,
                f"The binding key {key[:40]!r}... has {len(key)} characters; use at most {MAX_KEY_LENGTH}.",
            )
    return None
