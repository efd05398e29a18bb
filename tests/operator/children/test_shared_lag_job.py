"""The operator's one lag job: its schedule as a whole, and what is in its Secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.resources import broker

from penstock_operator.children import shared_lag_job
from penstock_operator.children.metadata import pod_selector
from penstock_operator.children.shared_lag_job import BrokerName, Member, members_of, secret, secret_data
from penstock_operator.lag_options import ExecutorOptions, LagJobOptions

OPTIONS = LagJobOptions(namespace="penstock-system", name="penstock-lag", deployment="penstock-penstock-operator")
JAVA = "-XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -XX:SharedArchiveFile=/opt/penstock/classes/spark.jsa"
SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
MAIN = Member(broker=BrokerName("shop", "main"), window_seconds=900, token=b"t1", ca=b"c1")
HUB = Member(broker=BrokerName("hub", "east"), window_seconds=300, token=b"t2", ca=b"c2")


def made(kind: str = "ScheduledSparkApplication", **options: Any) -> Any:
    return shared_lag_job.schedule(OPTIONS.model_copy(update=options), "uid-7", "r/lag:1", kind)


def test_the_whole_application() -> None:
    found = made(interval_minutes=1)
    assert found["metadata"] == {
        "name": "penstock-lag",
        "namespace": "penstock-system",
        "labels": {
            "app.kubernetes.io/name": "penstock-lag",
            "app.kubernetes.io/instance": "penstock-lag",
            "app.kubernetes.io/managed-by": "penstock-operator",
        },
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": "penstock-penstock-operator",
                "uid": "uid-7",
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
    assert (found["apiVersion"], found["kind"]) == ("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication")
    template = found["spec"].pop("template")
    assert found["spec"] == {
        "schedule": "* * * * *",
        "timeZone": "UTC",
        "suspend": False,
        "concurrencyPolicy": "Forbid",
        "successfulRunHistoryLimit": 3,
        "failedRunHistoryLimit": 3,
    }
    assert (template["image"], template["mainApplicationFile"]) == ("r/lag:1", "local:///opt/penstock/lag.py")
    assert template["arguments"] == ["--brokers=/etc/penstock/lag/brokers.json"]
    assert template["driver"] == {
        "cores": 1,
        "coreRequest": "250m",
        "memory": "1g",
        "memoryOverhead": "640m",
        "javaOptions": JAVA,
        "kubernetesMaster": "local[2]",
        "serviceAccount": "penstock-lag",
        "labels": {"app.kubernetes.io/name": "penstock-lag", "app.kubernetes.io/instance": "penstock-lag"},
        "secrets": [{"name": "penstock-lag", "path": "/etc/penstock/lag", "secretType": "Generic"}],
        "securityContext": SECURITY,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    assert template["executor"]["instances"] == 1, "the CRD asks for it, and with a local master it starts none"
    assert not pod_selector(broker()).items() <= found["metadata"]["labels"].items(), "no Service may select its pods"


def test_the_deadline_of_the_chart_is_that_of_its_runs() -> None:
    key = "spark.kubernetes.driverEnv.PENSTOCK_LAG_DEADLINE_SECONDS"
    assert made(deadline_minutes=6)["spec"]["template"]["sparkConf"][key] == "480"
    assert made("CronJob", deadline_minutes=6)["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 600


def test_executors_have_the_secret_too_and_are_made_through_the_api() -> None:
    template = made(executors=ExecutorOptions(instances=3, cores=2, memory="4g"))["spec"]["template"]
    assert "kubernetesMaster" not in template["driver"]
    assert template["sparkConf"]["spark.executor.extraClassPath"] == "/opt/penstock/classes/spark.jar"
    assert template["executor"] == {
        "instances": 3,
        "cores": 2,
        "memory": "4g",
        "memoryOverhead": "640m",
        "javaOptions": JAVA,
        "serviceAccount": "penstock-lag-executor",
        "secrets": [{"name": "penstock-lag", "path": "/etc/penstock/lag", "secretType": "Generic"}],
        "securityContext": SECURITY,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def test_the_settings_of_a_person_win() -> None:
    chosen = {
        "spark.kubernetes.submission.requestTimeout": "5",
        "spark.sql.shuffle.partitions": "8",
        "spark.kubernetes.driverEnv.PENSTOCK_LAG_DEADLINE_SECONDS": "7200",
    }
    found = made(spark_conf=chosen)["spec"]["template"]["sparkConf"]
    assert found == {
        "spark.kubernetes.driver.pod.excludedFeatureSteps": (
            "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
        ),
        "spark.kubernetes.submission.connectionTimeout": "120000",
        "spark.kubernetes.submission.requestTimeout": "5",
        "spark.kubernetes.driverEnv.PENSTOCK_LAG_DEADLINE_SECONDS": "7200",
        "spark.driver.extraClassPath": "/opt/penstock/classes/spark.jar",
        "spark.sql.shuffle.partitions": "8",
    }
    command = container(made("CronJob", spark_conf={"spark.master": "local[4]"}))["args"]
    assert command == [
        "spark-submit",
        "--conf", "spark.master=local[4]",
        "--conf", "spark.driver.memory=1g",
        "--conf", f"spark.driver.extraJavaOptions={JAVA}",
        "--conf", "spark.driver.extraClassPath=/opt/penstock/classes/spark.jar",
        "--conf", "spark.local.dir=/tmp",
        "/opt/penstock/lag.py",
        "--brokers=/etc/penstock/lag/brokers.json",
    ]  # fmt: skip


def container(job: Any) -> Any:
    (found,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return found


def test_a_cron_job_runs_the_same() -> None:
    job = made("CronJob")
    assert container(job)["args"] == ["penstock", "lag", "--brokers=/etc/penstock/lag/brokers.json"]
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("penstock-lag", False)
    assert [it["secret"]["secretName"] for it in pod["volumes"] if "secret" in it] == ["penstock-lag"]


def test_pods_go_where_the_chart_says() -> None:
    taint = {"key": "spot", "operator": "Exists"}
    chosen: dict[str, Any] = {"node_selector": {"disk": "fast"}, "tolerations": (taint,), "image_pull_secrets": ("r",)}
    template = made(**chosen)["spec"]["template"]
    assert (template["nodeSelector"], template["driver"]["tolerations"]) == ({"disk": "fast"}, [taint])
    assert template["imagePullSecrets"] == ["r"]
    pod = made("CronJob", **chosen)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"disk": "fast"}, [taint])
    assert pod["imagePullSecrets"] == [{"name": "r"}]


def test_pods_have_the_limit_and_the_priority_that_the_chart_says() -> None:
    """And none otherwise. What YAML made a number of is a limit, too."""
    options = LagJobOptions.model_validate(
        {
            "namespace": "n", "name": "lag", "cpuLimit": 2, "priorityClassName": "low",
            "executors": {"instances": 1, "cores": 4, "cpuLimit": "6"},
        }
    )  # fmt: skip
    template: Any = shared_lag_job.schedule(options, None, "r/lag:1", "ScheduledSparkApplication")
    driver, executor = (template["spec"]["template"][part] for part in ("driver", "executor"))
    assert (driver["coreRequest"], driver["coreLimit"], driver["priorityClassName"]) == ("250m", "2", "low")
    assert (executor["coreLimit"], executor["priorityClassName"]) == ("6", "low")
    assert "coreRequest" not in executor
    job: Any = shared_lag_job.schedule(options, None, "r/lag:1", "CronJob")
    memory = "1664Mi"
    assert container(job)["resources"] == {
        "requests": {"cpu": "250m", "memory": memory},
        "limits": {"cpu": "2", "memory": memory},
    }
    assert job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["priorityClassName"] == "low"
    assert container(made("CronJob"))["resources"]["limits"] == {"memory": memory}
    assert "priorityClassName" not in made("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("limit", "driver", "executor"),
    [("100m", "100m", "100m"), ("0.2", "200m", "200m"), ("250m", "250m", "250m"), ("1.5", "250m", "1500m")],
)
def test_no_pod_asks_for_more_than_its_limit(limit: str, driver: str, executor: str) -> None:
    """The API server would refuse it, and no run would ever start."""
    assert made(cpu_limit=limit)["spec"]["template"]["driver"]["coreRequest"] == driver
    assert container(made("CronJob", cpu_limit=limit))["resources"]["requests"]["cpu"] == driver
    executors = ExecutorOptions(instances=1, cores=2, cpu_limit=limit)
    assert made(executors=executors)["spec"]["template"]["executor"]["coreRequest"] == executor


def test_the_secret_holds_the_document_and_the_files_that_it_names() -> None:
    data, left_out = secret_data([MAIN, HUB])
    assert left_out == frozenset()
    assert json.loads(data.pop("brokers.json")) == {
        "version": 1,
        "brokers": [
            {
                "namespace": "hub",
                "broker": "east",
                "observers": ["https://east-observer.hub.svc:8080"],
                "tokenFile": "hub.east.token",
                "caFile": "hub.east.crt",
                "windowSeconds": 300,
                "staleSeconds": 180,
            },
            {
                "namespace": "shop",
                "broker": "main",
                "observers": ["https://main-observer.shop.svc:8080"],
                "tokenFile": "shop.main.token",
                "caFile": "shop.main.crt",
                "windowSeconds": 900,
                "staleSeconds": 180,
            },
        ],
    }
    assert data == {"hub.east.token": b"t2", "hub.east.crt": b"c2", "shop.main.token": b"t1", "shop.main.crt": b"c1"}


def fleet(count: int) -> list[Member]:
    """Brokers with the longest names that there are, and a token and a certificate as long as real ones."""
    return [
        Member(broker=BrokerName("n" * 63, f"{number:030d}"), window_seconds=86_400, token=b"t" * 43, ca=b"c" * 700)
        for number in range(count)
    ]


def test_six_hundred_brokers_fit() -> None:
    assert secret_data(fleet(600))[1] == frozenset()


def test_what_does_not_fit_is_named_and_it_is_what_came_last() -> None:
    members = fleet(2000)
    data, left_out = secret_data(members)
    assert 0 < len(left_out) < 2000
    assert left_out == {member.broker for member in members[-len(left_out) :]}
    assert sum(map(len, data.values())) <= 1_000_000
    assert len(json.loads(data["brokers.json"])["brokers"]) == 2000 - len(left_out)


@given(
    st.lists(
        st.builds(
            Member,
            broker=st.builds(BrokerName, st.sampled_from(["a", "b-c"]), st.sampled_from(["main", "x", "y-z"])),
            window_seconds=st.integers(60, 86_400),
            token=st.binary(min_size=1, max_size=60),
            ca=st.binary(min_size=1, max_size=900),
        ),
        unique_by=lambda member: member.broker,
    )
)
def test_what_was_written_is_read_back(members: list[Member]) -> None:
    """So a Broker that this operator has not reconciled yet stays in the Secret as it was."""
    written = secret(OPTIONS, None, secret_data(members)[0])
    assert members_of(written) == {member.broker: member for member in members}
    assert secret(OPTIONS, None, secret_data(members[::-1])[0]) == written, "the order of Brokers does not matter"


def test_a_secret_that_can_t_be_read_holds_nobody() -> None:
    assert members_of(None) == {}
    assert members_of({"data": {"brokers.json": "!!!"}}) == {}
    assert members_of({"data": {"brokers.json": "e30="}}) == {}
