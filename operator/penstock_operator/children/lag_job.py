"""The lag job of one Broker, in its namespace, for a Broker that wants a job of its own.

Source: docs/decisions/065-lag-schedule.md.
"""

from __future__ import annotations

import math
from typing import Final

from penstock_api.quantity import parse_quantity
from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children import lag_schedules
from penstock_operator.children.lag_schedules import LagJob
from penstock_operator.children.metadata import child_metadata, labels
from penstock_operator.manifest import Manifest

__all__ = ["cron", "manifests"]

_MOUNT: Final = "/etc/penstock/observer"


def cron(broker: Broker) -> str:
    """When the job runs: a cron expression, in UTC."""
    return lag_schedules.cron(broker.key, broker.spec.lag_analysis.interval_minutes)


def manifests(broker: Broker, lag_image: str, *, spark_installed: bool) -> list[Manifest]:
    """The schedule, and a ServiceAccount without any API token for its pods; empty if the Broker has no such job."""
    match broker.spec.lag_analysis.backend:
        case "ScheduledSparkApplication":
            if not spark_installed:
                return []
            return [_service_account(broker), lag_schedules.scheduled_application(_job(broker, lag_image))]
        case "CronJob":
            return [_service_account(broker), lag_schedules.cron_job(_job(broker, lag_image))]
        case "Auto" | "None":
            return []


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


def _job(broker: Broker, lag_image: str) -> LagJob:
    name, analysis = f"{broker.metadata.name}-lag", broker.spec.lag_analysis
    about = child_metadata(broker, broker, name)
    return LagJob(
        metadata={**about, "labels": {**labels(broker), "app.kubernetes.io/name": lag_schedules.APP}},
        image=analysis.image or lag_image,
        image_pull_policy=broker.spec.image_pull_policy,
        image_pull_secrets=[reference.name for reference in broker.spec.image_pull_secrets],
        arguments=_arguments(broker),
        secret=f"{broker.metadata.name}-observer-lag",
        mount=_MOUNT,
        cron=cron(broker),
        deadline_minutes=analysis.deadline_minutes,
        suspend=analysis.suspend,
        memory=analysis.memory,
        cpu_limit="" if analysis.cpu_limit is None else _in_millis(analysis.cpu_limit),
        service_account=name,
        pod_labels={names.BROKER_LABEL: broker.metadata.name},
    )


def _in_millis(cpus: str) -> str:
    """A quantity in the notation that Spark reads, too. Kubernetes knows no less than a thousandth of a CPU."""
    return f"{math.ceil(parse_quantity(cpus) * 1000)}m"
