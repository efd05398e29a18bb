"""The next step towards the sizes of the spec, and what the status says about volumes that grow."""

from __future__ import annotations

from typing import Any

import pytest
from support.resources import broker

from penstock_operator.plans.conditions import StatusCondition
from penstock_operator.plans.volume_growth import (
    Expansion,
    Impossible,
    LookUpClass,
    NothingToGrow,
    Obstacle,
    ReplaceStatefulSet,
    ResizeClaim,
    VolumesView,
    next_step,
    obstacle,
    sizes_for_a_new_stateful_set,
)
from penstock_operator.plans.volume_report import storage_resizing, storage_sizes, volume_obstacle

FAST = {"fast": Expansion.ALLOWED}


def claim(
    request: str, capacity: str | None = "", phase: str = "Bound", storage_class: str = "fast", **status: Any
) -> Any:
    """A claim; it has a volume of the size that it asks for, unless `capacity` says otherwise."""
    has = {} if capacity is None else {"capacity": {"storage": capacity or request}}
    spec = {"resources": {"requests": {"storage": request}}, "storageClassName": storage_class}
    return {"spec": spec, "status": {"phase": phase, **has, **status}}


def view(data: str, claimed: Any, template: str | None = "10Gi", **changes: Any) -> VolumesView:
    """What is known if the spec wants `data` for the volume of that name; nothing changes about the ledger."""
    made: dict[str, Any] = {
        "wanted": {"data": data, "ledger": "2Gi"},
        "template": None if template is None else {"data": template, "ledger": "2Gi"},
        "claims": {} if claimed is None else {"data": claimed, "ledger": claim("2Gi")},
        "is_recorded": True,
    }
    return VolumesView(**{**made, **changes})


@pytest.mark.parametrize(
    ("known", "step"),
    [
        pytest.param(view("10Gi", claim("10Gi")), NothingToGrow(), id="as-wanted"),
        pytest.param(view("10240Mi", claim("10Gi")), NothingToGrow(), id="written-otherwise"),
        pytest.param(view("20Gi", claim("10Gi")), LookUpClass("fast"), id="class-first"),
        pytest.param(view("20Gi", claim("10Gi"), classes=FAST), ResizeClaim("data", "20Gi"), id="grow"),
        pytest.param(
            view("20Gi", claim("10Gi"), classes={"fast": Expansion.NOT_KNOWN}),
            ResizeClaim("data", "20Gi"),
            id="class-not-readable",
        ),
        pytest.param(
            view("20Gi", claim("10Gi"), classes={"fast": Expansion.NOT_ALLOWED}), NothingToGrow(), id="class-fixed"
        ),
        pytest.param(view("20Gi", claim("10Gi", storage_class="")), NothingToGrow(), id="no-class"),
        pytest.param(view("20Gi", claim("20Gi", "10Gi")), ReplaceStatefulSet(), id="replace"),
        pytest.param(view("20Gi", claim("20Gi", "10Gi"), is_recorded=False), NothingToGrow(), id="not-recorded"),
        pytest.param(view("20Gi", claim("20Gi"), is_leaving=True), NothingToGrow(), id="leaving"),
        pytest.param(view("20Gi", claim("20Gi"), None), NothingToGrow(), id="none-to-replace"),
        pytest.param(view("20Gi", claim("10Gi"), None, classes=FAST), ResizeClaim("data", "20Gi"), id="grow-meanwhile"),
        pytest.param(view("20Gi", None), ReplaceStatefulSet(), id="no-claims"),
        pytest.param(view("5Gi", None), ReplaceStatefulSet(), id="smaller-without-a-volume"),
        pytest.param(view("5Gi", claim("10Gi")), NothingToGrow(), id="shrink"),
        pytest.param(view("20Gi", claim("10Gi", None, "Pending")), NothingToGrow(), id="pending"),
        pytest.param(view("20Gi", claim("30Gi", "10Gi"), "30Gi"), ResizeClaim("data", "20Gi"), id="take-back"),
        pytest.param(view("20Gi", claim("20Gi"), "30Gi"), ReplaceStatefulSet(), id="taken-back"),
        pytest.param(view("10Gi", claim("30Gi", "10Gi"), "30Gi"), NothingToGrow(), id="too-far-back"),
        pytest.param(view("10Gi", claim("30Gi", "10Gi")), NothingToGrow(), id="by-hand"),
        pytest.param(view("20Gi", claim("10Gi"), refused="no"), NothingToGrow(), id="refused"),
        pytest.param(view("20Gi", None, may_read_claims=False), NothingToGrow(), id="not-readable"),
    ],
)
def test_the_next_step(known: VolumesView, step: object) -> None:
    assert next_step(known) == step


@pytest.mark.parametrize(("data", "found"), [("20Gi", Obstacle(Impossible.REFUSED)), ("10Gi", None)])
def test_claims_that_can_t_be_read_matter_where_a_size_is_to_change(data: str, found: Obstacle | None) -> None:
    assert obstacle(view(data, None, may_read_claims=False)) == found


