"""A schedule of the lag job as a manifest: a ScheduledSparkApplication of the Kubeflow Spark operator, or a CronJob.

Without executors the job consists of a Spark driver only (`local[2]`) and has no API token: it reads the ledger over
HTTP, writes its result over HTTP, and does not use the Kubernetes API. Runs do not overlap (`Forbid`) and are not
retried; times are UTC. Source: docs/decisions/065-lag-schedule.md, docs/decisions/071-one-lag-job.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, cast

from penstock_operator.lag_options import ExecutorOptions
from penstock_operator.manifest import Manifest, dig, text_at

__all__ = [
    "APP",
    "KINDS",
    "SPARK_GROUP",
    "LagJob",
    "cron",
    "cron_job",
    "longest_seconds",
    "must_be_recreated",
    "scheduled_application",
    "suspended",
]

APP: Final = "penstock-lag"
"""The label `app.kubernetes.io/name` of a schedule and its runs. It must not be that by which the broker's Services
select pods: the Spark operator copies it to the driver's pod, and clients would be sent there.
"""
KINDS: Final = ("ScheduledSparkApplication", "CronJob")
SPARK_GROUP: Final = "sparkoperator.k8s.io"
_SPARK_API: Final = f"{SPARK_GROUP}/v1beta2"
_SPARK_VERSION: Final = "4.3.0"
_NO_NETWORK_POLICY: Final = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
_SUBMISSION_MILLIS: Final = "120000"
"""Spark's default of 10 s is too short for a JVM that starts on a busy node: the run would fail with a timeout."""
_KEEP_SECONDS: Final = 3600
_DEADLINE_VARIABLE: Final = "PENSTOCK_LAG_DEADLINE_SECONDS"
_DEADLINE_SETTING: Final = f"spark.kubernetes.driverEnv.{_DEADLINE_VARIABLE}"
_GRACE_SECONDS: Final = 120
"""A run is told so much more than its deadline, and ends itself so much before that. To be submitted it has as much
again: only what can't even do that is stuck.
"""
_FORMER_SECONDS: Final = 1800
"""The same of a run that was not told a time: an earlier release made it, or a person."""
_CPU_MILLIS: Final = 250
"""A run of 900,000 rows takes some 55 s of processor time, a small one 25 s, so it ends within four minutes also if it
gets no more than this. Source of this and the next: docs/reference/lag-performance.md.
"""
_BESIDE_HEAP_MEBIBYTES: Final = 640
"""Of a run's pod: what the JVM has outside of its heap, and Python, which judges what Spark found. Without it the
kernel would kill the pod before the heap is full, and nobody would say why.
"""
_CLASSES: Final = "/opt/penstock/classes"
"""The image's archive of Java's classes (penstock_lag.class_archive). An image without it works, too."""
_CLASS_PATH: Final = f"{_CLASSES}/spark.jar"
"""First in the class path, so that Java accepts the archive."""
_JAVA: Final = f"-XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -XX:SharedArchiveFile={_CLASSES}/spark.jsa"
"""A run is short, so it does not pay to optimise; it ends when its heap is full; and it begins with Spark's classes
loaded.
"""
_APPLICATION: Final = "/opt/penstock/lag.py"
_TMP: Final[Manifest] = {"name": "tmp", "mountPath": "/tmp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LagJob:
    """What a schedule runs."""

    metadata: Manifest
    """Of the schedule."""
    image: str
    image_pull_policy: str
    image_pull_secrets: Sequence[str] = ()
    """Names of Secrets with registry credentials."""
    arguments: Sequence[str]
    """Of `penstock lag`."""
    secret: str
    """The Secret that the arguments refer to, and the only one that the pods have."""
    mount: str
    """The folder in which the pods have it."""
    cron: str
    """When it runs, in UTC."""
    deadline_minutes: int
    """A run that takes longer ends itself."""
    suspend: bool
    memory: str
    """Heap of the Spark driver."""
    service_account: str
    """Of the driver or of the CronJob's pods. Executors have `SERVICE_ACCOUNT-executor`, which may do nothing."""
    pod_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    executors: ExecutorOptions = field(default_factory=ExecutorOptions)
    spark_conf: Mapping[str, str] = field(default_factory=dict[str, str])
    """Settings of Spark that a person has chosen."""
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: Sequence[Mapping[str, object]] = ()
    cpu_limit: str = ""
    """Of the driver or of the CronJob's pods; empty: none."""
    priority_class_name: str = ""
    """Of all pods; empty: the cluster's default."""


def cron(name: str, interval_minutes: int) -> str:
    """The cron expression. The minute within the interval follows from a hash of the name, so that jobs of many names
    do not start at the same time.
    """
    offset = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % interval_minutes
    match interval_minutes:
        case 1:
            return "* * * * *"
        case 60:
            return f"{offset} * * * *"
        case _:
            return f"{offset}-59/{interval_minutes} * * * *"


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


def longest_seconds(application: Manifest) -> int:
    """How long a SparkApplication may take: longer, and it is stuck. It says itself what it was told: the schedule may
    have had another deadline by then.
    """
    told = text_at(application, "spec", "sparkConf", _DEADLINE_SETTING) or ""
    return int(told) + _GRACE_SECONDS if told.isdecimal() and len(told) < 10 else _FORMER_SECONDS


def suspended(observed: Manifest) -> Manifest | None:
    """An existing schedule that is to start no further run; None if it starts none already.

    A schedule that is not wanted any more is deleted after the run that is under way. If it started another one
    meanwhile, it would stay for ever where runs take longer than the interval.
    """
    if dig(observed, "spec", "suspend") is True:
        return None
    about = {key: dig(observed, "metadata", key) for key in ("name", "namespace", "labels", "ownerReferences")}
    return {
        "apiVersion": observed["apiVersion"],
        "kind": observed["kind"],
        "metadata": {key: value for key, value in about.items() if value is not None},
        "spec": {**cast(Manifest, observed["spec"]), "suspend": True},
    }


def _container_security() -> Manifest:
    """Without a number the image's own user holds, or the one of the namespace's range on OpenShift."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def scheduled_application(job: LagJob) -> Manifest:
    """The ScheduledSparkApplication of a job."""
    template: Manifest = {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "sparkVersion": _SPARK_VERSION,
        "image": job.image,
        "imagePullPolicy": job.image_pull_policy,
        "mainApplicationFile": f"local://{_APPLICATION}",
        "arguments": list(job.arguments),
        # Since 4.2, spark-submit creates a NetworkPolicy for the executors, which the Spark operator's role does not
        # allow.
        "sparkConf": {
            "spark.kubernetes.driver.pod.excludedFeatureSteps": _NO_NETWORK_POLICY,
            "spark.kubernetes.submission.connectionTimeout": _SUBMISSION_MILLIS,
            "spark.kubernetes.submission.requestTimeout": _SUBMISSION_MILLIS,
            _DEADLINE_SETTING: _told_seconds(job),
            "spark.driver.extraClassPath": _CLASS_PATH,
            **({"spark.executor.extraClassPath": _CLASS_PATH} if job.executors.instances else {}),
            **job.spark_conf,
        },
        "restartPolicy": {"type": "Never"},
        "timeToLiveSeconds": _KEEP_SECONDS,
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "driver": _driver(job),
        "executor": _executor(job),
    }
    if job.node_selector:
        template["nodeSelector"] = dict(job.node_selector)
    if job.image_pull_secrets:
        template["imagePullSecrets"] = list(job.image_pull_secrets)
    spec: Manifest = {
        "schedule": job.cron,
        "timeZone": "UTC",
        "suspend": job.suspend,
        "concurrencyPolicy": "Forbid",
        "successfulRunHistoryLimit": 3,
        "failedRunHistoryLimit": 3,
        "template": template,
    }
    return {"apiVersion": _SPARK_API, "kind": "ScheduledSparkApplication", "metadata": job.metadata, "spec": spec}


def _told_seconds(job: LagJob) -> str:
    """What the run is told (penstock_lag.deadline)."""
    return str(60 * job.deadline_minutes + _GRACE_SECONDS)


def _driver(job: LagJob) -> Manifest:
    driver: Manifest = {
        "cores": 1,
        "coreRequest": _cpu_request(_CPU_MILLIS, job.cpu_limit),
        "memory": job.memory,
        "memoryOverhead": f"{_BESIDE_HEAP_MEBIBYTES}m",
        "javaOptions": _JAVA,
        "serviceAccount": job.service_account,
        "secrets": [{"name": job.secret, "path": job.mount, "secretType": "Generic"}],
        "securityContext": _container_security(),
        "volumeMounts": [_TMP],
    }
    if job.pod_labels:
        driver["labels"] = dict(job.pod_labels)
    if job.executors.instances == 0:
        driver["kubernetesMaster"] = "local[2]"
    return driver | _core_limit(job.cpu_limit) | _scheduling(job)


def _executor(job: LagJob) -> Manifest:
    if job.executors.instances == 0:
        # The CRD requires this field; with a local master no executor starts.
        return {"instances": 1, "cores": 1, "memory": "512m", "securityContext": _container_security()}
    return {
        "instances": job.executors.instances,
        "cores": job.executors.cores,
        "memory": job.executors.memory,
        "memoryOverhead": f"{_BESIDE_HEAP_MEBIBYTES}m",
        "javaOptions": _JAVA,
        "serviceAccount": f"{job.service_account}-executor",
        "secrets": [{"name": job.secret, "path": job.mount, "secretType": "Generic"}],
        "securityContext": _container_security(),
        "volumeMounts": [_TMP],
        **_executor_cpu(job.executors),
        **_scheduling(job),
    }


def _executor_cpu(executors: ExecutorOptions) -> Manifest:
    """Spark asks for as many CPUs as an executor has cores, and the API server refuses a limit that is less."""
    asked = 1000 * executors.cores
    limit = executors.cpu_limit
    fewer = {"coreRequest": _cpu_request(asked, limit)} if limit and _millis(limit) < asked else {}
    return {**fewer, **_core_limit(limit)}


def _core_limit(limit: str) -> Manifest:
    return {"coreLimit": limit} if limit else {}


def _cpu_request(millis: int, limit: str) -> str:
    """No more than the limit: the API server would refuse the pod."""
    return f"{min(millis, _millis(limit)) if limit else millis}m"


def _millis(cpus: str) -> int:
    """Of CPUs such as 2, 0.5 or 500m; at least 1."""
    return max(int(cpus[:-1]) if cpus.endswith("m") else int(Decimal(cpus) * 1000), 1)


def _scheduling(job: LagJob) -> Manifest:
    """The fields have the same names in a pod, and in driver and executor of a SparkApplication."""
    priority = {"priorityClassName": job.priority_class_name} if job.priority_class_name else {}
    return {**({"tolerations": [dict(each) for each in job.tolerations]} if job.tolerations else {}), **priority}


def cron_job(job: LagJob) -> Manifest:
    """The CronJob of a job, which has no executors."""
    memory = f"{_mebibytes(job.memory) + _BESIDE_HEAP_MEBIBYTES}Mi"
    container: Manifest = {
        "name": "lag",
        "image": job.image,
        "imagePullPolicy": job.image_pull_policy,
        "args": _command(job),
        "env": [
            {
                "name": "PENSTOCK_RUN_NAME",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}},
            },
            {"name": "PENSTOCK_LAG_MEMORY", "value": job.memory},
            {"name": _DEADLINE_VARIABLE, "value": _told_seconds(job)},
        ],
        "resources": {
            "requests": {"cpu": _cpu_request(_CPU_MILLIS, job.cpu_limit), "memory": memory},
            "limits": {**({"cpu": job.cpu_limit} if job.cpu_limit else {}), "memory": memory},
        },
        "securityContext": _container_security(),
        "volumeMounts": [{"name": "observer", "mountPath": job.mount, "readOnly": True}, _TMP],
    }
    pod: Manifest = {
        "restartPolicy": "Never",
        "serviceAccountName": job.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"name": "observer", "secret": {"secretName": job.secret, "defaultMode": 0o444}},
            {"name": "tmp", "emptyDir": {}},
        ],
        **_scheduling(job),
    }
    if job.node_selector:
        pod["nodeSelector"] = dict(job.node_selector)
    if job.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in job.image_pull_secrets]
    labelled: Manifest = {"metadata": {"labels": dict(job.pod_labels)}} if job.pod_labels else {}
    spec: Manifest = {
        "schedule": job.cron,
        "timeZone": "Etc/UTC",
        "suspend": job.suspend,
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": 60 * job.deadline_minutes + 2 * _GRACE_SECONDS,
                "ttlSecondsAfterFinished": _KEEP_SECONDS,
                "template": {**labelled, "spec": pod},
            }
        },
    }
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": job.metadata, "spec": spec}


def _command(job: LagJob) -> list[str]:
    """Without settings of a person the job starts its Spark by itself. With some it is started by spark-submit, under
    which the job sets nothing that is set already.
    """
    if not job.spark_conf:
        return ["penstock", "lag", *job.arguments]
    ours = {
        "spark.master": "local[2]",
        "spark.driver.memory": job.memory,
        "spark.driver.extraJavaOptions": _JAVA,
        "spark.driver.extraClassPath": _CLASS_PATH,
        "spark.local.dir": "/tmp",
    }
    settings = [word for key, value in {**ours, **job.spark_conf}.items() for word in ("--conf", f"{key}={value}")]
    return ["spark-submit", *settings, _APPLICATION, *job.arguments]


def _mebibytes(heap: str) -> int:
    """Of a size as Java has it, such as 1g or 1536m."""
    return int(heap[:-1]) * (1024 if heap.endswith("g") else 1)
