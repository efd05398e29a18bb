"""What an address means: an exchange and perhaps a binding, a queue, the management node, or nothing.

An exact match of the whole address comes first, a queue before an exchange of the same name; then exchange and binding
are split at the first ``/`` (not at position 0). ``topic://`` and ``queue://``, or the capabilities ``topic`` and
``queue`` (and the temporary ones of JMS), say which kind is meant and leave the other out. Unknown names are not-found
unless auto-creation is on. Then the kind decides what is made; an address that says no kind becomes a queue, or, if no
queue may have that name, a topic. It must not know who holds the names: a ``Directory`` does. Source:
docs/reference/addresses.md, docs/decisions/018-addresses.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from penstock_core.auto_creation import NOTHING, AutoCreation
from penstock_core.identity import QUEUE_PREFIX, Identity, parse_queue_name
from penstock_core.reason import Reason, Refuse
from penstock_core.temporary_nodes import TEMPORARY_PREFIXES
from penstock_core.terms import ExchangeType, NodeKind

__all__ = [
    "MANAGEMENT",
    "PREDEFINED",
    "AnonymousRelay",
    "CreateNode",
    "Directory",
    "ExchangeAddress",
    "ManagementAddress",
    "NodeKind",
    "QueueAddress",
    "SourceAddress",
    "SubscriptionQueue",
    "TargetAddress",
    "check_exchange_name",
    "check_queue_name",
    "has_prefix",
    "kinds_of",
    "parse_source",
    "parse_target",
]

MANAGEMENT: Final = "$management"
MAX_NAME_LENGTH: Final = 255

PREDEFINED: Final[dict[str, ExchangeType]] = {
    "amq.topic": ExchangeType.TOPIC,
    "amq.direct": ExchangeType.DIRECT,
    "amq.fanout": ExchangeType.FANOUT,
    "amq.match": ExchangeType.HEADERS,
}
"""The exchanges that every broker has, by the names existing clients know."""


class Directory(Protocol):
    """Who knows the names."""

    def has_queue(self, name: str) -> bool:
        """True if there is a point-to-point queue of this name."""
        ...

    def exchange_type(self, name: str) -> ExchangeType | None:
        """The type of the exchange of this name; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ExchangeAddress:
    """An exchange that is there. A source binds ``key``, a target routes by it, or else by each message's subject."""

    exchange: str
    exchange_type: ExchangeType
    key: str | None
    """What follows the ``/``; None if the exchange is named alone."""


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """A point-to-point queue that is there."""

    queue: str


@dataclass(frozen=True, slots=True)
class SubscriptionQueue:
    """The queue of a subscription, by its documented name; whether there is one is the caller's to find out."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class ManagementAddress:
    """``$management``."""


@dataclass(frozen=True, slots=True)
class AnonymousRelay:
    """A target without address: each message's ``to`` says where it goes."""


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Nothing is there yet; make it, with a warning, then parse again (auto-creation is on)."""

    kind: NodeKind
    name: str
    """The queue, or the Topic exchange, to make."""


SourceAddress = ExchangeAddress | QueueAddress | SubscriptionQueue | ManagementAddress | CreateNode | Refuse
TargetAddress = SourceAddress | AnonymousRelay

_PREFIXES: Final = {"topic://": NodeKind.TOPIC, "queue://": NodeKind.QUEUE}
RESERVED_PREFIXES: Final = ("$", QUEUE_PREFIX, *TEMPORARY_PREFIXES, *_PREFIXES)
"""No queue or exchange that is declared may have a name that begins with one of these."""
_WILDCARDS: Final = frozenset("*#")
_WILDCARD_HINT: Final = " * and # stand for words of a key only, as in 'orders/eu.*': the exchange, a slash, the key."
_CAPABILITIES: Final = {
    "topic": NodeKind.TOPIC,
    "temporary-topic": NodeKind.TOPIC,
    "queue": NodeKind.QUEUE,
    "temporary-queue": NodeKind.QUEUE,
    # Only a subscription can be shared or global (QPIDJMS-220), and only an exchange has subscriptions.
    "shared": NodeKind.TOPIC,
    "global": NodeKind.TOPIC,
}


def parse_source(
    address: str | None, capabilities: Collection[str], directory: Directory, *, auto_create: AutoCreation = NOTHING
) -> SourceAddress:
    """Find out what the address of a source that isn't null means."""
    if not address:
        return Refuse(Reason.INVALID_ADDRESS, "The source has no address; name an exchange or a queue.")
    return _parse(address, capabilities, directory, auto_create)


def parse_target(
    address: str | None, capabilities: Collection[str], directory: Directory, *, auto_create: AutoCreation = NOTHING
) -> TargetAddress:
    """Find out what the address of a target that is neither null nor a coordinator means."""
    if not address:
        return AnonymousRelay()
    return _parse(address, capabilities, directory, auto_create)


def kinds_of(capabilities: Collection[str]) -> frozenset[NodeKind]:
    """The kinds of node that capabilities of a terminus name; none if they leave it open, two if they contradict."""
    return frozenset(kind for capability, kind in _CAPABILITIES.items() if capability in capabilities)


def has_prefix(address: str) -> bool:
    """True if the address itself says whether it names a topic or a queue."""
    return address.startswith(tuple(_PREFIXES))


def check_exchange_name(name: str) -> Refuse | None:
    """None if an exchange may have this name: 1 to 255 printable characters, no ``/`` or ``|``, not ``$`` first."""
    return _check_name("exchange", name, "/|")


