"""The rights that an Exchange or a Subscription gives, as far as its Broker delegates them. Pure.

The Broker says whether its resources may give rights at all, and to whom. What it does not allow is left out and named.
The operator and `penstock up` share this. Source: docs/decisions/110-rights-given-by-resources.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_api.resources import Broker, Exchange, Subscription
from penstock_api.resources.grantees import Grantee
from penstock_core.patterns import matches

__all__ = ["Rights", "rights_of", "service_account_user"]


@dataclass(frozen=True, slots=True)
class Rights:
    """Who may use a resource because its spec says so."""

    users: tuple[str, ...] = ()
    """Patterns of user names, sorted: what is declared."""
    problem: str = ""
    """What the spec asks for and the Broker does not allow, with the cure; empty if it allows all."""


def rights_of(broker: Broker, resource: Exchange | Subscription) -> Rights:
    """The rights that a resource of this Broker gives."""
    grantees = resource.spec.publishers if isinstance(resource, Exchange) else resource.spec.consumers
    if not grantees:
        return Rights()
    if broker.spec.delegated_permissions is None:
        return Rights(
            problem=f"Broker {broker.metadata.name} does not let its resources say who uses them. Ask those who run it "
            "to set `delegatedPermissions`, or leave the names out."
        )
    asked = [each for grantee in grantees for each in _asked(broker, resource.metadata.namespace, grantee)]
    refused = sorted({each.name for each in asked if not each.is_allowed})
    return Rights(tuple(sorted({each.user for each in asked if each.is_allowed})), _refusal(broker, refused))


def service_account_user(namespace: str, name: str) -> str:
    """The user as whom a pod logs in with the token of its ServiceAccount."""
    return f"system:serviceaccount:{namespace}:{name}"


@dataclass(frozen=True, slots=True)
class _Asked:
    user: str
    """The pattern that the broker gets."""
    name: str
    """What a person reads."""
    is_allowed: bool


def _asked(broker: Broker, home: str, grantee: Grantee) -> Iterator[_Asked]:
    namespace, spec = grantee.namespace or home, broker.spec
    may_use = namespace == broker.metadata.namespace or not {"*", namespace}.isdisjoint(spec.allowed_namespaces)
    for name in grantee.service_accounts:
        yield _Asked(service_account_user(namespace, name), f"ServiceAccount {namespace}/{name}", may_use)
    allowed = () if spec.delegated_permissions is None else spec.delegated_permissions.users
    for user in grantee.users:
        yield _Asked(user, f"user {user}", matches(user, allowed))


def _refusal(broker: Broker, refused: list[str]) -> str:
    if not refused:
        return ""
    named = ", ".join(refused[:5]) + (f" and {len(refused) - 5} more" if len(refused) > 5 else "")
    return (
        f"Broker {broker.metadata.name} does not allow its resources to name {named}. Ask those who run it to add the "
        "namespace to `allowedNamespaces`, or the user to `delegatedPermissions.users`, or leave the names out."
    )
