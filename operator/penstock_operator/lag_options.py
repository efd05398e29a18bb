"""What the operator's one lag job for all its Brokers is made of: the chart's values `lag.*`, as one JSON document.

Source: docs/reference/operator.md, "The lag job"; docs/decisions/071-one-lag-job.md.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationError

from penstock_api import schema
from penstock_api.failure import Misuse
from penstock_api.resources.broker import JavaHeap, LagDeadlineMinutes, LagIntervalMinutes

__all__ = ["ExecutorOptions", "LagJobOptions", "read_lag_job"]

_SHORT_NAME = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
"""Forty characters: the name of a run's pod adds twenty, and its Service and labels must still fit into 63."""


CpuLimit = Annotated[str, BeforeValidator(str), Field(pattern=r"^([0-9]+([.][0-9]+)?|[0-9]+m)?$")]
"""CPUs, such as 2, 0.5 or 500m; empty: no limit. YAML makes a number of the first two."""


class ExecutorOptions(schema.Spec):
    """Executors of the Spark application. Without any, the driver does everything."""

    instances: Annotated[int, Field(ge=0, le=1000)] = 0
    """How many; a CronJob has none."""
    cores: Annotated[int, Field(ge=1, le=256)] = 1
    """Tasks that each runs at the same time."""
    memory: JavaHeap = "1g"
    """Heap of each."""
    cpu_limit: CpuLimit = ""
    """CPUs that each may use at most."""


class LagJobOptions(schema.Spec):
    """The one lag job of an operator."""

    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    """Where the operator runs: the job, its Secret and its runs are here."""
    name: Annotated[str, Field(pattern=_SHORT_NAME)]
    """Of the schedule, of its Secret and of the ServiceAccount of its pods, which the chart makes."""
    former_name: Annotated[str, Field(pattern=rf"^$|{_SHORT_NAME}")] = ""
    """The name that an earlier chart gave to them, if it is another one: what the operator's Deployment owns there is
    deleted. Empty: there was none.
    """
    deployment: Annotated[str, Field(max_length=253)] = ""
    """The operator's own Deployment. It owns job and Secret, so that they go with it; empty: nothing owns them."""
    backend: Literal["Auto", "ScheduledSparkApplication", "CronJob", "None"] = "Auto"
    """Auto: ScheduledSparkApplication if the cluster has its CRD, else CronJob."""
    interval_minutes: LagIntervalMinutes = 5
    """Minutes between two runs."""
    deadline_minutes: LagDeadlineMinutes = 26
    """Minutes after which a run ends itself."""
    suspend: bool = False
    """Keep the schedule, but start no runs."""
    memory: JavaHeap = "1g"
    """Heap of the Spark driver."""
    cpu_limit: CpuLimit = ""
    """CPUs that the driver, or a CronJob's pod, may use at most."""
    priority_class_name: Annotated[str, Field(max_length=253)] = ""
    """PriorityClass of the runs' pods; empty: the cluster's default."""
    executors: ExecutorOptions = ExecutorOptions()
    """Executors of the Spark application."""
    spark_conf: dict[str, str] = Field(default_factory=dict)
    """Further settings of Spark; they win over ours."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that the nodes of the runs must have."""
    tolerations: tuple[dict[str, object], ...] = ()
    """Taints that the runs tolerate."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When nodes fetch the image."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets with registry credentials."""


def read_lag_job(text: str) -> LagJobOptions | None:
    """The options in a JSON document, None if the text is empty.

    Raises:
        Misuse: the document can't be used, with the path of each wrong key.
    """
    if not text.strip():
        return None
    try:
        return LagJobOptions.model_validate(json.loads(text))
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise Misuse(
            f"operator setting lag-job can't be used: {found}.", "Correct the chart's values `lag`."
        ) from error
    except ValueError as error:
        raise Misuse(f"operator setting lag-job is not JSON: {error}.", "Correct it.") from error
