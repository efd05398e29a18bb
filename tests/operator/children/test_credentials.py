"""Certificates, password and token of a Broker: created once, kept while they are good, renewed in time."""

from __future__ import annotations

import base64
import secrets
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509
from support.resources import broker
from support.tls_handshake import shake_hands

from penstock_operator.children import certificates, credentials
from penstock_operator.children.certificates import Pair
from penstock_operator.manifest import Manifest, dig, text_at

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOSTS = ("main-amqp.shop.svc", "localhost", "*.shop.svc")


def stored(made: credentials.Credentials) -> dict[str, Manifest | None]:
    """The Secrets as the API server would return them."""
    manifests = credentials.manifests(broker(), made)
    return {name_of(manifest): manifest for manifest in manifests if manifest["kind"] == "Secret"}


def name_of(manifest: Manifest) -> str:
    return text_at(manifest, "metadata", "name") or ""


def renewed(
    observed: dict[str, Manifest | None], now: datetime = NOW, hosts: tuple[str, ...] = HOSTS
) -> credentials.Credentials:
    return credentials.renew(observed, broker(), hosts, now, secrets.token_urlsafe)


def test_everything_is_made_and_then_kept() -> None:
    first = renewed({})
    assert renewed(stored(first)) == first
    assert renewed(stored(first), NOW + timedelta(days=270)) == first


def test_the_server_certificate_is_renewed_three_months_ahead_under_the_same_ca() -> None:
    first = renewed({})
    later = renewed(stored(first), NOW + timedelta(days=276))
    assert later.server != first.server
    assert (later.ca, later.password, later.observer) == (first.ca, first.password, first.observer)


def test_another_host_needs_another_certificate_only() -> None:
    first = renewed({})
    later = renewed(stored(first), hosts=(*HOSTS, "*.hub.svc"))
    assert later.server != first.server
    assert later.ca == first.ca
    assert renewed(stored(first), hosts=HOSTS[:2]).server == first.server


def test_a_ca_that_ends_takes_its_certificates_along() -> None:
    first = renewed({})
    later = renewed(stored(first), NOW + timedelta(days=3650 - 364))
    assert later.ca != first.ca
    assert later.server != first.server


@pytest.mark.parametrize("name", ["main-ca", "main-amqp", "main-management", "main-observer"])
def test_what_is_lost_is_made_anew(name: str) -> None:
    first = renewed({})
    observed = stored(first)
    observed[name] = None
    later = renewed(observed)
    assert (later.password == first.password) is (name != "main-management")
    assert (later.observer == first.observer) is (name != "main-observer")
    assert (later.ca == first.ca) is (name != "main-ca")
    assert (later.server == first.server) is (name not in ("main-ca", "main-amqp"))


USERS_OF_THE_OBSERVER = {"main-observer-scrape": "scrape.token", "main-observer-lag": "lag.token"}


def text_in(secrets_of_broker: dict[str, Manifest | None], name: str, key: str) -> str:
    return base64.b64decode(text_at(secrets_of_broker[name], "data", key) or "").decode()


def test_every_token_of_the_observer_is_another_text() -> None:
    made = renewed({})
    assert set(made.observer) == {
        "token",
        "scrape.token",
        "ledger.token",
        "results.token",
        "lag.token",
        "page.token",
        "operator.token",
        "scale.key",
    }
    assert len(set(made.observer.values())) == 8
    secret = stored(made)["main-observer"]
    assert {key: text_in({"it": secret}, "it", key) for key in made.observer} == made.observer


def test_a_secret_of_an_earlier_release_keeps_its_token_and_gets_the_others() -> None:
    first = renewed({})
    before = stored(first)
    before["main-observer"] = {"data": {"token": base64.b64encode(first.observer["token"].encode()).decode()}}
    del before["main-observer-scrape"], before["main-observer-lag"]
    later = renewed(before)
    assert later.observer["token"] == first.observer["token"]
    assert later.observer["lag.token"] != first.observer["lag.token"]


def test_one_token_is_rotated_by_removing_its_key() -> None:
    first = renewed({})
    observed = stored(first)
    secret = observed["main-observer"]
    assert secret is not None
    data = secret["data"]
    assert isinstance(data, dict)
    del data["scrape.token"]
    later = renewed(observed)
    changed = {key for key in first.observer if first.observer[key] != later.observer[key]}
    assert changed == {"scrape.token"}


@pytest.mark.parametrize("knows", [None, False])
def test_an_observer_that_may_be_of_an_earlier_release_gets_the_token_that_it_knows(knows: bool | None) -> None:
    """A new Broker, and one whose operator was just upgraded: nothing may stop until the observer has been asked."""
    made = credentials.renew({}, broker(), HOSTS, NOW, secrets.token_urlsafe, knows)
    for name in USERS_OF_THE_OBSERVER:
        assert text_in(stored(made), name, "token") == made.observer["token"]


