"""Everything on which the status of a Broker depends: the view that `broker_report` and its conditions read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from penstock_api.resources import Broker
from penstock_api.state_documents import BrokerState
from penstock_operator.children.stateful_set import PinnedPods
from penstock_operator.manifest import Manifest
from penstock_operator.plans.decisions import Reach
from penstock_operator.plans.lag_schedule import ScheduleView, SharedJobView
from penstock_operator.plans.lag_service import LagService
from penstock_operator.plans.refusals import Refusal
from penstock_operator.plans.server_certificate import ServerCertificateView
from penstock_operator.plans.volume_growth import VolumesView

__all__ = ["BrokerReportView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReportView:
    """Everything on which the status of a Broker depends."""

    broker: Broker
    taken_names: tuple[str, ...] = ()
    """Children whose names objects of other owners have already, as `Kind name`."""
    predecessor_children: tuple[str, ...] = ()
    """Children of a deleted Broker of the same name that still exist, as `Kind name`."""
    users_missing: bool = False
    """The Secret of `authentication.usersSecretRef` does not exist."""
    client_ca_missing: bool = False
    """The Secret of `authentication.clientCaSecretRef` does not exist, or has no `ca.crt`."""
    token_keys_missing: tuple[str, ...] = ()
    """ConfigMaps of `authentication.tokens` that do not exist, or have no `keys`."""
    issuer_unknown: bool = False
    """`authentication.tokens` refers to the cluster's issuer, but the API server does not publish it."""
    unknown_settings: tuple[str, ...] = ()
    """Settings that the broker's image doesn't know; nothing of the spec is applied."""
    unconfirmed_settings: tuple[str, ...] = ()
    """Settings of which it is not known yet whether the running broker knows them; nothing is applied until it is."""
    refusal: Refusal | None = None
    """What the API server refused while the children were applied."""
    stateful_set: Manifest | None = None
    pod: Manifest | None = None
    """The pod of ordinal 0."""
    events: tuple[Manifest, ...] = ()
    """Events about what the pod waits for, if it is not ready."""
    node: Manifest | None = None
    """The node of this pod, if the pod is ending or not ready; None if there is none."""
    is_node_known: bool = True
    """Whether the operator was allowed to look at the node."""
    server_certificate: ServerCertificateView | None = None
    """The certificate of the listeners; None if it is the operator's."""
    volumes: VolumesView | None = None
    """The volumes; None if they need not be looked at, since they had the sizes of the spec."""
    external_address: str | None = None
    """The URL for clients outside the cluster."""
    pinned: PinnedPods
    default_image: str
    """The image of new Brokers."""
    reach: Reach
    problem: str = ""
    """Why the management can't be used; a sentence, empty if it can."""
    state: BrokerState | None = None
    """What the broker has reported about itself; None if it has never answered."""
    lag_service: LagService
    """What analyses its lag."""
    lag_schedule: ScheduleView | None = None
    """The schedule of a lag job of its own."""
    shared_lag: SharedJobView = field(default_factory=SharedJobView)
    """The operator's lag job."""
    exchanges: int
    """Exchanges that name this Broker."""
    subscriptions: int
    """Subscriptions that name this Broker."""
    queues: int = 0
    """Queues that name this Broker."""
    orphans: tuple[Manifest, ...] = ()
    """`status.orphans`."""
    lag: Manifest | None = None
    """`status.lagAnalysis`."""
    now: datetime
