"""The status is written once, and only if it changed; each change of reason has an Event."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.resources import NOW, manifest_of, subscription

from penstock_api.resources import parse
from penstock_operator.cluster.api_server import API_RESOURCES
from penstock_operator.plans.conditions import ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import Report
from penstock_operator.reconcile import status

FINE = Report((StatusCondition("Ready", ConditionStatus.TRUE, "Ready", "Fine."),), {"queueName": "q"})
WORSE = Report((StatusCondition("Ready", ConditionStatus.FALSE, "StorageFull", "Full."),), {"queueName": "q"})
EARLIER = {"type": "Ready", "status": "True", "reason": "Ready", "message": "Fine.", "observedGeneration": 3}


def shown(**changes: Any) -> dict[str, Any]:
    ready = {**EARLIER, "lastTransitionTime": "2026-01-01T00:00:00Z", **changes}
    return {"observedGeneration": 3, "queueName": "q", "conditions": [ready]}


def test_the_time_of_a_transition_moves_only_with_the_status() -> None:
    made = subscription(shown())
    same: Any = status.wanted(made, FINE, NOW)["conditions"]
    other: Any = status.wanted(made, WORSE, NOW)["conditions"]
    assert [it["lastTransitionTime"] for it in same] == ["2026-01-01T00:00:00Z"]
    assert [it["lastTransitionTime"] for it in other] == ["2026-03-01T12:00:00Z"]


def test_nothing_is_written_if_nothing_changed() -> None:
    made = subscription(shown())
    manifest = manifest_of("Subscription", {}, shown(), {})
    assert not status.differs(manifest, status.wanted(made, FINE, NOW + timedelta(hours=1)))
    assert status.differs(manifest, status.wanted(made, WORSE, NOW))


def test_what_the_lag_reader_wrote_is_not_the_operator_s() -> None:
    before = shown()
    for kind in ("Lagging", "LagFresh"):
        before["conditions"].append({**EARLIER, "type": kind, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    manifest = manifest_of("Subscription", {}, {**before, "lag": {"messages": 3}}, {})
    assert not status.differs(manifest, status.wanted(subscription(shown()), FINE, NOW))


def sent_events(manifest: Any, report: Report) -> list[Any]:
    return [*status.events(manifest, report, NOW)]


def fought(message: str | None) -> Report:
    """The report of a Ready Broker, with this message in ContainersContested, or without that condition."""
    contest = (
        ()
        if message is None
        else (StatusCondition("ContainersContested", ConditionStatus.TRUE, "TakeoversRepeated", message),)
    )
    return Report((*FINE.conditions, *contest), {})


def test_an_event_tells_each_change_of_a_fight() -> None:
    calm = manifest_of("Broker", {}, shown(), {})
    fighting = manifest_of("Broker", {}, shown(), {})
    fighting["status"]["conditions"].append(
        {**EARLIER, "type": "ContainersContested", "reason": "TakeoversRepeated", "message": "'a'"}
    )
    assert sent_events(calm, fought(None)) == []
    assert sent_events(fighting, fought("'a'")) == []
    for manifest, message in ((calm, "'a'"), (fighting, "'a', 'b'")):
        (sent,) = sent_events(manifest, fought(message))
        assert (sent["type"], sent["reason"], sent["message"]) == ("Warning", "TakeoversRepeated", message)
    (sent,) = sent_events(fighting, fought(None))
    assert (sent["type"], sent["reason"]) == ("Normal", "TakeoversEnded")


def test_an_event_tells_a_new_reason_once() -> None:
    manifest = manifest_of("Subscription", {}, shown(), {})
    assert status.events(manifest, FINE, NOW) == []
    (sent,) = sent_events(manifest, WORSE)
    assert (sent["type"], sent["reason"], sent["message"]) == ("Warning", "StorageFull", "Full.")
    assert sent["involvedObject"]["uid"] == "uid-billing"


@pytest.mark.parametrize("reason", ["Pending", "BrokerNotAsked"])
def test_what_is_not_known_yet_is_no_warning(reason: str) -> None:
    manifest = manifest_of("Subscription", {}, shown(), {})
    unknown = Report((StatusCondition("Ready", ConditionStatus.UNKNOWN, reason, "Not yet."),), {})
    assert sent_events(manifest, unknown) == []


async def test_writing_goes_to_the_api_server_only_when_needed() -> None:
    api = ApiServerInMemory()
    api.user_applies(manifest_of("Subscription", {}, None, {}))
    (manifest,) = [found async for found in api.list(API_RESOURCES["Subscription"])]
    after = await status.write(api, manifest, parse(manifest), FINE, NOW)
    assert api.written == 1
    assert after is not None
    assert await status.write(api, after, parse(after), FINE, NOW + timedelta(hours=1)) is None
    assert api.written == 1
