"""Writes the status that a plan has reported, once and only if it changed, and Events about the changes.

Source: docs/decisions/056-conditions.md, docs/decisions/058-server-side-apply.md.
"""

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

__all__ = ["differs", "event", "events", "is_ready", "own_part", "unparsable", "wanted", "write", "written"]

logger = logging.getLogger(__name__)

_NO_NEWS: Final = (ConditionReason.PENDING, ConditionReason.BROKER_NOT_ASKED)
"""Reasons that say only that nothing is known yet; an Event that is not about Ready=True is a warning."""

_OF_LAG: Final = ("lag",)
"""Fields of the status that the field manager `penstock-lag` writes."""


def wanted(resource: AnyResource, report: Report, now: datetime) -> Manifest:
    """The status that a report describes."""
    metadata = resource.metadata
    rendered = conditions.render(
        report.conditions, before=resource.status.conditions, generation=metadata.generation, now=now
    )
    return {"observedGeneration": metadata.generation, "conditions": rendered, **report.details}


def written(manifest: Manifest) -> Manifest:
    """The fields of an object's status that the field manager `penstock-operator` writes, without conditions."""
    status = cast(Mapping[str, object], dig(manifest, "status") or {})
    return {name: value for name, value in status.items() if name not in _OF_LAG and name != "conditions"}


def own_part(manifest: Manifest) -> Manifest:
    """All that the field manager `penstock-operator` has written into an object's status, as it is."""
    return {**written(manifest), "conditions": [*_by_type(manifest, "status").values()]}


def differs(manifest: Manifest, status: Manifest) -> bool:
    """Whether the object's status differs from `status`; the order of the conditions does not matter."""
    rest = {name: value for name, value in status.items() if name != "conditions"}
    return written(manifest) != rest or _by_type(manifest, "status") != _by_type({"status": status}, "status")


def events(manifest: Manifest, report: Report, now: datetime) -> list[Manifest]:
    """The Events to send: one if the reason of Ready changed, one if the contested container-ids changed."""
    before = _by_type(manifest, "status")
    found = {condition.type: condition for condition in report.conditions}
    events_for: list[StatusCondition] = []
    ready = found.get("Ready")
    if ready is not None and str(ready.reason) not in (*_NO_NEWS, text_at(before.get("Ready"), "reason")):
        events_for.append(ready)
    contest, last = found.get(CONTESTED), before.get(CONTESTED)
    if contest is not None and text_at(last, "message") != contest.message:
        # The condition exists only while something is wrong; an Event with status False is a warning.
        events_for.append(StatusCondition(contest.type, ConditionStatus.FALSE, contest.reason, contest.message))
    elif contest is None and last is not None:
        message = "Clients do not take container-ids from one another any more."
        events_for.append(StatusCondition(CONTESTED, ConditionStatus.TRUE, ConditionReason.TAKEOVERS_ENDED, message))
    return [event(manifest, condition, now) for condition in events_for]


def event(manifest: Manifest, condition: StatusCondition, now: datetime) -> Manifest:
    """An Event of type Normal if the condition is True, else of type Warning."""
    namespace, name = text_at(manifest, "metadata", "namespace"), text_at(manifest, "metadata", "name")
    moment = conditions.timestamp(now)
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
        "type": "Normal" if condition.status is ConditionStatus.TRUE else "Warning",
        "reason": str(condition.reason),
        "message": condition.message[:1024],
        "source": {"component": names.MANAGER},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def is_ready(manifest: Manifest) -> bool:
    """Whether the object's condition Ready is True."""
    ready = (it for it in items_of(manifest, "status", "conditions") if it.get("type") == "Ready")
    return text_at(next(ready, None), "status") == "True"


def unparsable(manifest: Manifest, report: Report, now: datetime) -> Manifest:
    """The status of an object that this operator can't parse. Fields that it has stay: the broker keeps what it has."""
    generation = dig(manifest, "metadata", "generation")
    before = _by_type(manifest, "status")
    rendered = [
        {
            "type": condition.type,
            "status": condition.status.value,
            "reason": str(condition.reason),
            "message": conditions.told(condition),
            "lastTransitionTime": _since(before.get(condition.type), condition.status.value)
            or conditions.timestamp(now),
            "observedGeneration": generation,
        }
        for condition in report.conditions
    ]
    return {**written(manifest), "observedGeneration": generation, "conditions": rendered}


async def write(
    kube: ApiServer,
    manifest: Manifest,
    resource: AnyResource,
    report: Report,
    now: datetime,
    *,
    with_events: bool = True,
    unchanged: bool = False,
) -> Manifest | None:
    """Write the report if it differs from the status; the object as it is then, None if nothing was written.

    Raises:
        KubeError: the API server refused; Conflict if the object had to be `unchanged`, and is not.
    """
    status = wanted(resource, report, now)
    if not differs(manifest, status):
        return None
    new_events = events(manifest, report, now) if with_events else []
    result = await kube.apply_status(manifest, status, names.MANAGER, unchanged=unchanged)
    try:
        for each in new_events:
            await kube.create(each)
    except KubeError as error:
        # A terminating namespace accepts no Events. Nothing is lost: the status contains the same.
        logger.info("an Event for %s %s was not created: %s", manifest["kind"], resource.key, error)
    return result


def _since(condition: Manifest | None, status: str) -> str | None:
    return text_at(condition, "lastTransitionTime") if text_at(condition, "status") == status else None


def _by_type(manifest: Manifest, *path: str) -> dict[str, Manifest]:
    found = {str(condition.get("type")): condition for condition in items_of(manifest, *path, "conditions")}
    return {kind: condition for kind, condition in found.items() if kind not in conditions.OF_LAG}