@pytest.mark.parametrize(("template", "size"), [("10Gi", "10Gi"), (None, "20Gi")])
def test_a_stateful_set_keeps_the_sizes_that_it_was_made_with(template: str | None, size: str) -> None:
    assert sizes_for_a_new_stateful_set(view("20Gi", None, template)) == {"data": size, "ledger": "2Gi"}


def test_if_one_size_can_t_be_had_the_other_volume_stays() -> None:
    wanted = {"data": "20Gi", "ledger": "1Gi"}
    known = view("20Gi", claim("10Gi"), wanted=wanted, classes=FAST)
    assert next_step(known) == NothingToGrow()
    found = obstacle(known)
    assert found is not None
    assert (found.why, found.volume) == (Impossible.SHRINK, "ledger")


def told(known: VolumesView) -> tuple[str, str]:
    """Reason and message of StorageResizing."""
    found = storage_resizing(broker(), known)
    return ("", "") if found is None else (str(found.reason), found.message)


def pending(kind: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "message": message}]}


def test_a_volume_that_has_its_size_is_not_mentioned() -> None:
    assert told(view("10Gi", claim("10Gi"))) == ("", "")
    assert told(view("10Gi", claim("10Gi", None, "Pending"))) == ("", "")
    assert told(view("5Gi", claim("10Gi"))) == ("", "")


@pytest.mark.parametrize(
    ("claimed", "reason", "sentence"),
    [
        (
            claim("20Gi", "10Gi"),
            "ExpansionPending",
            "The volume of data-main-0 has 10Gi and is to get 20Gi: the storage has not given the space yet. `kubectl "
            "describe pvc data-main-0` shows its events.",
        ),
        (
            claim("20Gi", "10Gi", **pending("FileSystemResizePending")),
            "FileSystemResizePending",
            "The volume of data-main-0 has 10Gi and is to get 20Gi: the storage has given the space, and the node "
            "enlarges the file system while the pod runs. If this lasts for minutes, the storage can do it only at a "
            "start: delete pod main-0 when a short interruption suits.",
        ),
        (
            claim("20Gi", "10Gi", **pending("ControllerResizeError", "no disk is so large.")),
            "ExpansionFailed",
            "The volume of data-main-0 has 10Gi and is to get 20Gi, but that failed: no disk is so large. The storage "
            "tries again. If it can't give so much, set `storage.size` to less, but to more than 10Gi.",
        ),
        (
            claim("20Gi", "10Gi", allocatedResourceStatuses={"storage": "NodeResizeInfeasible"}),
            "ExpansionFailed",
            "The volume of data-main-0 has 10Gi and is to get 20Gi, but that failed: NodeResizeInfeasible. The storage "
            "tries again. If it can't give so much, set `storage.size` to less, but to more than 10Gi.",
        ),
        (
            claim("10Gi", None, "Pending"),
            "ClaimNotBound",
            "The claim data-main-0 asks for 10Gi and has no volume yet; it can be changed to 20Gi when it has one. If "
            "it never gets one, delete the claim and then the pod: no messages are on it.",
        ),
        (
            claim("20Gi"),
            "StatefulSetReplaced",
            "The StatefulSet is deleted without its pod and made again with the new sizes of its claims. The pod runs "
            "on, and clients notice nothing.",
        ),
    ],
)
def test_what_is_waited_for(claimed: Any, reason: str, sentence: str) -> None:
    assert told(view("20Gi", claimed)) == (reason, sentence)


def test_of_two_volumes_the_more_urgent_reason_is_told_with_both_sentences() -> None:
    claims = {"data": claim("20Gi", "10Gi"), "ledger": claim("4Gi", "2Gi", **pending("NodeResizeError", "why"))}
    reason, message = told(view("20Gi", None, claims=claims, wanted={"data": "20Gi", "ledger": "4Gi"}))
    assert reason == "ExpansionFailed"
    assert "data-main-0" in message
    assert "`storage.ledgerSize`" in message


@pytest.mark.parametrize(
    ("storage_class", "kind"), [("fast", "the storage class fast, which"), ("", "no storage class, which")]
)
def test_a_class_that_can_t_expand_is_named(storage_class: str, kind: str) -> None:
    known = view("20Gi", claim("10Gi", storage_class=storage_class), classes={"fast": Expansion.NOT_ALLOWED})
    found = volume_obstacle(broker(), known)
    assert isinstance(found, StatusCondition)
    assert found.reason == "ExpansionNotAllowed"
    assert (
        f"`storage.size` is 20Gi, and the volume of data-main-0 has 10Gi and is of {kind} does not let" in found.message
    )
    assert "set `storage.size` back to 10Gi" in found.message


def test_sizes_that_were_not_looked_at_stay_as_they_are() -> None:
    shown = {"data": {"requested": "20Gi", "capacity": "10Gi"}, "ledger": {"requested": "2Gi"}}
    before = broker({"observedGeneration": 1, "conditions": [], "storage": shown})
    assert storage_sizes(before, None) == shown
    assert storage_sizes(before, view("10Gi", claim("10Gi"))) == {
        "data": {"requested": "10Gi", "capacity": "10Gi"},
        "ledger": {"requested": "2Gi", "capacity": "2Gi"},
    }
    assert storage_sizes(broker(), None) is None
