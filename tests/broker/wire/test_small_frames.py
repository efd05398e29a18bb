"""A peer whose frames have 512 bytes, which is the least (AMQP 1.0 part 2, 2.7.1): no longer one is sent to it. The
client raises an error for one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.engine_pair import EnginePair
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.performatives import (
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.types.values import Described, Symbol, Value

LEAST = 512
SHARED = symbols("topic", "shared", "global")
LONG = encode_message(Message(body=b"x" * 5000))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("small") / "data") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port, "small", max_frame_size=LEAST, desired=symbols("SHARED-SUBS")) as client:
        client.begin()
        yield client


def selecting(selector: str) -> dict[Symbol, Value]:
    return {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), selector)}


@pytest.mark.parametrize(("count", "is_told"), [(3, True), (20, False)])
def test_a_long_attach_is_answered_in_short(client: RawClient, count: int, is_told: bool) -> None:
    """The filter is told if it fits. It holds in any case."""
    selector = " OR ".join(f"colour = 'no-{number:010}'" for number in range(count))
    name = f"{'n' * 100}-{count}"
    source = Source(
        address="amq.topic/x", expiry_policy=Symbol("never"), capabilities=SHARED, filter=selecting(selector)
    )
    client.send(
        Attach(
            name=name,
            handle=50,
            role=True,
            source=source,
            target=Target(address="t" * 200),
            unsettled={b"tag": None},
            properties={Symbol("p"): "v" * 300},
        )
    )
    told = client.expect(Attach)
    assert told.name == name
    assert told.source is not None
    assert told.source.address == "amq.topic/x"
    assert bool(told.source.filter) is is_told
    client.attach_sender("to", Target(address="amq.topic/x"))
    client.expect(Flow)
    client.send(
        Transfer(handle=client.last_handle, delivery_id=0, delivery_tag=b"t"),
        payload=encode_message(Message(body="x")),
    )
    client.expect(Disposition)
    client.flow(50, credit=1, drain=True)
    while not client.expect(Flow).drain:
        pass
    assert client.detach(50, closed=True).error is None


def test_a_refusal_is_told_in_short(client: RawClient) -> None:
    """Its condition and reason are there; the description ends early."""
    source = Source(address="q", capabilities=symbols("queue"), filter=selecting("a = 1 AND " * 100))
    client.send(Attach(name="l", handle=0, role=True, source=source, target=Target()))
    assert client.expect(Attach).source is None
    gone = client.expect(Detach)
    assert gone.error is not None
    assert gone.error.condition == "amqp:invalid-field"
    assert (gone.error.info or {})[Symbol("penstock:reason")] == "InvalidSelector"


def test_messages_come_in_frames_that_fit(client: RawClient) -> None:
    client.attach_sender("to", Target(address="small", capabilities=symbols("queue")))
    client.expect(Flow)
    client.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=True), payload=LONG)
    client.attach_receiver("from", Source(address="small", capabilities=symbols("queue")))
    client.flow(client.last_handle, credit=1)
    came = b""
    while True:
        transfer, payload = client.expect_transfer()
        came += payload
        if not transfer.more:
            break
    assert came == LONG


@pytest.mark.parametrize("direction", [True, False])
def test_a_name_whose_answer_can_t_fit_is_an_error_of_the_session(client: RawClient, direction: bool) -> None:
    """2.8.15: frame-size-too-small."""
    client.send(
        Attach(
            name="n" * 300,
            handle=0,
            role=direction,
            source=Source(address="q"),
            target=Target(address="q"),
            initial_delivery_count=0,
        )
    )
    ended = client.expect(End)
    assert ended.error is not None and ended.error.condition == "amqp:frame-size-too-small"
    closed = client.expect(Close)
    assert closed.error is not None and closed.error.condition == "amqp:frame-size-too-small"


def test_an_open_leaves_out_properties_that_do_not_fit() -> None:
    pair = EnginePair(client_max_frame=LEAST)
    pair.connection.open()
    pair.exchange()
    pair.endpoint.open("broker", ("SHARED-SUBS",), {"failover": "x" * 600})
    pair.exchange()
    assert pair.connection.remote_container == "broker"
    assert pair.connection.remote_properties is None
    offered = pair.connection.remote_offered_capabilities
    assert offered is not None and list(offered) == ["SHARED-SUBS"]
    pair.close()
