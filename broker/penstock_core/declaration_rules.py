"""What the declaration or the deletion of a subscription or an exchange leads to.

Resources and administrators declare; clients attach. A declaration is idempotent. Unlike a client's attach it may
change the binding of a subscription in use: how far, its rebind policy says. A declaration never drops messages unless
its policy says so. It must not know Kubernetes: a resource is known by its owner mark. Source: decisions 4, 6 and 14;
docs/decisions/018-addresses.md, docs/decisions/053-rebind-policy.md, docs/decisions/054-owner-mark.md,
docs/decisions/055-deletion.md, docs/decisions/102-adoption.md; docs/reference/management.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from penstock_core.address import PREDEFINED, check_exchange_name
from penstock_core.binding import Binding, check_binding
from penstock_core.existing_subscription import ExistingSubscription, OwnerMark
from penstock_core.identity import Identity, subscription_name
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import Adoption, ExchangeType, Exclusivity, Lifetime, RebindPolicy

__all__ = [
    "DeclaredSubscription",
    "DeleteExisting",
    "DropAndRebind",
    "Keep",
    "Make",
    "NothingToDelete",
    "RebindInPlace",
    "Rebinding",
    "SameBinding",
    "Wait",
    "decide_declaration",
    "decide_deletion",
    "decide_exchange_declaration",
    "decide_exchange_deletion",
    "decide_rebind",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSubscription:
    """A subscription as declared."""

    identity: Identity
    exclusivity: Exclusivity
    lifetime: Lifetime
    binding: Binding
    rebind_policy: RebindPolicy
    managed: OwnerMark | None
    """The owner mark of the resource; None if an administrator declares."""
    adoption: Adoption = Adoption.UNMARKED


@dataclass(frozen=True, slots=True)
class SameBinding:
    """What is bound is what is declared."""


@dataclass(frozen=True, slots=True)
class RebindInPlace:
    """From one log record on the new binding holds; backlog, incarnation and consumers stay."""


@dataclass(frozen=True, slots=True)
class DropAndRebind:
    """Drop the backlog, start a new incarnation with the new binding; nobody consumes."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The old binding stays for now; apply everything else and say why (``RebindBlocked``)."""

    reason: Reason


Rebinding = SameBinding | RebindInPlace | DropAndRebind | Wait


@dataclass(frozen=True, slots=True)
class Make:
    """Make the subscription as declared; a not-shared one has no owner until a link attaches (decision 4)."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The subscription exists: set owner mark, lifetime and limits as declared; the binding as ``rebinding`` says."""

    adopts: bool
    """It had no owner mark, or that of another resource; from now on it belongs to this one and no longer to a user."""
    rebinding: Rebinding


def decide_declaration(
    declared: DeclaredSubscription, existing: ExistingSubscription | None, depth: int
) -> Make | Keep | Refuse:
    """Decide CREATE or UPDATE of a subscription that holds ``depth`` messages; the exchange was found and can route."""
    refused = _check(declared)
    if refused is not None:
        return refused
    if existing is None:
        return Make()
    refused = _check_mark(declared, existing)
    if refused is not None:
        return refused
    if existing.exclusivity is not declared.exclusivity:
        return Refuse(
            Reason.EXCLUSIVITY_MISMATCH,
            f"The {existing.identity} is there and is {existing.exclusivity.value}; declare the same, or end it first.",
        )
    adopts = declared.managed is not None and not (
        existing.managed is not None and declared.managed.is_same_resource(existing.managed)
    )
    if declared.binding.means(existing.binding):
        return Keep(adopts, SameBinding())
    return Keep(adopts, decide_rebind(declared.rebind_policy, existing.consumers, depth))


def decide_rebind(policy: RebindPolicy, consumers: int, depth: int) -> RebindInPlace | DropAndRebind | Wait:
    """What a changed binding may do now to a subscription with these consuming links and messages."""
    match policy:
        case RebindPolicy.IN_PLACE:
            return RebindInPlace()
        case RebindPolicy.WHEN_IDLE:
            return Wait(Reason.CONSUMERS_ACTIVE) if consumers else DropAndRebind()
        case RebindPolicy.WHEN_IDLE_AND_EMPTY:
            if consumers:
                return Wait(Reason.CONSUMERS_ACTIVE)
            return Wait(Reason.NOT_EMPTY) if depth else DropAndRebind()
        case RebindPolicy.NEVER:
            return Wait(Reason.REBIND_NOT_ALLOWED)
        case _:
            assert_never(policy)


