"""The Secret of a Subscription's `binding`: when it is written, when deleted, and what the status says of it.

Only the Secret's own mark decides whether it is the operator's to write or delete; the status says that there may be
one. Source: docs/decisions/111-binding-secrets.md.
"""

from __future__ import annotations

from penstock_api.resources import Broker, Exchange, Subscription
from penstock_operator.children import binding_secret
from penstock_operator.plans.conditions import StatusCondition
from penstock_operator.plans.decisions import ApplyChild, ChildState, DeleteChild
from penstock_operator.plans.refusals import Refusal
from penstock_operator.plans.wanted_secret import secret_condition

__all__ = ["condition", "next_step", "shown"]


def next_step(
    broker: Broker, exchange: Exchange, subscription: Subscription, trusted: bytes | None, state: ChildState
) -> ApplyChild | DeleteChild | None:
    """Write the Secret that the spec asks for, or delete the one that it does not ask for any more."""
    if state is not ChildState.UNKNOWN:
        return None
    if subscription.spec.binding is None:
        was_there = subscription.status.binding is not None
        return DeleteChild("Secret", binding_secret.secret_name(subscription)) if was_there else None
    return None if trusted is None else ApplyChild(binding_secret.manifest(broker, exchange, subscription, trusted))


def shown(subscription: Subscription, state: ChildState) -> str | None:
    """The name for `status.binding`; what it says stays while nothing newer is known."""
    if subscription.spec.binding is None:
        return None
    if state is ChildState.APPLIED:
        return binding_secret.secret_name(subscription)
    before = subscription.status.binding
    return before.name if before is not None and state is ChildState.UNKNOWN else None


def condition(subscription: Subscription, state: ChildState, refusal: Refusal | None) -> StatusCondition:
    """Whether the Secret that the spec asks for is there. Ready does not depend on it."""
    name = binding_secret.secret_name(subscription)
    return secret_condition(
        "BindingSecret",
        name,
        subscription.kind,
        state,
        refusal,
        written=f"The Secret {name} says how to connect.",
        pending="The operator has not read the certificates of the Broker yet. Its condition Ready says why.",
    )
