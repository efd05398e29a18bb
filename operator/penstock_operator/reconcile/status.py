"""Writes what was reported: status once and only if it changed, with the Events that tell of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Final, cast

from penstock_api.resources import AnyResource
from penstock_operator import names
from penstock_operator.cluster.api_server import ApiServer, KubeError
from penstock_operator.manifest import Manifest, dig, items_of, text_at
from penstock_operator.plans import conditions
from penstock_operator.plans.broker_health import CONTESTED
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import Report

__all__ = ["differs", "events", "is_ready", "unreadable", "wanted", "write", "written"]

logger = logging.getLogger(__name__)

_OF_LAG: Final = ("lag",)
"""Fields of status that are `penstock-lag`'s."""


def wanted(resource: AnyResource, report: Report, now: datetime) -> Manifest:
    """The status that a report asks for."""
    metadata = resource.metadata
    rendered = conditions.render(
        report.conditions, before=resource.status.conditions, generation=metadata.generation, now=now
    )
    return {"observedGeneration": metadata.generation, "conditions": rendered, **report.details}


def written(manifest: Manifest) -> Manifest:
    """The part of an object's status that is `penstock-operator`'s."""
    status = cast(Mapping[str, object], dig(manifest, "status") or {})
    return {name: value for name, value in status.items() if name not in _OF_LAG and name != "conditions"}


def differs(manifest: Manifest, status: Manifest) -> bool:
    """Whether the object's status isn't `status` yet; the order of conditions says nothing."""
    rest = {name: value for name, value in status.items() if name != "conditions"}
    return written(manifest) != rest or _by_type(manifest, "status") != _by_type({"status": status}, "status")


def events(manifest: Manifest, report: Report, now: datetime) -> list[Manifest]:
    """The Events to send: one if the reason of Ready is another one than before, one for each change of a fight."""
    before = _by_type(manifest, "status")
    found = {condition.type: condition for condition in report.conditions}
    told: list[StatusCondition] = []
    ready = found.get("Ready")
    if ready is not None and str(ready.reason) not in (ConditionReason.PENDING, text_at(before.get("Ready"), "reason")):
        told.append(ready)
    fight, last = found.get(CONTESTED), before.get(CONTESTED)
    if fight is not None and text_at(last, "message") != fight.message:
        # It is there while something is wrong: True is the bad news.
        told.append(StatusCondition(fight.type, ConditionStatus.FALSE, fight.reason, fight.message))
    elif fight is None and last is not None:
        message = "No container-id keeps changing hands any more."
        told.append(StatusCondition(CONTESTED, ConditionStatus.TRUE, ConditionReason.TAKEOVERS_ENDED, message))
    return [_event(manifest, condition, conditions.timestamp(now)) for condition in told]


def _event(manifest: Manifest, told: StatusCondition, moment: str) -> Manifest:
    """Normal if the condition is True, else a warning."""
    namespace, name = text_at(manifest, "metadata", "namespace"), text_at(manifest, "metadata", "name")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "generateName": f"{name}."},
        "involvedObject": {
            "apiVersion": manifest["apiVersion"],
            "kind": manifest["kind"],
            "namespace": namespace,
            "name": name,
            "uid": text_at(manifest, "metadata", "uid"),
        },
        "type": "Normal" if told.status is ConditionStatus.TRUE else "Warning",
        "reason": str(told.reason),
        "message": told.message[:1024],
        "source": {"component": names.MANAGER},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def is_ready(manifest: Manifest) -> bool:
    """Whether the object's status says so."""
    return text_at(_by_type(manifest, "status").get("Ready"), "status") == "True"


def unreadable(manifest: Manifest, message: str, now: datetime) -> Manifest:
    """The status of an object that can't be parsed."""
    generation = dig(manifest, "metadata", "generation")
    before = _by_type(manifest, "status")
    rendered = [
        {
            "type": kind,
            "status": status,
            "reason": str(ConditionReason.INVALID_SPEC),
            "message": message[:4096],
            "lastTransitionTime": _since(before.get(kind), status) or conditions.timestamp(now),
            "observedGeneration": generation,
        }
        for kind, status in (("Ready", "False"), ("Stalled", "True"))
    ]
    return {"observedGeneration": generation, "conditions": rendered}


async def write(kube: ApiServer, manifest: Manifest, resource: AnyResource, report: Report, now: datetime) -> Manifest:
    """Write the report; the object as it is now."""
    status = wanted(resource, report, now)
    if not differs(manifest, status):
        return manifest
    told = events(manifest, report, now)
    result = await kube.apply_status(manifest, status, names.MANAGER)
    try:
        for event in told:
            await kube.create(event)
    except KubeError as error:
        # A terminating namespace takes no Events; status has said it all.
        logger.info("no Event for %s %s: %s", manifest["kind"], resource.key, error)
    return result


def _since(condition: Manifest | None, status: str) -> str | None:
    return text_at(condition, "lastTransitionTime") if text_at(condition, "status") == status else None


def _by_type(manifest: Manifest, *path: str) -> dict[str, Manifest]:
    found = {str(condition.get("type")): condition for condition in items_of(manifest, *path, "conditions")}
    found.pop("Lagging", None)
    return found
