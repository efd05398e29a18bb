"""The plan for a resource that this operator can't parse: what its status says, and what its deletion waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock_operator.plans.decisions import RemoveFinalizer, Report, Retry
from penstock_operator.plans.unreadable_resources import UnreadableView, plan_unreadable

VIEW = UnreadableView(
    problem="Subscription billing: spec.future: there is no such field",
    is_deleting=False,
    has_finalizer=True,
    is_forced=False,
    is_broker_gone=False,
)
LEAVING = replace(VIEW, is_deleting=True)


def told(report: Report) -> list[tuple[str, str, str]]:
    return [(it.type, it.status.value, str(it.reason)) for it in report.conditions]


@pytest.mark.parametrize(
    "view",
    [VIEW, replace(VIEW, is_forced=True), replace(VIEW, is_broker_gone=True), replace(VIEW, has_finalizer=False)],
)
def test_one_that_stays_says_what_is_wrong(view: UnreadableView) -> None:
    decision = plan_unreadable(view)
    assert isinstance(decision, Report)
    assert told(decision) == [("Ready", "False", "InvalidSpec"), ("Stalled", "True", "InvalidSpec")]
    assert {it.message for it in decision.conditions} == {
        "Subscription billing: spec.future: there is no such field. "
        "Install the CRDs and the operator of the same version."
    }
    assert (decision.details, decision.retry) == ({}, Retry.RESYNC)


def test_its_deletion_waits_for_an_operator_that_can_read_it() -> None:
    decision = plan_unreadable(LEAVING)
    assert isinstance(decision, Report)
    assert told(decision) == [
        ("Ready", "False", "InvalidSpec"),
        ("Stalled", "True", "InvalidSpec"),
        ("DeletionBlocked", "True", "InvalidSpec"),
    ]
    assert decision.conditions[2].message == (
        "Deletion waits, because this operator can't read what it may do with the messages: Subscription billing: "
        "spec.future: there is no such field. Install the operator of the version that the CRDs have. Or annotate with "
        "`penstock.dev/force-delete=true` to delete the resource now; what it declared is then collected as an orphan, "
        "by the deletionPolicy that was declared last."
    )


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(replace(LEAVING, is_forced=True), id="forced"),
        pytest.param(replace(LEAVING, is_broker_gone=True), id="no-broker"),
        pytest.param(replace(LEAVING, has_finalizer=False), id="never-declared"),
    ],
)
def test_its_deletion_waits_for_nothing_if_nothing_can_be_lost_by_it(view: UnreadableView) -> None:
    decision = plan_unreadable(view)
    assert isinstance(decision, RemoveFinalizer)
    assert not decision.is_removal_pending, "the broker is not asked before the entity has been an orphan for a while"


GOING = replace(LEAVING, namespace_terminating=True, seconds=30, policy="Delete", marked_policies=("Delete",))
"""Its namespace is being deleted, too."""


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(GOING, id="the-same-policy"),
        pytest.param(replace(GOING, marked_policies=("Retain", "Delete")), id="a-part-is-kept"),
        pytest.param(replace(GOING, policy=None, marked_policies=("Retain",)), id="the-broker-keeps-it"),
        pytest.param(replace(GOING, policy="Archive", marked_policies=()), id="the-broker-has-nothing-of-it"),
    ],
)
def test_it_holds_no_namespace_if_the_broker_goes_on_as_its_manifest_says(view: UnreadableView) -> None:
    decision = plan_unreadable(view)
    assert isinstance(decision, RemoveFinalizer)
    assert not decision.is_removal_pending, "ten minutes are left to make the resource again"


@pytest.mark.parametrize(
    ("view", "retry"),
    [
        pytest.param(replace(GOING, seconds=29), Retry.BACKOFF, id="not-yet"),
        pytest.param(replace(GOING, namespace_terminating=False, seconds=9000), Retry.RESYNC, id="its-namespace-stays"),
        pytest.param(replace(GOING, marked_policies=None), Retry.RESYNC, id="the-broker-does-not-answer"),
        pytest.param(replace(GOING, policy="Retain"), Retry.RESYNC, id="it-is-to-be-kept-by-now"),
        pytest.param(replace(GOING, policy="Archive"), Retry.RESYNC, id="an-unknown-policy"),
        pytest.param(replace(GOING, policy=None), Retry.RESYNC, id="its-policy-can-t-be-read"),
    ],
)
def test_else_it_waits_also_in_a_namespace_that_goes(view: UnreadableView, retry: Retry) -> None:
    decision = plan_unreadable(view)
    assert isinstance(decision, Report)
    assert told(decision)[2] == ("DeletionBlocked", "True", "InvalidSpec")
    assert decision.retry is retry
