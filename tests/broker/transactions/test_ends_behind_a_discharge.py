"""The end of a coordinator link, of its session or of the connection right behind a discharge, in one write: the
outcome of the discharge is sent first, however long the log takes, and then the answer to the end.

A client that does not wait learns so what became of its transaction. Over bare frames. Source: AMQP 1.0 part 4, 4.3;
part 2, 2.4.3, 2.5.5 and 2.6.6; docs/concepts/transactions.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.held_broker import HeldBroker
from support.raw_client import RawClient
from support.stepped_broker import SteppedStream
from support.transaction_client import TransactionClient

from penstock_amqp.frames.performatives import (
    Accepted,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Performative,
    Rejected,
    Source,
    Transfer,
)
from penstock_amqp.messages.transaction_types import Discharge
from penstock_broker.transactions import rollback

ENDS = [
    [Detach(handle=0, closed=True)],
    [Detach(handle=0, closed=False)],
    [End()],
    [Close()],
    [Detach(handle=0, closed=True), End()],
    [Detach(handle=0, closed=True), Close()],
    [End(), Close()],
]
"""The coordinator link is the first of its session."""


@pytest.fixture
def held() -> Iterator[HeldBroker]:
    broker = HeldBroker()
    broker.timed.make_queue("jobs")
    broker.timed.make_queue("volatile", durable=False)
    broker.catch_up()
    yield broker
    broker.timed.close()


@pytest.fixture
def stream(held: HeldBroker) -> SteppedStream:
    return SteppedStream(held.timed)


@pytest.fixture
def client(held: HeldBroker, stream: SteppedStream) -> Iterator[TransactionClient]:
    with RawClient(0, "mine", stream=stream) as raw:
        yield TransactionClient(raw)


def posted(held: HeldBroker, client: TransactionClient, queue: str = "jobs", *, control: int | None = None) -> bytes:
    """A transaction with a message."""
    sender, txn_id = client.sender(queue), client.declare(handle=control)
    client.state_of(client.post(sender, "x", txn_id))
    return txn_id


def said(client: TransactionClient, count: int) -> list[Performative]:
    """The next frames of the broker's that are neither flows nor transfers."""
    found: list[Performative] = []
    while len(found) < count:
        performative = client.client.receive().performative
        if not isinstance(performative, Flow | Transfer):
            found.append(performative)
    return found


def turns(held: HeldBroker, count: int = 5) -> None:
    for _ in range(count):
        held.timed.turn()


def kinds(performatives: list[Performative]) -> list[type[object]]:
    return [type(each) for each in performatives]


@pytest.mark.parametrize("ends", ENDS)
def test_the_outcome_of_a_commit_that_waits_for_the_log_comes_first(
    held: HeldBroker, stream: SteppedStream, client: TransactionClient, ends: list[Performative]
) -> None:
    txn_id = posted(held, client)
    stream.take()
    with client.at_once():
        number = client.request(Discharge(txn_id=txn_id))
        for each in ends:
            client.say(each)
    turns(held)
    assert stream.take() == b""
    held.catch_up()
    outcome, *answers = said(client, 1 + len(ends))
    assert isinstance(outcome, Disposition)
    assert (outcome.first, outcome.settled, outcome.state) == (number, True, Accepted())
    assert kinds(answers) == kinds(ends)
    assert held.timed.queue("jobs").waiting == 1
    turns(held)
    assert len(held.timed.broker.clients.connections) == (0 if isinstance(ends[-1], Close) else 1)


@pytest.mark.parametrize("ends", ENDS)
def test_so_does_one_that_waits_for_nothing(
    held: HeldBroker, client: TransactionClient, ends: list[Performative]
) -> None:
    txn_id = posted(held, client, "volatile")
    with client.at_once():
        client.request(Discharge(txn_id=txn_id))
        for each in ends:
            client.say(each)
    outcome, *answers = said(client, 1 + len(ends))
    assert isinstance(outcome, Disposition)
    assert outcome.state == Accepted()
    assert kinds(answers) == kinds(ends)


@pytest.mark.parametrize("ends", ENDS)
def test_and_that_of_a_rollback_that_takes_several_turns(
    held: HeldBroker, client: TransactionClient, monkeypatch: pytest.MonkeyPatch, ends: list[Performative]
) -> None:
    monkeypatch.setattr(rollback, "AT_ONCE", 2)
    sender = client.sender("volatile")
    for number in range(9):
        assert client.state_of(client.post(sender, str(number), None)) == Accepted()
    client.receiver("volatile", credit=9)
    txn_id = client.declare()
    for got in client.get(9):
        client.settle(got, Accepted(), txn_id)
    with client.at_once():
        client.request(Discharge(txn_id=txn_id, fail=True))
        for each in ends:
            client.say(each)
    outcome, *answers = said(client, 1 + len(ends))
    assert isinstance(outcome, Disposition)
    assert outcome.state == Accepted()
    assert kinds(answers) == kinds(ends)
    assert held.timed.queue("volatile").waiting == 9


