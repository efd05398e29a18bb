"""Audits of a subscription: what is written down of each message, how an audit ends, and who may begin one."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.management.audited_story import AuditedStory
from proton import Delivery, Message, Receiver
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed
from support.stepped_broker import Peer, SteppedBroker

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import (
    EntityType,
    ExchangeDeclaration,
    ManagementDocument,
    Operation,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_api.message_audit import AuditRead, AuditStart, EventKind
from penstock_api.message_operations import MessageSelection
from penstock_api.state_documents import BrokerState
from penstock_broker.management import audits, declare, queue_messages
from penstock_broker.management.logged_operations import Caller
from penstock_broker.management.replies import ManagementReply, to_value
from penstock_broker.queue import audit as queue_audit
from penstock_broker.queue.queue import Queue
from penstock_core.binding import Binding

CALLER = Caller("ann", "here", "amqp")

NAME = "psub:durable:global:jobs"


@pytest.fixture
def timed() -> Iterator[SteppedBroker]:
    broker = SteppedBroker()
    made(broker, EntityType.EXCHANGE, "orders", ExchangeDeclaration(exchange_type="Topic"))
    made(broker, EntityType.QUEUE, "elsewhere", QueueDeclaration())
    made(broker, EntityType.SUBSCRIPTION, None, jobs())
    yield broker
    broker.close()


def jobs(**changes: object) -> SubscriptionDeclaration:
    return SubscriptionDeclaration.model_validate({"subscription_name": "jobs", "exchange": "orders", **changes})


def made(timed: SteppedBroker, kind: EntityType, name: str | None, body: ManagementDocument) -> None:
    answer = declare.declare(timed.broker, kind, name, to_value(body), update=False)
    assert answer.status in (200, 201), answer
    timed.turn()


def queue_of(timed: SteppedBroker) -> Queue:
    return next(each.queue for each in timed.broker.topology.subscriptions.values() if each.name == NAME)


def send(timed: SteppedBroker, *names: str, ttl_ms: int = 0) -> None:
    peer = timed.connect()
    peer.send("orders", *(Message(body=name, id=name, durable=True, ttl=ttl_ms / 1000) for name in names))
    peer.drop()
    timed.turn()


def consumer(timed: SteppedBroker, credit: int) -> tuple[Peer, Receiver]:
    peer = timed.connect()
    link = peer.session.receiver("jobs")
    link.source.address = "orders"
    Subscribed().apply(link)
    link.open()
    link.flow(credit)
    peer.pump()
    return peer, link


def work(timed: SteppedBroker, operation: Operation, **selection: object) -> None:
    body = to_value(MessageSelection.model_validate(selection))
    task = queue_messages.handle(timed.broker, CALLER, operation, EntityType.SUBSCRIPTION, NAME, body)
    assert isinstance(task, queue_messages.MessagesTask)
    while task.step(0) is None:
        timed.turn()


def asked(timed: SteppedBroker, operation: Operation, name: str = NAME, seconds: int = 60) -> ManagementReply:
    """START_AUDIT or STOP_AUDIT, whatever the answer."""
    body = to_value(AuditStart(seconds=seconds)) if operation is Operation.START_AUDIT else None
    task = audits.handle(timed.broker, operation, EntityType.SUBSCRIPTION, name, body)
    assert isinstance(task, audits.AuditTask) and task.step(1) is None
    timed.turn()
    answer = task.step(1)
    assert answer is not None
    return answer


def told(story: AuditedStory) -> dict[str, list[str]]:
    """The kinds of the records of each message, by its message-id."""
    names = {event.number: event.message_id for event in story.events if event.message_id}
    found: dict[str, list[str]] = {}
    for event in story.events:
        found.setdefault(names[event.number], []).append(EventKind(event.kind).name)
    return found


def test_every_way_of_a_message_is_written_down(timed: SteppedBroker) -> None:
    send(timed, "held", "kept")
    peer, link = consumer(timed, 1)
    story = AuditedStory()
    story.begin(timed, NAME)
    send(timed, "a", "b", "c", "d", "e")
    for outcome in (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED):  # held, kept, a
        peer.take(outcome)
        if outcome != Delivery.RELEASED:
            link.flow(1)
    work(timed, Operation.PURGE, count=1)  # a
    work(timed, Operation.MOVE, count=1, destination="elsewhere")  # b
    send(timed, "late", ttl_ms=20)
    timed.pass_ms(200)
    made(timed, EntityType.SUBSCRIPTION, None, jobs(limits=QueueLimits(max_messages=3)))
    send(timed, "f")  # c is dropped
    link.flow(1)
    peer.take()  # d
    story.stop(timed, NAME)
    assert told(story) == {
        "held": ["PRESENT", "ACCEPTED"],
        "kept": ["PRESENT", "DELIVERED", "REJECTED"],
        "a": ["ENQUEUED", "DELIVERED", "RETURNED", "PURGED"],
        "b": ["ENQUEUED", "MOVED"],
        "late": ["ENQUEUED", "EXPIRED"],
        "c": ["ENQUEUED", "DROPPED"],
        "d": ["ENQUEUED", "DELIVERED", "ACCEPTED"],
        "e": ["ENQUEUED", "WAITING"],
        "f": ["ENQUEUED", "WAITING"],
    }
    story.check()
    assert (story.state.begin.depth, story.state.end and story.state.end.depth) == (2, 2)


def test_what_a_lost_consumer_held_has_come_back(timed: SteppedBroker) -> None:
    story = AuditedStory()
    peer, _ = consumer(timed, 5)
    story.begin(timed, NAME)
    send(timed, "a", "b")
    peer.drop()
    story.stop(timed, NAME)
    assert told(story) == {name: ["ENQUEUED", "DELIVERED", "RETURNED", "WAITING"] for name in "ab"}
    story.check()


def test_an_audit_ends_by_itself_and_costs_nothing_then(timed: SteppedBroker) -> None:
    story = AuditedStory()
    story.begin(timed, NAME, seconds=2)
    timed.pass_ms(1999)
    assert queue_of(timed).audit is not None
    timed.pass_ms(1)
    assert queue_of(timed).audit is None
    send(timed, "later")
    story.fetch(timed, NAME)
    assert (story.events, story.state.ended_by) == ([], "Time")
    assert story.state.ended_ms == story.state.until_ms == story.state.started_ms + 2000
    story.check()


def test_a_full_buffer_ends_the_audit_by_name_and_never_grows(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of a message whose id has one letter has 27 bytes: three of them fit."""
    monkeypatch.setattr(queue_audit, "MAX_BYTES", 100)
    story = AuditedStory()
    story.begin(timed, NAME)
    send(timed, "a", "b", "c", "d", "e")
    assert queue_of(timed).audit is None
    story.fetch(timed, NAME)
    assert told(story) == {"a": ["ENQUEUED"], "b": ["ENQUEUED"], "c": ["ENQUEUED"]}
    assert (story.state.ended_by, story.state.is_written, story.state.records) == ("Overflow", True, 3)
    assert queue_of(timed).depth == 5


