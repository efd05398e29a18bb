"""The management node: takes requests from links, and sends replies to the connection that asked.

Replies are sent on a link whose source is the node, or put into a temporary queue of that connection, because a JMS
client can name nothing else. Those for one reply-to keep the order of their requests. The reply to a change waits
until the change is synced, the reply to a task until all slices of the task are done, one slice per turn. Source:
docs/reference/management.md, docs/decisions/047-management-node.md.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import Final

from penstock_amqp.endpoint.events import AmqpError, Arrival
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.errors import WireError
from penstock_amqp.frames.performatives import Attach, Source, Target
from penstock_amqp.messages.message_codec import Message, decode_message
from penstock_amqp.types.values import Symbol
from penstock_api.management import NODE
from penstock_broker.access.connection import Connection
from penstock_broker.attach import close, temporary_nodes
from penstock_broker.errors import amqp_error
from penstock_broker.management import queue_messages, requests
from penstock_broker.management.replies import ManagementReply, encode_reply, refusal
from penstock_broker.messages.internal_publish import publish_internally
from penstock_broker.messages.refuse import when_answered
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Producer
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_broker.topology.records import PointToPointQueue
from penstock_core.reason import Reason, Refuse

__all__ = ["ManagementNode", "ReplyLink"]

logger = logging.getLogger(__name__)

PER_SLICE: Final = 10
"""Rows or changes of a task that are done in one turn."""
LONGEST_LIST: Final = 16_384
"""Bytes of a list of changes that is decoded at once, in about a millisecond."""
MAX_UNSENT: Final = 1000
"""Replies that may wait for one reply-to."""


class _Slot:
    """The place of one reply in the order of its reply-to."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: bytes | None = None
        """The encoded reply; None until it is ready."""


class ReplyLink:
    """A link on which replies are sent; requests name it by the address of its target."""

    __slots__ = ("address", "connection", "link", "slots")

    def __init__(self, connection: Connection, link: OutLink, address: str) -> None:
        self.connection = connection
        self.link = link
        self.address = address
        self.slots: deque[_Slot] = deque()


class ReplyQueue:
    """A temporary queue (or topic) into which replies are put; kept while a reply for it is missing."""

    __slots__ = ("address", "connection", "slots")

    def __init__(self, connection: Connection, address: str) -> None:
        self.connection = connection
        self.address = address
        self.slots: deque[_Slot] = deque()


