"""Volumes that grow, in a cluster in memory: the whole of it, each moment at which the operator may end, refusals."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.api_server_in_memory import ApiServerInMemory
from support.cluster_with_volumes import CLASS, ClusterWithVolumes, Ended
from support.management_in_memory import BrokerInMemory, SessionsInMemory
from support.resources import broker, manifest_of

from penstock_api.quantity import parse_quantity
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster.api_server import ApiResource, Forbidden
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest
from penstock_operator.plans import conditions
from penstock_operator.plans.decisions import Report, Retry
from penstock_operator.reconcile.broker_reconciler import BrokerReconciler
from penstock_operator.settings import OperatorSettings

SET = ("StatefulSet", "shop", "main")
POD = ("Pod", "shop", "main-0")
LAG = {"backend": "None"}
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(slots=True)
class Place:
    """A cluster with one Broker that runs, and the sizes in its spec."""

    api: ClusterWithVolumes = field(default_factory=ClusterWithVolumes)
    storage: dict[str, Any] = field(default_factory=lambda: {"size": "10Gi", "ledgerSize": "2Gi"})
    status: dict[str, Any] = field(default_factory=dict[str, Any])
    image: str = "image:1"
    """The default image of the operator that runs now."""
    retry: Retry = Retry.RESYNC
    """Of the last report."""

    async def run(self) -> dict[str, tuple[str, str, str]]:
        """Reconcile once with an operator that has just started; the conditions by type."""
        sessions, cache = SessionsInMemory(BrokerInMemory()), Cache()
        cache.put(manifest_of("Broker", {}, None, {}))
        reconciler = BrokerReconciler(
            self.api,
            cache,
            cast(BrokerSessions, sessions),
            OperatorSettings(broker_image=self.image, lag_image="lag:1"),
            lambda: NOW,
            lambda key: None,
            lambda key: None,
            lambda: None,
        )
        made = broker(self.status or None, storage=self.storage, lagAnalysis=LAG)
        report = await reconciler.reconcile(ResourceKey("Broker", "shop", "main"), made)
        assert isinstance(report, Report)
        shown = {key: value for key, value in report.details.items() if key == "storage"}
        rendered = conditions.render(report.conditions, before=(), generation=1, now=NOW)
        self.status = {"observedGeneration": 1, "conditions": rendered, **shown}
        self.retry = report.retry
        return {it.type: (it.status.value, str(it.reason), it.message) for it in report.conditions}

    async def started(self) -> Place:
        await self.run()
        self.api.runs_the_pod()
        await self.run()
        return self


async def test_a_volume_grows_and_its_pod_goes_on() -> None:
    place = await Place().started()
    pod, old = place.api.objects[POD], place.api.objects[SET]["metadata"]["uid"]
    place.storage["size"] = "20Gi"
    seen = await place.run()
    assert place.api.sizes() == ("10Gi", "20Gi", "10Gi"), "the claim first"
    assert seen["StorageResizing"][:2] == ("True", "ExpansionPending")
    assert place.status["storage"]["data"] == {"requested": "20Gi", "capacity": "10Gi"}
    assert "deletionTimestamp" in place.api.objects[SET]["metadata"]
    assert place.retry is Retry.BACKOFF
    leaving = place.api.objects[SET]["metadata"]["resourceVersion"]
    await place.run()
    assert place.api.objects[SET]["metadata"]["resourceVersion"] == leaving, "what is being deleted is left alone"
    place.api.releases_pods()
    place.image = "image:2"
    await place.run()
    assert place.api.sizes() == ("20Gi", "20Gi", "10Gi")
    assert place.api.objects[SET]["metadata"]["uid"] != old
    place.api.runs_the_pod()
    place.api.gives_space()
    seen = await place.run()
    assert "StorageResizing" not in seen
    assert place.status["storage"]["data"] == {"requested": "20Gi", "capacity": "20Gi"}
    assert place.api.objects[POD] == pod, "the newer operator makes the same pod template"


async def test_claims_are_not_read_when_nothing_is_to_change() -> None:
    place = await Place().started()
    asked: list[str] = []
    really = ApiServerInMemory.get

    async def get(api: ApiServerInMemory, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        asked.append(kind.kind)
        return await really(api, kind, namespace, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApiServerInMemory, "get", get)
        await place.run()
        assert not {"PersistentVolumeClaim", "StorageClass"} & set(asked)
        assert place.status["storage"] == {
            "data": {"requested": "10Gi", "capacity": "10Gi"},
            "ledger": {"requested": "2Gi", "capacity": "2Gi"},
        }
        place.api.objects[POD]["status"] = {}
        await place.run()
        assert asked.count("PersistentVolumeClaim") == 2
        assert "StorageClass" not in asked


@pytest.mark.parametrize("ends_at", range(1, 60))
async def test_an_operator_that_ends_at_any_write_is_continued_by_the_next(ends_at: int) -> None:
    place = await Place().started()
    pod = place.api.objects[POD]
    place.storage = {"size": "20Gi", "ledgerSize": "4Gi"}
    place.api.half_writes, place.api.ends_at = 0, ends_at
    for _ in range(6):
        try:
            await place.run()
        except Ended:
            place.image = "image:2"  # The next one is of another release.
        place.api.releases_pods()
        place.api.runs_the_pod()
    place.api.gives_space()
    assert "StorageResizing" not in await place.run()
    assert (place.api.sizes(), place.api.sizes("ledger")) == (("20Gi",) * 3, ("4Gi",) * 3)
    assert place.api.objects[POD] == pod
    assert place.api.half_writes >= ends_at, "it did end"


async def test_a_smaller_size_changes_nothing_of_either_volume() -> None:
    place = await Place().started()
    before = place.api.objects[SET]["metadata"]["uid"]
    place.storage = {"size": "5Gi", "ledgerSize": "4Gi"}
    seen = await place.run()
    assert seen["Ready"][:2] == seen["Accepted"][:2] == ("False", "ShrinkRefused")
    assert seen["Stalled"][:2] == ("True", "ShrinkRefused")
    assert seen["Accepted"][2] == (
        "`storage.size` is 5Gi, and the volume of data-main-0 has 10Gi. A volume can't shrink, so both volumes stay as "
        "they are. Set `storage.size` back to 10Gi; to move to a smaller volume, see docs/how-to/grow-a-volume.md."
    )
    assert (place.api.sizes(), place.api.sizes("ledger")) == (("10Gi",) * 3, ("2Gi",) * 3)
    assert place.api.objects[SET]["metadata"] == {**place.api.objects[SET]["metadata"], "uid": before}
    assert "deletionTimestamp" not in place.api.objects[SET]["metadata"]


@pytest.mark.parametrize("has_class", [True, False])
async def test_a_class_that_can_t_expand_changes_nothing(has_class: bool) -> None:
    place = await Place().started()
    if has_class:
        del place.api.objects["StorageClass", "", CLASS]["allowVolumeExpansion"]
    else:
        del place.api.objects["StorageClass", "", CLASS]
    place.storage["size"] = "20Gi"
    seen = await place.run()
    assert seen["Accepted"][:2] == ("False", "ExpansionNotAllowed")
    assert "Do not delete the claim: the messages are on its volume." in seen["Accepted"][2]
    assert place.api.sizes() == ("10Gi",) * 3
    place.storage["size"] = "10Gi"
    assert (await place.run())["Ready"][0] != "False", "the way back is open"


async def test_what_the_api_server_refuses_is_told_in_its_words() -> None:
    place = await Place().started()
    place.api.quota = "exceeded quota: disks, requested: requests.storage=10Gi"
    place.storage["size"] = "20Gi"
    seen = await place.run()
    assert seen["Accepted"][:2] == ("False", "ExpansionRefused")
    assert "exceeded quota: disks, requested: requests.storage=10Gi" in seen["Accepted"][2]
    assert place.api.sizes() == ("10Gi",) * 3
    place.api.quota = ""
    assert (await place.run())["StorageResizing"][1] == "ExpansionPending"


async def test_a_growth_that_is_refused_again_and_again_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = await Place().started()
    place.storage["size"] = "20Gi"
    for quota in ("exceeded quota: disks", "exceeded quota: gold", "exceeded quota: disks"):
        place.api.quota = quota
        for _ in range(3):
            await place.run()
    told = [message for message in caplog.messages if "can't be changed" in message]
    assert told == [
        f"the volumes of Broker shop/main can't be changed: 403: exceeded quota: {name}"
        for name in ("disks", "gold", "disks")
    ]


@pytest.mark.parametrize("denied", ["PersistentVolumeClaim", "StorageClass"])
async def test_a_role_of_an_earlier_release_stops_only_the_growth(denied: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = await Place().started()
    really = ApiServerInMemory.get

    async def get(api: ApiServerInMemory, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        if kind.kind == denied:
            raise Forbidden(403, "no")
        return await really(api, kind, namespace, name)

    monkeypatch.setattr(ApiServerInMemory, "get", get)
    assert (await place.run())["Accepted"][0] == "True"
    place.storage["size"] = "20Gi"
    seen = await place.run()
    if denied == "PersistentVolumeClaim":
        assert seen["Accepted"][:2] == ("False", "ExpansionRefused")
        assert "`get` and `patch` on persistentvolumeclaims" in seen["Accepted"][2]
        assert place.api.sizes() == ("10Gi",) * 3
    else:
        assert place.api.sizes() == ("10Gi", "20Gi", "10Gi"), "the API server checks the class itself"


async def test_a_growth_that_does_not_come_becomes_a_smaller_one() -> None:
    place = await Place().started()
    place.storage["size"] = "900Gi"
    await grown(place)
    place.storage["size"] = "20Gi"
    await grown(place)
    assert place.api.sizes() == ("20Gi", "20Gi", "10Gi")
    place.storage["size"] = "10Gi"
    seen = await place.run()
    assert seen["Accepted"][1] == "ShrinkRefused"
    assert "Set `storage.size` back to 20Gi, or to less that is above 10Gi;" in seen["Accepted"][2]


async def test_a_claim_enlarged_by_hand_and_a_volume_of_an_earlier_broker_are_left_alone() -> None:
    by_hand = await Place().started()
    by_hand.api.claim("data", "50Gi")
    by_hand.status = {}
    assert (await by_hand.run())["Accepted"][0] == "True"
    by_hand.storage["size"] = "30Gi"
    await grown(by_hand)
    assert by_hand.api.sizes() == ("30Gi", "50Gi", "50Gi")
    retained = Place()
    retained.api.claim("data", "50Gi")
    assert (await (await retained.started()).run())["Accepted"][0] == "True"
    assert retained.api.sizes() == ("10Gi", "50Gi", "50Gi")


async def grown(place: Place) -> None:
    """Everything that needs no space from the storage."""
    for _ in range(3):
        await place.run()
        place.api.releases_pods()
        place.api.runs_the_pod()


STEPS = st.one_of(
    st.tuples(st.just("size"), st.sampled_from(["5Gi", "10Gi", "15Gi", "20Gi", "20480Mi", "40Gi"])),
    st.tuples(st.just("ledger"), st.sampled_from(["1Gi", "2Gi", "3Gi"])),
    st.tuples(st.just("ends"), st.integers(1, 60)),
    st.tuples(st.sampled_from(["run", "release", "pod", "space", "expandable", "fixed", "quota", "room"]), st.just("")),
)


@hypothesis_settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_whatever_happens_no_volume_shrinks_and_the_pod_is_the_same(steps: list[tuple[str, Any]]) -> None:
    asyncio.run(play(steps))


async def play(steps: list[tuple[str, Any]]) -> None:
    place = await Place().started()
    api, pod = place.api, place.api.objects[POD]
    had = {volume: parse_quantity(place.api.sizes(volume)[2]) for volume in ("data", "ledger")}
    for verb, argument in [*steps, *[("expandable", ""), ("room", ""), ("size", "80Gi"), ("ledger", "9Gi")]]:
        match verb:
            case "size" | "ledger":
                place.storage["size" if verb == "size" else "ledgerSize"] = argument
            case "ends":
                api.half_writes, api.ends_at = 0, int(argument)
            case "run":
                try:
                    await place.run()
                except Ended:
                    place.image = "image:2"
            case "release":
                api.releases_pods()
            case "pod":
                api.runs_the_pod()
            case "space":
                api.gives_space()
            case "expandable" | "fixed":
                api.objects["StorageClass", "", CLASS]["allowVolumeExpansion"] = verb == "expandable"
            case _:
                api.quota = "exceeded quota" if verb == "quota" else ""
        for volume, size in had.items():
            claim = api.objects["PersistentVolumeClaim", "shop", f"{volume}-main-0"]
            assert parse_quantity(claim["status"]["capacity"]["storage"]) >= size
            had[volume] = parse_quantity(claim["status"]["capacity"]["storage"])
    api.ends_at = None
    await grown(place)
    api.gives_space()
    seen = await place.run()
    assert "StorageResizing" not in seen
    assert seen["Accepted"][0] == "True"
    assert (api.sizes(), api.sizes("ledger")) == (("80Gi",) * 3, ("9Gi",) * 3)
    assert api.objects[POD] == pod