@pytest.mark.parametrize("ends", ENDS)
def test_and_every_outcome_of_several(
    held: HeldBroker, stream: SteppedStream, client: TransactionClient, ends: list[Performative]
) -> None:
    first = posted(held, client)
    sender, second = client.sender("jobs", "second"), client.declare()
    client.state_of(client.post(sender, "y", second))
    with client.at_once():
        numbers = [client.request(Discharge(txn_id=each)) for each in (first, second, b"nowhere")]
        for each in ends:
            client.say(each)
    turns(held)
    held.catch_up()
    found: dict[int, object] = {}
    while len(found) < 3:
        (outcome,) = said(client, 1)
        assert isinstance(outcome, Disposition)
        last = outcome.first if outcome.last is None else outcome.last
        found |= dict.fromkeys(range(outcome.first, last + 1), outcome.state)
    assert [found[number] for number in numbers[:2]] == [Accepted(), Accepted()]
    assert isinstance(found[numbers[2]], Rejected)
    assert kinds(said(client, len(ends))) == kinds(ends)


def test_what_is_not_discharged_when_the_link_ends_is_rolled_back_at_once(
    held: HeldBroker, client: TransactionClient
) -> None:
    committed = posted(held, client)
    sender, left = client.sender("jobs", "second"), client.declare()
    client.state_of(client.post(sender, "y", left))
    with client.at_once():
        client.request(Discharge(txn_id=committed))
        client.say(Detach(handle=0, closed=True))
    turns(held)
    assert (held.timed.broker.transactions.committed, held.timed.broker.transactions.rolled_back) == (1, 1)
    held.catch_up()
    assert kinds(said(client, 2)) == [Disposition, Detach]
    assert held.timed.queue("jobs").waiting == 1


def test_the_broker_closes_the_link_for_a_later_request_behind_the_outcome(
    held: HeldBroker, stream: SteppedStream, client: TransactionClient
) -> None:
    """A link without the outcome rejected; nothing more is taken from it meanwhile."""
    control = client.attach_coordinator("plain", outcomes=("amqp:accepted:list",))
    txn_id = posted(held, client, control=control)
    sender, other = client.sender("jobs", "second"), client.declare(handle=control)
    client.state_of(client.post(sender, "y", other))
    stream.take()
    with client.at_once():
        number = client.request(Discharge(txn_id=txn_id), handle=control)
        client.request(Discharge(txn_id=b"nowhere"), handle=control)
        client.request(Discharge(txn_id=other), handle=control)
    turns(held)
    assert stream.take() == b""
    held.catch_up()
    outcome, closed = said(client, 2)
    assert isinstance(outcome, Disposition)
    assert (outcome.first, outcome.last or number, outcome.state) == (number, number, Accepted())
    assert isinstance(closed, Detach) and closed.error is not None
    assert closed.error.condition == "amqp:transaction:unknown-id"
    assert held.timed.queue("jobs").waiting == 1


def test_a_commit_that_is_refused_ends_the_link_that_its_client_ends(
    held: HeldBroker, client: TransactionClient
) -> None:
    control = client.attach_coordinator("plain", outcomes=("amqp:accepted:list",))
    with client.at_once():
        client.request(Discharge(txn_id=b"nowhere"), handle=control)
        client.say(Detach(handle=control, closed=True))
    (closed,) = said(client, 1)
    assert isinstance(closed, Detach) and closed.error is not None
    assert closed.error.condition == "amqp:transaction:unknown-id"
    client.client.attach_receiver("next", Source(address="volatile"))


@pytest.mark.parametrize("ends", ENDS)
def test_a_client_that_is_gone_by_then_costs_nothing(
    held: HeldBroker, client: TransactionClient, ends: list[Performative], caplog: pytest.LogCaptureFixture
) -> None:
    txn_id = posted(held, client)
    with client.at_once():
        client.request(Discharge(txn_id=txn_id))
        for each in ends:
            client.say(each)
    turns(held)
    client.client.socket.close()
    turns(held)
    held.catch_up()
    assert not held.timed.broker.clients.connections
    assert held.timed.queue("jobs").waiting == 1
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("ends", ENDS)
def test_if_the_log_fails_the_connection_is_closed_with_the_reason(
    held: HeldBroker, client: TransactionClient, ends: list[Performative]
) -> None:
    txn_id = posted(held, client)
    with client.at_once():
        client.request(Discharge(txn_id=txn_id))
        for each in ends:
            client.say(each)
    turns(held)
    held.timed.files.broken.add("fdatasync")
    held.catch_up()
    (closed,) = said(client, 1)
    assert isinstance(closed, Close) and closed.error is not None
    assert closed.error.condition == "amqp:resource-limit-exceeded"
    turns(held)
    assert not held.timed.broker.clients.connections
