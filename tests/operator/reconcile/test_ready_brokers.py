"""When a Broker that is Ready is looked at again although nothing is known to have changed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.resources import NOW, broker

from penstock_api.resources import Broker
from penstock_operator.children.stateful_set import PinnedPods
from penstock_operator.cluster.cache import ResourceKey
from penstock_operator.manifest import Manifest
from penstock_operator.plans.broker_view import BrokerReportView
from penstock_operator.plans.decisions import Reach
from penstock_operator.plans.lag_service import lag_service
from penstock_operator.reconcile.ready_brokers import ReadyBrokers, look_seconds

MAIN = ResourceKey("Broker", "shop", "main")
READY = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": NOW.isoformat()}
COUNTED = {"exchanges": 2, "subscriptions": 5, "conditions": [READY]}
ABSENT = frozenset({("CronJob", "main-lag")})


def ready() -> ReadyBrokers:
    made = ReadyBrokers(brokers=200)
    made.note_ready(MAIN, view_of(broker(COUNTED)), True, ABSENT, frozenset({"a"}))
    return made


def view_of(made: Broker) -> BrokerReportView:
    pod: Manifest = {
        "metadata": {"name": "main-0"},
        "status": {"containerStatuses": [{"name": "broker", "ready": True}]},
    }
    return BrokerReportView(
        broker=made,
        pinned=PinnedPods("image:1", "image:1", 1),
        default_image="image:1",
        reach=Reach.CONNECTED,
        lag_service=lag_service("main", made.spec.lag_analysis, None),
        pod=pod,
        exchanges=2,
        subscriptions=5,
        now=NOW,
    )


def is_due(
    made: ReadyBrokers,
    seconds: float,
    counts: tuple[int, int, int] = (2, 5, 0),
    namespaces: frozenset[str] = frozenset({"a"}),
) -> bool:
    return made.is_due(MAIN, broker(COUNTED), counts, namespaces, NOW + timedelta(seconds=seconds))


def test_of_two_hundred_it_is_left_alone_for_ten_minutes_at_least_and_twenty_at_most() -> None:
    made = ready()
    assert not is_due(made, 599)
    assert is_due(made, 1200)


def test_a_clock_that_is_set_back_makes_it_due() -> None:
    """Else nobody would look at its Secrets before the clock has caught up."""
    assert not is_due(ready(), 0)
    assert is_due(ready(), -1)
    assert ready().view(MAIN, broker(COUNTED), True, frozenset({"a"}), NOW - timedelta(seconds=1)) is None


def test_what_is_not_ready_is_due() -> None:
    made = ready()
    made.begin(MAIN, broker(COUNTED))
    assert is_due(made, 1)
    assert is_due(ReadyBrokers(), 1)


@pytest.mark.parametrize("counts", [(3, 5, 0), (2, 4, 0), (2, 5, 1)])
def test_a_status_with_other_figures_makes_it_due(counts: tuple[int, int, int]) -> None:
    assert is_due(ready(), 1, counts)


@pytest.mark.parametrize(
    "conditions", [pytest.param([], id="removed"), pytest.param([{**READY, "status": "False"}], id="edited")]
)
def test_a_status_that_somebody_has_edited_makes_it_due(conditions: list[dict[str, str]]) -> None:
    shown = broker({**COUNTED, "conditions": conditions})
    assert ready().is_due(MAIN, shown, (2, 5, 0), frozenset({"a"}), NOW + timedelta(seconds=1))


def test_a_resource_of_another_namespace_makes_it_due() -> None:
    """That namespace gets the Broker's CA, and its name gets into the certificate."""
    assert is_due(ready(), 1, namespaces=frozenset({"b"}))


def test_what_concerns_all_makes_each_due() -> None:
    made = ready()
    made.clear()
    assert is_due(made, 1)


def test_the_times_of_two_hundred_are_spread_evenly() -> None:
    times = [look_seconds(broker(metadata={"uid": f"uid-{number}"}), 200) for number in range(200)]
    assert 600 <= min(times) < 620
    assert 1180 < max(times) <= 1200
    assert all(20 <= sum(start <= time < start + 120 for time in times) <= 60 for start in range(600, 1200, 120))


@pytest.mark.parametrize(("brokers", "shortest", "longest"), [(1, 3, 6), (20, 60, 120), (10_000, 2400, 4800)])
def test_the_fewer_there_are_the_more_often_each_is_looked_at(brokers: int, shortest: float, longest: float) -> None:
    """With twenty it is at each resync, with very many every 40 to 80 minutes."""
    times = [look_seconds(broker(metadata={"uid": f"uid-{number}"}), brokers) for number in range(200)]
    assert shortest <= min(times) < max(times) <= longest


def test_a_lag_job_of_its_own_is_looked_at_within_minutes() -> None:
    own = broker(lagAnalysis={"backend": "CronJob"})
    assert 200 <= look_seconds(own, 200) <= 400


def test_what_is_not_there_is_not_looked_for_while_the_spec_stays() -> None:
    assert ready().begin(MAIN, broker()) == ABSENT
    assert ready().begin(MAIN, broker(metadata={"generation": 4})) == frozenset()
    assert ready().begin(MAIN, broker(metadata={"uid": "another"})) == frozenset()
    assert ReadyBrokers().begin(MAIN, broker()) == frozenset()


def test_what_was_found_holds_until_somebody_touches_the_broker_or_its_turn_comes() -> None:
    made = ready()
    found = made.view(MAIN, broker(COUNTED), True, frozenset({"a"}), NOW)
    assert found is not None
    assert found.pod == {"status": {"containerStatuses": [{"name": "broker", "ready": True}]}}, "the rest is not kept"
    assert made.view(MAIN, broker(COUNTED), True, frozenset({"a"}), NOW + timedelta(seconds=1200)) is None
    assert made.view(MAIN, broker(COUNTED), False, frozenset({"a"}), NOW) is None, "other tokens"
    assert made.view(MAIN, broker(COUNTED), True, frozenset({"a", "b"}), NOW) is None, "b needs the CA"
    for change in ({"generation": 4}, {"uid": "another"}, {"annotations": {"penstock.dev/reconcile-at": "now"}}):
        assert made.view(MAIN, broker(COUNTED, change), True, frozenset({"a"}), NOW) is None
    made.begin(MAIN, broker(COUNTED))
    assert made.view(MAIN, broker(COUNTED), True, frozenset({"a"}), NOW) is None
