"""The Broker resource: pods, volumes, listeners, who may use it, and how often its lag is analysed."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, ConfigDict, Field, model_validator

from penstock_api import quantity, references, schema
from penstock_api.resources import base
from penstock_api.resources.delivery import ClientDeliverySpec
from penstock_api.resources.external_service import ExternalServiceSpec
from penstock_api.resources.grantees import DelegatedPermissions
from penstock_api.resources.listeners import ClientListeners, MessageSize
from penstock_api.resources.log_options import LoggingSpec
from penstock_api.resources.network import NetworkPolicySpec
from penstock_api.resources.page import PageSpec
from penstock_api.resources.placement import Affinity, Labels, Toleration, TopologySpread
from penstock_api.resources.security import AuthenticationSpec, mechanisms_without_tls
from penstock_api.resources.server_tls import ServerTlsSpec
from penstock_api.settings.announcements import AnnouncementsSpec
from penstock_api.settings.auto_creation import AutoCreateSpec
from penstock_api.settings.client_limits import ClientLimitsSpec
from penstock_api.settings.memory import MemorySpec
from penstock_api.settings.permissions import Permissions
from penstock_api.settings.transaction_limits import TransactionLimitsSpec

__all__ = [
    "Broker",
    "BrokerSpec",
    "BrokerStatus",
    "ClientListeners",
    "JavaHeap",
    "LagAnalysis",
    "LagDeadlineMinutes",
    "LagIntervalMinutes",
    "Orphan",
    "PodOptions",
    "Storage",
    "StorageStatus",
    "VolumeStatus",
]

NAME: Final = re.compile("[a-z]([-a-z0-9]{0,28}[a-z0-9])?")
"""The names of Services begin with the Broker's name, so it is an RFC 1035 label; 30 characters leave room for
`-management` and a pod's hash.
"""

Annotations = Annotated[
    dict[Annotated[str, Field(max_length=317)], Annotated[str, Field(max_length=4096)]], Field(max_length=32)
]
Amounts = Annotated[dict[Annotated[str, Field(max_length=63)], quantity.Quantity], Field(max_length=8)]
Image = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\S+$")]
LagIntervalMinutes = Literal[1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60]
LagDeadlineMinutes = Annotated[int, Field(ge=6, le=1440)]
JavaHeap = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}[mg]$")]


class Resources(schema.Spec):
    """Compute resources of a container."""

    requests: Amounts = Field(default_factory=dict)
    """What the scheduler sets aside, such as `{cpu: 500m, memory: 512Mi}`."""
    limits: Amounts = Field(default_factory=dict)
    """What the container may use at most."""


_CLASS_STAYS: Final = (
    "`storage.storageClassName` is immutable, and a Broker that is deleted and created again does not get its messages "
    "back on another class; docs/how-to/grow-a-volume.md says how to move a volume"
)


class Storage(schema.Spec):
    """The two volumes of each pod. They can grow, and never shrink."""

    model_config = ConfigDict(
        json_schema_extra=schema.validations(
            schema.cel("has(self.storageClassName) == has(oldSelf.storageClassName)", _CLASS_STAYS)
        ),
    )

    size: quantity.Quantity = "10Gi"
    """Size of the volume `data`: messages and subscriptions. A larger one enlarges the volume without a restart, if its
    storage class has `allowVolumeExpansion`; a smaller one is refused in the status, because no volume can shrink.
    """
    ledger_size: quantity.Quantity = "2Gi"
    """Size of the volume `ledger`: the history from which lag is computed. It grows like `size`."""
    storage_class_name: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=253,
                json_schema_extra=schema.validations(schema.cel("self == oldSelf", _CLASS_STAYS)),
            ),
        ]
        | None
    ) = None
    """Storage class of both volumes; left out: the cluster's default."""
    when_deleted: Literal["Retain", "Delete"] = "Retain"
    """What happens to the volumes when the Broker is deleted."""


