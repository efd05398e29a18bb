"""The manifests of a Broker's own lag job, as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from support.resources import broker

from penstock_lag.deadline import set_deadline
from penstock_operator.children import lag_job, lag_schedules
from penstock_operator.children.metadata import pod_selector

JAVA = "-XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -XX:SharedArchiveFile=/opt/penstock/classes/spark.jsa"
SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
ARGUMENTS = [
    "--observer=https://main-observer.shop.svc:8080",
    "--token-file=/etc/penstock/observer/token",
    "--ca-file=/etc/penstock/observer/ca.crt",
    "--broker=main",
    "--namespace=shop",
    "--window=900",
]


def test_no_pod_of_the_lag_job_has_another_secret_than_its_token() -> None:
    """Neither the password of the management, nor the tokens of others."""
    (_, scheduled), (_, cron) = analysed(), analysed(backend="CronJob")
    template = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    mounted = [it["secret"]["secretName"] for it in template["volumes"] if "secret" in it]
    assert mounted == ["main-observer-lag"]
    driver = scheduled["spec"]["template"]["driver"]
    assert [it["name"] for it in driver["secrets"]] == ["main-observer-lag"]
    for pod in (template, scheduled["spec"]["template"]):
        assert "main-management" not in str(pod)
        assert "envFrom" not in str(pod)


def analysed(backend: str = "ScheduledSparkApplication", **analysis: Any) -> list[Any]:
    made = broker(lagAnalysis={"backend": backend, **analysis})
    return list(lag_job.manifests(made, "r/lag:1", spark_installed=True))


def test_the_whole_application() -> None:
    account, scheduled = analysed(intervalMinutes=1)
    assert (account["kind"], account["automountServiceAccountToken"]) == ("ServiceAccount", False)
    assert scheduled["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    assert scheduled["metadata"]["name"] == "main-lag"
    assert scheduled["spec"] == {
        "schedule": "* * * * *",
        "timeZone": "UTC",
        "suspend": False,
        "concurrencyPolicy": "Forbid",
        "successfulRunHistoryLimit": 3,
        "failedRunHistoryLimit": 3,
        "template": {
            "type": "Python",
            "pythonVersion": "3",
            "mode": "cluster",
            "sparkVersion": "4.3.0",
            "image": "r/lag:1",
            "imagePullPolicy": "IfNotPresent",
            "mainApplicationFile": "local:///opt/penstock/lag.py",
            "arguments": ARGUMENTS,
            "sparkConf": {
                "spark.kubernetes.driver.pod.excludedFeatureSteps": (
                    "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
                ),
                "spark.kubernetes.submission.connectionTimeout": "120000",
                "spark.kubernetes.submission.requestTimeout": "120000",
                "spark.kubernetes.driverEnv.PENSTOCK_LAG_DEADLINE_SECONDS": "1680",
                "spark.driver.extraClassPath": "/opt/penstock/classes/spark.jar",
            },
            "restartPolicy": {"type": "Never"},
            "timeToLiveSeconds": 3600,
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "driver": {
                "cores": 1,
                "coreRequest": "250m",
                "memory": "1g",
                "memoryOverhead": "640m",
                "javaOptions": JAVA,
                "kubernetesMaster": "local[2]",
                "serviceAccount": "main-lag",
                "labels": {"penstock.dev/broker": "main"},
                "secrets": [{"name": "main-observer-lag", "path": "/etc/penstock/observer", "secretType": "Generic"}],
                "securityContext": SECURITY,
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            },
            "executor": {"instances": 1, "cores": 1, "memory": "512m", "securityContext": SECURITY},
        },
    }


def test_the_deadline_of_a_run_is_told_where_it_is_scheduled() -> None:
    """Two minutes more, which the run leaves to those who would end it (penstock_lag.deadline); two more again until a
    CronJob's pod is ended, which may have waited for its node.
    """
    _, scheduled = analysed(deadlineMinutes=90)
    told = scheduled["spec"]["template"]["sparkConf"]["spark.kubernetes.driverEnv.PENSTOCK_LAG_DEADLINE_SECONDS"]
    assert told == "5520"
    _, job = analysed(backend="CronJob", deadlineMinutes=90)
    run = job["spec"]["jobTemplate"]["spec"]
    (container,) = run["template"]["spec"]["containers"]
    assert {"name": "PENSTOCK_LAG_DEADLINE_SECONDS", "value": "5520"} in container["env"]
    assert run["activeDeadlineSeconds"] == 5640
    _, usual = analysed(backend="CronJob")
    assert usual["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 1800


@pytest.mark.parametrize("minutes", [6, 26, 1440])
def test_a_run_ends_itself_at_its_deadline_and_no_sooner(minutes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator and the run agree, at both ends of what may be set."""
    armed: list[float] = []

    def arm(seconds: float, *, exit: bool) -> None:
        armed.append(seconds)

    monkeypatch.setattr("faulthandler.dump_traceback_later", arm)
    _, scheduled = analysed(deadlineMinutes=minutes)
    key = "spark.kubernetes.driverEnv.PENSTOCK_LAG_DEADLINE_SECONDS"
    set_deadline({"PENSTOCK_LAG_DEADLINE_SECONDS": scheduled["spec"]["template"]["sparkConf"][key]})
    assert armed == [60 * minutes]


