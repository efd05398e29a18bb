"""What an attach with a topic source, or with none, leads to.

``decide`` decides about a topic source, ``look_up`` about a null source. Both only compute: the caller finds what
exists under the identities that ``attach_request.identities_to_look_up`` names, applies the decision, logs it and
replies. Neither knows frames, logs or queues. Source: the attach table (the rows and its pseudo code; its text is
normative), and decisions 1 to 8, 14, 16 and 17 (docs/decisions).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from penstock_core import permissions
from penstock_core.attach_request import AskedSource, AttachRequest, binding_asked, identities_to_look_up
from penstock_core.binding import (
    Binding,
    check_binding,
)
from penstock_core.existing_subscription import ExistingSubscription, LiveLink, OwnerMark
from penstock_core.identity import LONGEST_QUEUE_NAME, Identity, LinkKey, queue_name
from penstock_core.link_stealing import NothingLive, Steal, decide_steal
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import (
    ClientOverrides,
    Exclusivity,
    Lifetime,
    lifetime_of,
)

__all__ = [
    "AskedSource",
    "AttachRequest",
    "Create",
    "Decision",
    "FoundSubscription",
    "Join",
    "Rebind",
    "decide",
    "identities_to_look_up",
    "look_up",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Make a queue, bind it, attach."""

    identity: Identity
    exclusivity: Exclusivity
    lifetime: Lifetime
    binding: Binding
    owner: LinkKey | None
    user: str
    steals: bool
    """The link is live elsewhere: end it as stolen once this decision is applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Attach to what exists, as it is."""

    existing: ExistingSubscription
    """The subscription before the attach; if a link is stolen, with one consumer less."""
    claims: LinkKey | None
    """The owner to record: the first link on a managed, not-shared subscription (decision 4)."""
    steals: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebind:
    """Drop the backlog, start a new incarnation with the new binding, attach (decision 6). Nobody consumes."""

    existing: ExistingSubscription
    """The subscription before the attach; identity, exclusivity, lifetime, owner and user stay."""
    binding: Binding
    claims: LinkKey | None
    steals: bool


@dataclass(frozen=True, slots=True)
class FoundSubscription:
    """A null source found this subscription: reply with its source, never send a message (decision 8)."""

    existing: ExistingSubscription


Decision = Create | Join | Rebind | Refuse


def decide(request: AttachRequest, existing: ExistingSubscription | None, live: LiveLink | None) -> Decision:
    """Decide an attach with a source.

    ``existing`` is what the store holds for the one identity to look up. ``live`` is the link that is attached now
    under the same (container, link name), on any session. A ``Refuse`` changes neither (decision 10).
    """
    assert request.source is not None, "a null source is looked up, not decided"
    stealing = decide_steal(request.kind, live, request.user, request.may_use_others)
    match stealing:
        case Refuse():
            return stealing
        case NothingLive():
            return _decide(request, request.source, existing, steals=False)
        case Steal():
            return _decide(request, request.source, _without(live, existing), steals=True)
        case _:
            assert_never(stealing)


def look_up(request: AttachRequest, existing: Mapping[Identity, ExistingSubscription]) -> FoundSubscription | Refuse:
    """Decide an attach with a null source, from what the store holds for the identities to look up."""
    identities = identities_to_look_up(request)
    for identity in identities:
        found = existing.get(identity)
        if found is None:
            continue
        return permissions.check_owner(found, request.user, request.may_use_others) or FoundSubscription(found)
    return Refuse(
        Reason.SUBSCRIPTION_NOT_FOUND,
        f"There is no {' and no '.join(map(str, identities))}; check name and ClientID, or take it as ended already.",
    )


