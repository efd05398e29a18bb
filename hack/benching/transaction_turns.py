"""`hack/bench turns`, fifth part: the longest turn that the end of a very large transaction brings about, in
milliseconds of the thread's processor time. As in the second part only the broker's turns are timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benching.long_turns import timed_broker
from benching.wide_turns import Turns, steady

from penstock_amqp.frames.performatives import Accepted
from penstock_amqp.messages.transaction_types import Discharge

if TYPE_CHECKING:
    from support.stepped_broker import SteppedBroker, SteppedStream
    from support.transaction_client import TransactionClient

BATCH = 500
"""Messages that the client sends ahead: no more than it has credit for."""
BODY = "x" * 100


def transaction_turns(messages: int) -> None:
    """Print how long the turns of a commit and of a rollback are with a tenth of `messages`, and with all of them."""
    for count in (messages // 10, messages):
        for fail in (False, True):
            end = "rollback" if fail else "commit"
            _measure(f"{end} of {count:,} messages that were posted", count, post, fail=fail)
            _measure(f"{end} of {count:,} deliveries that were accepted", count, accept, fail=fail)


def _measure(what: str, count: int, work: Callable[[TransactionClient, int], bytes], *, fail: bool) -> None:
    from support.raw_client import RawClient
    from support.stepped_broker import SteppedStream
    from support.transaction_client import TransactionClient

    timed = timed_broker({"transactions": {"maxMessages": count}}, segment_bytes=64 * 1024 * 1024)
    timed.make_queue("jobs")
    stream = SteppedStream(timed)
    with RawClient(0, "client", stream=stream) as raw:
        client = TransactionClient(raw)
        txn_id = work(client, count)
        for _ in range(2000):  # what was left to do
            timed.turn()
        steady()
        _end(what, timed, client, stream, txn_id, fail=fail)
    timed.close()


def _end(
    what: str, timed: SteppedBroker, client: TransactionClient, stream: SteppedStream, txn_id: bytes, *, fail: bool
) -> None:
    turns = Turns(what)
    number = client.request(Discharge(txn_id=txn_id, fail=fail))
    while not stream.has_something():
        turns.time(timed.turn)
    for _ in range(50):
        turns.time(timed.turn)
    turns.show()
    assert client.state_of(number) == Accepted()


def post(client: TransactionClient, count: int) -> bytes:
    """A transaction in which so many messages were sent."""
    sender, txn_id = client.sender("jobs"), client.declare()
    _send(client, sender, count, txn_id)
    return txn_id


def accept(client: TransactionClient, count: int) -> bytes:
    """One in which so many were accepted."""
    _send(client, client.sender("jobs"), count, None)
    client.acquire(client.receiver("jobs", credit=0), None, credit=count, window=2 * count)
    txn_id = client.declare()
    for _ in range(count // BATCH):
        for got in client.get(BATCH):
            client.settle(got, Accepted(), txn_id)
    return txn_id


def _send(client: TransactionClient, sender: int, count: int, txn_id: bytes | None) -> None:
    for _ in range(count // BATCH):
        with client.at_once():
            numbers = [client.post(sender, BODY, txn_id) for _ in range(BATCH)]
        for number in numbers:
            client.state_of(number)
