"""Who may do what: grants for users and groups on exchanges, subscriptions, queues and management.

Where nobody spoke of permissions everything is allowed; else what no grant allows is refused. Patterns know one sign,
`*` for any characters, also none. Must not know where grants come from. Source: design, section 3, decision 16;
docs/security.md.

Whether a user may use a subscription that somebody else made (decision 16: a container-id is only a claim).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, assert_never

from penstock_core.existing_subscription import ExistingSubscription
from penstock_core.identity import Identity
from penstock_core.patterns import matches
from penstock_core.reason import Reason, Refuse

__all__ = [
    "ALLOWED",
    "EVERYTHING",
    "Action",
    "Allowed",
    "Grant",
    "Need",
    "Permissions",
    "Principal",
    "TargetKind",
    "check_owner",
    "needs_to_subscribe",
]


class Action(enum.Enum):
    """What somebody wants to do. Values are those of the configuration."""

    PUBLISH = "publish"
    CONSUME = "consume"
    CREATE = "create"
    """Make what is not there: a durable subscription, a queue or exchange by its first use."""
    MANAGE = "manage"
    """Use, browse and end what others made."""


class TargetKind(enum.Enum):
    """What something is done to. Values are words of refusals."""

    EXCHANGE = "exchange"
    SUBSCRIPTION = "subscription"
    QUEUE = "queue"
    MANAGEMENT = "management"
    """`$management` and the whole broker; it has no names."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody that has logged in. A user "anonymous" is everybody that did not say who it is."""

    user: str
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Grant:
    """Whoever matches one of `users` or is in one of `groups` may do `actions` to what the other patterns match."""

    actions: frozenset[Action]
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()
    subscriptions: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    management: bool = False


@dataclass(frozen=True, slots=True)
class Allowed:
    """Go on."""


ALLOWED: Final = Allowed()


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that has to be allowed."""

    action: Action
    kind: TargetKind
    name: str


def needs_to_subscribe(identity: Identity, existing: ExistingSubscription | None, exchange: str) -> tuple[Need, ...]:
    """What an attach to a topic source needs.

    Of what a resource or an administrator declared: the subscription, whose messages are its consumers' alone. Of
    everything else the exchange; and a durable subscription that is not there yet has to be allowed itself, because it
    stays. Whose it is when it is there, is another rule (``ownership``).
    """
    if existing is not None and existing.user is None:
        return (Need(Action.CONSUME, TargetKind.SUBSCRIPTION, identity.name),)
    need = Need(Action.CONSUME, TargetKind.EXCHANGE, exchange)
    if existing is None and identity.durable:
        return need, Need(Action.CREATE, TargetKind.SUBSCRIPTION, identity.name)
    return (need,)


def _names(grant: Grant, kind: TargetKind) -> tuple[str, ...]:
    match kind:
        case TargetKind.EXCHANGE:
            return grant.exchanges
        case TargetKind.SUBSCRIPTION:
            return grant.subscriptions
        case TargetKind.QUEUE:
            return grant.queues
        case TargetKind.MANAGEMENT:
            return ("*",) if grant.management else ()
        case _:
            assert_never(kind)


def _is_for(grant: Grant, who: Principal) -> bool:
    return matches(who.user, grant.users) or any(matches(group, grant.groups) for group in who.groups)


@dataclass(frozen=True, slots=True)
class Permissions:
    """All grants. `is_open`: nobody ever spoke of permissions, so everything is allowed."""

    grants: tuple[Grant, ...] = ()
    is_open: bool = False

    def decide(self, who: Principal, action: Action, kind: TargetKind, name: str) -> Allowed | Refuse:
        """Whether ``who`` may do ``action`` to the ``kind`` called ``name``.

        A refusal names what is lacking, and who can give it. It does not say whether ``name`` exists.
        """
        if self.is_open:
            return ALLOWED
        for grant in self.grants:
            if action in grant.actions and matches(name, _names(grant, kind)) and _is_for(grant, who):
                return ALLOWED
        what = "use $management" if kind is TargetKind.MANAGEMENT else f"{action.value} on {kind.value} {name[:100]!r}"
        return Refuse(
            Reason.NOT_PERMITTED,
            f"User {who.user!r} may not {what}: none of the broker's permissions allows it; "
            f"ask those who run this broker to grant {action.value!r} on that {kind.value} to this user.",
            (("penstock:action", action.value), ("penstock:kind", kind.value)),
        )

    def allows(self, who: Principal, action: Action, kind: TargetKind, name: str) -> bool:
        """The same as a yes or no. Where all is open still nobody may ``MANAGE``: what one made is one's own."""
        if self.is_open and action is Action.MANAGE:
            return False
        return isinstance(self.decide(who, action, kind, name), Allowed)


EVERYTHING: Final = Permissions(is_open=True)
"""As long as nobody speaks of permissions."""


def check_owner(existing: ExistingSubscription, user: str, may_use_others: bool) -> Refuse | None:
    """None if ``user`` may attach to, steal from, look up or end ``existing_subscription``; what a resource declared is nobody's
    own.
    """
    if existing.user is None or existing.user == user or may_use_others:
        return None
    return Refuse(
        Reason.OTHER_USER,
        f"The {existing.identity} was made by another user; use another name, or ask for the permission to manage it.",
    )
