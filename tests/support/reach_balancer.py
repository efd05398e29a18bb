"""A Broker with `externalService`, and MetalLB, which gives its Service an address: clients outside connect to it.

The addresses are of the network between this machine and the node. MetalLB's speaker answers for them by ARP, so a
client on this machine reaches them as it reaches a neighbour.
"""

from __future__ import annotations

import json
from typing import Any, Final

from e2e.kube import pick, wait_for
from kube.additions import pool
from kube.settings import addresses
from support.cluster_certificates import trust
from support.installed_operator import MINUTE
from support.reach_stage import ELSEWHERE, Stage, StoryError, part

__all__ = ["play"]

SERVICE: Final = "main-external"
POOL: Final = """
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {{name: cable, namespace: metallb-system}}
spec: {{addresses: ["{first}-{last}"]}}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {{name: cable, namespace: metallb-system}}
spec: {{ipAddressPools: [cable]}}
"""
CERTIFICATE_SECONDS: Final = 2 * MINUTE


def play(stage: Stage) -> None:
    """Raises StoryError or TimeoutError for what is not as the page on reach says."""
    first, last = pool(addresses())
    stage.kube("metallb-system").kubectl("apply", "-f", "-", stdin=POOL.format(first=first, last=last))
    shown = part("externalService")
    (name,) = shown["tls"]["names"]
    had_issuer = stage.shop.field("broker", "main", "spec", "tls", "issuerRef")
    if had_issuer is not None:
        _use_the_operators_certificate(stage)
    runs = stage.runs()
    stage.patch(shown)
    address = _given(stage)
    _expect_address(stage, f"amqps://{name}:5671")
    _serve(stage, f"amqps://{name}", {name: address})
    stage.tell(f"outside: served by {name}, which leads to {address}")
    stage.patch({"tls": {"names": []}})
    _expect_address(stage, f"amqps://{address}:5671")
    _serve(stage, f"amqps://{address}:5671", {})
    stage.tell(f"outside: served by status.externalAddress, amqps://{address}:5671")
    if stage.runs() != runs:
        raise StoryError("the pod was restarted for a name in its certificate")
    if had_issuer is not None:
        _with_an_issuer(stage, had_issuer, f"amqps://{address}:5671")
    stage.trust_everywhere()
    _with_a_policy(stage, f"amqps://{address}:5671")
    stage.patch({"externalService": None})
    wait_for("the Service to go", lambda: stage.kube().get("service", SERVICE) is None, MINUTE)
    wait_for("its address to go", lambda: not _told(stage), MINUTE)
    stage.tell("externalService taken back: Service and address are gone")


def _given(stage: Stage) -> str:
    """The address that the load balancer has given."""

    def look() -> str | None:
        ingress = pick(stage.kube().get("service", SERVICE), "status", "loadBalancer", "ingress", 0, "ip")
        return None if ingress is None else str(ingress)

    address = wait_for("an address from the load balancer", look, 2 * MINUTE)
    stage.tell(f"the load balancer has given {address} to {SERVICE}")
    return address


def _told(stage: Stage) -> object:
    return stage.shop.field("broker", "main", "status", "externalAddress")


def _expect_address(stage: Stage, expected: str) -> None:
    try:
        wait_for("the address in the status", lambda: _told(stage) == expected, 2 * MINUTE)
    except TimeoutError:
        raise StoryError(f"status.externalAddress is {_told(stage)}, not {expected}") from None


def _serve(stage: Stage, url: str, hosts: dict[str, str]) -> None:
    """A client outside is served, once the kubelet has brought the certificate to the pod."""
    wait_for(
        f"a client outside to be served at {url}",
        lambda: stage.outside_is_served(url, trust(stage.shop), hosts),
        CERTIFICATE_SECONDS,
    )


def _use_the_operators_certificate(stage: Stage) -> None:
    """To end with a certificate of one's own restarts the pod."""
    uid, _ = stage.runs()
    stage.patch({"tls": {"issuerRef": None, "names": []}})
    wait_for("another pod", lambda: stage.shop.field("pod", "main-0", "metadata", "uid") not in (None, uid), 2 * MINUTE)
    stage.shop.wait_ready("broker/main")


def _with_an_issuer(stage: Stage, issuer: object, url: str) -> None:
    """The address is also in the certificate for which the operator asks."""
    stage.patch({"tls": {"issuerRef": issuer}})
    authority = wait_for("the Secret", lambda: stage.kube().secret("main-tls", "ca.crt"), MINUTE)
    wait_for(
        "a client outside that trusts the issuer alone",
        lambda: stage.outside_is_served(url, authority),
        CERTIFICATE_SECONDS + MINUTE,
    )
    stage.tell(f"outside: a client that trusts the authority of the issuer alone is served at {url}")


def _with_a_policy(stage: Stage, url: str) -> None:
    """A NetworkPolicy lets in the ranges that the load balancer takes, as far as the broker sees the addresses."""
    given: dict[str, Any] = dict(part("externalService")["externalService"])
    only = {**given, "loadBalancerSourceRanges": [f"{addresses().host}/32"]}
    stage.patch({"networkPolicy": {}, "externalService": only})
    wait_for("who is not in the range to be refused", lambda: not stage.is_served(ELSEWHERE), MINUTE)
    if not stage.outside_is_served(url, trust(stage.shop)):
        raise StoryError(f"a client of the range {json.dumps(only)} is refused")
    stage.tell(f"networkPolicy: a client outside, of the range, is served; one in {ELSEWHERE} is not")
    stage.patch({"networkPolicy": None, "externalService": given})
    wait_for("who was refused to be served", lambda: stage.is_served(ELSEWHERE), MINUTE)
