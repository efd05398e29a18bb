"""The operator's one lag job against an API server in memory: what is written, kept and deleted."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.resources import NOW, broker, manifest_of

from penstock_operator.children.shared_lag_job import BrokerName, Member
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.lag_options import LagJobOptions
from penstock_operator.plans.conditions import timestamp
from penstock_operator.plans.lag_schedule import lag_analysis_scheduled
from penstock_operator.plans.lag_service import lag_service
from penstock_operator.reconcile.shared_lag import SharedLag, SharedLagJob

HOME, NAME = "penstock-system", "penstock-lag"
DEPLOYMENT: Any = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "operator", "namespace": HOME, "uid": "uid-op"},
}
SPARK, CRON = "ScheduledSparkApplication", "CronJob"


@dataclass(slots=True)
class Place:
    """An operator's lag job."""

    api: ApiServerInMemory = field(default_factory=lambda: ApiServerInMemory(served={SPARK}))
    cache: Cache = field(default_factory=Cache)
    shared: SharedLag = field(default_factory=SharedLag)
    told: list[ResourceKey] = field(default_factory=list[ResourceKey])
    options: LagJobOptions = LagJobOptions(namespace=HOME, name=NAME, deployment="operator")  # noqa: RUF009 - immutable
    job: SharedLagJob = field(init=False)

    def __post_init__(self) -> None:
        self.api.objects["Deployment", HOME, "operator"] = DEPLOYMENT
        self.start(self.options)

    def start(self, options: LagJobOptions) -> None:
        """The operator starts, and knows of no Broker but by its list."""
        self.shared = SharedLag()
        self.job = SharedLagJob(self.api, self.cache, options, "lag:1", self.shared, lambda: NOW, self.told.append)

    def add(self, name: str, made: str = "2026-03-01T10:00:00Z", annotations: Any = None, **spec: Any) -> None:
        """A Broker is in the cluster."""
        about: dict[str, Any] = {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": made,
            "annotations": annotations or {},
        }
        version = str(len(self.told) + len(json.dumps(spec)))
        self.cache.put(manifest_of("Broker", spec, None, {**about, "resourceVersion": version}))

    def offer(self, name: str, window: int = 900, token: bytes = b"t", ca: bytes = b"c") -> None:
        """The Broker is reconciled."""
        member = Member(broker=BrokerName("shop", name), window_seconds=window, token=token, ca=ca)
        self.shared.offer(f"uid-{name}", member)

    def at(self, kind: str) -> Any:
        return self.api.objects.get((kind, HOME, NAME))

    def brokers(self) -> list[str]:
        """Those in the Secret."""
        return [each["broker"] for each in json.loads(self.file("brokers.json"))["brokers"]]

    def file(self, name: str) -> bytes:
        return base64.b64decode(self.at("Secret")["data"][name])

    def says(self, name: str = "main") -> tuple[str, str]:
        """LagAnalysisScheduled of a Broker."""
        made = broker(metadata={"name": name})
        service = lag_service(name, made.spec.lag_analysis, self.job.options)
        found = lag_analysis_scheduled(made, service, None, self.shared.view, NOW)
        return found.status.value, str(found.reason)


@pytest.fixture
def place() -> Place:
    return Place()


async def test_the_first_broker_makes_the_job(place: Place) -> None:
    place.add("main")
    await place.job.look()
    assert (place.at("Secret"), place.at(SPARK)) == (None, None), "nothing is known of it yet"
    place.offer("main", token=b"secret")
    await place.job.look()
    assert (place.brokers(), place.file("shop.main.token")) == (["main"], b"secret")
    assert place.at(SPARK)["metadata"]["ownerReferences"][0]["uid"] == "uid-op"
    assert place.at("Secret")["metadata"]["ownerReferences"][0]["uid"] == "uid-op"
    assert place.at(CRON) is None
    assert place.told == [ResourceKey("Broker", "shop", "main")] * 2
    assert place.says() == ("Unknown", "Pending")
    place.at(SPARK)["status"] = {"nextRun": "2026-03-01T12:01:00Z"}
    await place.job.look()
    assert place.says() == ("True", "Scheduled")


async def test_nothing_is_written_while_nothing_changes(place: Place) -> None:
    place.add("main")
    place.offer("main")
    await place.job.look()
    applied, told = place.api.applied, len(place.told)
    place.offer("main")
    assert not place.shared.changed.is_set()
    place.at(SPARK)["spec"]["template"]["added"] = "by the Spark operator"
    await place.job.look()
    assert (place.api.applied, len(place.told)) == (applied, told)


async def test_what_someone_changes_is_put_right(place: Place) -> None:
    place.add("main")
    place.offer("main")
    await place.job.look()
    place.at(SPARK)["spec"]["suspend"] = True
    place.at("Secret")["data"]["more"] = "eA=="
    await place.job.look()
    assert place.at(SPARK)["spec"]["suspend"] is False
    assert "more" not in place.at("Secret")["data"]


