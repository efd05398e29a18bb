"""The twelve rows of seed 000 on bare frames, against a broker process.

For each row: the reply's source fields and capabilities and the link's offered capability; for each refusal a null
source, then a detach with closed=true, the condition and `penstock:reason`. Expected values are typed from the page
"JMS 2.0 shared subscription support" and section 3 of the design.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from amqp.raw_client import RawClient, symbols
from support.broker_process import BrokerProcess

from penstock_amqp.management_client import ManagementClient
from penstock_amqp.performatives import Attach, Detach, Error, Source, Target, Transfer
from penstock_amqp.values import Described, Symbol, ULong, Value
from penstock_amqp.whole_message import Message, encode_message
from penstock_api.management import ExchangeDeclaration

SELECTOR = ULong(0x0000468C00000004)
NEVER, LINK_DETACH, SESSION_END, CONNECTION_CLOSE = symbols("never", "link-detach", "session-end", "connection-close")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that makes nothing by itself, with the topic exchanges `news` and `sport`."""
    settings: dict[str, object] = {"authentication": {"anonymous": True}}
    with BrokerProcess(tmp_path_factory.mktemp("rows") / "data", dev=False, settings=settings) as process:
        asyncio.run(declare_exchanges(process.management))
        yield process


async def declare_exchanges(address: str) -> None:
    client = await ManagementClient.connect(address)
    for name in ("news", "sport"):
        await client.create(ExchangeDeclaration(exchange_type="Topic"), name)
    await client.close()


numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A subscription name that no other test uses."""
    return f"sub{next(numbers)}"


class Connections:
    """Connections with one session each, closed at the end of the test."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = ExitStack()

    def __call__(self, container_id: str) -> RawClient:
        client = self._open.enter_context(RawClient(self._port, container_id))
        client.begin()
        return client

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def connect(broker: BrokerProcess) -> Iterator[Connections]:
    connections = Connections(broker.port)
    yield connections
    connections.close()


def topic(
    *capabilities: str,
    durable: int = 0,
    expiry: Symbol | None = LINK_DETACH,
    address: str = "news",
    selector: str | None = None,
    mode: str | None = None,
) -> Source:
    """A source as clients send it for a topic."""
    chosen: dict[Symbol, Value] | None = None
    if selector is not None:
        chosen = {Symbol("jms-selector"): Described(SELECTOR, selector)}
    return Source(
        address=address,
        durable=durable,
        expiry_policy=expiry,
        timeout=0,
        dynamic=False,
        distribution_mode=None if mode is None else Symbol(mode),
        filter=chosen,
        outcomes=symbols("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"),
        capabilities=symbols("topic", *capabilities),
    )


def check_reply(
    reply: Attach,
    *,
    capabilities: set[str],
    durable: int,
    expiry: str,
    address: str = "news",
    selector: str | None = None,
) -> None:
    """The fields of an attach that was granted."""
    assert reply.source is not None
    assert not reply.role
    assert reply.source.address == address
    assert (reply.source.durable or 0) == durable
    assert (reply.source.expiry_policy or "session-end") == expiry
    assert reply.source.distribution_mode == "move"
    assert sorted(reply.source.capabilities or ()) == sorted(capabilities)
    filters = reply.source.filter or {}
    expected = {} if selector is None else {"jms-selector": Described(SELECTOR, selector)}
    assert dict(filters) == expected
    assert reply.offered_capabilities == ("SHARED-SUBS",)


def check_refusal(client: RawClient, reply: Attach, *, condition: str, reason: str) -> Error:
    """A null source, then a detach with closed=true, the condition and the reason."""
    assert reply.source is None
    detach = client.expect(Detach)
    assert detach.handle == reply.handle
    assert detach.closed is True
    assert detach.error is not None
    assert detach.error.condition == condition
    assert detach.error.description
    assert (detach.error.info or {}).get(Symbol("penstock:reason")) == reason
    return detach.error


