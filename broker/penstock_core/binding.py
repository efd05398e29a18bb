"""What a subscription takes from an exchange: binding keys and filter, in a form that compares by meaning.

"Different" means another exchange, other binding keys or another filter, compared after parsing (decision 6). So keys
are a set, and a selector is kept in its normalised text. It must not know messages; ``routing`` and ``selector`` match
them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, assert_never

from penstock_core.header_bindings import HeaderBinding, check_headers
from penstock_core.identity import Identity, LinkKey
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import mean_the_same
from penstock_core.terms import ExchangeType

__all__ = [
    "MAX_KEYS",
    "MAX_KEY_LENGTH",
    "NO_FILTER",
    "NO_HEADERS",
    "Binding",
    "ByConnection",
    "ByContainer",
    "Filter",
    "NoLocal",
    "binding_declared",
    "check_binding",
    "check_keys",
    "default_keys",
    "keys_asked",
    "no_local_of",
]

MAX_KEY_LENGTH: Final = 255
MAX_KEYS: Final = 256


@dataclass(frozen=True, slots=True)
class Filter:
    """What a subscription leaves out of the messages that its binding keys let through."""

    selector: str | None = None
    """The selector's normalised text; None takes every message."""
    no_local: bool = False
    """Leave out messages that the consumer itself published (decision 17); never set for a shared subscription."""

    @property
    def is_empty(self) -> bool:
        """True if nothing is left out."""
        return self.selector is None and not self.no_local

    def means(self, other: Filter) -> bool:
        """True if the other filter leaves out the same, as far as that can be told (`selector.mean_the_same`)."""
        return self.no_local == other.no_local and mean_the_same(self.selector, other.selector)


NO_FILTER: Final = Filter()
NO_HEADERS: Final[frozenset[HeaderBinding]] = frozenset()


@dataclass(frozen=True, slots=True)
class Binding:
    """One exchange, the binding keys, the filter."""

    exchange: str
    keys: frozenset[str]
    filter: Filter = NO_FILTER
    headers: frozenset[HeaderBinding] = NO_HEADERS
    """Of a Headers exchange, which has no keys to speak of; empty takes every message."""

    @property
    def ordered_keys(self) -> tuple[str, ...]:
        """The keys in a stable order, for whoever writes them down."""
        return tuple(sorted(self.keys))

    def means(self, other: Binding) -> bool:
        """True if the other binding takes the same messages: then an attach with it changes nothing."""
        return self == other or (replace(self, filter=other.filter) == other and self.filter.means(other.filter))


@dataclass(frozen=True, slots=True)
class ByContainer:
    """No-local of a durable subscription: messages of this container-id are left out (decision 17)."""

    container_id: str


@dataclass(frozen=True, slots=True)
class ByConnection:
    """No-local of a volatile subscription: messages of the link's own connection are left out (decision 17)."""


NoLocal = ByContainer | ByConnection


def no_local_of(binding: Binding, identity: Identity, owner: LinkKey | None) -> NoLocal | None:
    """Whose messages a subscription with this binding leaves out; None if it takes everybody's.

    A durable one knows its container by its scope, or, if global, by the link that owns it: so it is the same after
    reconnects and restarts, and while nobody consumes.
    """
    if not binding.filter.no_local:
        return None
    container_id = identity.scope.container_id if owner is None else owner.container_id
    return ByContainer(container_id) if identity.durable and container_id is not None else ByConnection()


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


def keys_asked(
    exchange_type: ExchangeType, address_key: str | None, exact: Collection[str], patterns: Collection[str]
) -> frozenset[str] | None:
    """The binding keys that an attach names for an exchange of this type; None if it names none.

    ``address_key`` is what follows the ``/``; ``exact`` and ``patterns`` come from the legacy filters for Direct and
    Topic exchanges. Those that mean the same on the other type are put in place there too; others are not.
    """
    match exchange_type:
        case ExchangeType.TOPIC:
            named = {*(key for key in exact if not _has_wildcard(key)), *patterns}
        case ExchangeType.DIRECT:
            named = {*exact, *(key for key in patterns if not _has_wildcard(key))}
        case ExchangeType.FANOUT | ExchangeType.HEADERS:
            named = set[str]()
        case _:
            assert_never(exchange_type)
    if address_key is not None:
        named.add(address_key)
    return frozenset(named) or None


def binding_declared(
    exchange: str,
    exchange_type: ExchangeType,
    keys: frozenset[str],
    headers: frozenset[HeaderBinding],
    filter: Filter,
) -> Binding | Refuse:
    """The binding that a declaration names; what the exchange's type has no use for is a mistake of its author."""
    is_headers = exchange_type is ExchangeType.HEADERS
    if keys if is_headers else headers:
        words = ("header bindings", "binding keys") if is_headers else ("binding keys", "header bindings")
        return Refuse(
            Reason.INVALID_BINDING_KEY,
            f"The exchange {exchange!r} is of type {exchange_type.value}: it goes by {words[0]}; drop the {words[1]}.",
        )
    return Binding(exchange, keys or default_keys(exchange_type), filter, headers)


def _has_wildcard(key: str) -> bool:
    words = key.split(".")
    return "*" in words or "#" in words


def check_binding(binding: Binding) -> Refuse | None:
    """None if the binding can be put in place, else why not."""
    return check_keys(binding.keys) or check_headers(binding.headers)


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
