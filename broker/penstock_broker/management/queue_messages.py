"""PEEK, PURGE, MOVE and REDRIVE: the messages that wait in one queue are shown, dropped or moved, a slice per turn.

The request covers the messages that wait when it comes, in the order in which they would be sent; delayed and stranded
messages come last. A message that a consumer gets meanwhile is not covered any more, and deliveries in flight never
are. The first message that can't be moved ends a MOVE, because the next could not be moved either; a REDRIVE goes on
with the others. Source: docs/reference/management.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
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
from penstock_broker.management.logged_operations import Caller, tell_handled
from penstock_broker.management.replies import ManagementReply, invalid_request, refusal, to_value
from penstock_broker.messages import due_times, move
from penstock_broker.messages.internal_publish import destination_of
from penstock_broker.messages.read_retries import retry_after_ms
from penstock_broker.queue.queue import Queue, Stranded
from penstock_broker.state.broker import Broker
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import compile_selector

__all__ = ["MessagesTask", "PeekTask", "handle"]

EXAMINED_PER_STEP: Final = 200
"""Messages that a selector examines, or that are handled, in one turn: about two milliseconds."""

FORGOTTEN_PER_STEP: Final = 1000
"""Messages that were dropped unread and of which the log is told in one turn: about two milliseconds."""

PARTS_PER_STEP: Final = 4
"""In so many parts such a slice is done; it ends behind one of them when it has taken its time."""

Matches = Callable[[Entry], bool]


def handle(
    broker: Broker, caller: Caller, operation: Operation, kind: EntityType, name: str | None, body: Value
) -> ManagementReply | PeekTask | MessagesTask:
    """Begin a PEEK, PURGE, MOVE or REDRIVE; or refuse it. What `caller` does to messages is told in the log."""
    queue = _queue(broker, kind, name or "")
    if isinstance(queue, Refuse):
        return refusal(queue)
    try:
        if operation is Operation.PEEK:
            peek = PeekRequest.model_validate(body if body is not None else {})
            matches = _matcher(peek.selector)
            return refusal(matches) if isinstance(matches, Refuse) else PeekTask(broker, queue, peek, matches)
        selection = MessageSelection.model_validate(body if body is not None else {})
    except ValidationError as error:
        return invalid_request(
            f"The body does not fit {operation.value}: {'; '.join(validation_messages(error, whole='body'))}."
        )
    return _selected(broker, caller, operation, queue, selection)


def _selected(
    broker: Broker, caller: Caller, operation: Operation, queue: Queue, selection: MessageSelection
) -> ManagementReply | MessagesTask:
    matches = _matcher(selection.selector)
    if isinstance(matches, Refuse):
        return refusal(matches)
    if (selection.destination is not None) != (operation is Operation.MOVE):
        return invalid_request("destination goes with MOVE, and MOVE needs one.")
    target = destination_of(broker, selection.destination) if selection.destination is not None else None
    if isinstance(target, Refuse):
        return refusal(target)
    if isinstance(target, QueueTarget) and target.node.queue is queue:
        return refusal(Refuse(Reason.INVALID_ADDRESS, "The messages are there already; name another destination."))
    if broker.log.failed is not None:
        return refusal(broker.storage_refuse())
    return MessagesTask(broker, caller, operation, queue, selection.count, matches, target, selection.destination)


def _queue(broker: Broker, kind: EntityType, name: str) -> Queue | Refuse:
    if kind is EntityType.QUEUE:
        node = broker.topology.queues.get(name)
        return node.queue if node is not None else Refuse(Reason.QUEUE_NOT_FOUND, f"There is no queue {name!r}.")
    if kind is EntityType.SUBSCRIPTION:
        subscription = broker.topology.subscription_of_queue(name)
        if subscription is None:
            return Refuse(Reason.SUBSCRIPTION_NOT_FOUND, f"There is no subscription whose queue is {name!r}.")
        return subscription.queue
    return Refuse(Reason.NOT_IMPLEMENTED, f"A {kind.value} holds no messages.")


def everything(_entry: Entry) -> bool:
    """What no selector says: that each message is meant."""
    return True


def _matcher(text: str | None) -> Matches | Refuse:
    selector = compile_selector(text or "")
    if isinstance(selector, Refuse):
        return selector
    if selector is None:
        return everything
    fields, selects = SelectedFields(selector.names), selector.selects

    def matches(entry: Entry) -> bool:
        try:
            return selects(fields.read(entry[DATA], message_head.read_head(entry[DATA])).get)
        except DecodeError:
            return False

    return matches


class PeekTask:
    """A PEEK in progress: each `step` examines some messages, until one returns the reply."""

    def __init__(self, broker: Broker, queue: Queue, peek: PeekRequest, matches: Matches) -> None:
        self._broker, self._queue, self._peek, self._matches = broker, queue, peek, matches
        self.pause_ms = 0
        self._passed_over = 0
        self._found: list[Value] = []
        self._entries = queue.everything(broker.log.next_number)

    def step(self, _count: int) -> ManagementReply | None:
        """Examine more; the reply once the page is full, or all messages are examined."""
        is_over = self._broker.clock.stint()
        self.pause_ms = 0
        for _ in range(PARTS_PER_STEP):
            reply = self._some()
            if reply is not None or self.pause_ms or is_over():
                return reply
        return None

    def _some(self) -> ManagementReply | None:
        peek = self._peek
        for _ in range(EXAMINED_PER_STEP // PARTS_PER_STEP):
            try:
                found = next(self._entries, None)
            except OSError as error:
                self.pause_ms = retry_after_ms(self._broker, self._queue, error, " for a request")
                return None
            if found is None or len(self._found) == peek.count:
                body: Value = {"messages": self._found, "depth": self._queue.depth}
                return ManagementReply(status=int(StatusCode.OK), description="OK", body=body)
            state, entry = found
            if not self._matches(entry):
                continue
            if self._passed_over < peek.offset:
                self._passed_over += 1
                continue
            self._found.append(to_value(message_view.peeked_message(self._queue, entry, state, peek.max_body_bytes)))
        return None


@dataclass(slots=True)
class MessagesTask:
    """A PURGE, MOVE or REDRIVE in progress: each `step` handles some messages, until one returns the reply."""

    broker: Broker
    caller: Caller
    operation: Operation
    queue: Queue
    count: int | None
    matches: Matches
    target: ExchangeTarget | QueueTarget | None
    destination: str | None
    """The address of `target`."""
    done: int = 0
    left: int = 0
    """Messages that have to stay."""
    why: str | None = None
    """Why the last of them has to stay."""
    is_over: bool = False
    entries: Iterator[Entry] | None = None
    forgotten: Iterator[None] = field(default_factory=lambda: iter(()))
    """Tells the log of messages that were dropped unread."""
    pause_ms: int = 0
    """Before the next step: what it needs can't be read now."""

    def step(self, _count: int) -> ManagementReply | None:
        """Handle more; the reply once all messages are handled."""
        if self.entries is None:
            if self._takes_all():
                self.done, self.forgotten = move.purge_unread(self.broker, self.queue)
            self.entries = map(itemgetter(1), self.queue.everything(self.broker.log.next_number))
        is_over = self.broker.clock.stint()
        if not self._forget(is_over):
            return None
        self.pause_ms = 0
        for _ in range(PARTS_PER_STEP):
            self._some(self.entries)
            if self.is_over or self.pause_ms or is_over():
                break
        if not self.is_over:
            return None
        tell_handled(self.caller, self.operation, self.queue.name, self.done, self.left, self.why, self.destination)
        handled = HandledMessages(messages=self.done, left=self.left, why=self.why)
        return ManagementReply(status=int(StatusCode.OK), description="OK", body=to_value(handled))

    def _forget(self, is_over: Callable[[], bool]) -> bool:
        """Tell the log of more messages that were dropped unread; True if these were all."""
        most = FORGOTTEN_PER_STEP // PARTS_PER_STEP
        for _ in range(PARTS_PER_STEP):
            if sum(1 for _ in islice(self.forgotten, most)) < most:
                return True
            if is_over():
                return False
        return False

    def _some(self, entries: Iterator[Entry]) -> None:
        """Handle the next part of a slice."""
        chosen: dict[int, Entry] = {}
        passed: set[int] = set()
        for _ in range(EXAMINED_PER_STEP // PARTS_PER_STEP):
            if self.count is not None and self.done + self.left + len(chosen) >= self.count:
                self.is_over = True
                break
            try:
                entry = next(entries, None)
            except OSError as error:
                self.pause_ms = retry_after_ms(self.broker, self.queue, error, " for a request")
                break
            if entry is None:
                self.is_over = True
                break
            passed.add(entry[NUMBER])
            if self.matches(entry):
                chosen[entry[NUMBER]] = entry
        waiting = self.queue.stranded
        stranded = {number: kept for number in chosen if (kept := waiting.get(number)) is not None} if waiting else {}
        taken = {entry[NUMBER]: entry for entry in self.queue.take_out(chosen, passed)}
        # In the order of hand-out: a destination that takes no more is to have those that would be sent first.
        self._handle([entry for number in chosen if (entry := taken.get(number)) is not None], stranded)

    def _takes_all(self) -> bool:
        """Whether what is in no memory may go without being read."""
        takes_all = self.operation is Operation.PURGE and self.matches is everything and self.count is None
        return takes_all and self.queue.audit is None

    def _handle(self, entries: list[Entry], stranded: Mapping[int, Stranded]) -> None:
        """`stranded`: what is known of those that were."""
        for at, entry in enumerate(entries):
            try:
                why = self._handle_one(entry)
            except Exception:
                for each in entries[at:]:
                    self._keep(each, stranded)
                raise
            if why is None:
                self.done += 1
                continue
            self.why = why
            self.left += 1
            self._keep(entry, stranded)
            if self.operation is Operation.MOVE:
                for other in entries[at + 1 :]:
                    self._keep(other, stranded)
                self.is_over = True
                return

    def _handle_one(self, entry: Entry) -> str | None:
        """Handle one message that was taken out of its queue. None, or why it has to stay."""
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

    def _keep(self, entry: Entry, stranded: Mapping[int, Stranded]) -> None:
        kept = stranded.get(entry[NUMBER])
        if kept is not None:
            self.queue.stranded[entry[NUMBER]] = kept
        else:
            due_times.put_in_place(self.broker, self.queue, entry)
