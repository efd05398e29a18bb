"""A client without I/O that sends messages to one address, or receives them from one: one connection, one link.

For the command line, not for throughput. A receiver's messages are accepted when `accept` says so, that is when they
are printed. Must not know sockets or clocks; the connection is `connection`'s. Source: AMQP 1.0 part 3, 3.4 and 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock_amqp.client.connection import BACK, OUT, ClientConnection, ConnectionSettings, State, refused
from penstock_amqp.client.errors import RequestRefused
from penstock_amqp.frames.performatives import Accepted, Attach, Source, Target
from penstock_amqp.types.values import Described, Symbol, ULong, Value

__all__ = ["Arrived", "MessageEvent", "MessageSession", "Sender", "Settled", "Subscriber"]

_MESSAGE_BYTES: Final = 1024 * 1024 * 1024
_IDLE_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Sender:
    """A link that sends to `address`."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A link that receives from `address`: a queue, or an exchange with an optional `/KEY`."""

    address: str | None
    """None: a temporary queue, which the broker names and which ends with the link."""
    subscription: str | None = None
    """Name of a shared, durable, global subscription of the exchange; None: a queue, or one that ends with the link."""
    selector: str | None = None
    copies: bool = False
    """Browse: the messages stay."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message came; `encoded` are its sections."""

    encoded: bytes
    number: int
    """For `accept`: which messages had come by then."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The broker has answered for the message `number`; `refusal` is None if it took it."""

    number: int
    refusal: RequestRefused | None


MessageEvent: TypeAlias = Arrived | Settled


class MessageSession(ClientConnection[MessageEvent]):
    """One connection whose link is there once it is Ready. It gives no credit until `ask_for`."""

    def __init__(self, link: Sender | Subscriber, container_id: str, hostname: str | None = None) -> None:
        settings = ConnectionSettings(
            container_id=container_id,
            hostname=hostname,
            max_message_size=_MESSAGE_BYTES,
            credit=0,
            idle_time_out_ms=_IDLE_MS,
        )
        self.address: str | None = None
        """Where the link receives from, as the broker says; None for a sender."""
        super().__init__(settings, [_attach(link, container_id)])

    def send(self, encoded: bytes) -> int:
        """Send a message as soon as credit and window allow; return the number that `Settled` names.

        Raises `TransportError` after the end.
        """
        return self._put(encoded)

    def ask_for(self, messages: int) -> None:
        """Let the broker send so many messages from now on."""
        if not self._ended:
            self._back.credit = messages
            self._send_flow(BACK)

    def accept(self, number: int) -> None:
        """Accept the message with this number and those that came before it."""
        if not self._ended:
            self._accept(number)

    def _attached(self, attach: Attach) -> None:
        if not attach.role and attach.source is not None and attach.source.address is not None:
            self.address = str(attach.source.address)

    def _arrived(self, encoded: bytes) -> None:
        self._events.append(Arrived(encoded, self._back.unsettled))

    def _settled(self, numbers: Sequence[int], state: State) -> None:
        refusal = None if isinstance(state, Accepted) else refused(state)
        self._events += [Settled(number, refusal) for number in numbers]


def _attach(link: Sender | Subscriber, container_id: str) -> Attach:
    if isinstance(link, Sender):
        return Attach(
            name=container_id,
            handle=OUT,
            role=False,
            source=Source(),
            target=Target(address=link.address),
            initial_delivery_count=0,
        )
    # The name of a link to a shared subscription is the subscription's, up to the first "|".
    name = container_id if link.subscription is None else f"{link.subscription}|{container_id}"
    is_durable = link.subscription is not None
    source = Source(
        address=link.address,
        dynamic=True if link.address is None else None,
        durable=2 if is_durable else None,
        expiry_policy=Symbol("never") if is_durable else None,
        distribution_mode=Symbol("copy") if link.copies else None,
        filter=None if link.selector is None else _selected(link.selector),
        capabilities=(Symbol("topic"), Symbol("shared"), Symbol("global")) if is_durable else None,
    )
    return Attach(name=name, handle=BACK, role=True, source=source, target=Target())


def _selected(selector: str) -> dict[Symbol, Value]:
    """The filter of a JMS selector, as the Qpid JMS client sends it."""
    return {Symbol("jms-selector"): Described(ULong(0x0000_468C_0000_0004), selector)}
