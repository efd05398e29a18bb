"""What the broker of a team shows on a cluster, and what clients are told to trust."""

from __future__ import annotations

import base64
import socket
import ssl
from datetime import UTC, datetime

from support.installed_operator import MINUTE, Team

from penstock_operator.children.certificates import Pair

__all__ = ["apply_certificate", "bring_files", "shown", "trust", "trusts"]


def shown(team: Team, port: int, *trusted: str, name: str) -> bytes:
    """The certificate that the broker shows to a client which expects this name.

    Raises:
        ssl.SSLCertVerificationError: the client does not trust it.
    """
    context = ssl.create_default_context(cadata="".join(trusted))
    host = str(team.field("service", "main-amqp", "spec", "clusterIP"))
    with (
        socket.create_connection((host, port), MINUTE) as plain,
        context.wrap_socket(plain, server_hostname=name) as sock,
    ):
        return sock.getpeercert(binary_form=True) or b""


def trusts(team: Team, port: int, *trusted: str, name: str) -> bool:
    """Whether a client that trusts these accepts the broker."""
    try:
        return bool(shown(team, port, *trusted, name=name))
    except ssl.SSLCertVerificationError:
        return False


def trust(team: Team, name: str = "main-ca") -> str:
    """What clients are told to trust."""
    return str(team.field("configmap", name, "data", "ca.crt") or "")


def bring_files(team: Team) -> None:
    """Makes the kubelet update the pod's files now: it does so when the pod changes, else once a minute."""
    team.kube.kubectl("annotate", "pod", "main-0", f"look={datetime.now(UTC).timestamp()}", "--overwrite")


def apply_certificate(team: Team, secret: str, pair: Pair, authorities: str) -> None:
    """A certificate of somebody else's, in the layout of cert-manager."""
    values = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authorities.encode()}
    data = {key: base64.b64encode(value).decode() for key, value in values.items()}
    about = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": secret}}
    team.apply({**about, "data": data})
