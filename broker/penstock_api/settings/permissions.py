"""Permissions: which users may do what to which exchanges, subscriptions and queues. Source:
docs/reference/security.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import schema
from penstock_core.permissions import Action, Grant

__all__ = ["Grants", "Permission", "PermissionSpec", "Permissions", "permission_settings"]

A = TypeVar("A")


class PermissionFields(schema.Spec, Generic[A]):
    """Whoever matches `users`, or is in one of `groups`, may do `actions` to what the other patterns match. In
    patterns `*` stands for any characters.

    Actions are spelled `publish` in the configuration file and `Publish` in a resource; hence the parameter.
    """

    users: tuple[str, ...] = ()
    """Patterns of user names. Clients that log in without a name are the user `anonymous`."""
    groups: tuple[str, ...] = ()
    """Patterns of groups."""
    actions: Annotated[tuple[A, ...], Field(min_length=1)]
    """What they may do: publish; consume and browse; make durable subscriptions, queues and exchanges; use, browse and
    end what others made.
    """
    exchanges: tuple[str, ...] = ()
    """Patterns of exchanges, by the names that clients use."""
    subscriptions: tuple[str, ...] = ()
    """Patterns of subscriptions, by the names that clients use."""
    queues: tuple[str, ...] = ()
    """Patterns of queues."""
    management: bool = False
    """Whether they may also use `$management` and close connections of other users."""

    @property
    def has_users(self) -> bool:
        """True if it names users or groups."""
        return bool(self.users or self.groups)

    @property
    def has_targets(self) -> bool:
        """True if it names something that they may use."""
        return bool(self.exchanges or self.subscriptions or self.queues or self.management)


class Permission(PermissionFields[Action]):
    """One grant in the broker's configuration."""

    @model_validator(mode="after")
    def _reaches_something(self) -> Self:
        if not self.has_users:
            raise ValueError("a permission without users and groups applies to nobody: name some, or '*'")
        if not self.has_targets:
            raise ValueError("a permission without exchanges, subscriptions, queues or management allows nothing")
        return self

    def grant(self) -> Grant:
        """The same as a grant of `penstock_core`."""
        return Grant(
            users=self.users,
            groups=self.groups,
            actions=frozenset(self.actions),
            exchanges=self.exchanges,
            subscriptions=self.subscriptions,
            queues=self.queues,
            management=self.management,
        )


class Grants(schema.Spec):
    """The content of the file that the setting `permissionsFile` names."""

    permissions: tuple[Permission, ...]


_OF_SOMEBODY: Final = schema.cel(
    "(has(self.users) && size(self.users) > 0) || (has(self.groups) && size(self.groups) > 0)",
    "a permission without `users` and `groups` applies to nobody; name some, or `*`",
)
_OF_SOMETHING: Final = schema.cel(
    "self.management || (has(self.exchanges) && size(self.exchanges) > 0) || "
    "(has(self.subscriptions) && size(self.subscriptions) > 0) || (has(self.queues) && size(self.queues) > 0)",
    "a permission without `exchanges`, `subscriptions`, `queues` or `management` allows nothing",
)
ActionName = Literal["Publish", "Consume", "Create", "Manage"]
Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=255)], ...],
    Field(max_length=64, json_schema_extra={schema.LIST_TYPE: "set"}),
    AfterValidator(schema.check_unique),
]


class PermissionSpec(PermissionFields[ActionName]):
    """Whoever matches `users`, or is in one of `groups`, may do `actions` to what the other patterns match. In
    patterns `*` stands for any characters.
    """

    model_config = ConfigDict(json_schema_extra=schema.validations(_OF_SOMEBODY, _OF_SOMETHING))

    users: Patterns = ()
    groups: Patterns = ()
    actions: Annotated[
        tuple[ActionName, ...],
        Field(min_length=1, max_length=4, json_schema_extra={schema.LIST_TYPE: "set"}),
        AfterValidator(schema.check_unique),
    ]
    exchanges: Patterns = ()
    subscriptions: Patterns = ()
    queues: Patterns = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.has_users:
            raise ValueError(str(_OF_SOMEBODY["message"]))
        if not self.has_targets:
            raise ValueError(str(_OF_SOMETHING["message"]))
        return self


Permissions = Annotated[tuple[PermissionSpec, ...], Field(max_length=128)]


def permission_settings(permissions: Iterable[PermissionSpec]) -> list[dict[str, object]]:
    """The grants in the form of the broker's permissions file."""
    return [
        {
            **permission.model_dump(mode="json", by_alias=True, exclude_defaults=True),
            "actions": [action.lower() for action in permission.actions],
        }
        for permission in permissions
    ]
