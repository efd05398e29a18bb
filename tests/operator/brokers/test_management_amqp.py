"""The operator's management client over AMQP, with a real broker process and a certificate that the operator made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.resources import exchange, subscription
from support.silent_address import silent_address
from support.waiting import wait_until

from penstock_amqp.client.management import ManagementClient, Page
from penstock_api import declaration, release_terms
from penstock_api.management import EntityType
from penstock_api.resources.header_bindings import as_text
from penstock_broker.settings.settings import BrokerSettings
from penstock_operator.brokers.fenced_management import fenced
from penstock_operator.brokers.management import ManagementAccess, NotUnderstood, Unanswered, Unreachable
from penstock_operator.brokers.management_amqp import connect
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.children import certificates
from penstock_operator.manifest import items_of
from penstock_operator.plans.decisions import DeclareEntity, DeleteEntity, Reach

QUEUE = "psub:durable:global:billing"


@pytest.fixture
def access(tmp_path: Path) -> Iterator[ManagementAccess]:
    now = datetime.now(UTC)
    ca = certificates.make_ca("test", now)
    pair = certificates.make_server(ca, ["main-management.shop.svc", "*.shop.svc"], now)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    (tmp_path / "password").write_text("a-long-enough-password")
    management = {
        "address": "127.0.0.1:0",
        "tls": {"certificate": str(tmp_path / "tls.crt"), "key": str(tmp_path / "tls.key")},
        "user": "operator",
        "passwordFile": str(tmp_path / "password"),
    }
    with BrokerProcess(tmp_path / "data", management=False, settings={"management": management}) as process:
        port = int(process.addresses["management"].rsplit(":", 1)[1])
        yield ManagementAccess(
            host="127.0.0.1",
            port=port,
            server_name="main-management.shop.svc",
            ca=ca.certificate,
            user="operator",
            password="a-long-enough-password",
        )


async def test_a_later_broker_is_told_from_one_that_does_not_answer(
    access: ManagementAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    management = await connect(access)
    said = {**(await management.state()).to_wire(), "version": "9.1", "epoch": "the ninth"}
    del said["turns"]

    async def read(*_: object) -> dict[str, object]:
        return said

    monkeypatch.setattr(ManagementClient, "read", read)
    with pytest.raises(NotUnderstood) as raised:
        await management.state()
    assert str(raised.value) == (
        "The broker, version 9.1, reports a state that this operator doesn't understand (epoch: must be a "
        "whole number; turns: is required). Upgrade the CRDs and the operator; until then the broker keeps what it has."
    )
    await management.close()


@pytest.mark.parametrize("row", [{}, {"name": None, "queueName": None}, {"owner": None, "boundSubscriptions": 1}])
async def test_a_row_without_a_name_is_an_invalid_reply(
    access: ManagementAccess, monkeypatch: pytest.MonkeyPatch, row: dict[str, object]
) -> None:
    """An exception of another type would end the orphan collector, and the operator with it."""
    management = await connect(access)

    async def query(*_: object, **__: object) -> Page:
        return Page([{**row, "boundSubscriptions": 1}], 1, 1)

    monkeypatch.setattr(ManagementClient, "query", query)
    with pytest.raises(Unreachable, match="sent an invalid reply: a row of a list has no `name`"):
        await management.changes(None)
    with pytest.raises(Unreachable, match="sent an invalid reply: a row of a list has no `name`"):
        await management.bound_subscriptions()
    await management.close()


@pytest.mark.parametrize(
    ("size", "name", "most"), [(1000, "x", 501), (1000, "x" * 100_000, 2), (1001, "x", 1)], ids=["rows", "text", "page"]
)
async def test_a_list_without_an_end_is_an_invalid_reply(
    access: ManagementAccess, monkeypatch: pytest.MonkeyPatch, size: int, name: str, most: int
) -> None:
    """The image of a Broker is its owner's choice, and all Brokers share the operator's memory."""
    management = await connect(access)
    asked: list[int] = []

    async def query(*_: object, offset: int, **__: object) -> Page:
        asked.append(offset)
        assert len(asked) <= most, "it asks for ever"
        return Page([{"name": name, "boundSubscriptions": 1}] * size, size, 1)

    monkeypatch.setattr(ManagementClient, "query", query)
    with pytest.raises(Unreachable, match="sent an invalid reply: a list of more than 500,000 entries"):
        await management.bound_subscriptions()
    asked.clear()
    with pytest.raises(Unreachable, match="sent an invalid reply: a list of more than 500,000 entries"):
        await management.changes(None)
    await management.close()


async def test_declare_query_and_remove(access: ManagementAccess) -> None:
    management = await connect(access)
    state = await management.state()
    assert (state.epoch, state.durable_work) == (1, "Ok")
    assert state.understands == (*release_terms.vocabulary(), *release_terms.settings_vocabulary(BrokerSettings))
    wanted = declaration.subscription_declaration(subscription(), exchange="orders", cluster_id="c1")
    made = await management.declare(
        [
            DeclareEntity(EntityType.EXCHANGE, "orders", declaration.exchange_declaration(exchange(), cluster_id="c1")),
            DeclareEntity(EntityType.SUBSCRIPTION, None, wanted),
        ]
    )
    assert [(reply.status, reply.body["outcome"]) for reply in made] == [(201, "Created"), (201, "Created")]
    assert made[1].body["bindingKeys"] == ["#"]
    (again,) = await management.declare([DeclareEntity(EntityType.SUBSCRIPTION, None, wanted)])
    assert (again.status, again.body["outcome"]) == (200, "Unchanged")
    whole = await management.changes(None)
    assert whole.is_whole
    assert {it.name: it.owner.uid for it in whole.there if it.owner} == {"orders": "uid-orders", QUEUE: "uid-billing"}
    revisions = {it.name: it.revision for it in whole.there}
    assert [reply.body["revision"] for reply in made] == [revisions["orders"], revisions[QUEUE]]
    assert (await management.bound_subscriptions())["orders"] == 1
    nothing = await management.changes(whole.revision)
    assert (nothing.is_whole, nothing.removed, [it for it in nothing.there if it.name == QUEUE]) == (False, [], [])
    removal = DeleteEntity(
        entity=EntityType.EXCHANGE, name="orders", if_unused=True, if_empty=False, owner_uid="uid-orders"
    )
    (bound,) = await management.delete([removal])
    assert (bound.status, bound.reason) == (409, "BindingsExist")
    gone = await management.delete(
        [replace(removal, entity=EntityType.SUBSCRIPTION, name=QUEUE, owner_uid="uid-billing"), removal]
    )
    assert [reply.status for reply in gone] == [204, 204]
    after = await management.changes(whole.revision)
    assert set(after.removed) == {(EntityType.EXCHANGE, "orders"), (EntityType.SUBSCRIPTION, QUEUE)}
    assert [it for it in after.there if it.owner] == []
    assert (await management.changes(10**6)).is_whole, "a revision of another life of the broker"
    await management.close()


async def test_who_loses_the_lead_between_two_parts_of_a_list_sends_no_other_part(access: ManagementAccess) -> None:
    """Six subscriptions, each with 255 KiB of binding keys, are sent in two parts of at most 1 MiB."""
    keys = [f"{key}.".ljust(255, "\U0001f980") for key in range(256)]
    made = [subscription(metadata={"name": f"s{number}", "uid": f"u{number}"}, bindingKeys=keys) for number in range(6)]
    bodies = [declaration.subscription_declaration(each, exchange="orders", cluster_id="c1") for each in made]
    declarations = [DeclareEntity(EntityType.SUBSCRIPTION, None, body) for body in bodies]
    asked = 0

    def leads() -> bool:
        nonlocal asked
        asked += 1
        return asked <= 4

    management = await fenced(connect, leads)(access)
    orders = declaration.exchange_declaration(exchange(), cluster_id="c1")
    assert [it.status for it in await management.declare([DeclareEntity(EntityType.EXCHANGE, "orders", orders)])] == [
        201
    ]
    asked = 1  # The next are: the list, which is too long for one request, its first half, and its second half.
    with pytest.raises(Unreachable, match="does not lead any more"):
        await management.declare(declarations)
    assert asked == 5
    told = await management.changes(None)
    names = [it.name for it in told.there if it.entity is EntityType.SUBSCRIPTION]
    assert names == [f"psub:durable:global:s{number}" for number in range(3)]
    await management.close()


async def test_another_resource_s_subscription_is_not_taken_away(access: ManagementAccess) -> None:
    management = await connect(access)
    ours = declaration.exchange_declaration(exchange(), cluster_id="c1")
    wanted = declaration.subscription_declaration(subscription(), exchange="orders", cluster_id="c1")
    entries = [DeclareEntity(EntityType.EXCHANGE, "orders", ours), DeclareEntity(EntityType.SUBSCRIPTION, None, wanted)]
    await management.declare(entries)
    (refused,) = await management.delete(
        [DeleteEntity(entity=EntityType.SUBSCRIPTION, name=QUEUE, if_unused=True, if_empty=False, owner_uid="another")]
    )
    assert (refused.status, refused.reason) == (409, "Managed")
    twin = subscription(metadata={"name": "twin", "uid": "uid-twin"}, subscriptionName="billing")
    other = declaration.subscription_declaration(twin, exchange="orders", cluster_id="c1")
    (refused,) = await management.declare([DeclareEntity(EntityType.SUBSCRIPTION, None, other)])
    assert (refused.status, refused.reason) == (409, "DuplicateSubscription")
    await management.close()


async def test_a_missing_exchange_and_a_bad_selector_have_their_reasons(access: ManagementAccess) -> None:
    management = await connect(access)
    lost = declaration.subscription_declaration(subscription(), exchange="nowhere")
    await management.declare(
        [DeclareEntity(EntityType.EXCHANGE, "orders", declaration.exchange_declaration(exchange()))]
    )
    bad = declaration.subscription_declaration(subscription(filter={"selector": "a = = b"}), exchange="orders")
    replies = await management.declare([DeclareEntity(EntityType.SUBSCRIPTION, None, body) for body in (lost, bad)])
    assert [(it.status, it.reason) for it in replies] == [(404, "ExchangeNotFound"), (400, "InvalidSelector")]
    await management.close()


async def test_headers_and_delivery_are_declared_once_and_bad_ones_have_their_reasons(access: ManagementAccess) -> None:
    management = await connect(access)
    kinds = {"orders": exchange(), "parcels": exchange(metadata={"name": "parcels"}, type="Headers")}
    await management.declare(
        [DeclareEntity(EntityType.EXCHANGE, name, declaration.exchange_declaration(it)) for name, it in kinds.items()]
    )
    bindings = [{"headers": [{"name": "region", "string": "eu"}, {"name": "amount", "integer": 5}]}]
    made = subscription(headerBindings=bindings, delivery={"maxDeliveries": 3, "deadLetter": "dead"})
    wanted, wrong = (declaration.subscription_declaration(made, exchange=it) for it in ("parcels", "orders"))
    (first,) = await management.declare([DeclareEntity(EntityType.SUBSCRIPTION, None, wanted)])
    (second,) = await management.declare([DeclareEntity(EntityType.SUBSCRIPTION, None, wanted)])
    assert (first.body["outcome"], second.body["outcome"]) == ("Created", "Unchanged")
    told = [as_text(it) for it in items_of(first.body, "headerBindings")]
    assert told == ["All: amount = 5, region = 'eu'"]
    nowhere = subscription(metadata={"name": "lost", "uid": "u"}, delivery={"deadLetter": "$management"})
    other = declaration.subscription_declaration(nowhere, exchange="orders")
    replies = await management.declare([DeclareEntity(EntityType.SUBSCRIPTION, None, body) for body in (wrong, other)])
    assert [(it.status, it.reason) for it in replies] == [(400, "InvalidBindingKey"), (400, "InvalidAddress")]
    await management.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"password": "wrong"}, "does not accept the operator's password"),
        ({"server_name": "main-management.other.svc"}, "can't be reached"),
        ({"port": 1}, "can't be reached"),
    ],
)
async def test_who_can_t_be_asked_is_unreachable(
    access: ManagementAccess, change: dict[str, str | int], says: str
) -> None:
    with pytest.raises(Unreachable, match=says):
        await connect(replace(access, **change))  # type: ignore[arg-type]  # the values fit their names


async def test_what_somebody_deletes_on_a_real_broker_is_told_and_declared_again(access: ManagementAccess) -> None:
    drifted: list[str] = []
    sessions = BrokerSessions(connect, 0.2, lambda: datetime.now(UTC))
    session = await sessions.ensure(
        "shop/main",
        access,
        lambda _: None,
        lambda owner: drifted.append(f"{owner.kind} {owner.name}"),
    )
    ours = DeclareEntity(EntityType.EXCHANGE, "orders", declaration.exchange_declaration(exchange(), cluster_id="c1"))
    wanted = declaration.subscription_declaration(subscription(), exchange="orders", cluster_id="c1")
    billing = DeclareEntity(EntityType.SUBSCRIPTION, None, wanted)

    async def is_connected() -> bool:
        return session.reach is Reach.CONNECTED

    async def is_told() -> bool:
        return bool(drifted)

    await wait_until(is_connected)
    assert [(await session.declare(entry)).body["outcome"] for entry in (ours, billing)] == ["Created", "Created"]
    assert (await session.declare(billing)).body["outcome"] == "Unchanged"
    assert {it.name for it in await session.marked_entities()} == {"orders", QUEUE}
    assert drifted == ["Exchange orders"], "its number of subscriptions has changed"
    drifted.clear()
    somebody = await connect(access)
    removal = DeleteEntity(
        entity=EntityType.SUBSCRIPTION, name=QUEUE, if_unused=True, if_empty=False, owner_uid="uid-billing"
    )
    await somebody.delete([removal])
    await wait_until(is_told)
    assert drifted == ["Subscription billing"]
    assert (await session.declare(billing)).body["outcome"] == "Created"
    await somebody.close()
    await sessions.close()


async def test_a_ca_that_can_t_be_read_is_no_bug() -> None:
    made = certificates.make_ca("test", datetime.now(UTC)).certificate
    damaged = made + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    gone = ManagementAccess(host="127.0.0.1", port=1, server_name="main", ca=damaged, user="u", password="p")
    with pytest.raises(Unreachable, match="main can't be reached"):
        await connect(gone)


async def test_an_address_that_does_not_answer_is_given_up_after_two_seconds() -> None:
    """Linux itself would try for two minutes, and the limit of a request is ten seconds."""
    ca = certificates.make_ca("test", datetime.now(UTC))
    with silent_address() as (host, port):
        gone = ManagementAccess(
            host=host, port=port, server_name="main-management.shop.svc", ca=ca.certificate, user="u", password="p"
        )
        with pytest.raises(Unanswered) as raised:
            await connect(gone)
    assert str(raised.value) == (
        f"main-management.shop.svc can't be reached: nothing answers at 127.0.0.1:{port} within 2 seconds"
    )
