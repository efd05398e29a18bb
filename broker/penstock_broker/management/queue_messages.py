"""PEEK, PURGE, MOVE and REDRIVE: what waits in one queue is shown, dropped, or put elsewhere, a slice per turn.

What waits when the request comes is looked at, oldest first by the order of hand-out, delayed and stranded messages
last; what a consumer takes meanwhile is the consumer's. Deliveries in flight are never touched. The first message that
can't go where it should ends a MOVE, because the next could not either; a REDRIVE goes on with the others. Source:
docs/management.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from penstock_amqp.endpoint.events import DATA, NUMBER, Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_amqp.messages.selected_fields import SelectedFields
from penstock_amqp.types.values import Value
from penstock_api.management import EntityType, Operation, StatusCode
from penstock_api.message_operations import HandledMessages, MessageSelection, PeekRequest
from penstock_api.validation_messages import validation_messages
from penstock_broker.management import message_view
from penstock_broker.management.responses import Response, invalid, refusal, to_value
from penstock_broker.messages import due_times, move
from penstock_broker.messages.deposit import destination_of
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_core.identity import parse_queue_name
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import compile_selector

__all__ = ["Peeking", "QueueMessagesRequest", "handle"]

EXAMINED_PER_STEP: Final = 200
"""Messages that a selector looks at, or that are handled, in one turn: about two milliseconds."""

Wanted = Callable[[Entry], bool]


def handle(
    broker: Broker, operation: Operation, kind: EntityType, name: str | None, body: Value
) -> Response | Peeking | QueueMessagesRequest:
    """Begin one of the four."""
    queue = _queue(broker, kind, name or "")
    if isinstance(queue, Refuse):
        return refusal(queue)
    try:
        if operation is Operation.PEEK:
            peek = PeekRequest.model_validate(body if body is not None else {})
            wanted = _wanted(peek.selector)
            return refusal(wanted) if isinstance(wanted, Refuse) else Peeking(queue, peek, wanted)
        selection = MessageSelection.model_validate(body if body is not None else {})
    except ValidationError as error:
        return invalid(
            f"The body does not fit {operation.value}: {'; '.join(validation_messages(error, whole='body'))}."
        )
    return _selected(broker, operation, queue, selection)


def _selected(
    broker: Broker, operation: Operation, queue: Queue, selection: MessageSelection
) -> Response | QueueMessagesRequest:
    wanted = _wanted(selection.selector)
    if isinstance(wanted, Refuse):
        return refusal(wanted)
    if (selection.destination is not None) != (operation is Operation.MOVE):
        return invalid("destination goes with MOVE, and MOVE needs one.")
    target = destination_of(broker, selection.destination) if selection.destination is not None else None
    if isinstance(target, Refuse):
        return refusal(target)
    if isinstance(target, QueueTarget) and target.node.queue is queue:
        return refusal(Refuse(Reason.INVALID_ADDRESS, "The messages are there already; name another destination."))
    if broker.log.failed is not None:
        return refusal(broker.storage_refuse())
    return QueueMessagesRequest(broker, operation, queue, selection.count, wanted, target)


def _queue(broker: Broker, kind: EntityType, name: str) -> Queue | Refuse:
    if kind is EntityType.QUEUE:
        node = broker.topology.queues.get(name)
        return node.queue if node is not None else Refuse(Reason.QUEUE_NOT_FOUND, f"There is no queue {name!r}.")
    if kind is EntityType.SUBSCRIPTION:
        identity = parse_queue_name(name)
        subscription = broker.topology.subscriptions.get(identity) if identity is not None else None
        if subscription is None:
            return Refuse(Reason.SUBSCRIPTION_NOT_FOUND, f"There is no subscription whose queue is {name!r}.")
        return subscription.queue
    return Refuse(Reason.NOT_IMPLEMENTED, f"A {kind.value} holds no messages.")


def _wanted(text: str | None) -> Wanted | Refuse:
    selector = compile_selector(text or "")
    if isinstance(selector, Refuse):
        return selector
    if selector is None:
        return lambda _: True
    fields, selects = SelectedFields(selector.names), selector.selects

    def wanted(entry: Entry) -> bool:
        try:
            return selects(fields.read(entry[DATA], message_head.read_head(entry[DATA])).get)
        except DecodeError:
            return False

    return wanted


class Peeking:
    """A PEEK that is being answered: `step` looks at some messages until it returns the answer."""

    def __init__(self, queue: Queue, peek: PeekRequest, wanted: Wanted) -> None:
        self._queue, self._peek, self._wanted = queue, peek, wanted
        self._left_out = 0
        self._shown: list[Value] = []
        self._entries = queue.everything()

    def step(self, _count: int) -> Response | None:
        """Go on; the answer once the page is full, or all was looked at."""
        peek = self._peek
        for _ in range(EXAMINED_PER_STEP):
            found = next(self._entries, None)
            if found is None or len(self._shown) == peek.count:
                body: Value = {"messages": self._shown, "depth": self._queue.depth}
                return Response(status=int(StatusCode.OK), description="OK", body=body)
            state, entry = found
            if not self._wanted(entry):
                continue
            if self._left_out < peek.offset:
                self._left_out += 1
                continue
            self._shown.append(to_value(message_view.shown(self._queue, entry, state, peek.max_body_bytes)))
        return None


@dataclass(slots=True)
class QueueMessagesRequest:
    """A PURGE, MOVE or REDRIVE that is being done: `step` does some until it returns the answer."""

    broker: Broker
    operation: Operation
    queue: Queue
    count: int | None
    wanted: Wanted
    target: ExchangeTarget | QueueTarget | None
    done: int = 0
    left: int = 0
    why: str | None = None
    is_over: bool = False
    entries: Iterator[Entry] | None = None

    def step(self, _count: int) -> Response | None:
        """Go on; the answer once all is done."""
        if self.entries is None:
            self.entries = (entry for _, entry in self.queue.everything())
        chosen: dict[int, Entry] = {}
        passed: set[int] = set()
        for _ in range(EXAMINED_PER_STEP):
            if self.count is not None and self.done + self.left + len(chosen) >= self.count:
                self.is_over = True
                break
            entry = next(self.entries, None)
            if entry is None:
                self.is_over = True
                break
            passed.add(entry[NUMBER])
            if self.wanted(entry):
                chosen[entry[NUMBER]] = entry
        self._handle(self.queue.take_out(chosen, passed))
        if not self.is_over:
            return None
        handled = HandledMessages(messages=self.done, left=self.left, why=self.why)
        return Response(status=int(StatusCode.OK), description="OK", body=to_value(handled))

    def _handle(self, entries: list[Entry]) -> None:
        for at, entry in enumerate(entries):
            why = self._one(entry)
            if why is None:
                self.done += 1
                continue
            self.why = why
            self.left += 1
            self._keep(entry)
            if self.operation is Operation.MOVE:
                for other in entries[at + 1 :]:
                    self._keep(other)
                self.is_over = True
                return

    def _one(self, entry: Entry) -> str | None:
        """Handle one message that was taken out; or why it stays."""
        broker, queue = self.broker, self.queue
        match self.operation:
            case Operation.PURGE:
                move.purge(broker, queue, entry)
                return None
            case Operation.MOVE:
                assert self.target is not None
                refused = move.move(broker, queue, entry, self.target)
            case Operation.REDRIVE:
                origin = move.origin_of(broker, entry)
                if isinstance(origin, str):
                    return origin
                refused = move.redrive(broker, queue, entry, origin)
            case _:
                raise AssertionError(self.operation)
        return refused.description if refused is not None else None

    def _keep(self, entry: Entry) -> None:
        due_times.put_in_place(self.broker, self.queue, entry)
