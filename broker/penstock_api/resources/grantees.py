"""Whom an Exchange or a Subscription gives the right to use it, and what a Broker allows of that.

Source: docs/decisions/110-rights-given-by-resources.md.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import references, schema
from penstock_api.settings.permissions import Patterns

__all__ = ["DelegatedPermissions", "Grantee", "Grantees"]

_SOMEBODY: Final = schema.cel(
    "(has(self.serviceAccounts) && size(self.serviceAccounts) > 0) || (has(self.users) && size(self.users) > 0)",
    "name `serviceAccounts` or `users`; an entry without them is for nobody",
)
_NAMESPACE: Final = schema.cel(
    "!has(self.__namespace__) || (has(self.serviceAccounts) && size(self.serviceAccounts) > 0)",
    "`namespace` is that of `serviceAccounts`; name some, or leave `namespace` out",
)

_ServiceAccount = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=rf"^(\*|{references.DNS_LABEL}(\.{references.DNS_LABEL})*)$",
    ),
]
_User = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^*]+$")]


class Grantee(schema.Spec):
    """ServiceAccounts of one namespace, or users of the Broker, or both."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_SOMEBODY, _NAMESPACE))

    service_accounts: Annotated[
        tuple[_ServiceAccount, ...],
        Field(max_length=32, json_schema_extra={schema.LIST_TYPE: "set"}),
        AfterValidator(schema.check_unique),
    ] = ()
    """Names of ServiceAccounts whose pods log in with their token; `*`: all of the namespace."""
    namespace: references.DnsLabel | None = None
    """Namespace of these ServiceAccounts; left out: that of this resource. Another one must be one that may use the
    Broker.
    """
    users: Annotated[
        tuple[_User, ...],
        Field(max_length=32, json_schema_extra={schema.LIST_TYPE: "set"}),
        AfterValidator(schema.check_unique),
    ] = ()
    """Whole names of users who log in by password, certificate or another token. The Broker must allow these names in
    its `delegatedPermissions.users`.
    """

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.service_accounts or self.users):
            raise ValueError(str(_SOMEBODY["message"]))
        if self.namespace is not None and not self.service_accounts:
            raise ValueError(str(_NAMESPACE["message"]))
        return self


Grantees = Annotated[tuple[Grantee, ...], Field(max_length=16)]


class DelegatedPermissions(schema.Spec):
    """What Exchanges and Subscriptions may say about who uses them."""

    users: Patterns = ()
    """Patterns of the users whom they may name, beside ServiceAccounts of the namespaces that may use this Broker; in
    patterns `*` stands for any characters. None: ServiceAccounts alone.
    """
