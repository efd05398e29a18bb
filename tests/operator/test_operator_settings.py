"""The settings from environment variables, as the chart sets them."""

from __future__ import annotations

import pytest

from penstock_api.failure import Misuse
from penstock_operator.lag_options import ExecutorOptions, LagJobOptions
from penstock_operator.settings import OperatorSettings

IMAGES = {"PENSTOCK_OPERATOR_BROKER_IMAGE": "b:1", "PENSTOCK_OPERATOR_LAG_IMAGE": "l:1"}


def test_the_chart_s_environment() -> None:
    found = OperatorSettings.from_environment(
        {
            **IMAGES,
            "PENSTOCK_OPERATOR_NAMESPACES": "a, b,",
            "PENSTOCK_OPERATOR_OWN_NAMESPACE": "penstock-system",
            "PENSTOCK_OPERATOR_CLUSTER_DOMAIN": "corp.local",
            "PENSTOCK_OPERATOR_LOG_LEVEL": "debug",
            "PENSTOCK_OPERATOR_RESYNC_SECONDS": "20",
            "PENSTOCK_OPERATOR_POLL_SECONDS": "2",
            "PENSTOCK_OPERATOR_LIVENESS_PORT": "9000",
            "PENSTOCK_OPERATOR_WORKERS": "64",
            "PENSTOCK_OPERATOR_PASS_SECONDS": "300",
        }
    )
    assert found == OperatorSettings(
        broker_image="b:1",
        lag_image="l:1",
        namespaces=("a", "b"),
        own_namespace="penstock-system",
        cluster_domain="corp.local",
        log_level="debug",
        resync_seconds=20,
        poll_seconds=2,
        liveness_port=9000,
        workers=64,
        pass_seconds=300,
    )


def test_an_empty_variable_is_none() -> None:
    # What the chart makes of a value that somebody has set to null, or that old values of `--reuse-values` lack.
    names = ("LEASE_SECONDS", "LOG_FORMAT", "LOG_LEVEL", "PASS_SECONDS", "POLL_SECONDS", "RESYNC_SECONDS", "WORKERS")
    empty = {f"PENSTOCK_OPERATOR_{name}": "" for name in (*names, "CLUSTER_DOMAIN", "LIVENESS_PORT")}
    assert OperatorSettings.from_environment({**IMAGES, **empty}) == OperatorSettings(
        broker_image="b:1", lag_image="l:1"
    )


def test_the_lag_job_as_the_chart_gives_it() -> None:
    text = (
        '{"backend":"Auto","deployment":"penstock-penstock-operator","executors":{"cores":1,"instances":2,"memory":"1g"},'
        '"imagePullPolicy":"IfNotPresent","imagePullSecrets":["r"],"intervalMinutes":10,"memory":"2g","name":'
        '"penstock-lag","namespace":"penstock-system","nodeSelector":{},"sparkConf":{"spark.sql.shuffle.partitions":"8"},'
        '"suspend":false,"tolerations":[{"operator":"Exists"}]}'
    )
    found = OperatorSettings.from_environment({**IMAGES, "PENSTOCK_OPERATOR_LAG_JOB": text}).lag_job
    assert found == LagJobOptions(
        namespace="penstock-system",
        name="penstock-lag",
        deployment="penstock-penstock-operator",
        interval_minutes=10,
        memory="2g",
        executors=ExecutorOptions(instances=2),
        spark_conf={"spark.sql.shuffle.partitions": "8"},
        tolerations=({"operator": "Exists"},),
        image_pull_secrets=("r",),
    )
    assert OperatorSettings.from_environment(IMAGES).lag_job is None


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"PENSTOCK_OPERATOR_LAG_IMAGE": "l"}, "broker-image"),
        ({**IMAGES, "PENSTOCK_OPERATOR_RESYNC_SECONDS": "0"}, "resync-seconds"),
        ({**IMAGES, "PENSTOCK_OPERATOR_LIVENESS_PORT": "70000"}, "liveness-port"),
        ({**IMAGES, "PENSTOCK_OPERATOR_WORKERS": "many"}, "workers can't be used.\nIt must be a whole number"),
        ({**IMAGES, "PENSTOCK_OPERATOR_POLL_SECONDS": "5s"}, "poll-seconds can't be used.\nIt must be a number"),
        ({**IMAGES, "PENSTOCK_OPERATOR_POLL_SECONDS": "inf"}, "poll-seconds"),
        ({**IMAGES, "PENSTOCK_OPERATOR_RESYNC_SECONDS": "nan"}, "resync-seconds"),
        ({**IMAGES, "PENSTOCK_OPERATOR_LOG_LEVEL": "loud"}, "log-level.*\nIt must be one of debug, info"),
        ({**IMAGES, "PENSTOCK_OPERATOR_LOG_FORMAT": "xml"}, "log-format"),
        ({**IMAGES, "PENSTOCK_OPERATOR_PASS_SECONDS": "29"}, "pass-seconds"),
        ({**IMAGES, "PENSTOCK_OPERATOR_PASS_SECONDS": "3601"}, "pass-seconds"),
        ({**IMAGES, "PENSTOCK_OPERATOR_LAG_JOB": "{"}, "lag-job is not JSON"),
        ({**IMAGES, "PENSTOCK_OPERATOR_LAG_JOB": '{"namespace":"a","name":"l","memory":"1Gi"}'}, "lag-job.*memory"),
    ],
)
def test_what_can_t_be_used_is_named(variables: dict[str, str], names: str) -> None:
    with pytest.raises(Misuse, match=names):
        OperatorSettings.from_environment(variables)


def test_all_mistakes_are_named_at_once() -> None:
    wrong = {"WORKERS": "many", "LEASE_SECONDS": "1.5", "LOG_FORMAT": "xml", "LOG_LEVEL": "loud", "PASS_SECONDS": "29"}
    with pytest.raises(Misuse) as told:
        OperatorSettings.from_environment(
            {"PENSTOCK_OPERATOR_LAG_IMAGE": "l", **{f"PENSTOCK_OPERATOR_{name}": text for name, text in wrong.items()}}
        )
    assert told.value.cause.splitlines() == [
        "6 operator settings can't be used:",
        "  workers must be a whole number",
        "  lease-seconds must be a whole number",
        "  log-format must be text or json",
        "  broker-image must be the name of an image",
        "  pass-seconds must be 30 to 3600",
        "  log-level must be one of debug, info, warning, error",
    ]
