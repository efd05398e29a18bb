"""A refusal of the API server is a condition of the resource, with one Event, and goes away when the server agrees.

The whole operator runs against an API server and a broker in memory.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.operator_in_memory import World
from support.resources import GOOD

from penstock_operator.cluster.server_errors import Forbidden, KubeError

QUOTA = Forbidden(403, 'PATCH /x: services "orders-x" is forbidden: exceeded quota: small')
WEBHOOK = KubeError(400, 'PATCH /x: admission webhook "rules.example.com" denied the request: no team')
IMMUTABLE = KubeError(422, "PATCH /x: spec: Forbidden: updates to statefulset spec for fields other than 'replicas'")
RIGHT = Forbidden(403, 'GET /x: secrets "main-ca" is forbidden: User "op" cannot get resource "secrets"')
"""Answers as `server_errors` reads them."""
CHANGED: dict[str, dict[str, Any]] = {"Exchange": {"unroutable": "Reject"}, "Broker": {"pod": {"eviction": "Refuse"}}}
"""Another spec."""


def conditions(world: World, kind: str, name: str) -> dict[str, tuple[str, str]]:
    status = world.api.objects[kind, "shop", name]["status"]
    return {it["type"]: (it["status"], it["reason"]) for it in status["conditions"]}


def message(world: World, kind: str, name: str, condition: str) -> str:
    status = world.api.objects[kind, "shop", name]["status"]
    return str(next(it["message"] for it in status["conditions"] if it["type"] == condition))


def events(world: World, kind: str, reason: str) -> list[Any]:
    return [it for it in world.api.announced if it["involvedObject"]["kind"] == kind and it["reason"] == reason]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of refusals."""
    return [message for message in caplog.messages if "refused: " in message]


async def begun(**refusing: KubeError) -> World:
    world = World(api=ApiServerInMemory(refusing=refusing))
    world.api.user_applies(GOOD["Broker"])
    world.api.user_applies(GOOD["Exchange"])
    subscription = {**GOOD["Subscription"]}
    subscription["metadata"] = {**subscription["metadata"], "annotations": {"penstock.dev/scale-token": "true"}}
    world.api.user_applies(subscription)
    await world.calm_down()
    return world


