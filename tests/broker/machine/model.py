"""The naive model of a whole broker: dicts of what docs/decisions 001 to 017 promise, typed from there, not from the
rules.

A step is applied here when the client's bytes are on their way; what the broker then says must be what stands here.
`image` is what a restart has to find: durable, permanent subscriptions with their durable messages.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from broker.machine.client import Source

__all__ = ["KEYS", "Identity", "Image", "ImageMessage", "Link", "Message", "Model", "Subscription", "SubscriptionImage"]

KEYS = {"amq.topic/a": "a", "amq.topic/b": "b", "amq.topic": "#", "amq.topic/#": "#"}
"""Binding keys by address; no binding means `#` on a topic exchange."""

LOCKED = "amqp:resource-locked"
NOT_FOUND = "amqp:not-found"
STOLEN = "amqp:link:stolen"


class Identity(NamedTuple):
    """Decision 1."""

    scope: str | None
    """None: global."""
    name: str
    durable: bool


@dataclass
class Message:
    """One message of one subscription that nobody settled."""

    is_logged: bool
    attempts: int = 0
    was_lost: bool = False
    """A link went with it, or the broker was restarted: its header says so, though no attempt counts."""
    was_delivered: bool = False
    holder: int | None = None
    """The link that has it."""
    refused_by: set[int] = field(default_factory=set[int])
    """Links that said undeliverable-here."""

    @property
    def delivery_count(self) -> int:
        return self.attempts or int(self.was_lost)


@dataclass
class Subscription:
    """One subscription."""

    shared: bool
    expiry: str
    key: str
    owner: tuple[str, str] | None = None
    links: list[int] = field(default_factory=list[int])
    sessions: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Those that attached and are open: connection and its session."""
    backlog: dict[str, Message] = field(default_factory=dict[str, Message])


@dataclass
class Link:
    """A link that consumes, or (`kind` None) one that looked a subscription up."""

    number: int
    container_id: str
    name: str
    identity: Identity
    session: tuple[int, int]
    kind: tuple[bool, bool, bool] | None


class ImageMessage(NamedTuple):
    attempts: int
    was_delivered: bool


@dataclass(frozen=True)
class SubscriptionImage:
    shared: bool
    key: str
    owner: tuple[str, str] | None
    messages: dict[str, ImageMessage]


Image: TypeAlias = dict[Identity, SubscriptionImage]


def prefix(name: str) -> str:
    """Decision 1: up to the first `|` that is not at position 0."""
    return name[0] + name[1:].split("|")[0]