# Rows with a source: SHARED, GLOBAL, DURABLE -> capabilities of the reply's source.
ROWS = [
    pytest.param(False, False, False, {"topic"}, id="row-1"),
    pytest.param(False, False, True, {"topic"}, id="row-2-durable"),
    pytest.param(False, True, False, {"topic"}, id="row-3-global"),
    pytest.param(False, True, True, {"topic", "global"}, id="row-4-global-durable"),
    pytest.param(True, False, False, {"topic", "shared"}, id="row-5-shared"),
    pytest.param(True, False, True, {"topic", "shared"}, id="row-6-shared-durable"),
    pytest.param(True, True, False, {"topic", "shared", "global"}, id="row-7-shared-global"),
    pytest.param(True, True, True, {"topic", "shared", "global"}, id="row-8-shared-global-durable"),
]


def asked(*, shared: bool, global_: bool) -> tuple[str, ...]:
    return (*(("shared",) if shared else ()), *(("global",) if global_ else ()))


@pytest.mark.parametrize(("shared", "global_", "durable", "capabilities"), ROWS)
def test_each_row_is_answered_with_its_source_and_the_offer(
    connect: Connections, name: str, shared: bool, global_: bool, durable: bool, capabilities: set[str]
) -> None:
    source = topic(
        *asked(shared=shared, global_=global_),
        durable=2 if durable else 0,
        expiry=NEVER if durable else LINK_DETACH,
        mode="copy" if durable else None,
    )
    reply = connect("c1").attach_receiver(f"{name}|1" if shared else name, source)
    expiry = "never" if durable else "link-detach"
    check_reply(reply, capabilities=capabilities, durable=1 if durable else 0, expiry=expiry)


@pytest.mark.parametrize(("shared", "global_", "durable", "capabilities"), ROWS)
def test_each_row_shows_its_binding_and_its_filter(
    connect: Connections, name: str, shared: bool, global_: bool, durable: bool, capabilities: set[str]
) -> None:
    source = topic(
        *asked(shared=shared, global_=global_),
        durable=1 if durable else 0,
        expiry=NEVER if durable else SESSION_END,
        address="news/eu.#",
        selector="colour = 'red'",
    )
    reply = connect("c1").attach_receiver(f"{name}|1" if shared else name, source)
    check_reply(
        reply,
        capabilities=capabilities,
        durable=1 if durable else 0,
        expiry="never" if durable else "session-end",
        address="news/eu.#",
        selector="colour = 'red'",
    )


@pytest.mark.parametrize(("shared", "global_", "durable", "capabilities"), ROWS)
def test_each_row_gets_messages(
    connect: Connections, name: str, shared: bool, global_: bool, durable: bool, capabilities: set[str]
) -> None:
    client = connect("c1")
    key = f"row.{name}"
    source = topic(*asked(shared=shared, global_=global_), durable=2 * durable, address=f"news/{key}")
    client.attach_receiver(f"{name}|1" if shared else name, source)
    client.flow(client.last_handle, credit=5)
    publish(connect("publisher"), f"news/{key}", "hello")
    _, payload = client.expect_transfer()
    assert payload == encode_message(Message(body="hello"))


def publish(client: RawClient, address: str, body: str) -> None:
    client.attach_sender(f"to-{address}", Target(address=address))
    head = Transfer(handle=client.last_handle, delivery_id=0, delivery_tag=b"1", settled=True)
    client.send(head, payload=encode_message(Message(body=body)))


@pytest.mark.parametrize(("shared", "global_", "durable", "capabilities"), ROWS)
def test_each_row_refuses_an_exchange_that_does_not_exist(
    connect: Connections, name: str, shared: bool, global_: bool, durable: bool, capabilities: set[str]
) -> None:
    client = connect("c1")
    source = topic(*asked(shared=shared, global_=global_), durable=2 * durable, address="absent/eu")
    reply = client.attach_receiver(name, source)
    check_refusal(client, reply, condition="amqp:not-found", reason="ExchangeNotFound")