@dataclass(frozen=True, slots=True)
class DeleteExisting:
    """End the subscription, with its backlog."""


@dataclass(frozen=True, slots=True)
class NothingToDelete:
    """There is no such subscription: success."""


def decide_deletion(
    existing: ExistingSubscription | None,
    depth: int,
    *,
    if_unused: bool = True,
    if_empty: bool = False,
    owner_uid: str | None = None,
) -> DeleteExisting | NothingToDelete | Refuse:
    """Decide DELETE of a subscription that holds ``depth`` messages."""
    if existing is None:
        return NothingToDelete()
    managed = existing.managed
    if owner_uid is not None and managed is not None and managed.uid != owner_uid:
        return Refuse(
            Reason.MANAGED,
            f"The {existing.identity} is declared by another resource by now; leave it to that one.",
        )
    if if_unused and existing.consumers:
        return Refuse(
            Reason.CONSUMERS_ACTIVE,
            f"The {existing.identity} has {existing.consumers} consuming link(s); stop them, or delete by force.",
        )
    if if_empty and depth:
        return Refuse(
            Reason.NOT_EMPTY,
            f"The {existing.identity} holds {depth} message(s); consume or purge them, or allow their loss.",
        )
    return DeleteExisting()


def _check(declared: DeclaredSubscription) -> Refuse | None:
    refused = check_binding(declared.binding)
    if refused is not None:
        return refused
    if not declared.identity.name:
        return Refuse(Reason.INVALID_NAME, "The subscription has no name; give it one.")
    if declared.exclusivity is Exclusivity.SHARED:
        if subscription_name(declared.identity.name) != declared.identity.name:
            return Refuse(
                Reason.INVALID_NAME,
                f"No shared link can mean {declared.identity.name!r}: its name ends at the `|`; leave the `|` out.",
            )
        if declared.binding.filter.no_local:
            return Refuse(
                Reason.INVALID_REQUEST,
                "A shared subscription can't leave out its consumers' own messages; drop noLocal.",
            )
    elif not declared.identity.durable:
        return Refuse(
            Reason.INVALID_REQUEST,
            "A not-shared volatile subscription ends with its link and can't be declared; make it shared or durable.",
        )
    return None


def _check_mark(declared: DeclaredSubscription, existing: ExistingSubscription) -> Refuse | None:
    if existing.managed is None:
        return None
    if declared.managed is None:
        return Refuse(
            Reason.MANAGED,
            f"The {existing.identity} is declared by Subscription {existing.managed.resource}; change the resource.",
        )
    if declared.managed.is_same_resource(existing.managed):
        return None
    if declared.managed.may_take_over(existing.managed, declared.adoption):
        return None
    if declared.managed.may_take_over(existing.managed, Adoption.OTHER_CLUSTER):
        return Refuse(
            Reason.DUPLICATE_SUBSCRIPTION,
            f"The {existing.identity} was declared in another cluster; allow the adoption of OtherCluster to take it "
            "over.",
        )
    # The other resource may be in a namespace that this one's reader can't see: it isn't named.
    return Refuse(
        Reason.DUPLICATE_SUBSCRIPTION,
        f"Another resource declared the {existing.identity} before; choose another name, or delete one of the two.",
    )


def decide_exchange_declaration(name: str, asked: ExchangeType, there: ExchangeType | None) -> Refuse | None:
    """None if the exchange may be made, or kept as it is; ``there`` is the type of the one that exists."""
    if there is None:
        return check_exchange_name(name)
    if there is asked:
        return check_exchange_name(name)  # nobody may declare one with a reserved name
    return Refuse(
        Reason.IMMUTABLE,
        f"The exchange {name!r} is of type {there.value} and a type never changes; choose another name than for "
        f"{asked.value}, or delete the exchange first.",
    )


def decide_exchange_deletion(name: str, bound: int, *, if_unused: bool) -> Refuse | None:
    """None if the exchange may go; ``bound`` subscriptions are bound to it."""
    if name in PREDEFINED:
        return Refuse(Reason.NOT_ALLOWED, f"The exchange {name!r} is predefined and always there; leave it.")
    if bound and if_unused:
        return Refuse(
            Reason.BINDINGS_EXIST,
            f"{bound} subscription(s) are bound to the exchange {name!r}; end them or bind them elsewhere first.",
        )
    return None
