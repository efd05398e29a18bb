"""What was observed of a server certificate that is not the operator's, as the plan wants to know it."""

from __future__ import annotations

from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children import server_certificate
from penstock_operator.manifest import Manifest, items_of, text_at
from penstock_operator.plans.server_certificate import ServerCertificateView
from penstock_operator.reconcile.broker_children import ObservedChildren

__all__ = ["certificate_view"]


def certificate_view(broker: Broker, observed: ObservedChildren) -> ServerCertificateView | None:
    """What is known of the certificate; None if it is the operator's."""
    secret = server_certificate.secret_name(broker)
    if secret is None:
        return None
    certificate, request = observed.get("Certificate", secret), observed.certificate_request
    waits = _told(request, "Ready")
    return ServerCertificateView(
        secret=secret,
        host=names.service_host(f"{broker.metadata.name}-amqp", broker.metadata.namespace),
        is_issued=broker.spec.tls.issuer_ref is not None,
        has_cert_manager=observed.has_cert_manager,
        told=waits or _told(certificate, "Issuing") or _told(certificate, "Ready"),
        request="" if certificate is None or not waits else server_certificate.request_name(certificate),
        found=server_certificate.read(observed.get("Secret", secret)),
    )


def _told(manifest: Manifest | None, condition: str) -> str:
    """Why this condition is False, empty if it is not. A Certificate does not know why its request waits."""
    conditions = items_of(manifest, "status", "conditions")
    found = (each for each in conditions if each.get("type") == condition and each.get("status") == "False")
    return text_at(next(found, None), "message") or ""