@pytest.mark.parametrize(("shared", "global_", "durable", "capabilities"), ROWS)
def test_each_row_refuses_a_selector_that_is_none(
    connect: Connections, name: str, shared: bool, global_: bool, durable: bool, capabilities: set[str]
) -> None:
    client = connect("c1")
    source = topic(*asked(shared=shared, global_=global_), durable=2 * durable, selector="colour = = 'red'")
    reply = client.attach_receiver(name, source)
    check_refusal(client, reply, condition="amqp:invalid-field", reason="InvalidSelector")


# What exists already: the shared rows.
SHARED_ROWS = [
    pytest.param((), 0, id="row-5"),
    pytest.param((), 2, id="row-6"),
    pytest.param(("global",), 0, id="row-7"),
    pytest.param(("global",), 2, id="row-8"),
]


@pytest.mark.parametrize(("space", "durable"), SHARED_ROWS)
def test_a_shared_subscription_takes_further_links(
    connect: Connections, name: str, space: tuple[str, ...], durable: int
) -> None:
    source = topic("shared", *space, durable=durable, selector="a = 1")
    capabilities = {"topic", "shared", *space}
    for container, link in (("c1", f"{name}|1"), ("c1", f"{name}|2"), ("c2" if space else "c1", f"{name}|x")):
        reply = connect(container).attach_receiver(link, source)
        check_reply(reply, capabilities=capabilities, durable=min(durable, 1), expiry="link-detach", selector="a = 1")


@pytest.mark.parametrize(("space", "durable"), SHARED_ROWS)
@pytest.mark.parametrize(
    ("address", "selector"),
    [
        pytest.param("sport", None, id="exchange"),
        pytest.param("news/eu", None, id="binding"),
        pytest.param("news", "a = 1", id="filter"),
    ],
)
def test_a_shared_subscription_in_use_refuses_another_binding_or_filter(
    connect: Connections, name: str, space: tuple[str, ...], durable: int, address: str, selector: str | None
) -> None:
    connect("c1").attach_receiver(f"{name}|1", topic("shared", *space, durable=durable))
    client = connect("c1")
    other = topic("shared", *space, durable=durable, address=address, selector=selector)
    reply = client.attach_receiver(f"{name}|2", other)
    check_refusal(client, reply, condition="amqp:resource-locked", reason="SubscriptionInUse")


@pytest.mark.parametrize("space", [pytest.param((), id="row-6"), pytest.param(("global",), id="row-8")])
def test_an_idle_shared_subscription_is_bound_anew(connect: Connections, name: str, space: tuple[str, ...]) -> None:
    client = connect("c1")
    client.attach_receiver(f"{name}|1", topic("shared", *space, durable=2, expiry=NEVER))
    assert client.detach(client.last_handle, closed=False).error is None
    source = topic("shared", *space, durable=2, expiry=NEVER, address="sport/tennis", selector="a = 1")
    reply = client.attach_receiver(f"{name}|2", source)
    capabilities = {"topic", "shared", *space}
    check_reply(reply, capabilities=capabilities, durable=1, expiry="never", address="sport/tennis", selector="a = 1")


@pytest.mark.parametrize(("space", "durable"), SHARED_ROWS)
def test_another_lifetime_is_granted_and_the_reply_says_what_is_there(
    connect: Connections, name: str, space: tuple[str, ...], durable: int
) -> None:
    connect("c1").attach_receiver(f"{name}|1", topic("shared", *space, durable=durable, expiry=NEVER))
    reply = connect("c1").attach_receiver(f"{name}|2", topic("shared", *space, durable=durable, expiry=SESSION_END))
    check_reply(reply, capabilities={"topic", "shared", *space}, durable=min(durable, 1), expiry="never")