def check_queue_name(name: str) -> Refuse | None:
    """None if a queue may have this name: 1 to 255 printable characters, not ``$``, ``psub:``, ``topic://`` first, nor
    like that of a temporary node.
    """
    return _check_name("queue", name, "")


def _check_name(what: str, name: str, without: str) -> Refuse | None:
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        cause = f"has {len(name)} characters; use 1 to {MAX_NAME_LENGTH}"
    elif name.startswith(RESERVED_PREFIXES):
        cause = f"begins like a reserved name ({', '.join(RESERVED_PREFIXES)}); choose another"
    elif not name.isprintable() or any(each in name for each in without):
        cause = "holds a character that it can't have" + (f"; leave out {' and '.join(without)}" if without else "")
    else:
        return None
    return Refuse(Reason.INVALID_NAME, f"The {what} name {name[:80]!r} {cause}.")


def _parse(
    address: str, capabilities: Collection[str], directory: Directory, auto_create: AutoCreation
) -> SourceAddress:
    if address == MANAGEMENT:
        return ManagementAddress()
    kinds = set(kinds_of(capabilities))
    name = address
    for prefix, named in _PREFIXES.items():
        if address.startswith(prefix):
            name = address.removeprefix(prefix)
            kinds.add(named)
    if len(kinds) > 1:
        return Refuse(
            Reason.INVALID_ADDRESS,
            f"The address {address!r} and its capabilities name both a topic and a queue; name one of them.",
        )
    kind = next(iter(kinds), None)
    return _find(name, kind, directory) or _missing(name, kind, directory, auto_create)


def _find(name: str, kind: NodeKind | None, directory: Directory) -> SourceAddress | None:
    if kind is not NodeKind.TOPIC:
        if directory.has_queue(name):
            return QueueAddress(name)
        identity = parse_queue_name(name)
        if identity is not None:
            return SubscriptionQueue(identity)
    if kind is NodeKind.QUEUE:
        return None
    for exchange, key in ((name, None), _split(name)):
        exchange_type = directory.exchange_type(exchange)
        if exchange_type is not None:
            return ExchangeAddress(exchange, exchange_type, key)
    return None


def _missing(name: str, kind: NodeKind | None, directory: Directory, auto_create: AutoCreation) -> CreateNode | Refuse:
    if name.startswith(TEMPORARY_PREFIXES):
        return Refuse(
            Reason.ADDRESS_NOT_FOUND,
            f"There is no {name[:80]!r} any more: a temporary node ends with the connection that made it, or before.",
        )
    exchange, _ = _split(name)
    if kind is not NodeKind.TOPIC and auto_create.allows(NodeKind.QUEUE, name) and not _has_wildcard(name):
        return check_queue_name(name) or _topic_instead(name, directory) or CreateNode(NodeKind.QUEUE, name)
    if kind is not NodeKind.QUEUE and auto_create.allows(NodeKind.TOPIC, exchange) and not _has_wildcard(exchange):
        return (
            check_exchange_name(exchange)
            or _queue_instead(name, exchange, directory)
            or CreateNode(NodeKind.TOPIC, exchange)
        )
    hint = _WILDCARD_HINT if _has_wildcard(name if kind is NodeKind.QUEUE else exchange) else ""
    if kind is NodeKind.QUEUE:
        return Refuse(Reason.QUEUE_NOT_FOUND, f"There is no queue {name!r}; declare it, or check the name.{hint}")
    if kind is NodeKind.TOPIC:
        return Refuse(
            Reason.EXCHANGE_NOT_FOUND,
            f"There is no exchange {exchange!r}; declare it (kind Exchange), or check the name.{hint}",
        )
    return Refuse(
        Reason.ADDRESS_NOT_FOUND,
        f"There is neither a queue {name!r} nor an exchange {exchange!r}; declare one, or check the name.{hint}",
    )


def _has_wildcard(name: str) -> bool:
    """True if a word of it is a wildcard: who names it means other nodes, and one of that very name would get nothing.

    Source: docs/decisions/019-auto-creation.md.
    """
    return not _WILDCARDS.isdisjoint(name.replace("/", ".").split("."))


def _topic_instead(name: str, directory: Directory) -> Refuse | None:
    """None if a queue of this name may be made; or that the address leads to a topic already (decision 78)."""
    for exchange, key in ((name, None), _split(name)):
        if directory.exchange_type(exchange) is not None:
            meant = f"the topic {exchange!r}" if key is None else f"the topic {exchange!r} with the key {key!r}"
            return Refuse(
                Reason.OTHER_KIND_OF_NODE,
                f"{name!r} is {meant} here, so no queue is made by that name: whoever names it without a kind would "
                f"not reach the queue. Ask for the topic (capability topic, or topic://{name}), take another name, or "
                "have both declared.",
            )
    return None


def _queue_instead(name: str, exchange: str, directory: Directory) -> Refuse | None:
    """None if the topic may be made for this address; or that the address leads to a queue already (decision 78)."""
    for queue in (name, exchange):
        if directory.has_queue(queue):
            return Refuse(
                Reason.OTHER_KIND_OF_NODE,
                f"{queue!r} is a queue here, so no topic is made by that name: whoever names it without a kind would "
                f"not reach the topic. Ask for the queue (capability queue, or queue://{queue}), take another name, or "
                "have both declared. If a client made the queue by mistake, delete it, and let all of them name the "
                f"topic (capability topic, or topic://{exchange}).",
            )
    return None


def _split(name: str) -> tuple[str, str | None]:
    end = name.find("/", 1)
    return (name, None) if end < 0 else (name[:end], name[end + 1 :])
