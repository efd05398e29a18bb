"""`spec.tls` of a Broker: the certificate that clients see, and the names in it.

Source: RFC 6125 (names); cert-manager, "Certificate resource"; docs/decisions/101-reach.md.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import references, schema

__all__ = ["IssuerRef", "ServerTlsSpec", "is_address"]

_HOST: Final = r"^(\*\.)?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$"
_IS_NAME: Final = schema.cel(
    f"isIP(self) || self.matches('{_HOST}')".replace("\\", "\\\\"),
    "must be a DNS name in lower case, whose first label may be `*`, or an IP address",
)


def is_address(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_name(name: str) -> str:
    if not is_address(name) and re.fullmatch(_HOST[1:-1], name) is None:
        raise ValueError(f"{name!r} {_IS_NAME['message']}")
    return name


ServerName = Annotated[
    str, Field(max_length=253, json_schema_extra=schema.validations(_IS_NAME)), AfterValidator(_check_name)
]


class IssuerRef(schema.Spec):
    """An issuer of cert-manager."""

    name: references.ResourceName
    """Name of the issuer."""
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Z][A-Za-z0-9]*$")] = "Issuer"
    """Issuer (in the Broker's namespace), ClusterIssuer, or a kind of another group."""
    group: references.ResourceName = "cert-manager.io"
    """API group of the issuer."""


_ONE: Final = schema.cel(
    "!(has(self.secretRef) && has(self.issuerRef))", "`tls` must not have both `secretRef` and `issuerRef`"
)


class ServerTlsSpec(schema.Spec):
    """The certificate that clients see on the listeners with TLS; by default the operator makes it. Management and
    observer always have the operator's.
    """

    model_config = ConfigDict(json_schema_extra=schema.validations(_ONE))

    names: Annotated[
        tuple[ServerName, ...],
        Field(max_length=32, json_schema_extra={schema.LIST_TYPE: "set"}),
        AfterValidator(schema.check_unique),
    ] = ()
    """Further names and IP addresses under which clients reach the Broker, such as `broker.example.com`. They become
    part of the certificate, unless it is from `secretRef`; the first is shown in `status.externalAddress`.
    """
    secret_ref: references.LocalRef | None = None
    """A Secret with `tls.crt`, `tls.key` and perhaps `ca.crt`, as cert-manager makes it. A renewed one is taken without
    a restart.
    """
    issuer_ref: IssuerRef | None = None
    """An issuer of cert-manager: the operator asks it for a certificate, in the Secret `BROKER-tls`."""

    @property
    def is_own(self) -> bool:
        """Whether the certificate is not the operator's."""
        return self.secret_ref is not None or self.issuer_ref is not None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.secret_ref is not None and self.issuer_ref is not None:
            raise ValueError(str(_ONE["message"]))
        return self
