"""The schedule of a Broker's lag job: a ScheduledSparkApplication of the Kubeflow Spark operator, or a CronJob.

The job consists of a Spark driver only (`local[2]`) and has no API token: it reads the ledger over HTTP, writes its
result over HTTP, and does not use the Kubernetes API. Runs do not overlap (`Forbid`) and are not retried; times are
UTC. Source: docs/decisions/065-lag-schedule.md.
"""

from __future__ import annotations

import hashlib
from typing import Final

from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children.metadata import child_metadata, labels
from penstock_operator.manifest import Manifest, text_at

__all__ = ["DEADLINE_SECONDS", "SPARK_GROUP", "cron", "manifests", "must_be_recreated"]

SPARK_GROUP: Final = "sparkoperator.k8s.io"
_SPARK_API: Final = f"{SPARK_GROUP}/v1beta2"
_SPARK_VERSION: Final = "4.3.0"
_APP: Final = "penstock-lag"
_MOUNT: Final = "/etc/penstock/observer"
_USER: Final = 185
_NO_NETWORK_POLICY: Final = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
_SUBMISSION_MILLIS: Final = "120000"
"""Spark's default of 10 s is too short for a JVM that starts on a busy node: the run would fail with a timeout."""
_KEEP_SECONDS: Final = 3600
DEADLINE_SECONDS: Final = 1800
_CPU: Final = "250m"
"""A run of 900,000 rows takes some 55 s of processor time, a small one 25 s, so it ends within four minutes also if it
gets no more than this. Source of this and the next: docs/reference/lag-performance.md.
"""
_BESIDE_HEAP_MEBIBYTES: Final = 640
"""Of a run's pod: what the JVM has outside of its heap, and Python, which judges what Spark found. Without it the
kernel would kill the pod before the heap is full, and nobody would say why.
"""
_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError"
"""A run is short, so it does not pay to optimise; and it ends when its heap is full."""


def cron(broker: Broker) -> str:
    """The cron expression, in UTC. The minute within the interval follows from a hash of the Broker's name, so that the
    jobs of many Brokers do not start at the same time.
    """
    interval = broker.spec.lag_analysis.interval_minutes
    offset = int.from_bytes(hashlib.sha256(broker.key.encode()).digest()[:4]) % interval
    match interval:
        case 1:
            return "* * * * *"
        case 60:
            return f"{offset} * * * *"
        case _:
            return f"{offset}-59/{interval} * * * *"


def manifests(broker: Broker, lag_image: str, *, spark_installed: bool) -> list[Manifest]:
    """The schedule, and a ServiceAccount without any API token for its pods; empty if nothing is scheduled."""
    backend = broker.spec.lag_analysis.backend
    image = broker.spec.lag_analysis.image or lag_image
    match backend:
        case "ScheduledSparkApplication":
            return [_service_account(broker), _scheduled_application(broker, image)] if spark_installed else []
        case "CronJob":
            return [_service_account(broker), _cron_job(broker, image)]
        case "None":
            return []


def must_be_recreated(wanted: Manifest, observed: Manifest) -> bool:
    """Whether an existing schedule must be deleted and created again to take effect.

    The Spark operator computes no new start time when the times of a schedule change, and does not look again at a
    schedule that has failed validation.
    """
    if wanted.get("kind") != "ScheduledSparkApplication":
        return False
    changed = any(
        text_at(wanted, "spec", field) != text_at(observed, "spec", field) for field in ("schedule", "timeZone")
    )
    return changed or text_at(observed, "status", "scheduleState") == "FailedValidation"


def _service_account(broker: Broker) -> Manifest:
    about = child_metadata(broker, broker, f"{broker.metadata.name}-lag")
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about, "automountServiceAccountToken": False}


def _arguments(broker: Broker) -> list[str]:
    name, namespace = broker.metadata.name, broker.metadata.namespace
    observer = names.service_host(f"{name}-observer", namespace)
    return [
        f"--observer=https://{observer}:{names.OBSERVER_PORT}",
        f"--token-file={_MOUNT}/token",
        f"--ca-file={_MOUNT}/ca.crt",
        f"--broker={name}",
        f"--namespace={namespace}",
        f"--window={60 * broker.spec.lag_analysis.window_minutes}",
    ]


def _secret_name(broker: Broker) -> str:
    """The Secret with the token of the lag job, which is good for ledger and results alone."""
    return f"{broker.metadata.name}-observer-lag"