class PodOptions(schema.Spec):
    """Labels, annotations and scheduling of broker pods, in addition to what the operator sets."""

    labels: Labels = Field(default_factory=dict)
    """Further labels."""
    annotations: Annotations = Field(default_factory=dict)
    """Further annotations."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Taints of nodes that the pods tolerate. If there are any, the operator adds that a pod tolerates a node that is
    not ready or unreachable for 300 seconds, unless one of these names that taint.
    """
    affinity: Affinity | None = None
    """Which nodes, and near or far from which other pods."""
    topology_spread_constraints: Annotated[tuple[TopologySpread, ...], Field(max_length=8)] = ()
    """How pods are spread over zones or nodes."""
    priority_class_name: Annotated[str, Field(max_length=253)] | None = None
    """PriorityClass of the pods."""
    eviction: Annotated[Literal["Allow", "Refuse"], Field(json_schema_extra=schema.UNWRITTEN)] = "Allow"
    """Whether the drain of a node may end a pod that serves clients; left out: Allow. Refuse: a drain waits until this
    is Allow again, or somebody deletes the pod.
    """
    termination_grace_period_seconds: Annotated[int, Field(ge=5, le=600)] = 30
    """How long a pod may take to close the connections of its clients."""
    user: Annotated[Literal["Fixed", "Namespace"], Field(json_schema_extra=schema.UNWRITTEN)] = "Fixed"
    """As which user a pod runs, and which group owns its volumes. Fixed, or left out: 10001. Namespace: the pod names
    none, for a cluster whose admission sets both from a range of the namespace (OpenShift's restricted-v2).
    """


class LagAnalysis(schema.Spec):
    """The scheduled job that turns the ledger into `status.lag` of each Subscription."""

    backend: Literal["Auto", "ScheduledSparkApplication", "CronJob", "None"] = "Auto"
    """What analyses the Broker. Auto: the operator's one job for all its Brokers. ScheduledSparkApplication (of the
    Kubeflow Spark operator) or CronJob: a job of its own, in the Broker's namespace. None: nothing.
    """
    interval_minutes: LagIntervalMinutes = 5
    """Minutes between two runs of a job of its own. The first minute follows from a hash of the Broker's name, so that
    not all jobs start at once.
    """
    deadline_minutes: Annotated[LagDeadlineMinutes, Field(json_schema_extra=schema.UNWRITTEN)] = 26
    """Minutes after which a run of a job of its own ends itself: one that hangs would be the last one. Left out: 26. It
    may be more than `intervalMinutes`, because no run starts before the last one has ended.
    """
    window_minutes: Annotated[int, Field(ge=1, le=1440)] = 15
    """How far back each run looks."""
    suspend: bool = False
    """Start no runs: a job of its own keeps its schedule, and the operator's job leaves the Broker out."""
    image: Image | None = None
    """Image of a job of its own; left out: the operator's default."""
    memory: JavaHeap = "1g"
    """Heap of the Spark driver of a job of its own, in Spark's notation."""
    cpu_limit: quantity.Quantity | None = None
    """CPUs that a job of its own may use at most, such as `500m`; left out: no limit."""


_NO_WAY_IN: Final = schema.cel(
    "!self.listeners.amqp || (has(self.authentication.mechanisms) "
    "? self.authentication.mechanisms.exists(it, it in ['SCRAM-SHA-512', 'SCRAM-SHA-256', 'ANONYMOUS'] "
    "|| (it != 'EXTERNAL' && self.authentication.allowInsecurePlain)) "
    ": self.authentication.anonymous || has(self.authentication.usersSecretRef) "
    "|| (has(self.authentication.tokens) && size(self.authentication.tokens) > 0 "
    "&& self.authentication.allowInsecurePlain))",
    "`listeners.amqp` has no TLS, and nobody could log in there: allow a mechanism that reveals no secret, "
    "or set `authentication.allowInsecurePlain`",
)
_NEEDS_TLS: Final = schema.cel(
    "self.listeners.amqps || self.listeners.webSocket || !has(self.authentication.clientCaSecretRef)",
    "`authentication.clientCaSecretRef` needs `listeners.amqps` or `listeners.webSocket`",
)
_OFFERS_NOTHING: Final = schema.cel(
    "!has(self.externalService) || (has(self.externalService.listeners) "
    "? self.externalService.listeners.all(it, it == 'amqps' ? self.listeners.amqps : it == 'amqp' "
    "? self.listeners.amqp : self.listeners.webSocket) : self.listeners.amqps || self.listeners.webSocket)",
    "`externalService` offers a listener that is off, or there is none with TLS; turn it on in `listeners`",
)
_OWN_CERTIFICATE_NEEDS_TLS: Final = schema.cel(
    "self.listeners.amqps || self.listeners.webSocket || !has(self.tls) || "
    "!(has(self.tls.secretRef) || has(self.tls.issuerRef))",
    "`tls.secretRef` and `tls.issuerRef` need `listeners.amqps` or `listeners.webSocket`",
)
_DELEGATES_NOTHING: Final = schema.cel(
    "!has(self.delegatedPermissions) || has(self.permissions)",
    "`delegatedPermissions` needs `permissions`, which may be an empty list: without them every user may do everything",
)


