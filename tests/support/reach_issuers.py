"""A Broker with `tls.issuerRef`, and cert-manager: from a missing issuer to a certificate renewed under traffic."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import yaml
from e2e.kube import ROOT, wait_for
from e2e.story import StoryError
from support.cluster_certificates import shown, trust, trusts
from support.installed_operator import MINUTE, Team
from support.reach_stage import PASSWORD, USER, Stage, part
from support.tls_traffic import Door, flowing

__all__ = ["play"]

AUTHORITY: Final = ROOT / "examples/kubernetes/reach/company-ca.yaml"
NAMESPACE: Final = "{apiVersion: v1, kind: Namespace, metadata: {name: cert-manager}}"
CERTIFICATE: Final = "main-tls"
AMQPS: Final = 5671
SERVED_SECONDS: Final = 2 * MINUTE
"""The page: a renewed certificate is used within a minute or two."""


def play(stage: Stage) -> None:
    """Raises StoryError or TimeoutError for what is not as the page on reach says."""
    shop, tls = stage.shop, part("tls", lambda value: "issuerRef" in value)["tls"]
    names = ["main-amqp.shop.svc", *tls["names"]]
    old = trust(shop)
    stage.patch({"tls": tls})
    _sees_the_missing_issuer(stage, tls["issuerRef"]["name"])
    if not trusts(shop, AMQPS, old, name=names[0]):
        raise StoryError("the pod does not go on with the certificate that it had")
    applied = time.monotonic()
    stage.kube("cert-manager").kubectl("apply", "-f", "-", stdin=NAMESPACE)
    stage.kube("cert-manager").kubectl("apply", "-f", str(AUTHORITY))
    authority = wait_for(
        "the Secret with the authority", lambda: stage.kube().secret(CERTIFICATE, "ca.crt"), 2 * MINUTE
    )
    stage.tell(f"cert-manager has issued {CERTIFICATE} {time.monotonic() - applied:.0f} s after its issuer was made")
    wait_for("the certificate to be served", lambda: _is_trusted(shop, authority, names[0]), 3 * MINUTE)
    shop.wait_ready("broker/main", seconds=MINUTE)
    stage.tell(f"it is served {time.monotonic() - applied:.0f} s after, and the Broker is Ready")
    _expect(shop, "ServerCertificate", ("True", "CertificateValid"))
    if not all(trusts(shop, AMQPS, authority, name=name) for name in names):
        raise StoryError(f"the certificate does not name all of {names}")
    if authority not in trust(shop) or not trusts(shop, AMQPS, trust(shop), name=names[0]):
        raise StoryError("what clients are told to trust does not have the company's authority")
    stage.trust_everywhere()
    served = [(namespace, name) for namespace in ("shop", "billing") for name in _addresses(stage)]
    if refused := [each for each in served if not stage.is_served(each[0], host=each[1])]:
        raise StoryError(f"not served by the printed names: {refused}")
    stage.tell(f"pods that trust the ConfigMap are served by {', '.join(_addresses(stage))}")
    _renew_under_traffic(stage, authority, names[0])


def _sees_the_missing_issuer(stage: Stage, issuer: str) -> None:
    """The page: until there is a certificate the Broker says why, and nothing of it is changed."""
    shop, runs = stage.shop, stage.runs()
    waits = ("False", "ServerCertificatePending")
    wait_for("the missing certificate to be told", lambda: shop.reason("broker", "main", "Accepted") == waits, MINUTE)
    told = lambda: issuer in shop.message("broker", "main", "Accepted") and "not found" in _message(shop)  # noqa: E731
    try:
        wait_for("the missing issuer to be told", told, MINUTE)
    except TimeoutError:
        raise StoryError(f"a missing issuer is not told: {_message(shop)}") from None
    _expect(shop, "ServerCertificate", waits)
    if stage.runs() != runs:
        raise StoryError("the pod was restarted without a certificate")
    stage.tell(f"without the issuer: {_message(shop)}")


def _message(shop: Team) -> str:
    return shop.message("broker", "main", "Accepted")


def _expect(shop: Team, condition: str, expected: tuple[str, str]) -> None:
    try:
        wait_for(condition, lambda: shop.reason("broker", "main", condition) == expected, MINUTE)
    except TimeoutError:
        raise StoryError(f"{condition} is {shop.reason('broker', 'main', condition)}, not {expected}") from None


def _addresses(stage: Stage) -> list[str]:
    """The names of the Broker that its resources print."""
    billing = Team(stage.kube("billing"))
    found = [
        stage.shop.field("broker", "main", "status", "address"),
        stage.shop.field("exchange", "orders", "status", "address"),
        billing.field("subscription", "billing", "status", "address"),
    ]
    return sorted({str(each).split("://")[-1].split("/")[0].partition(":")[0] for each in found if each})


def _is_trusted(shop: Team, authority: str, name: str) -> bool:
    try:
        return trusts(shop, AMQPS, authority, name=name)
    except OSError:
        return False  # the pod is being replaced


def _renew_under_traffic(stage: Stage, authority: str, name: str) -> None:
    """As `cmctl renew` does it, and by deleting the Secret: no connection ends, and every accepted message comes."""
    shop, runs = stage.shop, stage.runs()
    address = str(shop.field("service", "main-amqp", "spec", "clusterIP"))
    with _names_for_java(stage, {name: address}):
        door = Door(f"{name}:{AMQPS}", stage.work, options=f"&jms.username={USER}&jms.password={PASSWORD}")
        with flowing(door, {"company": authority, "told": trust(shop)}) as flow:
            for how in ("renewed as by cmctl", "Secret deleted"):
                before, began = shown(shop, AMQPS, authority, name=name), time.monotonic()
                if how == "Secret deleted":
                    stage.kube().kubectl("delete", "secret", CERTIFICATE)
                else:
                    _mark_for_renewal(stage)
                renewed = lambda: shown(shop, AMQPS, authority, name=name) != before  # noqa: B023, E731
                wait_for("the renewed certificate to be served", renewed, SERVED_SECONDS)
                flow.goes_on()
                if not flow.admits(authority):
                    raise StoryError("a new client that trusts the authority is refused")
                stage.tell(f"{how}: the new certificate is served after {time.monotonic() - began:.0f} s")
    if stage.runs() != runs:
        raise StoryError("the pod was restarted")
    shop.wait_ready("broker/main", seconds=MINUTE)
    accepted = len(flow.board.tally.accepted)
    stage.tell(f"{accepted} messages were accepted meanwhile, and each came once; no connection ended, no restart")


def _mark_for_renewal(stage: Stage) -> None:
    """What `cmctl renew` writes."""
    condition = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "Certificate re-issuance manually triggered",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    manifest: dict[str, Any] = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": CERTIFICATE},
        "status": {"conditions": [condition]},
    }
    words = ("--server-side", "--subresource=status", "--field-manager=renewal", "--force-conflicts", "-f", "-")
    stage.kube().kubectl("apply", *words, stdin=yaml.safe_dump(manifest))


@contextmanager
def _names_for_java(stage: Stage, hosts: dict[str, str]) -> Generator[None]:
    """Java programs that start meanwhile find these names at these addresses, and no others."""
    file, before = stage.work / "hosts", os.environ.get("JAVA_TOOL_OPTIONS")
    file.write_text("".join(f"{address} {name}\n" for name, address in {**hosts, "localhost": "127.0.0.1"}.items()))
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Djdk.net.hosts.file={file}"
    try:
        yield
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]
        if before is not None:
            os.environ["JAVA_TOOL_OPTIONS"] = before