def _container_security() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _about(broker: Broker) -> Manifest:
    """Metadata of the schedule. The Spark operator copies its labels to the driver's pod. They must not be those by
    which the broker's Services select pods: clients would be sent to a pod that does not listen.
    """
    about = child_metadata(broker, broker, f"{broker.metadata.name}-lag")
    return {**about, "labels": {**labels(broker), "app.kubernetes.io/name": _APP}}


def _scheduled_application(broker: Broker, image: str) -> Manifest:
    name = f"{broker.metadata.name}-lag"
    driver: Manifest = {
        "cores": 1,
        "coreRequest": _CPU,
        "memory": broker.spec.lag_analysis.memory,
        "memoryOverhead": f"{_BESIDE_HEAP_MEBIBYTES}m",
        "javaOptions": _JAVA,
        "kubernetesMaster": "local[2]",
        "serviceAccount": name,
        "labels": {names.BROKER_LABEL: broker.metadata.name},
        "secrets": [{"name": _secret_name(broker), "path": _MOUNT, "secretType": "Generic"}],
        "securityContext": _container_security(),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    template: Manifest = {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "sparkVersion": _SPARK_VERSION,
        "image": image,
        "imagePullPolicy": broker.spec.image_pull_policy,
        "mainApplicationFile": "local:///opt/penstock/lag.py",
        "arguments": _arguments(broker),
        # Since 4.2, spark-submit creates a NetworkPolicy for the executors. The Spark operator's role does not allow
        # that, and this job has no executors.
        "sparkConf": {
            "spark.kubernetes.driver.pod.excludedFeatureSteps": _NO_NETWORK_POLICY,
            "spark.kubernetes.submission.connectionTimeout": _SUBMISSION_MILLIS,
            "spark.kubernetes.submission.requestTimeout": _SUBMISSION_MILLIS,
        },
        "restartPolicy": {"type": "Never"},
        "timeToLiveSeconds": _KEEP_SECONDS,
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "driver": driver,
        # The CRD requires this field; with a local master no executor starts.
        "executor": {"instances": 1, "cores": 1, "memory": "512m", "securityContext": _container_security()},
    }
    if broker.spec.image_pull_secrets:
        template["imagePullSecrets"] = [reference.name for reference in broker.spec.image_pull_secrets]
    spec: Manifest = {
        "schedule": cron(broker),
        "timeZone": "UTC",
        "suspend": broker.spec.lag_analysis.suspend,
        "concurrencyPolicy": "Forbid",
        "successfulRunHistoryLimit": 3,
        "failedRunHistoryLimit": 3,
        "template": template,
    }
    return {"apiVersion": _SPARK_API, "kind": "ScheduledSparkApplication", "metadata": _about(broker), "spec": spec}


def _cron_job(broker: Broker, image: str) -> Manifest:
    name = f"{broker.metadata.name}-lag"
    memory = f"{_mebibytes(broker.spec.lag_analysis.memory) + _BESIDE_HEAP_MEBIBYTES}Mi"
    container: Manifest = {
        "name": "lag",
        "image": image,
        "imagePullPolicy": broker.spec.image_pull_policy,
        "args": ["penstock", "lag", *_arguments(broker)],
        "env": [
            {
                "name": "PENSTOCK_RUN_NAME",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}},
            },
            {"name": "PENSTOCK_LAG_MEMORY", "value": broker.spec.lag_analysis.memory},
        ],
        "resources": {"requests": {"cpu": _CPU, "memory": memory}, "limits": {"memory": memory}},
        "securityContext": _container_security(),
        "volumeMounts": [
            {"name": "observer", "mountPath": _MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    pod: Manifest = {
        "restartPolicy": "Never",
        "serviceAccountName": name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "fsGroup": _USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"name": "observer", "secret": {"secretName": _secret_name(broker), "defaultMode": 0o440}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    if broker.spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": reference.name} for reference in broker.spec.image_pull_secrets]
    spec: Manifest = {
        "schedule": cron(broker),
        "timeZone": "Etc/UTC",
        "suspend": broker.spec.lag_analysis.suspend,
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": DEADLINE_SECONDS,
                "ttlSecondsAfterFinished": _KEEP_SECONDS,
                "template": {"metadata": {"labels": {names.BROKER_LABEL: broker.metadata.name}}, "spec": pod},
            }
        },
    }
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": _about(broker), "spec": spec}


def _mebibytes(heap: str) -> int:
    """Of a size as Java has it, such as 1g or 1536m."""
    return int(heap[:-1]) * (1024 if heap.endswith("g") else 1)