@pytest.mark.parametrize(
    ("kind", "answer", "reason"),
    [("Secret", QUOTA, "QuotaExceeded"), ("StatefulSet", IMMUTABLE, "FieldImmutable")],
)
async def test_a_broker_whose_object_is_refused_says_so_until_it_is_taken(
    kind: str, answer: KubeError, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = await begun(**{kind: answer})
    found = conditions(world, "Broker", "main")
    assert {kind: found[kind] for kind in ("Ready", "Accepted", "Stalled")} == {
        "Ready": ("False", reason),
        "Accepted": ("False", reason),
        "Stalled": ("True", reason),
    }
    assert found["Available"] == ("False", "PodNotReady"), "the other conditions go on"
    assert answer.said in message(world, "Broker", "main", "Accepted")
    assert len(events(world, "Broker", reason)) == 1, "six passes, one Event"
    assert told(caplog) == [f"an object of Broker shop/main is refused: {answer}"], "and one line"
    world.api.refusing.clear()
    await world.calm_down()
    found = conditions(world, "Broker", "main")
    assert (found["Accepted"], "Stalled" in found) == (("True", "Accepted"), False)
    world.api.refusing[kind] = answer
    world.api.objects.pop((kind, "shop", "main" if kind == "StatefulSet" else "main-ca"))
    world.api.user_annotates("Broker", "shop", "main", {"penstock.dev/reconcile-at": "now"})
    await world.calm_down()
    assert len(told(caplog)) == 2, "it is refused again"


async def test_a_pod_that_the_cluster_refuses_is_told_by_its_event_until_it_is_there() -> None:
    """The operator makes no pods, so only an Event about the StatefulSet tells of this refusal."""
    world = await begun()
    world.api.objects["StatefulSet", "shop", "main"]["metadata"]["uid"] = "s1"
    said = 'Create Pod main-0 in StatefulSet main failed error: pods "main-0" is forbidden: exceeded quota: small'
    world.api.objects["Event", "shop", "main.1"] = {
        "metadata": {"name": "main.1", "namespace": "shop"},
        "involvedObject": {"uid": "s1"},
        "reason": "FailedCreate",
        "message": said,
    }
    await world.calm_down()
    assert conditions(world, "Broker", "main")["Available"] == ("False", "PodNotReady")
    assert "exceeded quota: small. Raise the ResourceQuota" in message(world, "Broker", "main", "Ready")
    world.api.objects["Pod", "shop", "main-0"] = {"metadata": {"name": "main-0"}, "status": {"phase": "Pending"}}
    await world.calm_down()
    assert message(world, "Broker", "main", "Ready") == "Pod main-0 is Pending and not ready yet."


async def test_an_exchange_whose_service_is_refused_says_so_until_it_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await begun()
    world.api.refusing["Service"] = WEBHOOK
    del world.api.objects["Service", "shop", "orders-x"]
    await world.calm_down()
    found = conditions(world, "Exchange", "orders")
    assert found["Ready"] == found["Accepted"] == ("False", "DeniedByAdmission")
    assert told(caplog) == [f"what Exchange shop/orders needs is refused: {WEBHOOK}"], "six passes, one line"
    assert found["Stalled"] == ("True", "DeniedByAdmission")
    assert found["Declared"] == ("True", "Declared"), "the broker has it nevertheless"
    status = world.api.objects["Exchange", "shop", "orders"]["status"]
    assert status["address"] == "amqps://orders-x.shop.svc:5671/orders"
    assert len(events(world, "Exchange", "DeniedByAdmission")) == 1
    world.api.refusing.clear()
    await world.calm_down()
    assert conditions(world, "Exchange", "orders") == {
        "Ready": ("True", "Ready"),
        "Accepted": ("True", "Accepted"),
        "Declared": ("True", "Declared"),
    }


@pytest.mark.parametrize(("kind", "of"), [("Service", ("Exchange", "orders")), ("StatefulSet", ("Broker", "main"))])
async def test_a_webhook_that_says_it_in_other_words_each_time_is_no_news(
    kind: str, of: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The port of its connection, the id of the request."""
    world = await begun()
    del world.api.objects[kind, "shop", "orders-x" if kind == "Service" else "main"]
    written = list[int]()
    for number in range(4):
        connection = f"read tcp 10.0.0.7:{40000 + number}->10.96.3.4:443: read: connection reset by peer"
        said = f'PATCH /x: failed calling webhook "rules.example.com": Post "https://r.svc:443/": {connection}'
        world.api.refusing[kind] = KubeError(500, said)
        await world.calm_down()
        written.append(world.api.written)
    assert set(written[1:]) == {written[0]}
    assert len(told(caplog)) == 1
    assert conditions(world, *of)["Ready"] == ("False", "DeniedByAdmission")
    assert "10.0.0.7:40000->" in message(world, *of, "Ready"), "what was seen first"
    world.api.user_applies({**GOOD[of[0]], "spec": {**GOOD[of[0]]["spec"], **CHANGED[of[0]]}})
    await world.calm_down()
    assert "10.0.0.7:40003->" in message(world, *of, "Ready"), "what is said about another spec"


async def test_a_subscription_whose_secret_is_refused_is_ready_nevertheless() -> None:
    world = await begun()
    world.know_scopes()
    world.api.refusing["Secret"] = QUOTA
    await world.calm_down()
    found = conditions(world, "Subscription", "billing")
    assert (found["Ready"], found["ScaleToken"]) == (("True", "Ready"), ("False", "QuotaExceeded"))
    assert QUOTA.said in message(world, "Subscription", "billing", "ScaleToken")
    world.api.refusing.clear()
    await world.calm_down()
    assert conditions(world, "Subscription", "billing")["ScaleToken"] == ("True", "Written")


async def test_what_may_not_be_read_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await begun()
    before = conditions(world, "Broker", "main")

    async def forbidden(*_: object) -> None:
        raise RIGHT

    with monkeypatch.context() as patched:
        patched.setattr(ApiServerInMemory, "get", forbidden)
        await world.calm_down()
        found = conditions(world, "Broker", "main")
        assert found["Ready"] == ("False", "OperatorNotAllowed")
        assert found["Available"] == before["Available"]
    await world.calm_down()
    assert conditions(world, "Broker", "main") == before


async def test_what_is_declared_on_a_broker_that_may_not_be_read_does_not_say_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody is about to ask such a Broker, and its own status says why."""
    world = World()
    world.api.user_applies(GOOD["Queue"])
    await world.calm_down()
    assert conditions(world, "Queue", "invoices")["Ready"] == ("False", "BrokerNotFound")

    async def forbidden(*_: object) -> None:
        raise RIGHT

    monkeypatch.setattr(ApiServerInMemory, "get", forbidden)
    world.api.user_applies(GOOD["Broker"])
    for _ in range(4):
        await world.controller.list_all(world.api, ())
        await world.reconcile_next(100)
        world.now += 2
    assert conditions(world, "Broker", "main")["Ready"] == ("False", "OperatorNotAllowed")
    assert conditions(world, "Queue", "invoices")["Ready"] == ("Unknown", "BrokerNotAsked")


async def test_a_declaration_goes_on_while_the_broker_s_object_is_refused() -> None:
    """An operator that has just started has to connect first."""
    world = await begun()
    again = World(api=world.api, broker=world.broker)
    again.broker.wipe()
    again.api.refusing["StatefulSet"] = IMMUTABLE
    await again.calm_down()
    assert set(again.broker.exchanges) == {"orders"}


async def test_an_overload_changes_no_condition() -> None:
    world = await begun()
    before = conditions(world, "Broker", "main")
    world.api.refusing["StatefulSet"] = KubeError(429, "Too many requests")
    await world.calm_down()
    assert conditions(world, "Broker", "main") == before
