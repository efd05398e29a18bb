"""Reconciles of a Broker against an API server in memory: what is not applied yet, and why."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.management_in_memory import BrokerInMemory, SessionInMemory, SessionsInMemory
from support.resources import broker, broker_state, manifest_of

from penstock_api import release_terms
from penstock_api.resources import Broker
from penstock_api.state_documents import BrokerState
from penstock_broker.settings.settings import BrokerSettings as BrokerSettings
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.children.cluster_issuer import DISCOVERY, KEYS
from penstock_operator.children.shared_lag_job import BrokerName
from penstock_operator.cluster.api_server import ApiResource, KubeError
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest, dig
from penstock_operator.plans.decisions import Report
from penstock_operator.reconcile.broker_reconciler import BrokerReconciler
from penstock_operator.reconcile.shared_lag import SharedLag
from penstock_operator.settings import OperatorSettings

KEY = ResourceKey("Broker", "shop", "main")
TOKENS = {"tokens": [{"issuer": "Cluster"}]}
KNOWS = (*release_terms.vocabulary(), *release_terms.settings_vocabulary(BrokerSettings))


def says(understands: tuple[str, ...] | None, version: str = "0.1.0") -> BrokerState:
    return broker_state(version=version, understands=understands)


@dataclass(slots=True)
class Place:
    """An operator with one Broker."""

    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    sessions: SessionsInMemory = field(default_factory=lambda: SessionsInMemory(BrokerInMemory()))

    async def run(self, made: Broker, default_image: str = "image:1") -> dict[str, tuple[str, str, str]]:
        """Reconcile once; the conditions by type."""
        report = await self.report(made, default_image)
        return {it.type: (it.status.value, str(it.reason), it.message) for it in report.conditions}

    async def report(self, made: Broker, default_image: str = "image:1") -> Report:
        """Reconcile once; the report."""
        report = await self.reconciler(default_image).reconcile(KEY, made)
        assert isinstance(report, Report)
        return report

    def reconciler(self, default_image: str = "image:1") -> BrokerReconciler:
        """An operator that has just started, and has listed the Broker."""
        cache = Cache()
        cache.put(manifest_of("Broker", {}, None, {}))
        return BrokerReconciler(
            self.api,
            cache,
            cast(BrokerSessions, self.sessions),
            OperatorSettings(broker_image=default_image, lag_image="lag:1"),
            lambda: datetime(2026, 3, 1, tzinfo=UTC),
            lambda key: None,
            lambda key: None,
            lambda: None,
        )

    def broker_says(self, state: BrokerState) -> None:
        """Sets what the broker has reported last."""
        self.sessions.open["shop/main"].state = state

    def template(self) -> Any:
        """The pod template of the StatefulSet, None without a StatefulSet."""
        return dig(self.api.objects.get(("StatefulSet", "shop", "main")), "spec", "template")

    def image(self) -> Any:
        return self.template()["spec"]["containers"][0]["image"]


@pytest.fixture
def place() -> Place:
    return Place()


async def test_settings_that_the_running_broker_cannot_read_are_held_back(place: Place) -> None:
    await place.run(broker())
    before = place.template()
    place.broker_says(says(tuple(term for term in KNOWS if "announce" not in term)))
    announcing = broker(announce={"prefixes": True})
    seen = await place.run(announcing)
    assert seen["Ready"][:2] == ("False", "BrokerTooOld")
    assert seen["Stalled"][1] == "BrokerTooOld"
    assert seen["Accepted"][2] == (
        "The image image:1, version 0.1.0, does not know `settings.announce`. Set `spec.image` to a newer image, or "
        "leave out what this one does not know; until then the pods stay as they are."
    )
    assert place.template() == before, "the broker goes on with what it has"
    # With an image of its own the change is taken: what the running one knows says nothing of that.
    await place.run(broker(announce={"prefixes": True}, image="image:2"))
    assert place.image() == "image:2"
    assert place.template() != before


async def test_what_the_running_broker_knows_is_applied(place: Place) -> None:
    await place.run(broker())
    before = place.template()
    place.broker_says(says(KNOWS))
    assert (await place.run(broker(announce={"prefixes": True})))["Accepted"][0] == "True"
    assert place.template() != before


PAGE = (("Secret", "shop", "main-observer-messages"), ("ServiceAccount", "shop", "main-observer"))


async def test_what_the_page_does_not_need_any_more_is_deleted(place: Place) -> None:
    await place.run(broker(page={"showMessages": True, "serviceAccountLogin": True}))
    assert all(name in place.api.objects for name in PAGE)
    await place.run(broker(page={"showMessages": False, "serviceAccountLogin": True}))
    assert [name in place.api.objects for name in PAGE] == [False, True]
    await place.run(broker())
    assert [name in place.api.objects for name in PAGE] == [False, False]
    assert ("Secret", "shop", "main-observer-scrape") in place.api.objects


async def test_an_account_that_is_not_the_operator_s_stays(place: Place) -> None:
    place.api.user_applies(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "shop", "name": "main-observer"}}
    )
    await place.run(broker())
    assert PAGE[1] in place.api.objects


CHOSEN = (("PodDisruptionBudget", "shop", "main"), ("NetworkPolicy", "shop", "main"))


async def test_budget_and_policy_are_made_while_the_spec_wants_them(place: Place) -> None:
    await place.run(broker())
    assert [name in place.api.objects for name in CHOSEN] == [False, False]
    await place.run(broker(pod={"eviction": "Refuse"}, networkPolicy={}))
    assert [name in place.api.objects for name in CHOSEN] == [True, True]
    await place.run(broker(networkPolicy={}))
    assert [name in place.api.objects for name in CHOSEN] == [False, True]
    await place.run(broker())
    assert [name in place.api.objects for name in CHOSEN] == [False, False]


async def test_the_address_outside_is_shown_while_there_is_a_service_for_it(place: Place) -> None:
    name = ("Service", "shop", "main-external")
    await place.run(broker(externalService={}))
    place.api.objects[name]["status"] = {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}
    report = await place.report(broker(externalService={}))
    assert report.details["externalAddress"] == "amqps://lb.example:5671"
    assert "externalAddress" not in (await place.report(broker())).details
    assert name not in place.api.objects


async def test_a_policy_of_somebody_else_s_is_neither_changed_nor_deleted(place: Place) -> None:
    foreign: dict[str, Any] = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {}}
    place.api.user_applies({**foreign, "metadata": {"namespace": "shop", "name": "main"}})
    assert (await place.run(broker()))["Accepted"][0] == "True"
    assert CHOSEN[1] in place.api.objects
    assert "NetworkPolicy main" in (await place.run(broker(networkPolicy={})))["Accepted"][2]
    assert place.api.objects[CHOSEN[1]]["spec"] == {}


async def test_a_role_of_an_earlier_release_is_enough_for_what_it_had(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = ApiServerInMemory.get

    async def get(api: ApiServerInMemory, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        if kind.kind in ("PodDisruptionBudget", "NetworkPolicy"):
            raise KubeError(403, f"{kind.plural} is forbidden")
        return await really(api, kind, namespace, name)

    monkeypatch.setattr(ApiServerInMemory, "get", get)
    assert (await place.run(broker()))["Accepted"][0] == "True"


async def test_without_the_right_to_delete_everything_else_goes_on(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.run(broker(page={"showMessages": True}))

    async def forbidden(_api: ApiServerInMemory, manifest: Manifest) -> None:
        raise KubeError(403, f"{manifest['kind']} is forbidden")

    monkeypatch.setattr(ApiServerInMemory, "delete", forbidden)
    assert (await place.run(broker()))["Accepted"][0] == "True"
    assert "Secret shop/main-observer-messages is not needed any more, and stays: " in caplog.text


async def test_what_may_not_be_deleted_is_one_line_of_the_log_for_each_reason(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler, why = place.reconciler(), "no right"
    await reconciler.reconcile(KEY, broker(page={"showMessages": True}))
    really = ApiServerInMemory.delete

    async def delete(api: ApiServerInMemory, manifest: Manifest) -> None:
        if why:
            raise KubeError(403, why)
        await really(api, manifest)

    async def told() -> list[str]:
        caplog.clear()
        for _ in range(3):
            await reconciler.reconcile(KEY, broker())
        return [message for message in caplog.messages if "is not needed any more" in message]

    monkeypatch.setattr(ApiServerInMemory, "delete", delete)
    assert await told() == ["Secret shop/main-observer-messages is not needed any more, and stays: 403: no right"]
    assert await told() == []
    why = "a policy"
    assert await told() == ["Secret shop/main-observer-messages is not needed any more, and stays: 403: a policy"]
    why = ""
    assert await told() == []
    assert ("Secret", "shop", "main-observer-messages") not in place.api.objects
    await reconciler.reconcile(KEY, broker(page={"showMessages": True}))
    why = "a policy"
    assert len(await told()) == 1, "another object"


async def test_a_release_that_does_not_tell_gets_what_the_spec_says(place: Place) -> None:
    await place.run(broker())
    before = place.template()
    place.broker_says(says(None))
    assert (await place.run(broker(announce={"prefixes": True})))["Accepted"][0] == "True"
    assert place.template() != before


def running(place: Place, image: str = "image:1") -> None:
    """Sets the status of a pod that serves its clients."""
    place.api.objects["Pod", "shop", "main-0"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "main-0", "namespace": "shop"},
        "spec": {"containers": [{"name": "broker", "image": image}]},
        "status": {"containerStatuses": [{"name": "broker", "ready": True}]},
    }


def restarted(place: Place, *, is_up: bool = True) -> Place:
    """A new operator process on the same cluster; it has not yet heard from any broker."""
    made = Place(place.api, SessionsInMemory(BrokerInMemory(is_up=is_up)))
    if not is_up:
        made.sessions.open["shop/main"] = SessionInMemory(made.sessions.broker)
    return made


async def test_an_operator_that_has_just_started_knows_what_the_image_told_before(place: Place) -> None:
    await place.run(broker())
    place.broker_says(says(tuple(term for term in KNOWS if "announce" not in term)))
    await place.run(broker())
    before = place.template()
    after = restarted(place, is_up=False)
    seen = await after.run(broker(announce={"prefixes": True}))
    assert seen["Stalled"][1] == "BrokerTooOld"
    assert "does not know `settings.announce`" in seen["Accepted"][2]
    assert after.template() == before
    assert (await after.run(broker(limits={"connections": 7})))["Accepted"][0] == "True"
    assert after.template() != before, "what it told it knows is applied, though it is down"


async def test_what_was_told_of_one_image_says_nothing_of_another(place: Place) -> None:
    await place.run(broker())
    place.broker_says(says(tuple(term for term in KNOWS if "announce" not in term)))
    await place.run(broker())
    after = restarted(place, is_up=False)
    assert (await after.run(broker(announce={"prefixes": True}, image="image:2")))["Accepted"][0] == "True"
    assert after.image() == "image:2"
    assert (await after.run(broker(announce={"prefixes": True}, image="image:2")))["Accepted"][0] == "True"


async def test_new_settings_wait_until_a_broker_that_runs_has_told_what_it_knows(place: Place) -> None:
    """The annotation is missing if an operator of an earlier release started the pods."""
    await place.run(broker(limits={"connections": 5}))
    running(place)
    before = place.template()
    after = restarted(place, is_up=False)
    announcing = broker(limits={"connections": 6}, announce={"prefixes": True})
    seen = await after.run(announcing)
    assert seen["Ready"][:2] == ("Unknown", "BrokerUnreachable")
    assert "Stalled" not in seen
    assert seen["Accepted"][2] == (
        "The broker has not reported yet whether it knows `settings.announce`; until it has, the pods stay as they "
        "are. It is down."
    )
    assert after.template() == before
    assert (await after.run(broker(limits={"connections": 6})))["Accepted"][0] == "True"
    assert after.template() != before, "other values of what it runs with need no word of it"
    after.sessions.broker.is_up = True
    after.broker_says(says(KNOWS))
    assert (await after.run(announcing))["Accepted"][0] == "True"


async def test_a_pod_that_does_not_run_is_not_waited_for(place: Place) -> None:
    await place.run(broker())
    after = restarted(place, is_up=False)
    assert (await after.run(broker(announce={"prefixes": True})))["Accepted"][0] == "True"


async def test_what_the_pod_of_another_image_says_is_not_noted_for_the_new_one(place: Place) -> None:
    await place.run(broker())
    running(place, "image:1")
    place.broker_says(says(tuple(term for term in KNOWS if "announce" not in term)))
    newer = broker(image="image:2", announce={"prefixes": True})
    assert (await place.run(newer))["Accepted"][0] == "True"
    assert (await place.run(newer))["Accepted"][0] == "True", "the pod of image:1 is still there, and connected"


async def test_the_cluster_s_keys_are_fetched_and_kept_up_to_date(place: Place) -> None:
    place.api.documents = {DISCOVERY: {"issuer": "https://cluster"}, KEYS: {"keys": [{"kid": "a"}]}}
    seen = await place.run(broker(authentication=TOKENS))
    assert seen["Accepted"][0] == "True"
    kept = place.api.objects["ConfigMap", "shop", "main-issuer"]
    assert json.loads(kept["data"]["keys"]) == {"keys": [{"kid": "a"}]}
    template = place.template()
    place.api.documents[KEYS] = {"keys": [{"kid": "b"}, {"kid": "a"}]}
    await place.run(broker(authentication=TOKENS))
    kept = place.api.objects["ConfigMap", "shop", "main-issuer"]
    assert json.loads(kept["data"]["keys"]) == {"keys": [{"kid": "a"}, {"kid": "b"}]}
    assert place.template() == template, "new keys roll no pod"


async def test_without_the_cluster_s_word_nothing_is_changed(place: Place) -> None:
    seen = await place.run(broker(authentication=TOKENS))
    assert seen["Ready"][:2] == ("False", "ClusterIssuerUnknown")
    assert place.template() is None
    place.api.documents = {DISCOVERY: {"issuer": "https://cluster"}, KEYS: {"keys": [{"kid": "a"}]}}
    await place.run(broker(authentication=TOKENS))
    template = place.template()
    place.api.documents.clear()
    seen = await place.run(broker(authentication=TOKENS))
    assert seen["Accepted"][:2] == ("False", "ClusterIssuerUnknown")
    assert place.template() == template, "an API server that says nothing rolls no pod"


async def test_whoever_does_not_want_the_cluster_s_tokens_does_not_ask(place: Place) -> None:
    place.api.documents = {DISCOVERY: {"issuer": "https://cluster"}, KEYS: {"keys": [{"kid": "a"}]}}
    await place.run(broker())
    assert ("ConfigMap", "shop", "main-issuer") not in place.api.objects


async def test_the_cluster_s_keys_go_when_nobody_wants_its_tokens_any_more(place: Place) -> None:
    place.api.documents = {DISCOVERY: {"issuer": "https://cluster"}, KEYS: {"keys": [{"kid": "a"}]}}
    await place.run(broker(authentication=TOKENS))
    await place.run(broker())
    assert ("ConfigMap", "shop", "main-issuer") not in place.api.objects


async def test_an_operator_that_has_just_started_keeps_what_is_shown_of_the_lag_job(place: Place) -> None:
    """It has not read a result yet, and perhaps can't: that is no reason to remove what was known."""
    shown = {"lastRunName": "main-lag-17", "windowEnd": "2026-03-01T12:00:00Z", "brokersReporting": "1/1"}
    report = await place.report(broker({"lagAnalysis": shown}))
    assert report.details["lagAnalysis"] == shown
    assert "lagAnalysis" not in (await place.report(broker())).details