class BrokerSpec(schema.Spec):
    """A message broker: pods, volumes, listeners."""

    model_config = ConfigDict(
        json_schema_extra=schema.validations(
            _NO_WAY_IN, _NEEDS_TLS, _OFFERS_NOTHING, _OWN_CERTIFICATE_NEEDS_TLS, _DELEGATES_NOTHING
        )
    )

    replicas: Annotated[int, Field(ge=0, le=1)] = 1
    """Broker pods. 0 stops the Broker and keeps its volumes."""
    image: Image | None = None
    """Image of the broker and the observer; left out: the operator's default at the time the Broker was made, kept
    from then on.
    """
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When nodes fetch the image."""
    image_pull_secrets: Annotated[tuple[references.LocalRef, ...], Field(max_length=8)] = ()
    """Secrets with registry credentials."""
    resources: Resources = Resources()
    """Compute resources of the container `broker`."""
    observer_resources: Resources = Resources()
    """Compute resources of the container `observer`."""
    storage: Storage = Storage()
    """Volumes."""
    listeners: ClientListeners = ClientListeners()
    """Where clients connect."""
    external_service: ExternalServiceSpec | None = None
    """A Service for clients outside the cluster; left out: there is none."""
    tls: Annotated[ServerTlsSpec, Field(json_schema_extra=schema.UNWRITTEN)] = ServerTlsSpec()
    """The certificate that clients see; left out: the operator makes it."""
    authentication: AuthenticationSpec
    """How clients authenticate."""
    permissions: Permissions | None = None
    """Who may do what; left out: every user may do everything except manage what other users made. An empty list allows
    nothing. A change takes effect within two minutes, without a restart; adding or removing the whole list restarts the
    pod.
    """
    delegated_permissions: DelegatedPermissions | None = None
    """Let Exchanges and Subscriptions say who publishes and consumes (`publishers`, `consumers`), in addition to
    `permissions`; left out: what they say has no effect. A change takes effect at once.
    """
    limits: ClientLimitsSpec = ClientLimitsSpec()
    """How many connections, sessions and links clients may have at once."""
    allowed_namespaces: references.AllowedNamespaces = ()
    """Other namespaces whose Exchanges, Subscriptions and Queues may use this Broker; `*` allows all."""
    max_message_size: MessageSize = "16Mi"
    """Largest message that is accepted; `listeners.options` can set another size for a listener."""
    idle_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """A client from which nothing is received for this long is disconnected."""
    auto_create: AutoCreateSpec = AutoCreateSpec()
    """Queues and topic exchanges that are made when a client first names them."""
    announce: AnnouncementsSpec = AnnouncementsSpec()
    """What clients are told when they connect: servers for failover, and prefixes of addresses."""
    memory: MemorySpec = MemorySpec()
    """How much memory messages may take."""
    transactions: TransactionLimitsSpec = TransactionLimitsSpec()
    """How much transactions may hold, and for how long."""
    delivery: ClientDeliverySpec = ClientDeliverySpec()
    """What happens to messages in subscriptions and queues that no resource declares."""
    pod: PodOptions = PodOptions()
    """Labels, annotations and scheduling of broker pods."""
    network_policy: NetworkPolicySpec | None = None
    """From where the ports of the pods can be reached; left out: the operator makes no NetworkPolicy."""
    lag_analysis: LagAnalysis = LagAnalysis()
    """The scheduled lag job."""
    page: PageSpec = PageSpec()
    """The page on lag."""
    logging: LoggingSpec = LoggingSpec()
    """What broker and observer write to their logs."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        authentication = self.authentication
        if authentication.mechanisms is not None:
            has_way_in = bool(mechanisms_without_tls(authentication))
        else:
            by_token = bool(authentication.tokens) and authentication.allow_insecure_plain
            has_way_in = authentication.anonymous or authentication.users_secret_ref is not None or by_token
        if self.listeners.amqp and not has_way_in:
            raise ValueError(str(_NO_WAY_IN["message"]))
        has_tls = self.listeners.amqps or self.listeners.web_socket
        if authentication.client_ca_secret_ref is not None and not has_tls:
            raise ValueError(str(_NEEDS_TLS["message"]))
        if self.tls.is_own and not has_tls:
            raise ValueError(str(_OWN_CERTIFICATE_NEEDS_TLS["message"]))
        if self.delegated_permissions is not None and self.permissions is None:
            raise ValueError(str(_DELEGATES_NOTHING["message"]))
        if self.external_service is not None and not self._offered():
            raise ValueError(str(_OFFERS_NOTHING["message"]))
        return self

    def _offered(self) -> bool:
        """Whether the Service for clients outside has listeners, and all of them are on."""
        are_on = {"amqps": self.listeners.amqps, "amqp": self.listeners.amqp, "webSocket": self.listeners.web_socket}
        named = None if self.external_service is None else self.external_service.listeners
        return are_on["amqps"] or are_on["webSocket"] if named is None else all(are_on[each] for each in named)


