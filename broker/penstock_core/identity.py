"""What a subscription is called: its identity, the name inside a link name, and the name of its queue.

Identity = (scope, name, durable) and nothing else; a link's name only leads to it (decision 1, QPIDJMS-220 "Short
Version").

Queue names are ``psub:<durable|volatile>:<global|container:ID>:<name>``, with every character of ID and name outside
``A-Z a-z 0-9 - . _ ~`` written as percent and hexadecimal UTF-8. So two identities never share a queue name, each name
leads back to its identity, and none contains ``/``: an address can't mistake one for exchange and binding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

__all__ = [
    "GLOBAL",
    "LONGEST_QUEUE_NAME",
    "QUEUE_PREFIX",
    "Identity",
    "LinkKey",
    "Scope",
    "parse_queue_name",
    "private_name",
    "queue_name",
    "subscription_name",
    "suffix_of",
]

QUEUE_PREFIX: Final = "psub:"
LONGEST_QUEUE_NAME: Final = 65_535
"""Bytes of the name of a durable subscription's queue: a record of the log can name no longer one."""
_DURABLE: Final = "durable"
_VOLATILE: Final = "volatile"


@dataclass(frozen=True, slots=True)
class Scope:
    """The name space of a subscription: global, or one container."""

    container_id: str | None
    """The container-id (JMS ClientID), None for the global scope; the empty one is a container like any other."""

    @property
    def is_global(self) -> bool:
        """True if links of any container reach the subscription."""
        return self.container_id is None

    def __str__(self) -> str:
        return "global" if self.container_id is None else f"container {self.container_id!r}"


GLOBAL: Final = Scope(None)


@dataclass(frozen=True, slots=True)
class Identity:
    """What one subscription is, independent of any link (decision 1)."""

    scope: Scope
    name: str
    durable: bool

    def __str__(self) -> str:
        return f"{_DURABLE if self.durable else _VOLATILE} subscription {self.name!r} ({self.scope})"


@dataclass(frozen=True, slots=True)
class LinkKey:
    """What AMQP calls one link: its container and its name (decision 4)."""

    container_id: str
    link_name: str

    def __str__(self) -> str:
        return f"link {self.link_name!r} of container {self.container_id!r}"


def subscription_name(link_name: str) -> str:
    """The name that a shared link means: up to the first ``|`` that is not at position 0 (decision 1)."""
    end = link_name.find("|", 1)
    return link_name if end < 0 else link_name[:end]


def suffix_of(link_name: str) -> str:
    """What follows the ``|`` that ends the subscription name; empty without one. Only a null source looks at it
    (decision 3).
    """
    return link_name[len(subscription_name(link_name)) + 1 :]


def private_name(nonce: str) -> str:
    """The name of a not-shared volatile subscription ("queue with random name", the attach table).

    It has a ``|`` behind position 0, which no shared name can have, so the two kinds never meet. ``nonce`` must be
    unique.
    """
    return f"private|{nonce}"


def queue_name(identity: Identity) -> str:
    """The documented name of a subscription's queue, shown in status; no two identities have the same."""
    kind = _DURABLE if identity.durable else _VOLATILE
    container_id = identity.scope.container_id
    scope = "global" if container_id is None else f"container:{_escape(container_id)}"
    return f"{QUEUE_PREFIX}{kind}:{scope}:{_escape(identity.name)}"


def parse_queue_name(name: str) -> Identity | None:
    """The identity whose ``queue_name`` is ``name``; None for every other string."""
    identity = _read(name.split(":"))
    return identity if identity is not None and queue_name(identity) == name else None


def _read(parts: list[str]) -> Identity | None:
    match parts:
        case ["psub", kind, "global", name]:
            return Identity(GLOBAL, _unescape(name), kind == _DURABLE)
        case ["psub", kind, "container", container_id, name]:
            return Identity(Scope(_unescape(container_id)), _unescape(name), kind == _DURABLE)
        case _:
            return None


def _escape(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _unescape(text: str) -> str:
    return unquote(text, errors="replace")
