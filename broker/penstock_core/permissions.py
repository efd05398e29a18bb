"""Who may do what: grants for users and groups on exchanges, subscriptions, queues and management; and whether a user
may use a subscription that somebody else made.

Without any setting about permissions everything is allowed; otherwise what no grant allows is refused, unless what it
is done to was declared with the user among those who may. In patterns `*` stands for any characters, also none. It must
not know where grants come from. Source: docs/decisions/016-owner-user.md (a container-id proves nothing about who uses
it), docs/decisions/110-rights-given-by-resources.md; docs/reference/security.md.
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
    """What an action is done to. Values appear in refusals."""

    EXCHANGE = "exchange"
    SUBSCRIPTION = "subscription"
    QUEUE = "queue"
    MANAGEMENT = "management"
    """`$management` and the whole broker; it has no names."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A user who has logged in. All clients that logged in without a name are the user "anonymous"."""

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
    """The action is allowed."""


ALLOWED: Final = Allowed()


@dataclass(frozen=True, slots=True)
class Need:
    """One action that has to be allowed."""

    action: Action
    kind: TargetKind
    name: str
    declared_users: tuple[str, ...] = ()
    """Patterns of users who may do it without a grant: what it is done to was declared with them."""


def needs_to_subscribe(identity: Identity, existing: ExistingSubscription | None, exchange: str) -> tuple[Need, ...]:
    """The actions that an attach to a topic source needs.

    If a resource or an administrator declared the subscription: to consume from the subscription. Otherwise: to consume
    from the exchange; and a durable subscription that does not exist yet needs a permission to be made, because it
    stays. Whether the user may use one that another user made is a rule of its own (``check_owner``).
    """
    if existing is not None and existing.user is None:
        # Its users are those of this very subscription: another scope can have one of the same name.
        return (Need(Action.CONSUME, TargetKind.SUBSCRIPTION, identity.name, existing.declared_consumers),)
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
    """All grants. `is_open`: the configuration says nothing about permissions, so everything is allowed."""

    grants: tuple[Grant, ...] = ()
    is_open: bool = False

    def decide(
        self, who: Principal, action: Action, kind: TargetKind, name: str, declared_users: tuple[str, ...] = ()
    ) -> Allowed | Refuse:
        """Whether ``who`` may do ``action`` to the ``kind`` called ``name``, which was declared with these users.

        A refusal names what is lacking, and who can give it. It does not say whether ``name`` exists.
        """
        if self.is_open or matches(who.user, declared_users):
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
        """Whether ``decide`` would allow it. But nobody may ``MANAGE`` without a grant: what a user made is the user's
        own.
        """
        if self.is_open and action is Action.MANAGE:
            return False
        return isinstance(self.decide(who, action, kind, name), Allowed)


EVERYTHING: Final = Permissions(is_open=True)
"""The permissions of a broker whose configuration says nothing about permissions."""


def check_owner(existing: ExistingSubscription, user: str, may_use_others: bool) -> Refuse | None:
    """None if ``user`` may attach to, steal from, look up or end ``existing``.

    A subscription that a resource or an administrator declared belongs to no user.
    """
    if existing.user is None or existing.user == user or may_use_others:
        return None
    return Refuse(
        Reason.OTHER_USER,
        f"The {existing.identity} was made by another user; use another name, or ask for the permission to manage it.",
    )
