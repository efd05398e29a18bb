"""The rotation of a Broker's CA: clients that trust the old one, the new one or both are served all the time."""

from __future__ import annotations

import base64
import secrets
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support.resources import broker
from support.tls_handshake import shake_hands

from penstock_operator.children import certificates, credentials
from penstock_operator.children.certificates import Pair
from penstock_operator.children.credentials import Credentials
from penstock_operator.manifest import Manifest, text_at

NOW = datetime.now(UTC).replace(microsecond=0)
HOSTS = ("main-amqp.shop.svc", "10.1.2.3", "broker.example.com")
Secrets = dict[str, Manifest | None]


def stored(made: Credentials) -> Secrets:
    """The Secrets as the API server would return them."""
    secrets_ = [each for each in credentials.manifests(broker(), made) if each["kind"] == "Secret"]
    return {text_at(each, "metadata", "name") or "": each for each in secrets_}


def renewed(observed: Secrets, now: datetime = NOW, rotate: str | None = None) -> Credentials:
    annotations = {} if rotate is None else {"penstock.dev/rotate-ca": rotate}
    made = broker(metadata={"annotations": annotations})
    return credentials.renew(observed, made, HOSTS, now, secrets.token_urlsafe)


def encoded(certificate: bytes, key: bytes) -> dict[str, str]:
    """The data of a Secret with a CA that somebody has written."""
    return {name: base64.b64encode(value).decode() for name, value in (("ca.crt", certificate), ("ca.key", key))}


def data(observed: Secrets, name: str, key: str) -> bytes:
    return base64.b64decode(text_at(observed[name], "data", key) or "")


def served(observed: Secrets, folder: Path) -> ssl.SSLContext:
    """A server that has read the Secret of the pods."""
    for key in ("tls.crt", "tls.key"):
        (folder / key).write_bytes(data(observed, "main-amqp", key))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return server


def trusts(*certificates_: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=b"".join(certificates_).decode())


def test_clients_that_trust_old_or_new_or_both_accept_the_server(tmp_path: Path) -> None:
    old = renewed({})
    new = renewed(stored(old), rotate="2026-11")
    assert new.ca != old.ca
    bundle = data(stored(new), "main-amqp", "ca.crt")
    for trusted in (old.ca.certificate, new.ca.certificate, bundle):
        for name in HOSTS:
            shake_hands(served(stored(new), tmp_path), trusts(trusted), name)
    # Pods read the Secret up to a minute later than clients do: the server of before, and the trust of after.
    shake_hands(served(stored(old), tmp_path), trusts(bundle), HOSTS[0])
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(served(stored(new), tmp_path), trusts(renewed({}).ca.certificate), HOSTS[0])


def test_a_ca_of_an_earlier_release_which_no_other_may_follow_is_succeeded_too(tmp_path: Path) -> None:
    before = renewed({})
    narrow = _without_successors(before.ca)
    observed = stored(before)
    encoded = {
        key: base64.b64encode(value).decode() for key, value in (("ca.crt", narrow.certificate), ("ca.key", narrow.key))
    }
    observed["main-ca"] = {"data": encoded}
    new = renewed(observed, rotate="now")
    for trusted in (narrow.certificate, new.ca.certificate):
        shake_hands(served(stored(new), tmp_path), trusts(trusted), HOSTS[0])


