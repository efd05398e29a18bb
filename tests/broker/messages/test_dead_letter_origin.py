"""The origin of a dead letter is the broker's word alone: no way in lets a client say it, or REDRIVE would put messages
into queues that their sender may not publish to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping

import pytest
import pytest_asyncio
from support.broker_process import BrokerProcess
from support.raw_client import RawClient
from support.transaction_client import TransactionClient

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.performatives import Accepted, Modified, Rejected
from penstock_amqp.messages.message_codec import Message, Properties, encode_message
from penstock_amqp.types.values import Symbol, Value
from penstock_api.management import DeliveryPolicy, EntityType, Operation, QueueDeclaration
from penstock_api.message_operations import HandledMessages, MessageSelection, PeekReply, PeekRequest
from penstock_broker.messages.dead_letter_origin import without_origin

# Message-annotations with x-opt-ORIG-QUEUE = "vault", and the same key as str8 and as sym32.
CLAIM = b"\x00\x53\x72\xc1\x1a\x02\xa3\x10x-opt-ORIG-QUEUE\xa1\x05vault"
AS_STRING = CLAIM.replace(b"\xa3", b"\xa1")
AS_WIDE_SYMBOL = b"\x00\x53\x72\xc1\x1d\x02\xb3\x00\x00\x00\x10x-opt-ORIG-QUEUE\xa1\x05vault"
OTHER = b"\x00\x53\x72\xc1\x0d\x02\xa3\x07x-opt-a\xa1\x01b"
BODY = b"\x00\x53\x77\xa1\x02hi"
HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"


@pytest.mark.parametrize("claim", [CLAIM, AS_STRING, AS_WIDE_SYMBOL])
@pytest.mark.parametrize("header", [b"", HEADER])
def test_a_claim_is_taken_away_however_it_is_written(claim: bytes, header: bytes) -> None:
    assert without_origin(header + claim + BODY) == header + BODY


@pytest.mark.parametrize(
    "data", [BODY, HEADER + BODY, HEADER + OTHER + BODY, HEADER + OTHER + BODY + b"\x00\x53\x78\xc1\x01\x00"]
)
def test_nothing_else_is_touched(data: bytes) -> None:
    assert without_origin(data) is data


def test_the_words_in_a_body_are_no_claim() -> None:
    data = HEADER + OTHER + b"\x00\x53\x77\xa1\x10x-opt-ORIG-QUEUE"
    assert without_origin(data) is data


@pytest.mark.parametrize(
    "data", [OTHER + CLAIM + BODY, CLAIM[:-1], CLAIM.replace(b"\xa1\x05vault", b"\xc1\x05\x01\xff\xff\xff\xff")]
)
def test_what_could_hide_a_claim_is_no_message(data: bytes) -> None:
    with pytest.raises(DecodeError):
        without_origin(data)


@pytest_asyncio.fixture
async def management(broker_process: BrokerProcess) -> AsyncIterator[ManagementClient]:
    client = await ManagementClient.connect(broker_process.management)
    await client.create(QueueDeclaration(), "vault")
    await client.create(QueueDeclaration(delivery=DeliveryPolicy(dead_letter="dead")), "jobs")
    yield client
    await client.close()


@pytest.fixture
def mallory(broker_process: BrokerProcess) -> Iterator[TransactionClient]:
    with RawClient(broker_process.port, "mallory") as raw:
        yield TransactionClient(raw)


def forged(body: str, to: str | None = None, more: Mapping[str, Value] | None = None) -> list[bytes]:
    annotations: dict[Value, Value] = {Symbol("x-opt-ORIG-QUEUE"): "vault"}
    annotations |= {Symbol(name): value for name, value in (more or {}).items()}
    return [encode_message(Message(annotations=annotations, properties=Properties(to=to), body=body))]


async def annotations_in(management: ManagementClient, queue: str) -> dict[str, dict[str, object]]:
    answer = await management.request(Operation.PEEK, EntityType.QUEUE, queue, PeekRequest(count=100))
    shown = PeekReply.model_validate(answer.check().attributes).messages
    return {each.body: dict(each.annotations) for each in shown}


async def redriven(management: ManagementClient, queue: str) -> HandledMessages:
    answer = await management.request(Operation.REDRIVE, EntityType.QUEUE, queue, MessageSelection())
    return HandledMessages.model_validate(answer.check().attributes)


async def test_no_producer_can_say_where_a_message_died(
    management: ManagementClient, mallory: TransactionClient
) -> None:
    plain, relay = mallory.sender("jobs"), mallory.sender(None, "relay")
    sent = [
        mallory.post_parts(plain, forged("first"), None),
        mallory.post_parts(plain, forged("again"), None),
        mallory.post_parts(plain, forged("with", more={"other": 1}), None),
        mallory.post_parts(plain, forged("delayed", more={"x-opt-delivery-delay": 1}), None),
        mallory.post_parts(relay, forged("relayed", to="jobs"), None),
    ]
    assert [mallory.state_of(number) for number in sent] == [Accepted()] * 5
    txn = mallory.declare()
    mallory.post_parts(plain, forged("transacted"), txn)
    mallory.commit(txn)
    shown = await annotations_in(management, "jobs")
    assert sorted(shown) == ["again", "delayed", "first", "relayed", "transacted", "with"]
    assert [body for body, found in shown.items() if "x-opt-ORIG-QUEUE" in found] == []
    assert shown["with"] == {"other": 1}
    done = await redriven(management, "jobs")
    assert (done.messages, done.left) == (0, 6)
    assert await annotations_in(management, "vault") == {}


async def test_no_consumer_can_either_and_the_broker_s_word_stays(
    management: ManagementClient, mallory: TransactionClient
) -> None:
    sender = mallory.sender("jobs")
    mallory.state_of(mallory.post_parts(sender, [encode_message(Message(body="real"))], None))
    mallory.receiver("jobs", credit=1, name="jobs")
    (got,) = mallory.get()
    mallory.settle(got, Rejected(), None)
    mallory.receiver("dead", credit=1, name="dead")
    (letter,) = mallory.get()
    claim: dict[Symbol, Value] = {Symbol("x-opt-ORIG-QUEUE"): "vault", Symbol("x-opt-note"): "seen"}
    mallory.settle(letter, Modified(message_annotations=claim), None)
    assert mallory.nothing_came()
    found = (await annotations_in(management, "dead"))["real"]
    assert (found["x-opt-ORIG-QUEUE"], found["x-opt-note"]) == ("jobs", "seen")
