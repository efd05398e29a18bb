"""What was observed of a server certificate that is not the operator's, as the plan wants to know it."""

from __future__ import annotations

from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children import server_certificate
from penstock_operator.manifest import items_of, text_at
from penstock_operator.plans.server_certificate import ServerCertificateView
from penstock_operator.reconcile.broker_children import ObservedChildren

__all__ = ["certificate_view"]


def certificate_view(broker: Broker, observed: ObservedChildren) -> ServerCertificateView | None:
    """What is known of the certificate; None if it is the operator's."""
    secret = server_certificate.secret_name(broker)
    if secret is None:
        return None
    conditions = items_of(observed.get("Certificate", secret), "status", "conditions")
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    return ServerCertificateView(
        secret=secret,
        host=names.service_host(f"{broker.metadata.name}-amqp", broker.metadata.namespace),
        is_issued=broker.spec.tls.issuer_ref is not None,
        has_cert_manager=observed.has_cert_manager,
        told=text_at(ready, "message") or "",
        found=server_certificate.read(observed.get("Secret", secret)),
    )