@pytest.mark.parametrize(
    ("serves", "is_up", "times"),
    [
        pytest.param(True, False, 1, id="the-pod-serves-and-the-session-does-not-know-it"),
        pytest.param(True, True, 0, id="connected"),
        pytest.param(False, False, 0, id="nothing-serves"),
    ],
)
async def test_a_session_to_a_pod_that_serves_is_told_to_hurry(
    place: Place, serves: bool, is_up: bool, times: int
) -> None:
    await place.run(broker())
    if serves:
        running(place)
    place.sessions.broker.is_up = is_up
    await place.run(broker())
    assert place.sessions.open["shop/main"].hurried == times


async def reconciled(place: Place, made: Broker, shared: SharedLag) -> Report:
    passes = place.reconciler()
    passes.shared_lag = shared
    report = await passes.reconcile(KEY, made)
    assert isinstance(report, Report)
    return report


async def test_a_broker_offers_its_token_and_window_to_the_operator_s_lag_job(place: Place) -> None:
    shared = SharedLag()
    await reconciled(place, broker(lagAnalysis={"windowMinutes": 10}), shared)
    found = shared.offered(BrokerName("shop", "main"), "uid-main")
    secret: Any = place.api.objects["Secret", "shop", "main-observer-lag"]
    assert found is not None
    assert (found.window_seconds, found.token) == (600, base64.b64decode(secret["data"]["token"]))
    assert found.ca == base64.b64decode(secret["data"]["ca.crt"])
    await reconciled(place, broker(lagAnalysis={"backend": "CronJob"}), shared)
    assert shared.offered(BrokerName("shop", "main"), "uid-main") is None