class ManagementNode:
    """One per broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._links: dict[tuple[int, str], ReplyLink] = {}
        self._queues: dict[tuple[int, str], ReplyQueue] = {}

    def attach_reply_link(self, connection: Connection, link: OutLink, attach: Attach) -> None:
        """Answer the attach of a link whose source is the node."""
        target = attach.target
        named = target.address if isinstance(target, Target) else None
        replies = ReplyLink(connection, link, named or link.name)
        link.context = replies
        self._links[connection.number, replies.address] = replies
        source = Source(address=NODE, outcomes=(Symbol("amqp:accepted:list"),))
        connection.endpoint.attach_reply(link, source=source, target=Target(address=replies.address))

    def receive(self, producer: Producer, batch: list[Arrival]) -> None:
        """Take requests; each is accepted once it is read, and gets its reply later."""
        connection = producer.connection
        for delivery, data, settled in batch:
            try:
                request = decode_message(data, LONGEST_LIST)
                receiver = self._receiver_of(connection, request)
            except (WireError, LookupError) as error:
                if not settled:
                    rejection = AmqpError("amqp:not-found", f"The request can't be answered: {error}")
                    when_answered(producer, partial(connection.endpoint.reject, [delivery], rejection))
                continue
            if settled:
                connection.endpoint.settle([delivery])
            else:
                when_answered(producer, partial(connection.endpoint.accept, [delivery]))
            self._take(connection, receiver, request)
        connection.endpoint.credit(producer.link, len(batch))

    def _receiver_of(self, connection: Connection, request: Message) -> ReplyLink | ReplyQueue:
        reply_to = request.properties.reply_to
        if reply_to is None:
            raise LookupError("it has no reply-to")
        name = reply_to.removeprefix("queue://").removeprefix("topic://")
        receiver = self._links.get((connection.number, reply_to)) or self._queues.get((connection.number, name))
        if receiver is None and name in connection.temporary:
            receiver = self._queues[connection.number, name] = ReplyQueue(connection, name)
        if receiver is None:
            raise LookupError(f"no link and no temporary queue of this connection takes answers for {reply_to!r}")
        if len(receiver.slots) >= MAX_UNSENT:
            raise LookupError(f"{MAX_UNSENT} answers wait to be read")
        return receiver

    def _take(self, connection: Connection, receiver: ReplyLink | ReplyQueue, request: Message) -> None:
        slot = _Slot()
        receiver.slots.append(slot)
        try:
            result = requests.answer(self._broker, connection, request)
        except Exception:
            logger.exception("A management request failed: %r", dict(request.application_properties))
            result = refusal(Refuse(Reason.INTERNAL_ERROR, "The request failed; see the broker's log."))
        if isinstance(result, ManagementReply):
            self._broker.sync.when_durable(connection, lambda: self._fill(receiver, slot, request, result))
        else:
            self._slice(receiver, slot, request, result)

    def _slice(
        self,
        receiver: ReplyLink | ReplyQueue,
        slot: _Slot,
        request: Message,
        task: requests.Task,
    ) -> None:
        """Do a slice of a task per turn. A task is finished even if its client no longer waits for the reply."""
        try:
            done = task.step(PER_SLICE)
        except Exception:
            logger.exception("A management request failed: %r", dict(request.application_properties))
            done = refusal(Refuse(Reason.INTERNAL_ERROR, "The request failed; see the broker's log."))
        if done is None:
            pause_ms = 0
            if isinstance(task, queue_messages.PeekTask | queue_messages.MessagesTask):
                pause_ms = task.pause_ms
            self._broker.clock.after(
                pause_ms,
                lambda: self._slice(receiver, slot, request, task),
                failed=lambda: self._broker.fail_connection(receiver.connection),
            )
        elif isinstance(task, queue_messages.MessagesTask):
            self._broker.sync.after_sync(receiver.connection, lambda: self._fill(receiver, slot, request, done))
        else:
            self._broker.sync.when_durable(receiver.connection, lambda: self._fill(receiver, slot, request, done))

    def _fill(self, receiver: ReplyLink | ReplyQueue, slot: _Slot, request: Message, reply: ManagementReply) -> None:
        if isinstance(receiver, ReplyQueue) or receiver.link.is_open:
            slot.data = encode_reply(reply, request.properties)
            most = 0 if isinstance(receiver, ReplyQueue) else receiver.link.max_bytes
            if 0 < most < len(slot.data):
                description = (
                    f"The answer has {len(slot.data)} bytes, the link takes {most}; ask for less, or allow more."
                )
                slot.data = encode_reply(refusal(Refuse(Reason.LIMIT_EXCEEDED, description)), request.properties)
        if isinstance(receiver, ReplyQueue):
            self._publish(receiver)
        else:
            self._send(receiver)

    def _publish(self, queue: ReplyQueue) -> None:
        """Put the replies that are ready into the queue, in order. If the queue was deleted meanwhile, they are
        dropped."""
        while queue.slots and (data := queue.slots[0].data) is not None:
            queue.slots.popleft()
            node = temporary_nodes.node_named(self._broker, queue.address)
            if node is not None:
                target = QueueTarget(node) if isinstance(node, PointToPointQueue) else ExchangeTarget(node, "")
                publish_internally(self._broker, target, data)
        if not queue.slots:
            self._queues.pop((queue.connection.number, queue.address), None)

    def _send(self, receiver: ReplyLink) -> None:
        """Send the replies that are ready, in order, as long as there is credit."""
        link, connection = receiver.link, receiver.connection
        if not link.is_open:
            return
        while link.credit > 0 and receiver.slots and (data := receiver.slots[0].data) is not None:
            receiver.slots.popleft()
            if 0 < link.max_bytes < len(data):
                refuse = Refuse(
                    Reason.MESSAGE_TOO_LONG, f"No answer fits into the {link.max_bytes} bytes that the link takes."
                )
                close.close_link(self._broker, connection, link, amqp_error(refuse))
                return
            link.credit -= 1
            link.transfers += 1
            connection.endpoint.send(link, ((0, data, 0, 0, 0),), self._broker.clock.now_us)
        self._broker.work.touch(connection)

    def flowed(self, link: OutLink) -> None:
        """Credit came."""
        receiver = link.context
        if isinstance(receiver, ReplyLink):
            self._send(receiver)
            if link.is_open and link.drain:
                self.finish_drain(link)

    def finish_drain(self, link: OutLink) -> None:
        """Give the credit back of a link that drains, behind the replies that are ready."""
        receiver = link.context
        if isinstance(receiver, ReplyLink):
            if receiver.connection.endpoint.drained(link):
                self._broker.work.touch(receiver.connection)
            else:
                receiver.connection.is_congested = True  # as for consumers, see `drains.finish_drains`

    def link_removed(self, context: object) -> None:
        """A link has ended."""
        if isinstance(context, ReplyLink):
            key = context.connection.number, context.address
            if self._links.get(key) is context:  # another link may have come for the same address
                del self._links[key]
            context.slots.clear()

    def connection_removed(self, connection: Connection) -> None:
        """A connection is taken apart: nothing is sent on it any more."""
        for key in [key for key, each in self._links.items() if each.connection is connection]:
            self._links.pop(key).slots.clear()
        for key in [key for key, each in self._queues.items() if each.connection is connection]:
            self._queues.pop(key).slots.clear()
