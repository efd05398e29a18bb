"""What a Broker says of a server certificate that is not the operator's: an obstacle, or condition ServerCertificate.

Without a usable certificate nothing of the Broker is changed: a pod that restarts would wait for its Secret. Ready does
not depend on what is in a certificate that can be used. Source: docs/decisions/101-reach.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from penstock_operator.children.certificates import ServedCertificate
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition

__all__ = ["SERVER_CERTIFICATE", "ServerCertificateView", "certificate_obstacle", "server_certificate"]

SERVER_CERTIFICATE: Final = "ServerCertificate"
_LEFT_OF_ITS_LIFE: Final = 10
"""A certificate with less than a tenth of its life left should have been renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCertificateView:
    """What is known of the certificate."""

    secret: str
    """The name of its Secret."""
    host: str
    """The name under which clients of the cluster reach the Broker."""
    is_issued: bool = False
    """Whether cert-manager is asked for it."""
    has_cert_manager: bool = True
    """Whether the cluster has the kinds of cert-manager."""
    told: str = ""
    """Why there is no certificate, as cert-manager says."""
    request: str = ""
    """The CertificateRequest of which cert-manager says it; empty: it says it of the Certificate."""
    found: ServedCertificate | None = None
    """What is in the Secret; None if it can't be used."""


def certificate_obstacle(view: ServerCertificateView | None) -> StatusCondition | None:
    """Accepted=False if the certificate can't be used; None if it can, or is the operator's."""
    if view is None or view.found is not None:
        return None
    if not view.is_issued:
        message = (
            f"There is no Secret {view.secret} with the keys `tls.crt` and `tls.key` that belong together, both PEM. "
            "Create it, or have cert-manager make it; until then nothing of this Broker is changed."
        )
        return _refusal(ConditionReason.SERVER_CERTIFICATE_NOT_FOUND, message)
    if not view.has_cert_manager:
        message = (
            "`tls.issuerRef` needs cert-manager, and the cluster does not have its kind Certificate. Install "
            "cert-manager, or give a certificate in `tls.secretRef`, or leave both out: then the operator makes it."
        )
        return _refusal(ConditionReason.CERT_MANAGER_NOT_INSTALLED, message)
    said = f" It says: {view.told.rstrip('.')}." if view.told else ""
    where = f"certificaterequest {view.request}" if view.request else f"certificate {view.secret}"
    message = (
        f"cert-manager has not yet made the certificate {view.secret}.{said} If this lasts, look at `kubectl describe "
        f"{where}`: the issuer may be missing, or may not sign these names."
    )
    return _refusal(ConditionReason.SERVER_CERTIFICATE_PENDING, message)


def server_certificate(view: ServerCertificateView | None, now: datetime) -> StatusCondition | None:
    """ServerCertificate; only for a certificate that is not the operator's."""
    obstacle = certificate_obstacle(view)
    if obstacle is not None:
        return replace(obstacle, type=SERVER_CERTIFICATE)
    if view is None or view.found is None:
        return None
    found = view.found
    end = found.end.strftime("%Y-%m-%d %H:%M UTC")
    renew = "Look at its Certificate of cert-manager" if view.is_issued else f"Renew the Secret {view.secret}"
    if found.end <= now:
        message = f"The certificate ended at {end}, so clients refuse the connection. {renew}; no restart is needed."
        return StatusCondition(SERVER_CERTIFICATE, ConditionStatus.FALSE, ConditionReason.CERTIFICATE_EXPIRED, message)
    if (found.end - now) * _LEFT_OF_ITS_LIFE < found.end - found.begin:
        message = f"The certificate ends at {end}, and was not renewed in time. {renew}; no restart is needed."
        return StatusCondition(SERVER_CERTIFICATE, ConditionStatus.FALSE, ConditionReason.CERTIFICATE_EXPIRING, message)
    if not _covers(found.names, view.host):
        message = (
            f"The certificate does not name {view.host}, so clients in the cluster that use the address in the status "
            "refuse it. Add this name to the certificate, or let these clients use a name that it has."
        )
        return StatusCondition(SERVER_CERTIFICATE, ConditionStatus.FALSE, ConditionReason.NAMES_MISSING, message)
    # The day of the end is not told: it changes with each renewal, and a status is not written for that.
    message = f"The listeners with TLS use the certificate of the Secret {view.secret}."
    return StatusCondition(SERVER_CERTIFICATE, ConditionStatus.TRUE, ConditionReason.CERTIFICATE_VALID, message)


def _covers(names: frozenset[str], host: str) -> bool:
    """RFC 6125: a wildcard stands for one whole label."""
    return host in names or f"*.{host.partition('.')[2]}" in names


def _refusal(reason: ConditionReason, message: str) -> StatusCondition:
    return StatusCondition("Accepted", ConditionStatus.FALSE, reason, message)
