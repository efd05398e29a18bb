"""Transactions of a counted client, on the C engine as all of it: declare, work under a transaction, commit.

The engine of proton 0.40 has no calls for transactional states; their fields go through `pn_disposition_data`.
Source: AMQP 1.0 part 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crash.load_client import Peer, Receiver, Sender, ffi, lib, put

from penstock_amqp.frames.performatives import Accepted
from penstock_amqp.messages.transaction_types import Declare, Declared, Discharge, TransactionalState, state_fields
from penstock_amqp.types.composites import Composite, to_value
from penstock_amqp.types.decoder import decode
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described, ULong

__all__ = ["Coordinator", "MovingReceiver", "TransactionalSender"]

_BYTES: Any = ffi.new("char[]", 1 << 10)


def _request(request: Composite) -> bytes:
    """A message whose body is a request to a coordinator."""
    return encode(Described(ULong(0x77), to_value(request)))


def _state_of(delivery: Any) -> bytes:
    """The fields of the state that the peer gave a delivery, encoded."""
    data = lib.pn_disposition_data(lib.pn_delivery_remote(delivery))
    size = lib.pn_data_encode(data, _BYTES, len(_BYTES))
    return bytes(ffi.unpack(_BYTES, size))


def _set_state(delivery: Any, fields: bytes) -> None:
    put(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), fields)
    lib.pn_delivery_update(delivery, TransactionalState.CODE)


_DECLARE = _request(Declare())


class Coordinator(Sender):
    """The link on which transactions begin and end. `declared`: their names, in the order asked for."""

    def __init__(self, peer: Peer) -> None:
        link = lib.pn_sender(peer.session, b"coordinator")
        lib.pn_terminus_set_type(lib.pn_link_target(link), lib.PN_COORDINATOR)
        lib.pn_link_open(link)
        super().__init__(link, self._accepted)
        peer.senders[link] = self
        self.declared: list[bytes] = []
        self.committed = 0

    def declare(self, count: int) -> None:
        """Ask for `count` transactions."""
        self.declared = []
        self.send([_DECLARE] * count)

    def commit(self, txn_id: bytes) -> None:
        self.send([_request(Discharge(txn_id=txn_id))])

    def _accepted(self, numbers: list[int]) -> None:
        self.committed += len(numbers)

    def not_accepted(self, delivery: Any, number: int) -> None:
        if lib.pn_delivery_remote_state(delivery) != Declared.CODE:
            raise SystemExit("a transaction was refused")
        fields, _ = decode(_state_of(delivery))
        assert isinstance(fields, list) and isinstance(fields[0], bytes)
        self.declared.append(fields[0])


class TransactionalSender(Sender):
    """Publishes within transactions; what was accepted for one counts as accepted."""

    def __init__(self, peer: Peer, address: str, on_accepted: Callable[[list[int]], None]) -> None:
        plain = peer.sender("transactional", address, on_accepted)
        super().__init__(plain.link, on_accepted)
        peer.senders[plain.link] = self

    def post(self, messages: Sequence[bytes], txn_id: bytes) -> None:
        """Queue encoded messages that belong to a transaction; not more than `credit`."""
        fields = state_fields(TransactionalState(txn_id=txn_id))
        for number, message in enumerate(messages, self.sent + 1):
            self._tag_view[0] = number
            delivery = lib.pn_delivery(self.link, self._tag[0])
            self.unsettled[delivery] = number
            _set_state(delivery, fields)
            lib.pn_link_send(self.link, message, len(message))
            lib.pn_link_advance(self.link)
        self.sent += len(messages)

    def not_accepted(self, delivery: Any, number: int) -> None:
        if lib.pn_delivery_remote_state(delivery) != TransactionalState.CODE:
            raise SystemExit("a message was refused within a transaction")
        self.on_accepted([number])


class MovingReceiver(Receiver):
    """Keeps what came, until it is settled within a transaction."""

    def __init__(self, peer: Peer, name: str, address: str) -> None:
        plain = peer.receiver(name, address, lambda _: False, capabilities=("queue",))
        super().__init__(plain.link, plain.credit, plain.on_received)
        peer.receivers[plain.link] = self
        self.held: list[tuple[Any, bytes]] = []

    def take(self, delivery: Any) -> None:
        self.held.append((delivery, self._read()))

    def settle(self, count: int, txn_id: bytes) -> list[bytes]:
        """Accept the oldest `count` within a transaction, and return them."""
        settled, self.held = self.held[:count], self.held[count:]
        fields = state_fields(TransactionalState(txn_id=txn_id, outcome=Accepted()))
        for delivery, _ in settled:
            _set_state(delivery, fields)
            lib.pn_delivery_settle(delivery)
        return [body for _, body in settled]
