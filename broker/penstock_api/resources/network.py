"""`spec.networkPolicy` of a Broker: from where its ports can be reached, as a NetworkPolicy that the operator makes.

Source: Kubernetes, "Network Policies"; docs/decisions/101-reach.md.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import schema
from penstock_api.resources.placement import LabelSelector

__all__ = ["Cidr", "NetworkPeer", "NetworkPolicySpec"]

_IS_CIDR: Final = schema.cel("isCIDR(self)", "must be a range of addresses such as 10.0.0.0/8 or fd00::/8")


def _check_cidr(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} {_IS_CIDR['message']}") from None
    if "/" not in text:
        raise ValueError(f"{text!r} {_IS_CIDR['message']}")
    return text


Cidr = Annotated[str, Field(max_length=49, json_schema_extra=schema.validations(_IS_CIDR)), AfterValidator(_check_cidr)]
"""A range of IP addresses."""

_ONE_WAY: Final = schema.cel(
    "has(self.cidr) != (has(self.podSelector) || has(self.namespaceSelector))",
    "a peer must have `cidr`, or `podSelector` or `namespaceSelector` or both of these",
)


class NetworkPeer(schema.Spec):
    """Pods, or a range of addresses outside the cluster."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_ONE_WAY))

    pod_selector: LabelSelector | None = None
    """Pods by their labels; left out: all pods of the namespaces."""
    namespace_selector: LabelSelector | None = None
    """Namespaces by their labels; left out: that of the Broker."""
    cidr: Cidr | None = None
    """Addresses, such as `10.0.0.0/8`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        selects = self.pod_selector is not None or self.namespace_selector is not None
        if (self.cidr is not None) is selects:
            raise ValueError(str(_ONE_WAY["message"]))
        return self


Peers = Annotated[tuple[NetworkPeer, ...], Field(max_length=32)]


class NetworkPolicySpec(schema.Spec):
    """From where the ports of the pods can be reached. The operator reaches them in any case."""

    clients: Peers | None = None
    """Who reaches the ports for clients; left out: the namespace of the Broker and its `allowedNamespaces`, or
    everybody if there is an `externalService`.
    """
    observer: Peers | None = None
    """Who reaches metrics and page, such as Prometheus and KEDA; left out: every pod of the cluster."""