@pytest.mark.parametrize("space", [pytest.param((), id="container"), pytest.param(("global",), id="global")])
def test_shared_and_not_shared_of_one_durable_name_refuse_each_other(
    connect: Connections, name: str, space: tuple[str, ...]
) -> None:
    first = connect("c1")
    first.attach_receiver(name, topic("shared", *space, durable=2, expiry=NEVER))
    second = connect("c1" if not space else "c2")
    reply = second.attach_receiver(f"{name}", topic(*space, durable=2, expiry=NEVER))
    reason = "ExclusivityMismatch" if space else "LinkLiveForOtherKind"
    check_refusal(second, reply, condition="amqp:resource-locked", reason=reason)
    # Also when nobody consumes, and the other way round.
    first.detach(first.last_handle, closed=False)
    reply = second.attach_receiver(name, topic(*space, durable=2, expiry=NEVER))
    check_refusal(second, reply, condition="amqp:resource-locked", reason="ExclusivityMismatch")
    other = f"{name}other"
    first.attach_receiver(other, topic(*space, durable=2, expiry=NEVER))
    first.detach(first.last_handle, closed=False)
    reply = second.attach_receiver(f"{other}|1", topic("shared", *space, durable=2, expiry=NEVER))
    check_refusal(second, reply, condition="amqp:resource-locked", reason="ExclusivityMismatch")


# What exists already: the rows that are not shared.


def test_a_global_durable_subscription_belongs_to_the_link_that_made_it(connect: Connections, name: str) -> None:
    source = topic("global", durable=2, expiry=NEVER)
    first, second = connect("c1"), connect("c2")
    first.attach_receiver(name, source)
    check_refusal(
        second, second.attach_receiver(name, source), condition="amqp:resource-locked", reason="OwnedByOtherLink"
    )
    first.detach(first.last_handle, closed=False)
    check_refusal(
        second, second.attach_receiver(name, source), condition="amqp:resource-locked", reason="OwnedByOtherLink"
    )
    check_reply(first.attach_receiver(name, source), capabilities={"topic", "global"}, durable=1, expiry="never")


def test_a_durable_link_that_attaches_again_gets_its_subscription(connect: Connections, name: str) -> None:
    client = connect("c1")
    client.attach_receiver(name, topic(durable=2, expiry=NEVER, address="news/a", selector="a = 1"))
    client.detach(client.last_handle, closed=False)
    reply = client.attach_receiver(name, topic(durable=2, expiry=NEVER, address="news/a", selector="a = 1"))
    check_reply(reply, capabilities={"topic"}, durable=1, expiry="never", address="news/a", selector="a = 1")
    client.detach(client.last_handle, closed=False)
    reply = client.attach_receiver(name, topic(durable=2, expiry=NEVER, address="sport"))
    check_reply(reply, capabilities={"topic"}, durable=1, expiry="never", address="sport")


def test_the_same_link_on_another_connection_steals(connect: Connections, name: str) -> None:
    first, second = connect("c1"), connect("c1")
    source = topic(durable=2, expiry=NEVER)
    first.attach_receiver(name, source)
    check_reply(second.attach_receiver(name, source), capabilities={"topic"}, durable=1, expiry="never")
    stolen = first.expect(Detach)
    assert stolen.error is not None
    assert stolen.error.condition == "amqp:link:stolen"
    assert (stolen.error.info or {}).get(Symbol("penstock:reason")) == "LinkStolen"


def test_containers_have_name_spaces_of_their_own(connect: Connections, name: str) -> None:
    source = topic("shared", durable=2, expiry=NEVER)
    connect("c1").attach_receiver(f"{name}|1", source)
    other = topic("shared", durable=2, expiry=NEVER, address="sport")
    reply = connect("c2").attach_receiver(f"{name}|1", other)
    check_reply(reply, capabilities={"topic", "shared"}, durable=1, expiry="never", address="sport")


def test_volatile_and_durable_names_are_apart(connect: Connections, name: str) -> None:
    client = connect("c1")
    client.attach_receiver(f"{name}|1", topic("shared", durable=2, expiry=NEVER))
    reply = client.attach_receiver(f"{name}|volatile1", topic("shared", address="sport"))
    check_reply(reply, capabilities={"topic", "shared"}, durable=0, expiry="link-detach", address="sport")