def _decide(
    request: AttachRequest, source: AskedSource, existing: ExistingSubscription | None, *, steals: bool
) -> Decision:
    binding = binding_asked(request, source)
    refused = check_binding(binding)
    if refused is not None:
        return refused
    if existing is None:
        return _create(request, binding, steals)
    refused = permissions.check_owner(existing, request.user, request.may_use_others) or _check_exclusivity(
        request, existing
    )
    if refused is not None:
        return refused
    claims = request.link if existing.exclusivity is Exclusivity.LINK and existing.owner is None else None
    joined = Join(existing=existing, claims=claims, steals=steals)
    if existing.managed is not None:
        return _refuse_override(source, binding, existing, existing.managed) or joined
    if binding.means(existing.binding):
        return joined
    if existing.consumers:
        return _in_use(
            existing,
            "a link that names another exchange, binding or selector waits until no link consumes",
        )
    return Rebind(existing=existing, binding=binding, claims=claims, steals=steals)


def _create(request: AttachRequest, binding: Binding, steals: bool) -> Create | Refuse:
    row = request.row
    (identity,) = identities_to_look_up(request)
    if not identity.name:
        return Refuse(
            Reason.INVALID_NAME,
            "A subscription's name is its link's name, and this one is empty; give the link a name.",
        )
    if identity.durable and len(queue_name(identity)) > LONGEST_QUEUE_NAME:
        return Refuse(
            Reason.INVALID_NAME,
            f"The name of the subscription's queue would take {len(queue_name(identity))} bytes, of which there are "
            f"{LONGEST_QUEUE_NAME}; give the link, or the container, a shorter name.",
        )
    return Create(
        identity=identity,
        exclusivity=row.exclusivity,
        lifetime=lifetime_of(request.expiry),
        binding=binding,
        owner=request.link if row.exclusivity is Exclusivity.LINK and row.durable else None,
        user=request.user,
        steals=steals,
    )


def _check_exclusivity(request: AttachRequest, existing: ExistingSubscription) -> Refuse | None:
    asked = request.row.exclusivity
    if existing.exclusivity is not asked:
        return Refuse(
            Reason.EXCLUSIVITY_MISMATCH,
            f"The {existing.identity}{_by_resource(existing)} is {existing.exclusivity.value} and this link asks for "
            f"{asked.value}; attach with the same, or end the subscription first.",
        )
    if asked is Exclusivity.SHARED:
        return None
    if existing.owner is not None and existing.owner != request.link:
        return Refuse(
            Reason.OWNED_BY_OTHER_LINK,
            f"The {existing.identity} belongs to {existing.owner}; attach as that link, or end it first.",
        )
    if existing.consumers:
        return _in_use(existing, "it takes one link at a time")
    return None


def _refuse_override(
    source: AskedSource, binding: Binding, existing: ExistingSubscription, managed: OwnerMark
) -> Refuse | None:
    """Whether an attach may use a managed subscription: what it names must be as declared (decision 14)."""
    declared = existing.binding
    same_keys = source.keys is None or binding.keys == declared.keys
    same_headers = source.headers is None or binding.headers == declared.headers
    same_filter = binding.filter.is_empty or binding.filter.means(declared.filter)
    if binding.exchange == declared.exchange and same_keys and same_headers and same_filter:
        return None
    match managed.client_overrides:
        case ClientOverrides.IGNORE:
            return None
        case ClientOverrides.REFUSE:
            return Refuse(
                Reason.MANAGED,
                f"The {existing.identity} is declared by Subscription {managed.resource} with another exchange, "
                "binding or selector; attach with the exchange alone, or change the resource.",
                (("resource", managed.resource),),
            )
        case _:
            assert_never(managed.client_overrides)


def _in_use(existing: ExistingSubscription, why: str) -> Refuse:
    return Refuse(
        Reason.SUBSCRIPTION_IN_USE,
        f"The {existing.identity} has {existing.consumers} consuming link(s) and {why}; close them first.",
    )


def _by_resource(existing: ExistingSubscription) -> str:
    return "" if existing.managed is None else f" (declared by Subscription {existing.managed.resource})"


def _without(live: LiveLink | None, existing: ExistingSubscription | None) -> ExistingSubscription | None:
    """The subscription as it would be without the live link (decision 5)."""
    if live is None or existing is None or live.identity != existing.identity:
        return existing
    return replace(existing, consumers=existing.consumers - 1)
