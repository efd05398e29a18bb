"""A client of bare frames that uses transactions: several links of one session, one coordinator, states as it likes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from support.raw_client import RawClient, symbols

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Coordinator,
    Detach,
    Disposition,
    Flow,
    Performative,
    Rejected,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, decode_message, encode_message
from penstock_amqp.messages.message_head import Header
from penstock_amqp.messages.transaction_types import Declare, Declared, Discharge, TransactionalState
from penstock_amqp.types.composites import Composite, to_value
from penstock_amqp.types.values import Symbol, Value

__all__ = ["ReceivedDelivery", "TransactionClient", "condition_of"]


@dataclass(frozen=True, slots=True)
class ReceivedDelivery:
    """A delivery that came."""

    delivery_id: int
    handle: int
    body: object
    delivery_count: int
    state: object = None
    """That of its transfer."""
    settled: bool = False
    """The broker sent it settled."""
    ttl: int | None = None
    """What is left of its time to live, in milliseconds."""


class TransactionClient:
    """One session of a raw client, with its coordinator link attached."""

    def __init__(self, client: RawClient, *, outcomes: tuple[str, ...] | None = None, coordinator: bool = True) -> None:
        self.client = client
        self._next_id = 0
        self._gathered: list[bytes] | None = None
        """Frames to be sent in one write; None: each at once."""
        self._came: deque[ReceivedDelivery] = deque()
        self._detached: deque[Detach] = deque()
        self._flows: deque[Flow] = deque()
        self._states: dict[int, object] = {}
        """Of deliveries that we sent, as the broker settled them, by delivery-id."""
        self._concluded: dict[int, object] = {}
        """The same of deliveries that we received."""
        client.begin()
        self.coordinator = self.attach_coordinator("control", outcomes=outcomes) if coordinator else -1

    def attach_coordinator(self, name: str, *, outcomes: tuple[str, ...] | None = None) -> int:
        """Another coordinator link; our handle of it."""
        source = Source(outcomes=symbols(*outcomes) if outcomes is not None else None)
        target = Coordinator(capabilities=symbols("amqp:local-transactions"))
        self.reply = self.client.attach_sender(name, target, source=source)
        return self.client.last_handle

    def sender(self, address: str | None, name: str | None = None) -> int:
        """Attach a sending link; our handle of it."""
        self.client.attach_sender(name or f"to {address}", Target(address=address))
        return self.client.last_handle

    def receiver(self, address: str, *, credit: int = 100, name: str = "from", source: Source | None = None) -> int:
        """Attach a receiving link with credit; our handle of it."""
        self.client.attach_receiver(name, source or Source(address=address))
        self.client.flow(self.client.last_handle, credit=credit)
        return self.client.last_handle

    def settled_receiver(self, address: str, *, channel: int = 0) -> int:
        """A receiving link on which the broker sends everything settled, without credit; our handle of it."""
        handle = 9
        self.client.send(
            Attach(
                name="settled",
                handle=handle,
                role=True,
                snd_settle_mode=1,
                rcv_settle_mode=0,
                source=Source(address=address),
                target=Target(),
            ),
            channel,
        )
        self.client.expect(Attach)
        return handle

    def acquire(
        self,
        handle: int,
        properties: bytes | dict[Symbol, Value] | None,
        *,
        credit: int = 100,
        delivery_count: int = 0,
        drain: bool | None = None,
        echo: bool | None = None,
        window: int = 10_000,
        channel: int = 0,
    ) -> None:
        """Grant credit in a transaction, or with these properties."""
        told = {Symbol("txn-id"): properties} if isinstance(properties, bytes) else properties
        self.client.send(
            Flow(
                next_incoming_id=0,
                incoming_window=window,
                next_outgoing_id=0,
                outgoing_window=10_000,
                handle=handle,
                delivery_count=delivery_count,
                link_credit=credit,
                drain=drain,
                echo=echo,
                properties=told,
            ),
            channel,
        )

    # -- asking -----------------------------------------------------------------------------------------------------

    def request(self, body: Composite, *, handle: int | None = None, settled: bool = False) -> int:
        """Send the coordinator a request; its delivery-id."""
        message = encode_message(Message(body=to_value(body)))
        return self._transfer(self.coordinator if handle is None else handle, message, settled=settled, state=None)

    def declare(self, *, handle: int | None = None) -> bytes:
        """Begin a transaction; its name."""
        state = self.state_of(self.request(Declare(), handle=handle))
        assert isinstance(state, Declared), state
        return state.txn_id

    def discharge(self, txn_id: bytes, *, fail: bool = False, handle: int | None = None) -> object:
        """End a transaction; the outcome."""
        return self.state_of(self.request(Discharge(txn_id=txn_id, fail=fail), handle=handle))

    def commit(self, txn_id: bytes) -> None:
        """End a transaction, and see that it was committed."""
        assert self.discharge(txn_id) == Accepted()

    def post(self, handle: int, body: str, txn_id: bytes | None, *, settled: bool = False, durable: bool = True) -> int:
        """Send a message, in a transaction if one is named; its delivery-id."""
        state = TransactionalState(txn_id=txn_id) if txn_id is not None else None
        message = encode_message(Message(header=Header(durable=durable or None), body=body))
        return self._transfer(handle, message, settled=settled, state=state)

    def send(self, handle: int, message: Message, txn_id: bytes | None = None) -> int:
        """Send a message, in a transaction if one is named; its delivery-id."""
        state = TransactionalState(txn_id=txn_id) if txn_id is not None else None
        return self._transfer(handle, encode_message(message), settled=False, state=state)

    def _transfer(self, handle: int, message: bytes, *, settled: bool, state: TransactionalState | None) -> int:
        number = self._next_id
        self._next_id += 1
        tag = number.to_bytes(4, "big")
        transfer = Transfer(
            handle=handle, delivery_id=number, delivery_tag=tag, message_format=0, settled=settled, state=state
        )
        self._send(transfer, message)
        return number

    def post_parts(
        self,
        handle: int,
        parts: Sequence[bytes],
        txn_id: bytes | None,
        *,
        settled: bool = False,
        ends: bool = True,
        aborted: bool = False,
    ) -> int:
        """Send an encoded message in several transfers; its delivery-id. `ends`: the last of them is the message's."""
        state = TransactionalState(txn_id=txn_id) if txn_id is not None else None
        number, self._next_id = self._next_id, self._next_id + 1
        for index, part in enumerate(parts):
            first, is_last = index == 0, index == len(parts) - 1
            transfer = Transfer(
                handle=handle,
                delivery_id=number if first else None,
                delivery_tag=number.to_bytes(4, "big") if first else None,
                message_format=0 if first else None,
                settled=settled or None,
                more=not (is_last and ends),
                state=state if first else None,
                aborted=(aborted and is_last) or None,
            )
            self._send(transfer, part)
        return number

    def post_rest(self, handle: int, parts: Sequence[bytes]) -> None:
        """Send the rest of the message that `post_parts` has begun on the link, in so many transfers."""
        for index, part in enumerate(parts):
            self._send(Transfer(handle=handle, more=index < len(parts) - 1), part)

    def say(self, performative: Performative, payload: bytes = b"") -> None:
        """Send a frame."""
        self._send(performative, payload)

    @contextmanager
    def at_once(self) -> Generator[None]:
        """What is sent within goes in one write."""
        self._gathered = []
        yield
        gathered, self._gathered = self._gathered, None
        self.client.send_bytes(b"".join(gathered))

    def _send(self, performative: Performative, payload: bytes) -> None:
        frame = encode_frame(performative, 0, payload)
        if self._gathered is not None:
            self._gathered.append(frame)
        else:
            self.client.send_bytes(frame)

    def settle(
        self,
        got: ReceivedDelivery,
        outcome: Composite | None,
        txn_id: bytes | None,
        *,
        settled: bool = True,
        channel: int = 0,
    ) -> None:
        """Give a delivery an outcome, in a transaction if one is named."""
        state = outcome if txn_id is None else TransactionalState(txn_id=txn_id, outcome=outcome)
        self.client.send(Disposition(role=True, first=got.delivery_id, settled=settled, state=state), channel)

    # -- what comes -------------------------------------------------------------------------------------------------

    def state_of(self, delivery_id: int) -> object:
        """The state with which the broker settled a delivery of ours."""
        while delivery_id not in self._states:
            self._read()
        return self._states.pop(delivery_id)

    def concluded(self, got: ReceivedDelivery) -> object:
        """The state with which the broker settled a delivery that we had not."""
        while got.delivery_id not in self._concluded:
            self._read()
        return self._concluded.pop(got.delivery_id)

    def get(self, count: int = 1) -> list[ReceivedDelivery]:
        """The next deliveries."""
        while len(self._came) < count:
            self._read()
        return [self._came.popleft() for _ in range(count)]

    @property
    def waiting(self) -> int:
        """Deliveries that came and were not got yet."""
        return len(self._came)

    def bodies(self, count: int) -> list[tuple[object, int]]:
        """The next deliveries: body and delivery-count."""
        return [(got.body, got.delivery_count) for got in self.get(count)]

    def nothing_came(self) -> bool:
        """True if the broker has delivered nothing by the time it has answered one more declaration."""
        self.discharge(self.declare(), fail=True)
        return not self._came

    def told_of_link(self, handle: int) -> Flow:
        """The next flow that tells the state of a link; the broker's handle of it is ours."""
        while True:
            while not self._flows:
                self._read()
            flow = self._flows.popleft()
            if flow.handle == handle:
                return flow

    def detached(self) -> Detach:
        """The next detach of the broker's."""
        while not self._detached:
            self._read()
        return self._detached.popleft()

    def detach(self, handle: int, *, closed: bool = True) -> Detach:
        """Detach a link of ours; the answer."""
        self.client.send(Detach(handle=handle, closed=closed))
        return self.detached()

    def _read(self) -> None:
        received = self.client.receive()
        performative = received.performative
        match performative:
            case Disposition():
                last = performative.first if performative.last is None else performative.last
                for number in range(performative.first, last + 1):
                    if performative.role:
                        self._states[number] = performative.state
                    else:
                        self._concluded[number] = performative.state
            case Transfer():
                message = decode_message(received.payload)
                assert performative.delivery_id is not None and performative.handle is not None
                count = message.header.delivery_count or 0
                self._came.append(
                    ReceivedDelivery(
                        performative.delivery_id,
                        performative.handle,
                        message.body,
                        count,
                        performative.state,
                        bool(performative.settled),
                        message.header.ttl,
                    )
                )
            case Detach():
                self._detached.append(performative)
            case Flow():
                self._flows.append(performative)
            case _:
                raise AssertionError(performative)


def condition_of(state: object) -> str:
    """The condition of a rejected outcome, also of one within a transaction."""
    if isinstance(state, TransactionalState):
        state = state.outcome
    assert isinstance(state, Rejected), state
    assert state.error is not None
    return state.error.condition