def test_a_cron_job_has_no_token_either() -> None:
    _, job = analysed(backend="CronJob")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert (job["kind"], job["spec"]["concurrencyPolicy"], job["spec"]["timeZone"]) == ("CronJob", "Forbid", "Etc/UTC")
    assert (pod["automountServiceAccountToken"], pod["restartPolicy"]) == (False, "Never")
    assert pod["containers"][0]["args"] == ["penstock", "lag", *ARGUMENTS]
    assert pod["containers"][0]["securityContext"] == SECURITY


@pytest.mark.parametrize(("heap", "pod"), [("1g", "1664Mi"), ("1536m", "2176Mi"), ("3g", "3712Mi")])
def test_the_pod_of_a_cron_job_has_the_heap_and_room_beside_it(heap: str, pod: str) -> None:
    """As the Spark operator gives it to the driver."""
    _, job = analysed(backend="CronJob", memory=heap)
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "PENSTOCK_LAG_MEMORY", "value": heap} in container["env"]
    assert {"name": "PENSTOCK_LAG_DEADLINE_SECONDS", "value": "1680"} in container["env"]
    assert container["resources"] == {"requests": {"cpu": "250m", "memory": pod}, "limits": {"memory": pod}}


@pytest.mark.parametrize(
    ("limit", "cpus", "asked"), [("2", "2000m", "250m"), ("0.5", "500m", "250m"), ("100m", "100m", "100m")]
)
def test_the_cpus_of_a_job_can_be_limited(limit: str, cpus: str, asked: str) -> None:
    """It never asks for more than the limit: the API server would refuse its pods."""
    _, scheduled = analysed(cpuLimit=limit)
    driver = scheduled["spec"]["template"]["driver"]
    assert (driver["coreLimit"], driver["coreRequest"]) == (cpus, asked)
    _, job = analysed(backend="CronJob", cpuLimit=limit)
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert (container["resources"]["limits"]["cpu"], container["resources"]["requests"]["cpu"]) == (cpus, asked)


def test_nothing_is_made_for_nothing() -> None:
    assert analysed(backend="None") == []
    assert lag_job.manifests(broker(), "r/lag:1", spark_installed=True) == [], "the operator's job analyses it"
    own = broker(lagAnalysis={"backend": "ScheduledSparkApplication"})
    assert lag_job.manifests(own, "r/lag:1", spark_installed=False) == []


def test_brokers_are_spread_over_the_interval() -> None:
    minutes = {lag_job.cron(broker(metadata={"name": f"b{number}"})).split("-")[0] for number in range(100)}
    assert minutes == {"0", "1", "2", "3", "4"}
    assert lag_job.cron(broker()) == lag_job.cron(broker())


def test_once_an_hour_is_one_minute_of_it() -> None:
    minute, *rest = lag_job.cron(broker(lagAnalysis={"intervalMinutes": 60})).split()
    assert 0 <= int(minute) < 60
    assert rest == ["*", "*", "*", "*"]


def test_a_changed_or_refused_schedule_is_made_anew() -> None:
    _, wanted = analysed(intervalMinutes=1)
    _, other = analysed(intervalMinutes=60)
    assert not lag_schedules.must_be_recreated(wanted, wanted)
    assert lag_schedules.must_be_recreated(wanted, other)
    assert lag_schedules.must_be_recreated(wanted, {**wanted, "status": {"scheduleState": "FailedValidation"}})


@pytest.mark.parametrize("backend", ["ScheduledSparkApplication", "CronJob"])
def test_no_service_of_the_broker_selects_a_pod_of_the_job(backend: str) -> None:
    """The Spark operator copies the labels of the schedule to the driver's pod."""
    [_, made] = analysed(backend=backend)
    selected = pod_selector(broker()).items()
    for labels in (made["metadata"]["labels"], _pod_labels(made)):
        assert not selected <= labels.items(), labels


def _pod_labels(made: Any) -> Any:
    if made["kind"] == "CronJob":
        return made["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    return made["spec"]["template"]["driver"]["labels"]
