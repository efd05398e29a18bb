"""Qpid JMS 2.x against a broker process: runs the Maven project tests/jms and repeats Surefire's closing lines.

The broker is a real `penstock broker` with a plain and a TLS listener; tests/jms/manifests are declared on it through
`$management`, as `penstock up` does. Tests that kill a broker have their own forked, by `jms_suite.forks`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import pkcs12
from jms_suite import maven
from jms_suite.commands import penstock_command
from jms_suite.forks import serving
from support.certificates import Authority, Issued
from support.token_signer import AUDIENCE, ISSUER, Signer

from penstock_cli.up import declarations
from penstock_cli.up.manifest_folder import read
from penstock_cli.up.topology import declared

PROJECT = Path(__file__).resolve().parent.parent / "jms"
START_SECONDS = 300.0
"""Only a test that fails waits so long."""

ENCRYPTED = ("amqps", "mutual", "wss")
"""Listeners whose certificate says `localhost`."""

pytestmark = pytest.mark.jms


def trust_store(ca: Path) -> Path:
    """A PKCS #12 trust store with one authority; Java reads no PEM. Its password is `penstock`."""
    store = ca.with_suffix(".p12")
    where = ("-keystore", str(store), "-storetype", "PKCS12", "-storepass", "penstock")
    command = ["keytool", "-importcert", "-noprompt", "-alias", "authority", "-file", str(ca), *where]
    subprocess.run(command, check=True, capture_output=True)
    return store


def key_store(issued: Issued) -> Path:
    """A PKCS #12 key store with a certificate and its key. Its password is `penstock`."""
    store = issued.certificate.with_suffix(".keys.p12")
    key = serialization.load_pem_private_key(issued.key.read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    assert isinstance(key, EllipticCurvePrivateKey)
    protection = serialization.BestAvailableEncryption(b"penstock")
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"client", key, certificate, None, protection))
    return store


@pytest.fixture
async def properties(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """A running broker, as the system properties that the Java tests want."""
    command = penstock_command(tmp_path)
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    anywhere = "127.0.0.1:0"
    signer = Signer()
    (tmp_path / "jwks.json").write_bytes(signer.jwks())
    now = int(time.time())
    management = tmp_path / "management.sock"
    tls = {"certificate": str(issued.certificate), "key": str(issued.key)}
    settings = {
        "listeners": [
            {"name": "amqp", "address": anywhere},
            {"name": "amqps", "address": anywhere, "tls": tls},
            {"name": "mutual", "address": anywhere, "tls": {**tls, "clientCa": str(authority.ca)}},
            {"name": "ws", "kind": "webSocket", "address": anywhere},
            {"name": "wss", "kind": "webSocket", "address": anywhere, "tls": tls},
        ],
        "management": {"address": f"unix:{management}"},
        "authentication": {
            "tokens": [{"issuer": ISSUER, "audiences": [AUDIENCE], "keysFile": str(tmp_path / "jwks.json")}]
        },
    }
    config = tmp_path / "broker.yaml"
    config.write_text(yaml.safe_dump(settings))
    arguments = ["broker", "--data", str(tmp_path / "data"), "--config", str(config), "--dev"]
    arguments += ["--ready-file", str(tmp_path / "ready.json")]
    with (tmp_path / "broker.log").open("wb") as log:
        broker = subprocess.Popen([command, *arguments], stdout=log, stderr=subprocess.STDOUT)
    try:
        await declarations.declare(management, declared(read(PROJECT / "manifests")), START_SECONDS)
        addresses: dict[str, str] = json.loads((tmp_path / "ready.json").read_text())
        with serving() as forks:
            yield {
                **{f"penstock.{name}": addresses[name] for name in ("amqp", "ws")},
                **{f"penstock.{name}": addresses[name].replace("127.0.0.1", "localhost") for name in ENCRYPTED},
                "penstock.keystore": str(key_store(authority.issue("billing"))),
                "penstock.token": signer.token(iat=now, nbf=now, exp=now + 3600).decode(),
                "penstock.truststore": str(trust_store(authority.ca)),
                "penstock.forks": str(forks),
            }
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(timeout=START_SECONDS) == 0, (tmp_path / "broker.log").read_text()
    finally:
        broker.kill()
        broker.wait()


def test_every_jms_test_passes(properties: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    chosen = os.environ.get("PENSTOCK_JMS_TEST")  # a class or Class#method, to look at one failure
    ran = maven.test(PROJECT, {**properties, **({"test": chosen} if chosen else {})})
    with capfd.disabled():
        sys.stdout.write("\n" + "\n".join(ran.report.lines) + f"\nQpid JMS: {ran.report.tests} tests\n")
    assert ran.report.tests, ran.output
    assert not ran.report.bad, "\n".join(ran.report.bad)
    assert ran.code == 0, ran.output
    # Each class that ends is progress: without it hack/test takes a slow stage for one that hangs.
    assert len(ran.ended) == len(ran.report.lines), ran.output
