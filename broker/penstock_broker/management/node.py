"""The management node: takes requests from links, sends answers back to the connection that asked.

By a link whose source is the node, or into a temporary queue of that connection, which is all that a JMS client can
name. Requests are answered in their order within the reply-to they name; an answer to a change waits until what it
wrote is synced, one to a QUERY until its rows are encoded, a slice per turn. Source: docs/management.md.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from penstock_amqp.endpoint.events import AmqpError, Arrival
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.errors import WireError
from penstock_amqp.frames.performatives import Attach, Source, Target
from penstock_amqp.messages.message_codec import Message, decode_message
from penstock_amqp.types.values import Symbol
from penstock_api.management import NODE
from penstock_broker.access.connection import Connection
from penstock_broker.attach import close, temporary
from penstock_broker.errors import amqp_error
from penstock_broker.management import queue_messages, requests
from penstock_broker.management.responses import Response, encode_answer, refusal
from penstock_broker.messages import deposit
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Producer
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_broker.topology.records import PointToPointQueue
from penstock_core.reason import Reason, Refuse

__all__ = ["Answers", "ManagementNode"]

logger = logging.getLogger(__name__)

PER_SLICE: Final = 10
MAX_WAITING: Final = 1000
"""Answers that a link may leave unread."""


class _Slot:
    """The place of one answer in its link's order."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: bytes | None = None


class Answers:
    """A link over which answers go back; requests name it by the address of its target."""

    __slots__ = ("address", "connection", "link", "slots")

    def __init__(self, connection: Connection, link: OutLink, address: str) -> None:
        self.connection = connection
        self.link = link
        self.address = address
        self.slots: deque[_Slot] = deque()


class Mailbox:
    """A temporary queue (or topic) into which answers go; kept as long as any of them is owed."""

    __slots__ = ("address", "connection", "slots")

    def __init__(self, connection: Connection, address: str) -> None:
        self.connection = connection
        self.address = address
        self.slots: deque[_Slot] = deque()