# Rows with a null source: SHARED and GLOBAL come from the link's desired capabilities.
NULL_ROWS = [
    pytest.param(False, False, id="row-9"),
    pytest.param(False, True, id="row-10-global"),
    pytest.param(True, False, id="row-11-shared"),
    pytest.param(True, True, id="row-12-shared-global"),
]


@pytest.mark.parametrize(("shared", "global_"), NULL_ROWS)
def test_a_null_source_finds_its_durable_subscription(
    connect: Connections, name: str, shared: bool, global_: bool
) -> None:
    capabilities = asked(shared=shared, global_=global_)
    client = connect("c1")
    link = f"{name}|1" if shared else name
    source = topic(*capabilities, durable=2, expiry=NEVER, address="news/a", selector="a = 1")
    client.attach_receiver(link, source)
    client.detach(client.last_handle, closed=False)
    reply = client.attach_receiver(link, None, desired=symbols(*capabilities) or None)
    check_reply(
        reply,
        capabilities={"topic", *capabilities},
        durable=1,
        expiry="never",
        address="news/a",
        selector="a = 1",
    )


@pytest.mark.parametrize(("shared", "global_"), NULL_ROWS)
def test_a_null_source_that_finds_nothing_is_refused(
    connect: Connections, name: str, shared: bool, global_: bool
) -> None:
    client = connect("c1")
    desired = symbols(*asked(shared=shared, global_=global_)) or None
    reply = client.attach_receiver(name, None, desired=desired)
    check_refusal(client, reply, condition="amqp:not-found", reason="SubscriptionNotFound")


@pytest.mark.parametrize(("shared", "global_"), NULL_ROWS)
def test_a_null_source_does_not_find_what_is_volatile(
    connect: Connections, name: str, shared: bool, global_: bool
) -> None:
    client = connect("c1")
    capabilities = asked(shared=shared, global_=global_)
    client.attach_receiver(f"{name}|1" if shared else name, topic(*capabilities))
    other = connect("c1")
    reply = other.attach_receiver(f"{name}|2" if shared else f"{name}2", None, desired=symbols(*capabilities) or None)
    check_refusal(other, reply, condition="amqp:not-found", reason="SubscriptionNotFound")


@pytest.mark.parametrize(("shared", "global_"), NULL_ROWS)
def test_closing_a_null_source_ends_the_subscription(
    connect: Connections, name: str, shared: bool, global_: bool
) -> None:
    capabilities = asked(shared=shared, global_=global_)
    client = connect("c1")
    link = f"{name}|1" if shared else name
    client.attach_receiver(link, topic(*capabilities, durable=2, expiry=NEVER))
    client.detach(client.last_handle, closed=False)
    desired = symbols(*capabilities) or None
    client.attach_receiver(link, None, desired=desired)
    assert client.detach(client.last_handle, closed=True).error is None
    reply = client.attach_receiver(link, None, desired=desired)
    check_refusal(client, reply, condition="amqp:not-found", reason="SubscriptionNotFound")


@pytest.mark.parametrize("global_", [pytest.param(False, id="row-11"), pytest.param(True, id="row-12")])
def test_closing_a_null_source_in_use_is_refused_and_changes_nothing(
    connect: Connections, name: str, global_: bool
) -> None:
    capabilities = asked(shared=True, global_=global_)
    consumer, client = connect("c1"), connect("c1")
    consumer.attach_receiver(f"{name}|1", topic(*capabilities, durable=2, expiry=NEVER))
    reply = client.attach_receiver(f"{name}|2", None, desired=symbols(*capabilities))
    check_reply(reply, capabilities={"topic", *capabilities}, durable=1, expiry="never")
    detach = client.detach(client.last_handle, closed=True)
    assert detach.closed is True
    assert detach.error is not None
    assert detach.error.condition == "amqp:resource-locked"
    assert (detach.error.info or {}).get(Symbol("penstock:reason")) == "ConsumersActive"
    consumer.flow(consumer.last_handle, credit=1)
    publish(connect("publisher"), "news", name)
    assert consumer.expect_transfer()[1] == encode_message(Message(body=name))


