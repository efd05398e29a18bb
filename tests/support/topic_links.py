"""Topic links as clients attach them, and what a broker's reply to one is compared with, frame by frame."""

from __future__ import annotations

from contextlib import ExitStack

from support.raw_client import RawClient, symbols

from penstock_amqp.frames.performatives import Attach, Detach, Disposition, Error, Flow, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, decode_message, encode_message
from penstock_amqp.types.values import Described, Symbol, ULong, Value

SELECTOR = ULong(0x0000468C00000004)
NEVER, LINK_DETACH, SESSION_END, CONNECTION_CLOSE = symbols("never", "link-detach", "session-end", "connection-close")


class Connections:
    """Connections with one session each, closed at the end of the test."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = ExitStack()

    def __call__(self, container_id: str) -> RawClient:
        client = self._open.enter_context(RawClient(self._port, container_id))
        client.begin()
        return client

    def close(self) -> None:
        self._open.close()


def topic(
    *capabilities: str,
    durable: int = 0,
    expiry: Symbol | None = LINK_DETACH,
    address: str = "news",
    selector: str | None = None,
    mode: str | None = None,
) -> Source:
    """A source as clients send it for a topic."""
    chosen: dict[Symbol, Value] | None = None
    if selector is not None:
        chosen = {Symbol("jms-selector"): Described(SELECTOR, selector)}
    return Source(
        address=address,
        durable=durable,
        expiry_policy=expiry,
        timeout=0,
        dynamic=False,
        distribution_mode=None if mode is None else Symbol(mode),
        filter=chosen,
        outcomes=symbols("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"),
        capabilities=symbols("topic", *capabilities),
    )


def check_reply(
    reply: Attach,
    *,
    capabilities: set[str],
    durable: int,
    expiry: str,
    address: str = "news",
    selector: str | None = None,
) -> None:
    """The fields of an attach that was granted."""
    assert reply.source is not None
    assert not reply.role
    assert reply.source.address == address
    assert (reply.source.durable or 0) == durable
    assert (reply.source.expiry_policy or "session-end") == expiry
    assert reply.source.distribution_mode == "move"
    assert sorted(reply.source.capabilities or ()) == sorted(capabilities)
    filters = reply.source.filter or {}
    expected = {} if selector is None else {"jms-selector": Described(SELECTOR, selector)}
    assert dict(filters) == expected
    assert reply.offered_capabilities == ("SHARED-SUBS",)


def check_refusal(client: RawClient, reply: Attach, *, condition: str, reason: str) -> Error:
    """A null source, then a detach with closed=true, the condition and the reason."""
    assert reply.source is None
    detach = client.expect(Detach)
    assert detach.handle == reply.handle
    assert detach.closed is True
    assert detach.error is not None
    assert detach.error.condition == condition
    assert detach.error.description
    assert (detach.error.info or {}).get(Symbol("penstock:reason")) == reason
    return detach.error


def asked(*, shared: bool, global_: bool) -> tuple[str, ...]:
    return (*(("shared",) if shared else ()), *(("global",) if global_ else ()))


def publish(client: RawClient, address: str, body: str) -> None:
    client.attach_sender(f"to-{address}", Target(address=address))
    head = Transfer(handle=client.last_handle, delivery_id=0, delivery_tag=b"1", settled=True)
    client.send(head, payload=encode_message(Message(body=body)))


def drained_bodies(client: RawClient, handle: int, credit: int = 10) -> list[Value]:
    """All that comes on a link of ours that has `credit` since it was attached: the broker says when it has no more."""
    client.flow(handle, credit=credit, drain=True)
    bodies: list[Value] = []
    while True:
        received = client.receive()
        if isinstance(received.performative, Transfer):
            bodies.append(decode_message(received.payload).body)
        elif isinstance(received.performative, Flow) and received.performative.drain:
            return bodies
        else:
            assert isinstance(received.performative, Flow | Disposition)
