"""Two links of one name on one session: the second attach succeeds and the first link is stolen (AMQP 1.0 part 2,
2.6.1), as far as what they attach to allows it. The name is free again once its link is detached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Accepted, Attach, Detach, Disposition, Flow, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.types.values import Described, Symbol

HELLO = encode_message(Message(body="hello"))
QUEUE = symbols("queue")
STOLEN = "amqp:link:stolen"
UNREADABLE = Source(
    address="there", filter={Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "a =")}
)
"""Is refused."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("names") / "data") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port, "names") as client:
        client.begin()
        yield client


def of(name: str) -> Source:
    return Source(address=name, capabilities=QUEUE)


def to(name: str) -> Target:
    return Target(address=name, capabilities=QUEUE)


def check_stolen(client: RawClient, handle: int) -> None:
    """The next frame detaches our link with that handle."""
    gone = client.expect(Detach)
    assert gone.handle == handle
    assert gone.closed
    assert gone.error is not None and gone.error.condition == STOLEN, gone
    assert gone.error.description


@pytest.mark.parametrize("mode", ["move", "copy"])
def test_a_receiver_is_stolen_by_its_namesake(client: RawClient, mode: str) -> None:
    """It is told before the other one's attach is answered; what it says then is its own."""
    source = Source(address=f"r-{mode}", capabilities=QUEUE, distribution_mode=symbols(mode)[0])
    sender = client.attach_sender("to", to(f"r-{mode}"))
    assert sender.handle == 0
    client.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=True), payload=HELLO)
    first = client.attach_receiver("same", source)
    client.send(
        Attach(name="same", handle=7, role=True, snd_settle_mode=0, rcv_settle_mode=0, source=source, target=Target())
    )
    check_stolen(client, first.handle)
    second = client.expect(Attach)
    assert second.name == "same"
    client.send(Detach(handle=client.last_handle, closed=True))
    client.flow(7, credit=1)
    transfer, payload = client.expect_transfer()
    assert (transfer.handle, payload) == (second.handle, HELLO)
    client.send(Disposition(role=True, first=0, settled=True, state=Accepted()))
    assert client.detach(7, closed=True).error is None


def test_a_sender_is_stolen_by_its_namesake(client: RawClient) -> None:
    first = client.attach_sender("same", to("s"))
    client.send(Attach(name="same", handle=7, role=False, source=Source(), target=to("s"), initial_delivery_count=0))
    check_stolen(client, first.handle)
    assert client.expect(Attach).name == "same"
    assert client.expect(Flow).link_credit == 1000
    client.send(Transfer(handle=7, delivery_id=0, delivery_tag=b"t"), payload=HELLO)
    assert client.expect(Disposition).settled


FLOW = Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9)
BEFORE = {
    "transfer": encode_frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=True), payload=HELLO),
    "flow": encode_frame(FLOW),
    "disposition": encode_frame(Disposition(role=True, first=0, settled=True, state=Accepted())),
}
"""What clients send most, and what the broker looks at least."""


@pytest.mark.parametrize("cut", [0, 3, 9, 30])
@pytest.mark.parametrize("before", BEFORE)
def test_a_link_is_stolen_behind_other_frames_of_one_write(client: RawClient, before: str, cut: int) -> None:
    """`cut`: so many bytes of the attach come with them, the rest once they are handled; 0: all of it."""
    first = client.attach_sender("same", to(f"behind-{before}"))
    client.expect(Flow)
    target = to(f"behind-{before}")
    attach = encode_frame(
        Attach(name="same", handle=7, role=False, source=Source(), target=target, initial_delivery_count=0)
    )
    client.send_bytes(encode_frame(replace(FLOW, echo=True)) + BEFORE[before] + attach[: cut or None])
    if cut:
        client.expect(Flow)
        client.send_bytes(attach[cut:])
    check_stolen(client, first.handle)
    assert client.expect(Attach).name == "same"
    client.send(Transfer(handle=7, delivery_id=1, delivery_tag=b"u"), payload=HELLO)
    assert client.expect(Disposition).settled


def test_an_attach_that_is_refused_steals_nothing(client: RawClient) -> None:
    client.attach_sender("same", to("kept"))
    client.expect(Flow)
    client.send(Attach(name="same", handle=7, role=False, source=Source(), initial_delivery_count=0))
    refused = client.expect(Attach)
    assert refused.target is None
    assert client.expect(Detach).handle == refused.handle
    client.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), payload=HELLO)
    assert client.expect(Disposition).settled


def test_many_namesakes_follow_each_other(client: RawClient) -> None:
    """Each steals from the one before, also in one write; all are answered by their name."""
    attaches = [
        Attach(name="same", handle=number, role=True, source=of("many"), target=Target()) for number in range(5)
    ]
    client.send_bytes(b"".join(map(encode_frame, attaches)))
    answered, stolen = 0, 0
    while (answered, stolen) != (5, 4):
        said = client.receive().performative
        if isinstance(said, Attach):
            assert said.name == "same"
            answered += 1
        else:
            assert isinstance(said, Detach) and said.error is not None and said.error.condition == STOLEN, said
            stolen += 1


def test_a_name_may_be_attached_again_before_the_broker_s_detach_is_answered(client: RawClient) -> None:
    """2.6.5: the client has not seen yet that its link is gone."""
    client.send(Attach(name="same", handle=0, role=True, source=UNREADABLE, target=Target()))
    assert client.expect(Attach).source is None
    assert client.expect(Detach).error is not None
    client.send(Attach(name="same", handle=1, role=True, source=of("there"), target=Target()))
    assert client.expect(Attach).source is not None
    client.send(Detach(handle=0, closed=True))
    assert client.detach(1, closed=True).error is None
    client.send(Attach(name="same", handle=0, role=True, source=of("there"), target=Target()))
    assert client.expect(Attach).name == "same"


def test_senders_of_one_name_on_two_sessions_live_side_by_side(client: RawClient) -> None:
    """Clients number their links per session, and there is nothing to take over."""
    client.begin(1)
    for channel in (0, 1):
        client.attach_sender("same", to("both"), channel=channel)
        client.expect(Flow)
    for channel, handle in ((0, 0), (1, 1)):
        client.send(Transfer(handle=handle, delivery_id=0, delivery_tag=b"t"), channel, HELLO)
        received = client.receive()
        assert received.channel == channel
        assert isinstance(received.performative, Disposition)