def _without_successors(ca: Pair) -> Pair:
    """The same CA with the path length 0, as earlier releases made it."""
    made = x509.load_pem_x509_certificate(ca.certificate)
    key = serialization.load_pem_private_key(ca.key, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = (
        x509.CertificateBuilder()
        .subject_name(made.subject)
        .issuer_name(made.issuer)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(made.not_valid_before_utc)
        .not_valid_after(made.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), ca.key)


def test_a_second_verifier_builds_the_same_way() -> None:
    old = renewed({})
    new = renewed(stored(old), rotate="1")
    leaf, bridge = x509.load_pem_x509_certificates(data(stored(new), "main-amqp", "tls.crt"))
    for trusted, intermediates, length in ((old, [bridge], 3), (new, [bridge], 2), (new, [], 2)):
        root = x509.load_pem_x509_certificate(trusted.ca.certificate)
        policy = x509.verification.PolicyBuilder().store(x509.verification.Store([root])).time(NOW)
        verifier = policy.build_server_verifier(x509.DNSName("main-amqp.shop.svc"))
        assert len(verifier.verify(leaf, intermediates)) == length


def test_what_everybody_trusts_is_the_new_one_first_and_then_the_old_one() -> None:
    old = renewed({})
    new = renewed(stored(old), rotate="1")
    both = new.ca.certificate + old.ca.certificate
    names = ("main-amqp", "main-observer", "main-observer-scrape", "main-observer-lag")
    assert {data(stored(new), name, "ca.crt") for name in names} == {both}
    (config_map,) = (each for each in credentials.manifests(broker(), new) if each["kind"] == "ConfigMap")
    assert config_map["data"] == {"ca.crt": both.decode()}
    assert data(stored(new), "main-ca", "ca.crt") == new.ca.certificate


def test_an_annotation_rotates_once_and_another_value_once_more() -> None:
    first = renewed({})
    second = renewed(stored(first), rotate="1")
    assert renewed(stored(second), rotate="1") == second
    assert renewed(stored(second)) == second
    third = renewed(stored(second), rotate="2")
    assert third.authority.previous == second.ca.certificate
    assert third.ca != second.ca
    born_with_it = renewed({}, rotate="1")
    assert (renewed(stored(born_with_it), rotate="1"), born_with_it.authority.previous) == (born_with_it, None)


def test_a_text_beside_the_certificate_stays_out_of_what_everybody_trusts() -> None:
    """What `openssl x509 -text` writes is in the language of the names, and Python takes only ASCII."""
    first = renewed({})
    observed = stored(first)
    told = "Subject: O = Bücher & Co\n".encode() + first.ca.certificate
    observed["main-ca"] = {**(observed["main-ca"] or {}), "data": encoded(told, first.ca.key)}
    kept = renewed(observed)
    assert trusts(kept.trusted)
    assert kept == first


def test_the_way_from_the_old_one_ends_after_a_year_and_the_server_s_certificate_stays() -> None:
    first = renewed({})
    second = renewed(stored(first), rotate="1")
    in_time = renewed(stored(second), NOW + timedelta(days=364), rotate="1")
    assert in_time.authority == second.authority
    late = renewed(stored(in_time), NOW + timedelta(days=365), rotate="1")
    assert (late.ca, late.server) == (second.ca, in_time.server)
    assert (late.trusted, late.authority.bridge) == (second.ca.certificate, None)
    assert data(stored(late), "main-amqp", "tls.crt") == in_time.server.certificate


def test_a_ca_that_ends_is_succeeded_a_year_ahead_and_trusted_until_its_end() -> None:
    first = renewed({})
    end = NOW + timedelta(days=3650)
    second = renewed(stored(first), end - timedelta(days=300))
    assert second.authority.previous == first.ca.certificate
    assert second.authority.bridge is not None
    assert certificates.end_of(second.authority.bridge) == end
    after = renewed(stored(second), end)
    assert (after.ca, after.authority.previous) == (second.ca, None)


def test_a_ca_that_has_ended_signs_no_successor() -> None:
    late = renewed(stored(renewed({})), NOW + timedelta(days=3651))
    assert (late.authority.previous, late.authority.bridge) == (None, None)


def test_who_removes_the_secret_gets_a_ca_that_knows_nothing_of_the_old_one() -> None:
    """The way for a key that somebody may have copied."""
    observed = stored(renewed({}))
    observed["main-ca"] = None
    assert renewed(observed).authority.previous is None


def test_an_address_in_the_certificate_is_one_in_any_way_of_writing() -> None:
    ca = certificates.make_ca("a", NOW)
    made = certificates.make_server(ca, ("a.example", "fd00:0:0::1"), NOW)
    assert not certificates.server_is_due(made, ca, ("a.example", "fd00::1"), NOW)
    assert certificates.server_is_due(made, ca, ("a.example", "fd00::2"), NOW)


def test_namespaces_that_use_a_broker_for_all_are_in_its_certificate() -> None:
    def hosts(*allowed: str) -> set[str]:
        return set(credentials.hosts_of(broker(allowedNamespaces=[*allowed]), "cluster.local", used_by=("hub", "shop")))

    assert hosts("*") - hosts() == {"*.hub.svc", "*.hub.svc.cluster.local"}
    assert hosts("billing") - hosts() == {"*.billing.svc", "*.billing.svc.cluster.local"}


def test_names_of_the_spec_and_of_a_load_balancer_are_in_the_certificate() -> None:
    named = broker(tls={"names": ["broker.example.com", "10.1.2.3"]})
    found = credentials.hosts_of(named, "cluster.local", outside=("lb.example", "10.1.2.3"))
    assert found[-3:] == ("broker.example.com", "10.1.2.3", "lb.example")
    assert found[:-3] == credentials.hosts_of(broker(), "cluster.local")
