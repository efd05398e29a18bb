"""What the children of a Broker should be: what its pods are made with, its credentials, and all manifests in order.

Source: docs/decisions/050-names-of-children.md, docs/decisions/051-broker-pods.md,
docs/decisions/061-different-releases.md (settings that the image of the pods does not know).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from penstock_api.resources import Broker, Declaring
from penstock_operator import names
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.children import cluster_issuer, credentials, lag_job, page_account, server_certificate
from penstock_operator.children.credentials import SECRETS, Credentials
from penstock_operator.children.disruption_budget import disruption_budgets
from penstock_operator.children.external_service import (
    external_services,
    outside_names,
    service_name,
)
from penstock_operator.children.network_policy import network_policies
from penstock_operator.children.services import broker_services
from penstock_operator.children.stateful_set import (
    PinnedPods,
    broker_stateful_set,
    image_of,
    pin,
    running_image,
    unknown_settings,
)
from penstock_operator.children.tenant_trust import tenants
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest
from penstock_operator.plans.broker_health import is_serving
from penstock_operator.plans.decisions import Reach
from penstock_operator.plans.server_certificate import ServerCertificateView
from penstock_operator.plans.volume_growth import VolumesView, sizes_for_a_new_stateful_set
from penstock_operator.reconcile.broker_children import (
    ObservedChildren,
)
from penstock_operator.reconcile.broker_findings import BrokerFindings
from penstock_operator.reconcile.certificates_of_clients import certificate_view
from penstock_operator.settings import OperatorSettings

__all__ = ["WantedChildren", "client_trust"]


@dataclass(slots=True)
class WantedChildren:
    """What is wanted of each Broker, from its spec and from what was found."""

    cache: Cache
    sessions: BrokerSessions
    settings: OperatorSettings
    findings: dict[ResourceKey, BrokerFindings]

    def pin(self, broker: Broker, observed: ObservedChildren) -> PinnedPods:
        """What the pods are made with, and the settings that this image knows: as its broker says now, or said last."""
        name = broker.metadata.name
        config_map = observed.get("ConfigMap", f"{name}-config")
        pinned = pin(broker, observed.get("StatefulSet", name), self.settings.broker_image, config_map)
        session = self.sessions.get(broker.key)
        state = None if session is None or session.reach is not Reach.CONNECTED else session.state
        image = image_of(observed.get("Pod", f"{name}-0"))
        if state is None or image not in (None, pinned.image):
            return pinned
        terms = frozenset(term for term in state.understands or () if term.startswith("settings."))
        return replace(pinned, understood=terms or None)

    def unknown_settings(
        self, broker: Broker, pinned: PinnedPods, observed: ObservedChildren
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """First, the settings of the spec that the image of the pods does not know: with them it would not start.
        Second, the settings of which this is not known yet, because the running broker has not been asked; it is asked
        as soon as the session connects.
        """
        stateful_set = observed.get("StatefulSet", broker.metadata.name)
        running = observed.get("ConfigMap", f"{broker.metadata.name}-config")
        if running_image(stateful_set, running) != pinned.image:
            return (), ()
        found = unknown_settings(broker, pinned, running)
        if pinned.understood is not None:
            return found, ()
        session = self.sessions.get(broker.key)
        is_awaited = session is None or session.reach in (Reach.NOT_ASKED, Reach.UNREACHABLE)
        serves = is_serving(observed.get("Pod", f"{broker.metadata.name}-0"))
        return (), found if serves and is_awaited else ()

    def tenants(self, key: ResourceKey, broker: Broker) -> Mapping[str, Declaring]:
        """The other namespaces whose resources use the Broker."""
        return tenants(broker, self.cache.declaring_elsewhere(key))

    def hosts(self, key: ResourceKey, broker: Broker, observed: ObservedChildren) -> tuple[str, ...]:
        """The names in the server certificate."""
        return credentials.hosts_of(
            broker,
            self.settings.cluster_domain,
            used_by=self.tenants(key, broker),
            outside=outside_names(observed.get("Service", service_name(broker))),
        )

    def credentials(
        self, key: ResourceKey, broker: Broker, observed: ObservedChildren, hosts: tuple[str, ...], now: datetime
    ) -> Credentials:
        name = broker.metadata.name
        observed_secrets = {f"{name}-{stem}": observed.get("Secret", f"{name}-{stem}") for stem in SECRETS}
        accepted = self.findings.setdefault(key, BrokerFindings()).accepted
        knows_scopes = None if accepted is None else accepted.knows_scopes
        return credentials.renew(observed_secrets, broker, hosts, now, secrets.token_urlsafe, knows_scopes)

    def manifests(
        self,
        broker: Broker,
        pinned: PinnedPods,
        keys: Credentials,
        observed: ObservedChildren,
        hosts: tuple[str, ...],
        volumes: VolumesView | None,
    ) -> list[Manifest]:
        """All children, in the order in which they are applied: what the pods mount comes before the pods."""
        issuer = observed.issuer
        sizes = None if volumes is None else sizes_for_a_new_stateful_set(volumes)
        host = names.ALL_ADDRESSES if self.settings.has_ipv6 else names.ALL_IPV4
        stateful_set, config_map = broker_stateful_set(
            broker,
            pinned,
            "" if issuer is None else issuer.issuer,
            sizes,
            host,
            observed.get("StatefulSet", broker.metadata.name),
        )
        return [
            *credentials.manifests(broker, keys, client_trust(keys, certificate_view(broker, observed))),
            *(_asked_of_cert_manager(broker, hosts) if observed.has_cert_manager else ()),
            config_map,
            *([] if issuer is None else [cluster_issuer.config_map(broker, issuer)]),
            *broker_services(broker),
            *external_services(broker),
            *network_policies(broker, self.settings.own_namespace),
            *disruption_budgets(broker),
            *page_account.manifests(broker),
            *([] if volumes is not None and volumes.is_leaving else [stateful_set]),
            *lag_job.manifests(broker, self.settings.lag_image, spark_installed=observed.spark_installed),
        ]


def _asked_of_cert_manager(broker: Broker, hosts: tuple[str, ...]) -> list[Manifest]:
    """The Certificate. No issuer signs `localhost`, which is for the commands that run in the pod."""
    return server_certificate.cert_manager_certificates(broker, [host for host in hosts if host != "localhost"])


def client_trust(keys: Credentials, certificate: ServerCertificateView | None) -> bytes:
    """What clients are to trust: the operator's CA, and who signed a certificate that is not the operator's."""
    found = None if certificate is None else certificate.found
    return keys.trusted + (b"" if found is None else found.authorities)