class Orphan(base.Status):
    """Something on the broker whose owner mark names a resource that doesn't exist any more."""

    kind: Annotated[str, Field(max_length=32)]
    """Exchange, Subscription or Queue."""
    name: Annotated[str, Field(max_length=8192)]
    """Name on the broker."""
    resource: Annotated[str, Field(max_length=512)]
    """`namespace/name` of the missing resource."""
    reason: Annotated[str, Field(max_length=128)]
    """Why it is still there: OtherCluster, Retain, NotYetDue, Held while a resource of this Broker can't be read, or
    Collecting while it is being deleted.
    """


class LagAnalysisStatus(base.Status):
    """What is known about the lag job."""

    last_run_name: Annotated[str, Field(max_length=512)] | None = None
    """Run whose result was read last."""
    window_end: AwareDatetime | None = None
    """End of the window of that result."""
    brokers_reporting: Annotated[str, Field(max_length=16)] | None = None
    """How many of the expected broker pods this result covers, such as `1/1`."""


class VolumeStatus(base.Status):
    """The size of one volume."""

    requested: Annotated[str, Field(max_length=32)] | None = None
    """Size that its PersistentVolumeClaim asks for."""
    capacity: Annotated[str, Field(max_length=32)] | None = None
    """Size that it really has; absent until it is bound."""


class StorageStatus(base.Status):
    """The sizes of the volumes."""

    data: VolumeStatus | None = None
    """The volume `data`; absent until there is a claim."""
    ledger: VolumeStatus | None = None
    """The volume `ledger`; absent until there is a claim."""


class BrokerStatus(base.CommonStatus):
    """Observed state of a Broker."""

    operator: Annotated[str, Field(max_length=512)] | None = None
    """Operator that manages this Broker and all that names it: NAMESPACE/NAME of its Lease. Others leave them alone for
    as long as it lives; absent if that operator has no Lease.
    """
    replicas: int | None = None
    """Broker pods that exist (scale subresource)."""
    ready_replicas: int | None = None
    """Broker pods that serve clients."""
    selector: Annotated[str, Field(max_length=512)] | None = None
    """Label selector of the pods (scale subresource)."""
    address: Annotated[str, Field(max_length=512)] | None = None
    """URL for clients."""
    external_address: Annotated[str, Field(max_length=512)] | None = None
    """URL for clients outside the cluster, once it is known."""
    image: Annotated[str, Field(max_length=512)] | None = None
    """Image that the pods are made with."""
    version: Annotated[str, Field(max_length=64)] | None = None
    """Version that the broker reports."""
    instance_id: Annotated[str, Field(max_length=128)] | None = None
    """Identity of the data volume; another one than before means that everything was declared anew."""
    epoch: int | None = None
    """Number of starts of the broker on this data volume."""
    exchanges: int | None = None
    """Exchanges declared by resources."""
    subscriptions: int | None = None
    """Subscriptions declared by resources."""
    queues: int | None = None
    """Queues declared by resources; absent if there are none."""
    storage: StorageStatus | None = None
    """The sizes of the volumes, as they were when a volume was made or grew."""
    orphans: Annotated[tuple[Orphan, ...], Field(max_length=50)] = ()
    """Entities whose resource is missing, at most fifty."""
    lag_analysis: LagAnalysisStatus | None = None
    """The lag job."""


class Broker(base.Resource):
    """A message broker."""

    model_config = ConfigDict(
        json_schema_extra=schema.validations(
            schema.cel(
                "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$')",
                "a Broker's name must have at most 30 characters, start with a letter and hold only a-z, 0-9 and `-`",
            )
        )
    )

    kind: Literal["Broker"]
    spec: BrokerSpec
    status: BrokerStatus = BrokerStatus()

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if NAME.fullmatch(self.metadata.name) is None:
            raise ValueError(
                "a Broker's name must have at most 30 characters, start with a letter and hold only a-z, 0-9 and `-`"
            )
        return self
