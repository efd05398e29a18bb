"""How a resource names another object: references, and the names that Kubernetes allows in them.

Source: RFC 1123 (labels); Kubernetes API conventions, "Object references".
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from penstock_api.schema import LIST_TYPE, Spec, check_unique

__all__ = ["AllowedNamespaces", "BrokerRef", "DnsLabel", "ExchangeRef", "LocalRef", "NamespacePattern", "ResourceName"]

DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""RFC 1123 label, the shape of namespace names."""

DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=rf"^{DNS_LABEL}$")]
NamespacePattern = Annotated[str, Field(min_length=1, max_length=63, pattern=rf"^(\*|{DNS_LABEL})$")]
ResourceName = Annotated[str, Field(min_length=1, max_length=253, pattern=rf"^{DNS_LABEL}(\.{DNS_LABEL})*$")]


class LocalRef(Spec):
    """Names an object of the same namespace."""

    name: ResourceName
    """Name of the object."""


class BrokerRef(Spec):
    """Names the Broker."""

    name: Annotated[str, Field(min_length=1, max_length=30, pattern=rf"^{DNS_LABEL}$")]
    """Name of the Broker."""
    namespace: DnsLabel | None = None
    """Namespace of the Broker; left out: that of this resource. Another one must be allowed by the Broker's
    `allowedNamespaces`.
    """


class ExchangeRef(Spec):
    """Names the Exchange."""

    name: Annotated[str, Field(min_length=1, max_length=61, pattern=rf"^{DNS_LABEL}$")]
    """Name of the Exchange resource."""
    namespace: DnsLabel | None = None
    """Namespace of the Exchange; left out: that of this resource. Another one must be allowed by the Exchange's and
    the Broker's `allowedNamespaces`.
    """


AllowedNamespaces = Annotated[
    tuple[NamespacePattern, ...],
    Field(max_length=256, json_schema_extra={LIST_TYPE: "set"}),
    AfterValidator(check_unique),
]
