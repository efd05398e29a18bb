"""Request and reply with python-qpid-proton: dynamic sources, the anonymous relay, a crash of the broker in between."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from threading import Thread

import pytest
from proton import Delivery, Link, Message
from proton.reactor import ReceiverOption
from proton.utils import LinkDetached, SendException, SyncRequestResponse
from support.broker_process import BrokerProcess
from support.proton_client import connected, is_empty, publish, take

SECONDS = 60


def answer(url: str, count: int) -> None:
    """Answer requests by their reply-to, over a target without address."""
    with connected(url) as connection:
        requests = connection.create_receiver("requests", credit=count)
        replies = connection.create_sender(None)
        for _ in range(count):
            request = requests.receive(timeout=SECONDS)
            body = f"{request.body!s}!"
            replies.send(Message(address=request.reply_to, correlation_id=request.correlation_id, body=body))
            requests.accept()


def test_requests_are_answered_also_after_a_crash(broker_process: BrokerProcess) -> None:
    for round_ in range(2):
        answering = Thread(target=answer, args=(broker_process.url, 3))
        answering.start()
        with connected(broker_process.url) as connection:
            asking = SyncRequestResponse(connection, "requests")
            assert asking.reply_to.startswith("temporary-queue:")
            for number in range(3):
                assert asking.call(Message(body=f"{round_}.{number}")).body == f"{round_}.{number}!"
        answering.join(SECONDS)
        broker_process.kill()
        broker_process.start()


def test_a_reply_to_somebody_who_has_gone_is_rejected_and_others_are_not_concerned(
    broker_process: BrokerProcess,
) -> None:
    with connected(broker_process.url) as answering:
        replies = answering.create_sender(None)
        with connected(broker_process.url) as gone:
            address = gone.create_receiver(None, dynamic=True).link.remote_source.address
        with pytest.raises(SendException) as refused:
            replies.send(Message(address=address, body="too late"))
        assert refused.value.state == Delivery.REJECTED
        stays = answering.create_receiver(None, dynamic=True, name="stays", credit=1)
        publish(replies, ["in time"], address=stays.link.remote_source.address)
        assert take(stays, 1) == [("in time", 0)]


class Temporary(ReceiverOption):
    """As JMS asks for a temporary queue: it is for this connection alone."""

    def apply(self, receiver: Link) -> None:
        receiver.source.capabilities.put_symbol("temporary-queue")


def test_nobody_else_reads_replies(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as mine, connected(broker_process.url) as other:
        receiver = mine.create_receiver(None, dynamic=True, credit=1, options=Temporary())
        address = receiver.link.remote_source.address
        with pytest.raises(LinkDetached) as refused:
            other.create_receiver(address)
        assert refused.value.condition == "amqp:resource-locked"
        publish(other.create_sender(address), ["for me"])
        assert take(receiver, 1) == [("for me", 0)]
        assert is_empty(receiver)