class ManagementNode:
    """One per broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._answers: dict[tuple[int, str], Answers] = {}
        self._mailboxes: dict[tuple[int, str], Mailbox] = {}

    def attach_answers(self, connection: Connection, link: OutLink, attach: Attach) -> None:
        """Answer the attach of a link whose source is the node."""
        target = attach.target
        named = target.address if isinstance(target, Target) else None
        answers = Answers(connection, link, named or link.name)
        link.context = answers
        self._answers[connection.number, answers.address] = answers
        source = Source(address=NODE, outcomes=(Symbol("amqp:accepted:list"),))
        connection.endpoint.attach_reply(link, source=source, target=Target(address=answers.address))

    def receive(self, producer: Producer, batch: list[Arrival]) -> None:
        """Take requests; each is accepted once it is read, and answered in its turn."""
        connection = producer.connection
        for delivery, data, settled in batch:
            try:
                request = decode_message(data)
                answers = self._answers_for(connection, request)
            except (WireError, LookupError) as error:
                if not settled:
                    told = AmqpError("amqp:not-found", f"The request can't be answered: {error}")
                    connection.endpoint.reject([delivery], told)
                continue
            if settled:
                connection.endpoint.settle([delivery])
            else:
                connection.endpoint.accept([delivery])
            self._take(connection, answers, request)
        connection.endpoint.credit(producer.link, len(batch))

    def _answers_for(self, connection: Connection, request: Message) -> Answers | Mailbox:
        reply_to = request.properties.reply_to
        if reply_to is None:
            raise LookupError("it has no reply-to")
        name = reply_to.removeprefix("queue://").removeprefix("topic://")
        answers = self._answers.get((connection.number, reply_to)) or self._mailboxes.get((connection.number, name))
        if answers is None and name in connection.temporary:
            answers = self._mailboxes[connection.number, name] = Mailbox(connection, name)
        if answers is None:
            raise LookupError(f"no link and no temporary queue of this connection takes answers for {reply_to!r}")
        if len(answers.slots) >= MAX_WAITING:
            raise LookupError(f"{MAX_WAITING} answers wait to be read")
        return answers

    def _take(self, connection: Connection, answers: Answers | Mailbox, request: Message) -> None:
        slot = _Slot()
        answers.slots.append(slot)
        try:
            result = requests.answer(self._broker, connection, request)
        except Exception:
            logger.exception("A management request failed: %r", dict(request.application_properties))
            result = refusal(Refuse(Reason.INTERNAL_ERROR, "The request failed; see the broker's log."))
        if isinstance(result, Response):
            self._broker.sync.when_durable(connection, lambda: self._fill(answers, slot, request, result))
        else:
            self._slice(answers, slot, request, result)

    def _slice(
        self,
        answers: Answers | Mailbox,
        slot: _Slot,
        request: Message,
        work: requests.Query | requests.Changes | queue_messages.Peeking | queue_messages.QueueMessagesRequest,
    ) -> None:
        """A part per turn. What was begun is done, even if nobody waits for the answer any more."""
        done = work.step(PER_SLICE)
        if done is None:
            self._broker.clock.after(0, lambda: self._slice(answers, slot, request, work))
        elif isinstance(work, queue_messages.QueueMessagesRequest):
            self._broker.sync.after_sync(answers.connection, lambda: self._fill(answers, slot, request, done))
        else:
            self._broker.sync.when_durable(answers.connection, lambda: self._fill(answers, slot, request, done))

    def _fill(self, answers: Answers | Mailbox, slot: _Slot, request: Message, answer: Response) -> None:
        if isinstance(answers, Mailbox) or answers.link.is_open:
            slot.data = encode_answer(answer, request.properties)
            most = 0 if isinstance(answers, Mailbox) else answers.link.max_bytes
            if 0 < most < len(slot.data):
                told = f"The answer has {len(slot.data)} bytes, the link takes {most}; ask for less, or allow more."
                slot.data = encode_answer(refusal(Refuse(Reason.LIMIT_EXCEEDED, told)), request.properties)
        if isinstance(answers, Mailbox):
            self._deposit(answers)
        else:
            self._send(answers)

    def _deposit(self, mailbox: Mailbox) -> None:
        """Put what is ready into the queue, in order; if it has gone meanwhile, nobody waits for it."""
        while mailbox.slots and (data := mailbox.slots[0].data) is not None:
            mailbox.slots.popleft()
            node = temporary.node_named(self._broker, mailbox.address)
            if node is not None:
                target = QueueTarget(node) if isinstance(node, PointToPointQueue) else ExchangeTarget(node, "")
                deposit.deposit(self._broker, target, data)
        if not mailbox.slots:
            self._mailboxes.pop((mailbox.connection.number, mailbox.address), None)

    def _send(self, answers: Answers) -> None:
        """Send what is ready, in order, as far as credit goes."""
        link, connection = answers.link, answers.connection
        if not link.is_open:
            return
        while link.credit > 0 and answers.slots and (data := answers.slots[0].data) is not None:
            answers.slots.popleft()
            if 0 < link.max_bytes < len(data):
                told = Refuse(
                    Reason.MESSAGE_TOO_LONG, f"No answer fits into the {link.max_bytes} bytes that the link takes."
                )
                close.close_link(self._broker, connection, link, amqp_error(told))
                return
            link.credit -= 1
            link.transfers += 1
            connection.endpoint.send(link, ((0, data, 0, 0, 0),), self._broker.clock.now_us)
        self._broker.work.touch(connection)

    def flowed(self, link: OutLink) -> None:
        """Credit came."""
        answers = link.context
        if isinstance(answers, Answers):
            self._send(answers)
            if link.drain:
                answers.connection.endpoint.drained(link)

    def left(self, context: object) -> None:
        """A link is gone."""
        if isinstance(context, Answers):
            self._answers.pop((context.connection.number, context.address), None)
            context.slots.clear()
