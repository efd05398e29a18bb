"""`spec.externalService` of a Broker: a Service of its own for clients outside the cluster.

Source: Kubernetes API reference, "Service v1"; docs/decisions/101-reach.md.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import schema
from penstock_api.resources.network import Cidr

__all__ = ["ExternalServiceSpec", "ListenerName"]

ListenerName = Literal["amqps", "amqp", "webSocket"]
Annotations = Annotated[
    dict[Annotated[str, Field(max_length=317)], Annotated[str, Field(max_length=4096)]], Field(max_length=32)
]

_NEEDS_LOAD_BALANCER: Final = schema.cel(
    "self.type == 'LoadBalancer' || !(has(self.loadBalancerClass) || (has(self.loadBalancerSourceRanges) "
    "&& size(self.loadBalancerSourceRanges) > 0))",
    "`loadBalancerClass` and `loadBalancerSourceRanges` need `type: LoadBalancer`",
)
_NEEDS_OUTSIDE: Final = schema.cel(
    "self.type != 'ClusterIP' || !has(self.externalTrafficPolicy)",
    "`externalTrafficPolicy` needs `type: LoadBalancer` or `type: NodePort`",
)
_CLASS_STAYS: Final = schema.cel(
    "self.type != 'LoadBalancer' || oldSelf.type != 'LoadBalancer' || (has(self.loadBalancerClass) "
    "? has(oldSelf.loadBalancerClass) && self.loadBalancerClass == oldSelf.loadBalancerClass "
    ": !has(oldSelf.loadBalancerClass))",
    "`externalService.loadBalancerClass` is immutable; remove `externalService`, and add it again to change it",
)


class ExternalServiceSpec(schema.Spec):
    """The Service `BROKER-external`. It leads to the same pods as `BROKER-amqp`, which stays as it is."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_NEEDS_LOAD_BALANCER, _NEEDS_OUTSIDE, _CLASS_STAYS))

    type: Literal["LoadBalancer", "NodePort", "ClusterIP"] = "LoadBalancer"
    """LoadBalancer: the cluster gives it an address outside. NodePort: a port on every node. ClusterIP: for a gateway
    of the cluster.
    """
    listeners: (
        Annotated[
            tuple[ListenerName, ...],
            Field(min_length=1, max_length=3, json_schema_extra={schema.LIST_TYPE: "set"}),
            AfterValidator(schema.check_unique),
        ]
        | None
    ) = None
    """Which listeners it offers; left out: those with TLS that are on."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations, which many load balancers read."""
    load_balancer_class: Annotated[str, Field(min_length=1, max_length=317)] | None = None
    """Class of the load balancer; left out: the cluster's default. Immutable."""
    load_balancer_source_ranges: Annotated[tuple[Cidr, ...], Field(max_length=64)] = ()
    """Ranges of addresses from which the load balancer takes connections; left out: any."""
    external_traffic_policy: Literal["Cluster", "Local"] | None = None
    """Local: only the pod's own node takes connections, and the broker sees the addresses of clients. Left out:
    Cluster.
    """

    @model_validator(mode="after")
    def _check(self) -> Self:
        of_load_balancer = self.load_balancer_class is not None or bool(self.load_balancer_source_ranges)
        if of_load_balancer and self.type != "LoadBalancer":
            raise ValueError(str(_NEEDS_LOAD_BALANCER["message"]))
        if self.type == "ClusterIP" and self.external_traffic_policy is not None:
            raise ValueError(str(_NEEDS_OUTSIDE["message"]))
        return self