async def test_a_new_window_or_token_is_written(place: Place) -> None:
    place.add("main")
    place.offer("main")
    await place.job.look()
    place.offer("main", window=60, token=b"new")
    assert place.shared.changed.is_set()
    await place.job.look()
    assert place.file("shop.main.token") == b"new"
    assert json.loads(place.file("brokers.json"))["brokers"][0]["windowSeconds"] == 60


async def test_after_a_restart_brokers_stay_in_until_they_are_reconciled(place: Place) -> None:
    """A run in between must not leave them out."""
    for name in ("main", "east"):
        place.add(name)
        place.offer(name)
    await place.job.look()
    place.start(place.options)
    await place.job.look()
    assert place.brokers() == ["east", "main"]
    place.offer("main", token=b"new")
    await place.job.look()
    assert (place.brokers(), place.file("shop.main.token")) == (["east", "main"], b"new")


async def test_a_broker_that_is_gone_leaves_no_token(place: Place) -> None:
    for name in ("main", "east"):
        place.add(name)
        place.offer(name)
    await place.job.look()
    place.cache.remove(ResourceKey("Broker", "shop", "east"))
    place.shared.withdraw(BrokerName("shop", "east"))
    assert place.shared.changed.is_set()
    await place.job.look()
    assert sorted(place.at("Secret")["data"]) == ["brokers.json", "shop.main.crt", "shop.main.token"]


@pytest.mark.parametrize("spec", [{"lagAnalysis": {"suspend": True}}, {"replicas": 0}])
async def test_without_any_broker_there_is_no_job_and_no_token(place: Place, spec: Any) -> None:
    place.add("main")
    place.offer("main")
    await place.job.look()
    place.add("main", **spec)
    await place.job.look()
    assert (place.brokers(), sorted(place.at("Secret")["data"]), place.at(SPARK)) == ([], ["brokers.json"], None)
    applied = place.api.applied
    await place.job.look()
    assert place.api.applied == applied


async def test_a_run_under_way_may_end_before_the_job_goes(place: Place) -> None:
    place.add("main")
    place.offer("main")
    await place.job.look()
    place.at(SPARK)["status"] = {"lastRunName": "r-1"}
    run: Any = {"metadata": {"name": "r-1", "creationTimestamp": timestamp(NOW - timedelta(minutes=1))}, "status": {}}
    place.api.objects["SparkApplication", HOME, "r-1"] = run
    place.cache.remove(ResourceKey("Broker", "shop", "main"))
    await place.job.look()
    assert place.at(SPARK)["spec"]["suspend"] is True, "no other run may begin meanwhile"
    applied = place.api.applied
    await place.job.look()
    assert place.api.applied == applied
    run["status"] = {"applicationState": {"state": "COMPLETED"}}
    await place.job.look()
    assert place.at(SPARK) is None


async def test_auto_follows_the_crd(place: Place) -> None:
    place.add("main")
    place.offer("main")
    place.api.served.clear()
    await place.job.look()
    assert (place.at(CRON)["kind"], place.at(SPARK)) == (CRON, None)
    assert place.says() == ("True", "Scheduled")
    place.api.served.add(SPARK)
    await place.job.look()
    assert (place.at(CRON), place.at(SPARK)["kind"]) == (None, SPARK)


async def test_a_run_of_the_other_kind_ends_before_the_first_one_can_start(place: Place) -> None:
    """The CronJob starts no further run meanwhile."""
    place.add("main")
    place.offer("main")
    place.api.served.clear()
    await place.job.look()
    place.api.objects[CRON, HOME, NAME]["status"] = {"active": [{"name": f"{NAME}-29384"}]}
    place.api.served.add(SPARK)
    await place.job.look()
    assert (place.at(CRON)["spec"]["suspend"], place.at(SPARK)) == (True, None)
    assert place.says() == ("Unknown", "Pending")
    place.api.objects[CRON, HOME, NAME]["status"] = {}
    await place.job.look()
    assert (place.at(CRON), place.at(SPARK)["kind"]) == (None, SPARK)


async def test_a_backend_that_is_chosen_is_kept(place: Place) -> None:
    place.start(place.options.model_copy(update={"backend": SPARK}))
    place.api.served.clear()
    place.add("main")
    place.offer("main")
    await place.job.look()
    assert (place.at(SPARK), place.at(CRON), place.says()) == (None, None, ("False", "CRDNotInstalled"))
    place.start(place.options.model_copy(update={"backend": "None"}))
    await place.job.look()
    assert place.says() == ("False", "Disabled")
    assert place.brokers() == []


async def test_another_interval_makes_the_schedule_anew(place: Place) -> None:
    """The Spark operator would not compute a new start time."""
    place.add("main")
    place.offer("main")
    await place.job.look()
    place.at(SPARK)["status"] = {"nextRun": "2026-03-01T12:01:00Z"}
    place.start(place.options.model_copy(update={"interval_minutes": 1}))
    await place.job.look()
    assert place.at(SPARK)["spec"]["schedule"] == "* * * * *"
    assert place.api.deleted == [(SPARK, HOME, NAME)]