def test_once_the_observer_knows_them_every_user_gets_its_own_token_and_keeps_it() -> None:
    first = renewed({})
    narrow = credentials.renew(stored(first), broker(), HOSTS, NOW, secrets.token_urlsafe, knows_scopes=True)
    assert narrow.observer == first.observer
    restarted = renewed(stored(narrow))  # an operator that has not asked yet
    back = credentials.renew(stored(narrow), broker(), HOSTS, NOW, secrets.token_urlsafe, knows_scopes=False)
    for name, token in USERS_OF_THE_OBSERVER.items():
        assert text_in(stored(narrow), name, "token") == first.observer[token]
        assert text_in(stored(restarted), name, "token") == first.observer[token]
        assert text_in(stored(back), name, "token") == first.observer["token"]
        assert set(cast(dict[str, str], dig(stored(narrow)[name], "data"))) == {"token", "ca.crt"}


SHOWS = broker(page={"showMessages": True})


def with_messages(observed: dict[str, Manifest | None]) -> credentials.Credentials:
    return credentials.renew(observed, SHOWS, HOSTS, NOW, secrets.token_urlsafe, knows_scopes=False)


def test_the_token_that_shows_messages_is_made_only_for_a_page_that_shows_them() -> None:
    closed = renewed({})
    assert "main-observer-messages" not in stored(closed)
    open_ = with_messages(stored(closed))
    assert set(open_.observer) - set(closed.observer) == {"messages.token"}
    assert {key: open_.observer[key] for key in closed.observer} == closed.observer
    secrets_now = stored(open_)
    token = open_.observer["messages.token"]
    # Not the token for everything, although this observer refuses narrower ones: it is good for the page alone.
    assert text_in(secrets_now, "main-observer-messages", "token") == token
    assert text_in(secrets_now, "main-observer", "messages.token") == token
    assert set(cast(dict[str, str], dig(secrets_now["main-observer-messages"], "data"))) == {"token", "ca.crt"}
    assert with_messages(secrets_now) == open_


def test_a_page_that_shows_messages_no_more_forgets_the_token() -> None:
    before = stored(with_messages({}))
    closed = renewed(before)
    after = stored(closed)
    assert "messages.token" not in closed.observer
    assert dig(after["main-observer"], "data", "messages.token") is None
    # The Secret of those who had it stays, because the operator deletes none; what is in it is never good again.
    left = {**after, "main-observer-messages": before["main-observer-messages"]}
    again = with_messages(left).observer["messages.token"]
    assert again != text_in(before, "main-observer-messages", "token")


@pytest.mark.parametrize("value", ["", "c2hvcnQ=", "not base64!", base64.b64encode(b"\xff" * 40).decode()])
def test_a_password_that_is_no_good_is_made_anew(value: str) -> None:
    observed = stored(renewed({}))
    observed["main-management"] = {"data": {"password": value}}
    assert len(renewed(observed).password) >= 43


def test_the_key_of_the_ca_is_for_the_operator_alone() -> None:
    made = renewed({})
    secret = base64.b64encode(made.ca.key).decode()
    every = credentials.manifests(broker(), made)
    holders = [(manifest["kind"], name_of(manifest)) for manifest in every if secret in str(manifest)]
    assert holders == [("Secret", "main-ca")]


def test_names_cover_every_service_of_the_namespaces_that_may_use_it() -> None:
    allowed = broker(allowedNamespaces=["hub", "*", "shop"])
    assert credentials.hosts_of(allowed, "cluster.local") == (
        "main-amqp.shop.svc",
        "localhost",
        "*.shop.svc",
        "*.shop.svc.cluster.local",
        "*.hub.svc",
        "*.hub.svc.cluster.local",
        "*.main-pods.shop.svc",
        "*.main-pods.shop.svc.cluster.local",
    )


def test_python_s_ssl_trusts_the_server_by_its_ca(tmp_path: Path) -> None:
    ca = certificates.make_ca("test", datetime.now(UTC))
    pair = certificates.make_server(ca, HOSTS, datetime.now(UTC))
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cadata=ca.certificate.decode())
    shake_hands(server, client, "orders-x.shop.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "orders-x.other.svc")


def test_a_pair_that_does_not_fit_is_no_pair() -> None:
    ca, other = certificates.make_ca("a", NOW), certificates.make_ca("b", NOW)
    assert not certificates.ca_is_due(ca, NOW)
    assert certificates.ca_is_due(Pair(ca.certificate, other.key), NOW)
    assert certificates.ca_is_due(Pair(b"no certificate", b"no key"), NOW)
    assert certificates.server_is_due(certificates.make_server(other, HOSTS, NOW), ca, HOSTS, NOW)


def test_certificates_begin_in_the_past_for_clocks_that_lag_behind() -> None:
    certificate = x509.load_pem_x509_certificate(certificates.make_ca("a", NOW).certificate)
    assert certificate.not_valid_before_utc == NOW - timedelta(hours=1)
