"""What is done next so that the volumes of a Broker get the sizes of its spec.

The claims are enlarged first. When both ask for what the spec says, the StatefulSet is deleted without its pods and
made again with these sizes, because its templates cannot be changed. Each step follows from what is there, so a pass
that was interrupted is continued by the next one. A volume never shrinks: if one size of the spec cannot be had,
neither volume is changed, and `obstacle` says why. Source: docs/decisions/105-volumes-grow.md; Kubernetes, "Resizing
persistent volumes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum

from penstock_api.quantity import parse_quantity
from penstock_operator.children.volume_claims import VOLUMES, are_same, capacity_of, request_of
from penstock_operator.manifest import Manifest, dig, text_at

__all__ = [
    "Expansion",
    "Impossible",
    "LookUpClass",
    "NothingToGrow",
    "Obstacle",
    "ReplaceStatefulSet",
    "ResizeClaim",
    "VolumesStep",
    "VolumesView",
    "is_bound",
    "next_step",
    "obstacle",
    "sizes_for_a_new_stateful_set",
]


class Expansion(Enum):
    """Whether volumes of a storage class can grow."""

    ALLOWED = "Allowed"
    NOT_ALLOWED = "NotAllowed"
    """The class does not say `allowVolumeExpansion: true`."""
    NO_CLASS = "NoClass"
    """The class does not exist, or the volume has none."""
    NOT_KNOWN = "NotKnown"
    """The operator may not read classes. The API server checks the class in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumesView:
    """All that is known of the volumes of one Broker."""

    wanted: Mapping[str, str]
    """The sizes in the spec, by volume."""
    template: Mapping[str, str] | None
    """The sizes in the templates of the StatefulSet; None if there is no StatefulSet."""
    is_leaving: bool = False
    """The StatefulSet is being deleted."""
    is_recorded: bool = False
    """What its pods are made with is written down elsewhere, so that it can be made again."""
    claims: Mapping[str, Manifest] = field(default_factory=dict[str, Manifest])
    """The claims that exist, by volume."""
    may_read_claims: bool = True
    """Whether the operator's role lets it read claims."""
    classes: Mapping[str, Expansion] = field(default_factory=dict[str, Expansion])
    """The storage classes that were looked up, by name."""
    refused: str = ""
    """What the API server said when it refused the last step; empty if it did not."""


@dataclass(frozen=True, slots=True)
class LookUpClass:
    """Read this storage class."""

    name: str


@dataclass(frozen=True, slots=True)
class ResizeClaim:
    """Let the claim of a volume ask for another size."""

    volume: str
    size: str


@dataclass(frozen=True, slots=True)
class ReplaceStatefulSet:
    """Delete the StatefulSet without its pods. A later pass makes it again, and it adopts them."""


@dataclass(frozen=True, slots=True)
class NothingToGrow:
    """There is nothing to do, or nothing that can be done in this pass."""


VolumesStep = LookUpClass | ResizeClaim | ReplaceStatefulSet | NothingToGrow


class Impossible(Enum):
    """Why a size of the spec cannot be had."""

    SHRINK = "Shrink"
    """The volume is larger already."""
    NO_EXPANSION = "NoExpansion"
    """The storage class does not let volumes grow."""
    REFUSED = "Refused"
    """The API server refused it, or the operator has not the right to try."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the sizes of the spec are not applied."""

    why: Impossible
    volume: str = ""
    """The volume that it is about; empty: both."""


def next_step(view: VolumesView) -> VolumesStep:
    """The next thing to do."""
    if obstacle(view) is not None:
        return NothingToGrow()
    for volume in VOLUMES:
        name = _class_to_look_up(view, volume)
        if name is not None:
            return LookUpClass(name)
    for volume in VOLUMES:
        claim = view.claims.get(volume)
        if claim is not None and _must_change(view, volume, claim):
            # The size of a claim without a volume can't be changed.
            return ResizeClaim(volume, view.wanted[volume]) if is_bound(claim) else NothingToGrow()
    if view.template is None or view.is_leaving or not view.is_recorded or not view.may_read_claims:
        return NothingToGrow()
    return NothingToGrow() if are_same(view.template, view.wanted) else ReplaceStatefulSet()


def obstacle(view: VolumesView) -> Obstacle | None:
    """Why the sizes of the spec can't be had; None if nothing is known to be in the way."""
    if view.refused:
        return Obstacle(Impossible.REFUSED)
    if not view.may_read_claims and view.template is not None and not are_same(view.template, view.wanted):
        return Obstacle(Impossible.REFUSED)
    for volume, claim in view.claims.items():
        if _would_shrink(view, volume, claim):
            return Obstacle(Impossible.SHRINK, volume)
    for volume, claim in view.claims.items():
        name = _class_of(claim)
        known = Expansion.NO_CLASS if not name else view.classes.get(name)
        if _must_grow(view, volume, claim) and known in (Expansion.NOT_ALLOWED, Expansion.NO_CLASS):
            return Obstacle(Impossible.NO_EXPANSION, volume)
    return None


def sizes_for_a_new_stateful_set(view: VolumesView) -> dict[str, str]:
    """The sizes with which the StatefulSet is applied: those that it has, or else those of the spec."""
    return dict(view.wanted if view.template is None else view.template)


def is_bound(claim: Manifest) -> bool:
    """Whether a claim has its volume."""
    return text_at(claim, "status", "phase") == "Bound"


def _class_to_look_up(view: VolumesView, volume: str) -> str | None:
    """The storage class on which the growth of a volume depends, if it was not looked up yet."""
    claim = view.claims.get(volume)
    name = _class_of(claim)
    if claim is None or not name or name in view.classes or not is_bound(claim):
        return None
    return name if _must_grow(view, volume, claim) else None


def _class_of(claim: Manifest | None) -> str:
    return text_at(claim, "spec", "storageClassName") or ""


def _must_change(view: VolumesView, volume: str, claim: Manifest) -> bool:
    return _must_grow(view, volume, claim) or _takes_back(view, volume, claim)


def _must_grow(view: VolumesView, volume: str, claim: Manifest) -> bool:
    return _size(view.wanted[volume]) > _size(request_of(claim))


def _is_lowered(view: VolumesView, volume: str, claim: Manifest) -> bool:
    """Whether the spec asks for less than it did, and less than the claim does. A claim that somebody enlarged by hand
    may be larger than the spec, which never asked for so much.
    """
    template = None if view.template is None else view.template.get(volume)
    wanted = _size(view.wanted[volume])
    return template is not None and wanted < _size(template) and wanted < _size(request_of(claim))


def _takes_back(view: VolumesView, volume: str, claim: Manifest) -> bool:
    """Whether a growth that has not come is to become a smaller growth, which Kubernetes allows."""
    capacity = capacity_of(claim)
    if capacity is None or not _is_lowered(view, volume, claim):
        return False
    return _size(view.wanted[volume]) > _size(capacity)


def _would_shrink(view: VolumesView, volume: str, claim: Manifest) -> bool:
    has_volume = is_bound(claim) or dig(claim, "spec", "volumeName") is not None
    return has_volume and _is_lowered(view, volume, claim) and not _takes_back(view, volume, claim)


def _size(quantity: str | None) -> Decimal:
    return parse_quantity(quantity or "0")