def test_without_a_capability_a_null_source_is_found_by_the_suffix(connect: Connections, name: str) -> None:
    # What the JMS client does without a ClientID when it unsubscribes (decision 3).
    connect("c1").attach_receiver(f"{name}|global2", topic("shared", "global", durable=2, expiry=NEVER))
    client = connect("c2")
    reply = client.attach_receiver(f"{name}|global", None)
    check_reply(reply, capabilities={"topic", "shared", "global"}, durable=1, expiry="never")


def test_credit_on_a_null_source_is_not_allowed(connect: Connections, name: str) -> None:
    client = connect("c1")
    client.attach_receiver(f"{name}|1", topic("shared", durable=2, expiry=NEVER))
    client.attach_receiver(f"{name}|2", None, desired=symbols("shared"))
    client.flow(client.last_handle, credit=1)
    detach = client.expect(Detach)
    assert detach.closed is True
    assert detach.error is not None
    assert detach.error.condition == "amqp:not-allowed"


# Detach.


def test_closing_a_permanent_shared_subscription_in_use_is_refused(connect: Connections, name: str) -> None:
    first, second = connect("c1"), connect("c1")
    source = topic("shared", durable=2, expiry=NEVER)
    first.attach_receiver(f"{name}|1", source)
    second.attach_receiver(f"{name}|2", source)
    detach = first.detach(first.last_handle, closed=True)
    assert detach.error is not None
    assert detach.error.condition == "amqp:resource-locked"
    assert (detach.error.info or {}).get(Symbol("penstock:reason")) == "ConsumersActive"
    assert second.detach(second.last_handle, closed=True).error is None
    reply = first.attach_receiver(f"{name}|1", None, desired=symbols("shared"))
    check_refusal(first, reply, condition="amqp:not-found", reason="SubscriptionNotFound")


@pytest.mark.parametrize("expiry", [LINK_DETACH, SESSION_END, CONNECTION_CLOSE, None])
def test_closing_any_other_lifetime_in_use_detaches_without_error(
    connect: Connections, name: str, expiry: Symbol | None
) -> None:
    first, second = connect("c1"), connect("c1")
    source = topic("shared", expiry=expiry)
    first.attach_receiver(f"{name}|1", source)
    second.attach_receiver(f"{name}|2", source)
    assert first.detach(first.last_handle, closed=True).error is None
    second.flow(second.last_handle, credit=1)
    publish(connect("publisher"), "news", name)
    assert second.expect_transfer()[1] == encode_message(Message(body=name))


def test_an_unsettled_map_gets_an_empty_one_back(connect: Connections, name: str) -> None:
    client = connect("c1")
    attach = Attach(
        name=name,
        handle=0,
        role=True,
        source=topic(durable=2, expiry=NEVER),
        target=Target(),
        unsettled={b"tag": None},
    )
    client.send(attach)
    assert client.expect(Attach).unsettled == {}


def test_an_absent_expiry_policy_is_session_end(connect: Connections, name: str) -> None:
    reply = connect("c1").attach_receiver(f"{name}|1", topic("shared", expiry=None))
    check_reply(reply, capabilities={"topic", "shared"}, durable=0, expiry="session-end")


def test_the_open_reply_offers_what_works(connect: Connections) -> None:
    offered = set(connect("c1").open.offered_capabilities or ())
    assert {"SHARED-SUBS", "ANONYMOUS-RELAY"} <= offered
    assert offered <= {"SHARED-SUBS", "ANONYMOUS-RELAY", "DELAYED_DELIVERY", "sole-connection-for-container"}
