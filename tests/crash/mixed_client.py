"""A client of bare frames for the mixed load: messages of any size, credit as it goes, transactional states."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from support.raw_client import RawClient, symbols

from penstock_amqp.frames.performatives import (
    Attach,
    Coordinator,
    Detach,
    Disposition,
    Flow,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, decode_message, encode_message
from penstock_amqp.messages.transaction_types import Declare, Declared, Discharge, TransactionalState
from penstock_amqp.types.composites import Composite, to_value
from penstock_amqp.types.values import Symbol

__all__ = ["Got", "MixedClient"]

FRAME = 60_000
CREDIT = 6


@dataclass(frozen=True, slots=True)
class Got:
    """A message that came."""

    delivery_id: int
    queue: str
    message: Message


@dataclass
class _Receiver:
    queue: str
    handle: int
    inbox: deque[Got]
    """Where its messages go."""
    came: int = 0
    """Its delivery-count."""
    parts: bytes = b""
    delivery_id: int = -1


class MixedClient:
    """One session with a coordinator, a sender to each queue, and receivers from some.

    Each of these has a second one beside it, without credit, that acquires in transactions.
    """

    def __init__(self, raw: RawClient, targets: tuple[str, ...], sources: list[str]) -> None:
        self._raw = raw
        self._next_id = 0
        self._frames = 0
        self._states: dict[int, object] = {}
        self._came: deque[Got] = deque()
        raw.begin()
        raw.attach_sender("control", Coordinator(capabilities=symbols("amqp:local-transactions")), source=Source())
        self._coordinator = raw.last_handle
        self._senders: dict[str, int] = {}
        for queue in targets:
            raw.attach_sender(f"to {queue}", Target(address=queue))
            self._senders[queue] = raw.last_handle
        self._receivers: dict[int, _Receiver] = {}
        """By the broker's handle."""
        for queue in sources:
            self._attach(f"from {queue}", queue, self._came)
        self._granted = list(self._receivers.values())
        self._acquiring = {queue: self._attach(f"acquire from {queue}", queue, deque()) for queue in sources}
        self.grant_again()

    # -- asking -----------------------------------------------------------------------------------------------------

    def send(self, queue: str, message: Message, txn_id: bytes | None = None) -> int:
        """Send a message in as many frames as it takes; its delivery-id."""
        return self._transfer(self._senders[queue], encode_message(message), txn_id)

    def declare(self) -> bytes:
        """Begin a transaction; its name."""
        state = self.state_of(self._request(Declare()))
        assert isinstance(state, Declared), state
        return state.txn_id

    def discharge(self, txn_id: bytes, *, fail: bool) -> object:
        """End a transaction; the outcome."""
        return self.state_of(self._request(Discharge(txn_id=txn_id, fail=fail)))

    def settle(self, got: Got, outcome: Composite, txn_id: bytes | None = None, *, settled: bool = True) -> None:
        """Give a delivery an outcome, in a transaction if one is named."""
        state = outcome if txn_id is None else TransactionalState(txn_id=txn_id, outcome=outcome)
        self._raw.send(Disposition(role=True, first=got.delivery_id, settled=settled, state=state))

    def acquire(self, queue: str, txn_id: bytes, most: int) -> list[Got]:
        """Up to `most` of the messages that a queue has for us now, acquired in a transaction."""
        receiver = self._acquiring.get(queue)
        if receiver is None:
            return []
        drained = receiver.came + most
        self._grant(receiver, most, txn_id)
        while receiver.came < drained:
            self._read()
        got = list(receiver.inbox)
        receiver.inbox.clear()
        return got

    def leave(self, queue: str) -> None:
        """Close the receivers from a queue, if there are some."""
        for handle, receiver in list(self._receivers.items()):
            if receiver.queue == queue:
                del self._receivers[handle]
                self._raw.send(Detach(handle=receiver.handle, closed=True))
        self._granted = [receiver for receiver in self._granted if receiver.queue != queue]
        self._acquiring.pop(queue, None)
        left = [got for got in self._came if got.queue != queue]
        self._came.clear()
        self._came.extend(left)

    def grant_again(self) -> None:
        """Credit for the next few messages from each queue."""
        for receiver in self._granted:
            self._grant(receiver, CREDIT)

    @property
    def is_receiving(self) -> bool:
        """The first part of a message came, and not its last."""
        return any(receiver.parts for receiver in self._receivers.values())

    def _request(self, body: Composite) -> int:
        return self._transfer(self._coordinator, encode_message(Message(body=to_value(body))), None)

    def _transfer(self, handle: int, data: bytes, txn_id: bytes | None) -> int:
        number, self._next_id = self._next_id, self._next_id + 1
        for at in range(0, len(data), FRAME):
            first = at == 0
            transfer = Transfer(
                handle=handle,
                delivery_id=number if first else None,
                delivery_tag=number.to_bytes(4, "big") if first else None,
                message_format=0 if first else None,
                more=at + FRAME < len(data),
                state=TransactionalState(txn_id=txn_id) if first and txn_id is not None else None,
            )
            self._raw.send(transfer, payload=data[at : at + FRAME])
        return number

    def _attach(self, name: str, queue: str, inbox: deque[Got]) -> _Receiver:
        reply: Attach = self._raw.attach_receiver(name, Source(address=queue))
        assert reply.handle is not None
        receiver = self._receivers[reply.handle] = _Receiver(queue, self._raw.last_handle, inbox)
        return receiver

    def _grant(self, receiver: _Receiver, credit: int, txn_id: bytes | None = None) -> None:
        """Grant credit; in a transaction only for what there is."""
        self._raw.send(
            Flow(
                next_incoming_id=self._frames,
                incoming_window=10_000,
                next_outgoing_id=0,
                outgoing_window=10_000,
                handle=receiver.handle,
                delivery_count=receiver.came,
                link_credit=credit,
                drain=txn_id is not None,
                properties=None if txn_id is None else {Symbol("txn-id"): txn_id},
            )
        )

    # -- what comes -------------------------------------------------------------------------------------------------

    def state_of(self, delivery_id: int) -> object:
        """The state with which the broker settled a delivery of ours."""
        while delivery_id not in self._states:
            self._read()
        return self._states.pop(delivery_id)

    def get(self, most: int) -> list[Got]:
        """One message at least, up to `most` if they came."""
        while not self._came:
            self._read()
        return [self._came.popleft() for _ in range(min(most, len(self._came)))]

    def take_all(self) -> list[Got]:
        """What came by the time the broker has answered one more declaration."""
        self.discharge(self.declare(), fail=True)
        came = list(self._came)
        self._came.clear()
        return came

    def _read(self) -> None:
        received = self._raw.receive()
        performative = received.performative
        match performative:
            case Disposition():
                last = performative.first if performative.last is None else performative.last
                if performative.role:
                    self._states.update(dict.fromkeys(range(performative.first, last + 1), performative.state))
            case Transfer():
                self._frames += 1
                self._take(performative, received.payload)
            case Detach():
                assert performative.error is None, performative.error
            case Flow():
                receiver = self._receivers.get(-1 if performative.handle is None else performative.handle)
                if receiver is not None and performative.drain:
                    receiver.came = performative.delivery_count or 0
            case _:
                raise AssertionError(performative)

    def _take(self, transfer: Transfer, payload: bytes) -> None:
        receiver = self._receivers.get(transfer.handle)
        if receiver is None:
            return  # on its way when we left
        if transfer.delivery_id is not None and not receiver.parts:
            receiver.delivery_id = transfer.delivery_id
        receiver.parts = b"" if transfer.aborted else receiver.parts + payload
        if transfer.more or transfer.aborted:
            return
        receiver.came += 1
        receiver.inbox.append(Got(receiver.delivery_id, receiver.queue, decode_message(receiver.parts)))
        receiver.parts = b""
