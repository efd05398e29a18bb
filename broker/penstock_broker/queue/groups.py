"""Which consumer owns which message group of a queue.

A group belongs to the consumer that took a message of it first, until that consumer leaves or a message closes the
group. Many groups take little memory: beyond `MAX_IDLE_GROUPS` those that were used longest ago are forgotten, if none
of their messages is with a consumer; their next message goes to any consumer. Must not know priorities or links.
Source: docs/decisions/031-queue-order.md.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from penstock_amqp.endpoint.events import DATA, NUMBER, Entry
from penstock_amqp.messages.message_head import read_head
from penstock_broker.queue.cursor import BacklogConsumer
from penstock_broker.queue.flags import group_of

__all__ = ["LONGEST_NAME", "MAX_IDLE_GROUPS", "Group", "Groups"]

MAX_IDLE_GROUPS: Final = 16_384

LONGEST_NAME: Final = 256
"""Characters. Of a longer name a digest is kept: a name may take a mebibyte, and is kept when its messages are gone."""

_LOOK_AT: Final = 16
"""Groups that are looked at to find one to forget."""


class Group:
    """A group that a consumer owns."""

    __slots__ = ("consumer", "held")

    def __init__(self, consumer: BacklogConsumer) -> None:
        self.consumer = consumer
        self.held = 0
        """Its messages that are with the consumer, or reserved for it."""


class Groups:
    """The groups of one queue that consumers own."""

    __slots__ = ("_held", "_is_closed", "_last", "_name", "_owned", "max_idle")

    def __init__(self, max_idle: int = MAX_IDLE_GROUPS) -> None:
        self.max_idle = max_idle
        self._owned: dict[str | bytes, Group] = {}
        """By name, or its digest; used longest ago first."""
        self._held: dict[int, Group] = {}
        """By message number, for those that are with a consumer, or reserved for it."""
        self._last = -1
        """The number of the message that was read last, and what it says."""
        self._name: str | bytes = ""
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._owned) + len(self._held)

    def owner(self, entry: Entry) -> Group | None:
        """The group to which a message belongs; None if no consumer owns it yet."""
        if entry[NUMBER] != self._last:
            self._read(entry)
        return self._owned.get(self._name)

    def hold(self, entry: Entry, group: Group) -> None:
        """The message is with the group's consumer, or reserved for it."""
        if entry[NUMBER] not in self._held:
            self._held[entry[NUMBER]] = group
            group.held += 1

    def holds(self, entry: Entry, group: Group) -> bool:
        """True if the message is with the group's consumer, or reserved for it."""
        return self._held.get(entry[NUMBER]) is group

    def take(self, entry: Entry, consumer: BacklogConsumer) -> Group | None:
        """The message goes to `consumer`, which owns the group from now on, unless another consumer owns it and does
        not select this message.

        The group is returned if the message closes it: no consumer owns it then.
        """
        if entry[NUMBER] != self._last:
            self._read(entry)
        name = self._name
        group = self._owned.pop(name, None)
        if group is None:
            self._forget_idle()
            group = Group(consumer)
        if group.consumer is consumer:
            self.hold(entry, group)
            if self._is_closed:
                return group
        self._owned[name] = group
        return None

    def release(self, number: int) -> None:
        """The message is settled, dropped, or back in its place."""
        group = self._held.pop(number, None)
        if group is not None:
            group.held -= 1

    def left(self, consumer: BacklogConsumer) -> None:
        """The consumer is gone; any other may own its groups."""
        for name in [name for name, group in self._owned.items() if group.consumer is consumer]:
            del self._owned[name]

    def take_all(self) -> tuple[dict[int, Group], dict[str | bytes, Group]]:
        """Hand over what is remembered; no consumer owns a group any more."""
        held, owned = self._held, self._owned
        self._held, self._owned = {}, {}
        return held, owned

    def _forget_idle(self) -> None:
        owned = self._owned
        for _ in range(_LOOK_AT):
            if len(owned) < self.max_idle:
                return
            name, group = next(iter(owned.items()))
            del owned[name]
            if group.held:
                owned[name] = group

    def _read(self, entry: Entry) -> None:
        name, self._is_closed = group_of(entry, read_head(entry[DATA]))
        self._name = name
        if len(name) > LONGEST_NAME:
            self._name = blake2b(name.encode(errors="surrogatepass"), digest_size=16).digest()
        self._last = entry[NUMBER]
