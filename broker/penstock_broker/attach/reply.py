"""Answers an attach once what it wrote is synced, after which messages flow: the last of the four steps of an attach.

Source: docs/decisions/007-reply-shows-the-truth.md, docs/decisions/012-every-attach-is-answered.md,
docs/decisions/037-answer-after-sync.md.
"""

from __future__ import annotations

from functools import partial

from penstock_api.management import MAX_REQUEST_BYTES
from penstock_broker.access.connection import Phase
from penstock_broker.attach import termini
from penstock_broker.attach.queue_source import BrowsePlan, ConsumePlan
from penstock_broker.attach.target import ProducePlan
from penstock_broker.attach.topic_source import LookUpPlan, SubscribePlan
from penstock_broker.errors import amqp_error
from penstock_broker.messages import large_messages
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer, Producer, SubscriptionLookup
from penstock_broker.state.routes import ExchangeTarget, ManagementTarget, QueueTarget
from penstock_core.reason import Refuse

__all__ = ["reply_to_browser", "reply_to_consumer", "reply_to_lookup", "reply_to_producer"]


def reply_to_consumer(broker: Broker, consumer: Consumer, plan: SubscribePlan | ConsumePlan) -> None:
    """Answer the attach of a consumer; its queue is looked at in this turn."""
    if _has_ended(consumer):
        return
    _reply_to_receiver(consumer, plan)
    consumer.queue.links.note_credit(consumer)  # before a detach that has waited for the reply takes it out again
    _activate(broker, consumer)
    broker.work.schedule(consumer.queue)


def reply_to_browser(broker: Broker, browser: Browser, plan: BrowsePlan) -> None:
    """Answer the attach of a browser; it gets its copies from this turn on."""
    if _has_ended(browser):
        return
    _reply_to_receiver(browser, plan)
    _activate(broker, browser)
    broker.work.browsing.append(browser)


def reply_to_lookup(broker: Broker, lookup: SubscriptionLookup, plan: LookUpPlan) -> None:
    """Answer the attach of a link with a null source: what was found, or that nothing was."""
    connection, link = lookup.connection, lookup.link
    if _has_ended(lookup):
        return
    if isinstance(plan.reply, Refuse):
        link.context = None
        lookup.after_reply = []
        connection.endpoint.refuse_attach(link, amqp_error(plan.reply))
        broker.work.touch(connection)
        return
    source, target = termini.receiver_termini(plan)
    connection.flush()  # the reply has to begin on a frame boundary to be rewritten
    connection.endpoint.attach_reply(
        link,
        source=source,
        target=target,
        offered=plan.reply.offered_capabilities,
    )
    _activate(broker, lookup)


def reply_to_producer(broker: Broker, producer: Producer, plan: ProducePlan) -> None:
    """Answer the attach of a producer, and give it credit."""
    connection, link = producer.connection, producer.link
    if _has_ended(producer):
        return
    link.is_request = not isinstance(producer.destination, ExchangeTarget | QueueTarget)
    reads_whole = isinstance(producer.destination, ManagementTarget)
    if not reads_whole:
        hold = partial(broker.hold_if_behind, connection)
        link.spool = lambda: large_messages.IncomingLargeMessage(broker.log, broker.storage_refusal(), hold)
    connection.flush()  # the reply has to begin on a frame boundary to be rewritten
    frame = plan.request.frame
    settles_second = frame.rcv_settle_mode == 1
    if settles_second:
        connection.due_ms = 0  # from now on it is looked at in each sweep
    connection.endpoint.attach_reply(
        link,
        source=frame.source,
        target=termini.producer_target(plan),
        answers_unsettled=frame.unsettled is not None,
        max_message_bytes=min(connection.listener.max_message_bytes, MAX_REQUEST_BYTES if reads_whole else 1 << 62),
        settles_second=settles_second,
        peer_settles=frame.snd_settle_mode,
    )
    connection.endpoint.credit(link, producer.hold.first_credit(producer))
    _activate(broker, producer)


def _has_ended(record: Consumer | Browser | SubscriptionLookup | Producer) -> bool:
    """The link has ended while its answer waited, or is about to, because its connection ends over several turns: an
    answer would let it get messages that nobody gives back.
    """
    link = record.link
    return not link.is_open or link.context is not record or record.connection.phase is Phase.LEAVING


def _reply_to_receiver(record: Consumer | Browser, plan: SubscribePlan | ConsumePlan | BrowsePlan) -> None:
    connection, frame = record.connection, plan.request.frame
    source, target = termini.receiver_termini(plan)
    connection.flush()  # the reply has to begin on a frame boundary to be rewritten
    connection.endpoint.attach_reply(
        record.link,
        source=source,
        target=target,
        offered=plan.reply.offered_capabilities if isinstance(plan, SubscribePlan) else (),
        answers_unsettled=frame.unsettled is not None,
        sends_settled=frame.snd_settle_mode == 1,
        settles_second=frame.rcv_settle_mode == 1,
    )


def _activate(broker: Broker, record: Consumer | Browser | SubscriptionLookup | Producer) -> None:
    """Messages flow from now on; do what had to wait for the reply, such as the client's own detach."""
    record.is_active = True
    broker.work.touch(record.connection)
    waiting, record.after_reply = record.after_reply, []
    for action in waiting:
        if record.link.is_open:
            action()
