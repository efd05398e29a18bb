"""Whose an exchange or a queue is, and which declaration may take it over.

Of subscriptions `penstock_core.declaration_rules` decides that. Source: docs/decisions/054-owner-mark.md,
docs/decisions/102-adoption.md.
"""

from __future__ import annotations

from penstock_api import management
from penstock_api.management import DeclarationOutcome
from penstock_broker.topology.documents import managed_of
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import Adoption

__all__ = ["adoption_asked", "other_owner", "outcome_of_change"]


def adoption_asked(asked: management.Adoption | None) -> Adoption:
    """What a declaration may take over, beside its own and what has no mark."""
    return Adoption.UNMARKED if asked is None else Adoption(asked)


def other_owner(
    existing: management.Owner | None,
    declaration: management.ExchangeDeclaration | management.QueueDeclaration,
    what: str,
) -> Refuse | None:
    """None if the declaration has the same owner as the existing one, may take it over, or none exists."""
    if existing is None:
        return None
    wanted = declaration.owner
    if wanted is None:
        resource = f"{existing.namespace}/{existing.name}"
        return Refuse(Reason.MANAGED, f"The {what} is declared by {existing.kind} {resource}; change the resource.")
    if _is_same(existing, wanted):
        return None
    there, mark = managed_of(existing, "Refuse"), managed_of(wanted, "Refuse")
    assert there is not None and mark is not None
    if existing.kind == wanted.kind and mark.may_take_over(there, adoption_asked(declaration.adoption)):
        return None
    if existing.kind == wanted.kind and mark.may_take_over(there, Adoption.OTHER_CLUSTER):
        return Refuse(
            Reason.DUPLICATE_SUBSCRIPTION,
            f"The {what} was declared in another cluster; allow the adoption of OtherCluster to take it over.",
        )
    return Refuse(Reason.DUPLICATE_SUBSCRIPTION, f"Another resource declared the {what} before; choose another name.")


def outcome_of_change(existing: management.Owner | None, wanted: management.Owner | None) -> DeclarationOutcome:
    """ADOPTED if ``wanted`` is the mark of another resource than ``existing``, the mark before; else UPDATED."""
    adopted = wanted is not None and not _is_same(existing, wanted)
    return DeclarationOutcome.ADOPTED if adopted else DeclarationOutcome.UPDATED


def _is_same(one: management.Owner | None, other: management.Owner) -> bool:
    """Whether both marks name one resource, whatever its uid."""
    if one is None:
        return False
    mark, others = managed_of(one, "Refuse"), managed_of(other, "Refuse")
    return one.kind == other.kind and mark is not None and others is not None and mark.is_same_resource(others)
