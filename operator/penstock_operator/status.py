"""Writes what was reported: status once and only if it changed, and an Event when the reason changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Final, cast

from penstock_api.resources import AnyResource
from penstock_operator import conditions, names
from penstock_operator.api_server import ApiServer, KubeError
from penstock_operator.conditions import Truth
from penstock_operator.decisions import Report
from penstock_operator.manifests import Manifest, dig, items_of, text_at
from penstock_operator.reasons import Reason

__all__ = ["differs", "event", "is_ready", "unreadable", "wanted", "write", "written"]

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


def event(manifest: Manifest, report: Report, now: datetime) -> Manifest | None:
    """The Event to send, if the reason of Ready is another one than before."""
    ready = next((condition for condition in report.conditions if condition.type == "Ready"), None)
    before = _by_type(manifest, "status").get("Ready")
    if ready is None or ready.reason == Reason.PENDING or text_at(before, "reason") == str(ready.reason):
        return None
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
        "type": "Normal" if ready.truth is Truth.TRUE else "Warning",
        "reason": str(ready.reason),
        "message": ready.message[:1024],
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
            "status": truth,
            "reason": str(Reason.INVALID_SPEC),
            "message": message[:4096],
            "lastTransitionTime": _since(before.get(kind), truth) or conditions.timestamp(now),
            "observedGeneration": generation,
        }
        for kind, truth in (("Ready", "False"), ("Stalled", "True"))
    ]
    return {"observedGeneration": generation, "conditions": rendered}


async def write(kube: ApiServer, manifest: Manifest, resource: AnyResource, report: Report, now: datetime) -> Manifest:
    """Write the report; the object as it is now."""
    status = wanted(resource, report, now)
    if not differs(manifest, status):
        return manifest
    sent = event(manifest, report, now)
    result = await kube.apply_status(manifest, status, names.MANAGER)
    if sent is not None:
        try:
            await kube.create(sent)
        except KubeError as error:
            # A terminating namespace takes no Events; status has said it all.
            logger.info("no Event for %s %s: %s", manifest["kind"], resource.key, error)
    return result


def _since(condition: Manifest | None, truth: str) -> str | None:
    return text_at(condition, "lastTransitionTime") if text_at(condition, "status") == truth else None


def _by_type(manifest: Manifest, *path: str) -> dict[str, Manifest]:
    found = {str(condition.get("type")): condition for condition in items_of(manifest, *path, "conditions")}
    found.pop("Lagging", None)
    return found