async def test_a_paused_broker_stays_as_it_was(place: Place) -> None:
    """It is not reconciled, so it offers nothing."""
    place.add("main")
    place.offer("main")
    await place.job.look()
    place.add("main", annotations={"penstock.dev/paused": "true"})
    place.start(place.options)
    await place.job.look()
    assert place.brokers() == ["main"]


@pytest.mark.parametrize("kind", ["Secret", SPARK, CRON])
async def test_nothing_is_written_over_what_belongs_to_someone_else(place: Place, kind: str) -> None:
    theirs: Any = {"apiVersion": "v1", "kind": kind, "metadata": {"name": NAME, "namespace": HOME, "uid": "u"}}
    place.api.objects[kind, HOME, NAME] = theirs
    place.add("main")
    place.offer("main")
    await place.job.look()
    assert (place.api.applied, place.says()) == (0, ("False", "NameTaken"))
    assert f"{kind} {HOME}/{NAME}" in str(place.shared.view.problem)
    del place.api.objects[kind, HOME, NAME]
    await place.job.look()
    assert place.brokers() == ["main"]


async def test_one_failed_write_changes_no_condition(place: Place) -> None:
    place.add("main")
    place.offer("main")
    await place.job.look()
    before = place.says()
    place.offer("main", token=b"new")
    place.api.failing = True
    await place.job.look()
    assert place.says() == before
    await place.job.look()
    assert place.says() == ("False", "NotWritten")
    place.api.failing = False
    await place.job.look()
    assert (place.says(), place.file("shop.main.token")) == (before, b"new")


async def test_a_broker_made_again_under_the_same_name_is_not_asked_with_the_token_of_the_first(place: Place) -> None:
    place.add("main")
    place.offer("main", token=b"old")
    place.cache.remove(ResourceKey("Broker", "shop", "main"))
    place.cache.put(manifest_of("Broker", {}, None, {"uid": "uid-second", "resourceVersion": "99"}))
    await place.job.look()
    assert place.at("Secret") is None


async def test_two_hundred_brokers_cost_a_look_no_more_requests_than_one(place: Place) -> None:
    for number in range(200):
        place.add(f"b{number}")
        place.offer(f"b{number}")
    await place.job.look()
    assert len(place.brokers()) == 200
    place.api.read = place.api.applied = 0
    await place.job.look()
    assert (place.api.read, place.api.applied) == (4, 0), "Secret, two kinds of schedules, Deployment"


async def test_a_new_broker_makes_no_work_for_the_others(place: Place) -> None:
    for name in ("main", "east"):
        place.add(name)
        place.offer(name)
    await place.job.look()
    await place.job.look()
    place.told.clear()
    place.add("west")
    place.offer("west")
    await place.job.look()
    assert place.told == [ResourceKey("Broker", "shop", "west")]


async def test_a_broker_that_another_operator_has_taken_leaves_the_job(place: Place) -> None:
    """Else the jobs of both would analyse it, and each would put its results into the same observer."""
    for name in ("main", "other"):
        place.add(name)
        place.offer(name)
    await place.job.look()
    place.job.left = lambda: [ResourceKey("Broker", "shop", "other")]
    place.shared.withdraw(BrokerName("shop", "other"))
    assert place.shared.changed.is_set()
    await place.job.look()
    assert place.brokers() == ["main"]
    assert "shop.other.token" not in place.at("Secret")["data"]


async def test_the_job_of_an_earlier_chart_s_name_goes_and_its_brokers_stay(place: Place) -> None:
    """Also one that is paused, of which nothing but the Secret is known. It does not run beside the new one."""
    place.add("main")
    place.offer("main", token=b"t1")
    await place.job.look()
    renamed = place.options.model_copy(update={"name": "penstock-0123abcd-lag", "former_name": NAME})
    place.start(renamed)
    await place.job.look()
    assert [key for key in place.api.objects if key[2] == NAME] == []
    made = place.api.objects["Secret", HOME, renamed.name]
    assert base64.b64decode(made["data"]["shop.main.token"]) == b"t1"
    assert (SPARK, HOME, renamed.name) in place.api.objects


@pytest.mark.parametrize("kind", ["Secret", SPARK, CRON])
async def test_what_another_release_has_under_the_earlier_name_stays(place: Place, kind: str) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": NAME, "namespace": HOME, "uid": "u", "ownerReferences": [{"uid": "uid-other"}]},
    }
    place.api.objects[kind, HOME, NAME] = theirs
    place.start(place.options.model_copy(update={"name": "penstock-0123abcd-lag", "former_name": NAME}))
    place.add("main")
    place.offer("main")
    await place.job.look()
    assert place.at(kind) == theirs
    assert place.shared.view.problem is None