def test_fetched_records_make_room_and_are_told_again_until_then(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_audit, "MAX_BYTES", 100)
    story = AuditedStory()
    story.begin(timed, NAME)
    send(timed, "a", "b")
    story.fetch(timed, NAME)
    send(timed, "c")
    wanted = to_value(AuditRead(after=2))
    first, again = (
        audits.handle(timed.broker, Operation.READ_AUDIT, EntityType.SUBSCRIPTION, NAME, wanted) for _ in range(2)
    )
    assert first == again
    story.fetch(timed, NAME)
    send(timed, "d", "e")
    story.stop(timed, NAME)
    assert [event.message_id for event in story.events[:5]] == ["a", "b", "c", "d", "e"]
    assert story.state.ended_by == "Overflow", "five that wait are two too many for the rest of the buffer"


def test_a_queue_that_ends_takes_its_messages_along(timed: SteppedBroker) -> None:
    send(timed, "a")
    story = AuditedStory()
    story.begin(timed, NAME)
    subscription = next(each for each in timed.broker.topology.subscriptions.values() if each.name == NAME)
    timed.broker.topology.drop_and_rebind(subscription, Binding("orders", frozenset("#")), timed.now_ms * 1000)
    send(timed, "of the new queue")
    story.fetch(timed, NAME)
    assert (told(story), story.state.ended_by) == ({"a": ["PRESENT"]}, "QueueEnded")
    story.check()


def test_what_cannot_be_audited_is_refused(timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "MAX_PRESENT", 1)
    monkeypatch.setattr(audits, "MAX_AUDITS", 1)
    made(timed, EntityType.SUBSCRIPTION, None, jobs(subscription_name="more"))
    send(timed, "a", "b")
    full = asked(timed, Operation.START_AUDIT)
    assert (full.status, full.description) == (
        503,
        "The subscription holds 2 messages; an audit can begin with 1 at most.",
    )
    absent = asked(timed, Operation.START_AUDIT, "psub:durable:global:nobody")
    assert (absent.status, asked(timed, Operation.STOP_AUDIT).status) == (404, 404)
    work(timed, Operation.PURGE)
    assert asked(timed, Operation.START_AUDIT).status == 200
    assert "is on; stop it first" in asked(timed, Operation.START_AUDIT).description
    work_of_other = asked(timed, Operation.START_AUDIT, "psub:durable:global:more")
    assert (work_of_other.status, "There are 1 audits already" in work_of_other.description) == (503, True)


@pytest.mark.parametrize("seconds", [0, 3601])
def test_an_audit_has_a_limit_of_time(timed: SteppedBroker, seconds: int) -> None:
    answer = audits.handle(timed.broker, Operation.START_AUDIT, EntityType.SUBSCRIPTION, NAME, {"seconds": seconds})
    assert isinstance(answer, ManagementReply)
    assert (answer.status, "seconds" in answer.description) == (400, True)


async def test_the_observer_reads_audits_and_does_not_begin_them(tmp_path: Path) -> None:
    socket = tmp_path / "observer.sock"
    with BrokerProcess(tmp_path / "data", settings={"observerSocket": str(socket)}) as broker:
        admin = await ManagementClient.connect(broker.management)
        await admin.create(ExchangeDeclaration(exchange_type="Topic"), "orders")
        await admin.create(jobs())
        observer = await ManagementClient.connect(f"unix:{socket}")
        kind = EntityType.SUBSCRIPTION
        refused = await observer.request(Operation.START_AUDIT, kind, NAME, AuditStart())
        assert (refused.status, refused.reason) == (403, "NotPermitted")
        assert (await admin.request(Operation.START_AUDIT, kind, NAME, AuditStart())).status == 200
        assert (await observer.read_state(BrokerState)).audits == (NAME,)
        assert (await observer.request(Operation.STOP_AUDIT, kind, NAME)).status == 403
        read = (await observer.request(Operation.READ_AUDIT, kind, NAME, AuditRead())).check()
        assert (read.attributes["records"], read.attributes["count"]) == (b"", 0)
        await observer.close()
        await admin.close()
