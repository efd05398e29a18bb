"""What the status of a Broker says about the sizes of its volumes.

A size that can't be had is an obstacle in Accepted. A volume that is on its way to its size has the condition
StorageResizing, in which the words that Kubernetes has for the claim become sentences. Source:
docs/decisions/105-volumes-grow.md; Kubernetes, "Resizing persistent volumes" and KEP 1790 (failed expansions).
"""

from __future__ import annotations

from typing import Final, assert_never

from penstock_api.quantity import parse_quantity
from penstock_api.resources import Broker
from penstock_operator.children.volume_claims import VOLUMES, are_same, capacity_of, claim_name, request_of
from penstock_operator.manifest import Manifest, dig, items_of, text_at
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.volume_growth import Impossible, VolumesView, is_bound, obstacle

__all__ = ["STORAGE_RESIZING", "storage_resizing", "storage_sizes", "volume_obstacle"]

STORAGE_RESIZING: Final = "StorageResizing"
_PAGE: Final = "docs/how-to/grow-a-volume.md"
_FIELDS: Final = {"data": "storage.size", "ledger": "storage.ledgerSize"}
_RIGHTS: Final = (
    "`get` and `patch` on persistentvolumeclaims, `delete` on statefulsets, and `get` on storageclasses, which the "
    "chart's roles have"
)
_FAILED: Final = ("ControllerResizeError", "NodeResizeError")

_BY_URGENCY: Final = (
    ConditionReason.EXPANSION_FAILED,
    ConditionReason.CLAIM_NOT_BOUND,
    ConditionReason.FILE_SYSTEM_RESIZE_PENDING,
    ConditionReason.EXPANSION_PENDING,
)


def volume_obstacle(broker: Broker, view: VolumesView | None) -> StatusCondition | None:
    """Accepted=False if the sizes of the spec can't be had; `view` is None if the volumes were not looked at."""
    found = None if view is None else obstacle(view)
    if view is None or found is None:
        return None
    claim = view.claims.get(found.volume)
    has, wanted = _has(claim), view.wanted.get(found.volume, "")
    field, name = _FIELDS.get(found.volume, ""), claim_name(broker, found.volume)
    match found.why:
        case Impossible.SHRINK:
            reason = ConditionReason.SHRINK_REFUSED
            message = (
                f"`{field}` is {wanted}, and the volume of {name} has {has}. A volume can't shrink, so both volumes "
                f"stay as they are. Set `{field}` back to {_least(view, found.volume, claim)}; to move to a smaller "
                f"volume, see {_PAGE}."
            )
        case Impossible.NO_EXPANSION:
            reason = ConditionReason.EXPANSION_NOT_ALLOWED
            storage_class = text_at(claim, "spec", "storageClassName")
            told = f"the storage class {storage_class}" if storage_class else "no storage class"
            message = (
                f"`{field}` is {wanted}, and the volume of {name} has {has} and is of {told}, which does not let "
                "volumes grow. Nothing was changed. If the storage can do it, set `allowVolumeExpansion: true` in the "
                f"class; else set `{field}` back to {request_of(claim)}, and move to a new volume as {_PAGE} says. Do "
                "not delete the claim: the messages are on its volume."
            )
        case Impossible.REFUSED:
            reason = ConditionReason.EXPANSION_REFUSED
            said = view.refused or "the operator may not read PersistentVolumeClaims"
            message = (
                f"The volumes were not changed to the sizes of the spec: {said}. Remove the cause, such as a quota, or "
                f"set the sizes back. The operator needs the rights {_RIGHTS}."
            )
        case _:
            assert_never(found.why)
    return StatusCondition("Accepted", ConditionStatus.FALSE, reason, message)


def _least(view: VolumesView, volume: str, claim: Manifest | None) -> str:
    """What the spec may say: the size that it had, or more than the volume has if it has not grown so far."""
    before = (view.template or {}).get(volume, "")
    capacity = capacity_of(claim)
    if capacity is None or parse_quantity(capacity) >= parse_quantity(before or "0"):
        return before
    return f"{before}, or to less that is above {capacity}"