class Model:
    """What is there, and what each step does to it."""

    def __init__(self) -> None:
        self.subscriptions: dict[Identity, Subscription] = {}
        self.links: dict[int, Link] = {}
        self.births: Counter[Identity] = Counter()
        """How often each was made."""

    # -- attach -----------------------------------------------------------------------------------------------------

    def attach(self, link: Link, source: Source) -> tuple[str | None, int | None]:
        """The condition of its refusal, or None; and the link it steals. A refusal changes nothing (decision 10)."""
        assert link.kind is not None
        live = self._live(link)
        if live is not None and live.kind != link.kind:
            return LOCKED, None  # decision 5
        there = self.subscriptions.get(link.identity)
        others = 0 if there is None else len([each for each in there.links if live is None or each != live.number])
        key = KEYS[source.address]
        if there is not None:
            own = (link.container_id, link.name)
            if there.shared != source.shared or (not source.shared and (there.owner != own or others)):
                return LOCKED, None  # decision 4
            if there.key != key and others:
                return LOCKED, None  # decision 6
        if live is not None:
            self._leave(live, lost=True)
        if there is None:
            is_owned = source.durable and not source.shared
            there = Subscription(
                source.shared, source.expiry, key, (link.container_id, link.name) if is_owned else None
            )
            self.subscriptions[link.identity] = there
            self.births[link.identity] += 1
        elif there.key != key:
            there.key = key
            there.backlog.clear()
        there.links.append(link.number)
        there.sessions.add(link.session)
        self.links[link.number] = link
        self.end_what_is_over()
        return None, None if live is None else live.number

    def identity(self, link: tuple[str, str], source: Source, number: int) -> Identity:
        """The rows of the table: (container-id, link name) and the words of the source."""
        container_id, name = link
        if not source.shared and not source.durable:
            return Identity(container_id, f"private {number}", False)
        scope = None if source.global_ else container_id
        return Identity(scope, prefix(name) if source.shared else name, source.durable)

    def look_up(self, container_id: str, name: str) -> Identity | None:
        """A null source without capabilities (decision 3): the own row first, then what the name alone means."""
        return next((each for each in self.meant(container_id, name) if each in self.subscriptions), None)

    def meant(self, container_id: str, name: str) -> tuple[Identity, Identity]:
        """What a null source may mean."""
        scope = None if name[len(prefix(name)) + 1 :].startswith("global") else container_id
        return Identity(container_id, name, True), Identity(scope, prefix(name), True)

    def told(self, link: Link) -> Source:
        """The source of the reply, but for the spelling of its address: the truth (decision 7)."""
        there = self.subscriptions[link.identity]
        address = "amq.topic" if there.key == "#" else f"amq.topic/{there.key}"
        return Source(address, there.shared, link.identity.scope is None, link.identity.durable, there.expiry)

    def _live(self, link: Link) -> Link | None:
        for each in self.links.values():
            if each.kind is not None and (each.container_id, each.name) == (link.container_id, link.name):
                return each
        return None

    # -- ends -------------------------------------------------------------------------------------------------------

    def detach(self, link: Link, *, closed: bool) -> str | None:
        """The condition of the answer (decisions 8 and 9)."""
        self._leave(link, lost=False)
        there = self.subscriptions.get(link.identity)
        if there is None or not closed:
            condition = None
        elif not there.links:
            del self.subscriptions[link.identity]
            condition = None
        else:
            condition = LOCKED if there.expiry == "never" else None
        self.end_what_is_over()
        return condition

    def end_session(self, session: tuple[int, int]) -> None:
        """Its links are gone."""
        for link in [each for each in self.links.values() if each.session == session]:
            self._leave(link, lost=False)
        for each in self.subscriptions.values():
            if each.expiry == "session-end":
                each.sessions.discard(session)
        self.end_what_is_over()

    def end_connection(self, connection: int, *, lost: bool) -> None:
        """All its sessions are gone."""
        for link in [each for each in self.links.values() if each.session[0] == connection]:
            self._leave(link, lost=lost)
        for each in self.subscriptions.values():
            each.sessions = {session for session in each.sessions if session[0] != connection}
        self.end_what_is_over()

    def end_what_is_over(self) -> None:
        """End what lived as long as its links, its last session or its last connection."""
        for identity, each in list(self.subscriptions.items()):
            if each.links or each.expiry == "never":
                continue
            if each.expiry == "link-detach" or not each.sessions:
                del self.subscriptions[identity]

    def _leave(self, link: Link, *, lost: bool) -> None:
        """A lost link counts an attempt for its oldest delivery only; all come back as possibly seen."""
        del self.links[link.number]
        there = self.subscriptions.get(link.identity)
        if there is None or link.kind is None:
            return
        there.links.remove(link.number)
        # In the order of their deliveries: `delivered` moves a message to the end.
        held = [message for message in there.backlog.values() if message.holder == link.number]
        for place, message in enumerate(held):
            message.attempts += lost and place == 0
            message.was_lost = True
            message.holder = None

    # -- messages ---------------------------------------------------------------------------------------------------

    def publish(self, key: str, body: str, *, durable: bool) -> set[Identity]:
        """Route one message; the subscriptions that keep it over a restart."""
        keeping: set[Identity] = set()
        for identity, each in self.subscriptions.items():
            if each.key in ("#", key):
                is_logged = durable and identity.durable and each.expiry == "never"
                each.backlog[body] = Message(is_logged)
                if is_logged:
                    keeping.add(identity)
        return keeping

    def delivered(self, number: int, body: str, delivery_count: int) -> None:
        """A link got a message: one that is there, that nobody holds, and whose header tells the truth."""
        there = self.subscriptions[self.links[number].identity]
        assert number in there.links
        assert body in there.backlog, f"{body} was settled, ended with its backlog, or never routed here"
        message = there.backlog[body]
        assert message.holder is None, "delivered to two links at a time"
        assert number not in message.refused_by, "undeliverable there"
        assert delivery_count == message.delivery_count
        message.holder, message.was_delivered = number, True
        there.backlog[body] = there.backlog.pop(body)

    def settled(self, number: int, body: str, *, is_over: bool, failed: bool, undeliverable: bool) -> None:
        """A link settled a message: it is gone, or back."""
        there = self.subscriptions[self.links[number].identity]
        message = there.backlog[body]
        assert message.holder == number
        if is_over:
            del there.backlog[body]
            return
        message.holder = None
        message.attempts += failed
        if undeliverable:
            message.refused_by.add(number)

    # -- restarts ---------------------------------------------------------------------------------------------------

    def image(self) -> Image:
        """What is to be found after a restart, if all of it was synced."""
        return {
            identity: SubscriptionImage(
                each.shared,
                each.key,
                each.owner,
                {
                    body: ImageMessage(message.attempts, message.was_delivered)
                    for body, message in each.backlog.items()
                    if message.is_logged
                },
            )
            for identity, each in self.subscriptions.items()
            if identity.durable and each.expiry == "never"
        }

    def restarted(self, found: Image) -> None:
        """Go on from what was found."""
        self.links.clear()
        self.subscriptions = {
            identity: Subscription(
                each.shared,
                "never",
                each.key,
                each.owner,
                backlog={
                    body: Message(True, message.attempts, message.was_delivered, message.was_delivered)
                    for body, message in each.messages.items()
                },
            )
            for identity, each in found.items()
        }