async def test_a_paused_broker_offers_nothing(place: Place) -> None:
    shared = SharedLag()
    await reconciled(place, broker(metadata={"annotations": {"penstock.dev/paused": "true"}}), shared)
    assert shared.offered(BrokerName("shop", "main"), "uid-main") is None


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
async def test_the_schedule_of_a_broker_that_relied_on_the_default_goes_after_its_run(place: Place, state: str) -> None:
    """The upgrade: before, every Broker had a schedule of its own."""
    place.api.served.add("ScheduledSparkApplication")
    await place.report(broker(lagAnalysis={"backend": "ScheduledSparkApplication"}))
    at = ("ScheduledSparkApplication", "shop", "main-lag")
    place.api.objects[at]["status"] = {"lastRunName": "main-lag-1"}
    place.api.objects["SparkApplication", "shop", "main-lag-1"] = {
        "metadata": {"name": "main-lag-1", "creationTimestamp": "2026-02-28T23:59:00Z"},
        "status": {"applicationState": {"state": state}},
    }
    await place.report(broker())
    account = ("ServiceAccount", "shop", "main-lag")
    assert (at in place.api.objects) is (state == "RUNNING")
    assert (account in place.api.objects) is (state == "RUNNING"), "the run needs its account"
    assert at not in place.api.objects or place.api.objects[at]["spec"]["suspend"] is True, "no other run may begin"
    place.api.objects["SparkApplication", "shop", "main-lag-1"]["status"]["applicationState"]["state"] = "FAILED"
    await place.report(broker())
    assert at not in place.api.objects
    assert account not in place.api.objects