def _has(claim: Manifest | None) -> str:
    return capacity_of(claim) or request_of(claim) or "a size that is not known"


def storage_resizing(broker: Broker, view: VolumesView | None) -> StatusCondition | None:
    """StorageResizing; only while a volume has less than its claim asks for, or the StatefulSet is made again."""
    if view is None:
        return None
    found = [told for volume in VOLUMES if (told := _of_volume(broker, view, volume)) is not None]
    if found:
        reason = min((reason for reason, _ in found), key=_BY_URGENCY.index)
        message = " ".join(sentence for _, sentence in found)
        return StatusCondition(STORAGE_RESIZING, ConditionStatus.TRUE, reason, message)
    is_old = view.template is not None and not are_same(view.template, view.wanted)
    if obstacle(view) is not None or not (view.is_leaving or is_old):
        return None
    message = (
        "The StatefulSet is deleted without its pod and made again with the new sizes of its claims. The pod runs on, "
        "and clients notice nothing."
    )
    return StatusCondition(STORAGE_RESIZING, ConditionStatus.TRUE, ConditionReason.STATEFUL_SET_REPLACED, message)


def _of_volume(broker: Broker, view: VolumesView, volume: str) -> tuple[ConditionReason, str] | None:
    """How far the growth of one volume is; None if it is not growing."""
    claim = view.claims.get(volume)
    if claim is None:
        return None
    name, request, capacity = claim_name(broker, volume), request_of(claim) or "0", capacity_of(claim)
    if not is_bound(claim):
        if parse_quantity(request) == parse_quantity(view.wanted[volume]):
            return None
        sentence = (
            f"The claim {name} asks for {request} and has no volume yet; it can be changed to {view.wanted[volume]} "
            "when it has one. If it never gets one, delete the claim and then the pod: no messages are on it."
        )
        return ConditionReason.CLAIM_NOT_BOUND, sentence
    if capacity is None or parse_quantity(capacity) >= parse_quantity(request):
        return None
    size = f"The volume of {name} has {capacity} and is to get {request}"
    failure = _failure(claim)
    if failure is not None:
        sentence = (
            f"{size}, but that failed: {failure} The storage tries again. If it can't give so much, set "
            f"`{_FIELDS[volume]}` to less, but to more than {capacity}."
        )
        return ConditionReason.EXPANSION_FAILED, sentence
    if _condition(claim, "FileSystemResizePending") is not None:
        sentence = (
            f"{size}: the storage has given the space, and the node enlarges the file system while the pod runs. If "
            f"this lasts for minutes, the storage can do it only at a start: delete pod {broker.metadata.name}-0 when "
            "a short interruption suits."
        )
        return ConditionReason.FILE_SYSTEM_RESIZE_PENDING, sentence
    sentence = f"{size}: the storage has not given the space yet. `kubectl describe pvc {name}` shows its events."
    return ConditionReason.EXPANSION_PENDING, sentence


def _failure(claim: Manifest) -> str | None:
    """What Kubernetes says of an expansion that failed; None if none did."""
    for kind in _FAILED:
        found = _condition(claim, kind)
        if found is not None:
            return (text_at(found, "message") or kind).rstrip(".") + "."
    state = dig(claim, "status", "allocatedResourceStatuses", "storage")
    return f"{state}." if isinstance(state, str) and state.endswith("Infeasible") else None


def _condition(claim: Manifest, kind: str) -> Manifest | None:
    """A condition of a claim that is true, None if there is none of this type."""
    for each in items_of(claim, "status", "conditions"):
        if each.get("type") == kind and each.get("status") == "True":
            return each
    return None


def storage_sizes(broker: Broker, view: VolumesView | None) -> Manifest | None:
    """`status.storage`. If the volumes were not looked at, or may not be, it stays as it is."""
    if view is None or not view.may_read_claims:
        shown = broker.status.storage
        return None if shown is None else shown.model_dump(mode="json", by_alias=True, exclude_none=True)
    sizes: Manifest = {}
    for volume, claim in view.claims.items():
        told = {"requested": request_of(claim), "capacity": capacity_of(claim)}
        sizes[volume] = {key: size for key, size in told.items() if size is not None}
    return sizes or None
