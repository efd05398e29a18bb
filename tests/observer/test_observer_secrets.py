"""Token and certificate files: compared, replaced while running, refused when useless."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock_api.failure import Misuse
from penstock_api.observer_tokens import MESSAGES_TOKEN, Scope, scale_token
from penstock_observer.secrets import ServerCertificate, TokenFile


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A file as kubectl makes it, with a line end."""
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    return path


@pytest.mark.parametrize("header", ["Bearer s3cret", "bearer s3cret", "Bearer  s3cret "])
def test_the_token_is_let_in(token_file: Path, header: str) -> None:
    """The scheme's case does not matter (RFC 9110, 11.1)."""
    assert TokenFile(token_file).allows(header, Scope.WRITE_RESULTS)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer s3cre",
        "Bearer s3cret2",
        "Bearer S3CRET",
        "s3cret",
        "Basic s3cret",
        "Bearer é",
    ],
)
def test_everything_else_is_not(token_file: Path, header: str | None) -> None:
    """Also what is no ASCII."""
    assert not TokenFile(token_file).allows(header, Scope.WRITE_RESULTS)


def replace(path: Path, text: str, second: int) -> None:
    """Change a file and, for certain, its modification time."""
    path.write_text(text)
    os.utime(path, (second, second))


def test_a_rotated_token_holds_at_once(token_file: Path) -> None:
    """The old one no longer does."""
    token = TokenFile(token_file)
    replace(token_file, "new", 2_000_000_000)
    assert token.allows("Bearer new", Scope.WRITE_RESULTS)
    assert not token.allows("Bearer s3cret", Scope.WRITE_RESULTS)


def test_a_bad_rotation_keeps_the_old_token(token_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Empty, then gone: told, and nobody is locked out; an empty token never lets anybody in."""
    token = TokenFile(token_file)
    replace(token_file, "", 2_000_000_000)
    assert token.allows("Bearer s3cret", Scope.WRITE_RESULTS)
    assert not token.allows("Bearer ", Scope.WRITE_RESULTS)
    token_file.unlink()
    assert token.allows("Bearer s3cret", Scope.WRITE_RESULTS)
    assert "can't be read again" in caplog.text


SHOP = "shop"
ORDERS = "psub:durable:global:orders"


def granted(file: TokenFile, token: str, queue_name: str | None = None) -> tuple[set[str], str | None] | None:
    """The scopes as words, and the namespace."""
    grant = file.grant({"Authorization": f"Bearer {token}"}, queue_name)
    return None if grant is None else ({scope.value for scope in grant.scopes}, grant.namespace)


def test_files_beside_the_token_are_good_for_less(token_file: Path) -> None:
    """Each for what the page of the observer says; they may come, change and go."""
    file = TokenFile(token_file)
    assert granted(file, "for-metrics") is None
    scrape = token_file.with_name("scrape.token")
    replace(scrape, "for-metrics\n", 2_000_000_000)
    token_file.with_name("lag.token").write_text("for-the-lag-job")
    assert granted(file, "for-metrics") == ({"metrics"}, None)
    assert granted(file, "for-the-lag-job") == (
        {"ledger", "read results", "write results", "read rollups", "write rollups"},
        None,
    )
    replace(scrape, "", 2_000_000_001)
    assert granted(file, "for-metrics") == ({"metrics"}, None)
    replace(scrape, "newer", 2_000_000_002)
    assert (granted(file, "for-metrics"), granted(file, "newer")) == (None, ({"metrics"}, None))
    scrape.unlink()
    assert granted(file, "newer") is None
    assert granted(file, "") is None


def test_whether_a_header_is_good_for_one_scope(token_file: Path) -> None:
    """Without a scope: for everything."""
    token_file.with_name("page.token").write_text("for-people")
    file = TokenFile(token_file)
    asked = [file.allows("Bearer for-people", scope) for scope in (Scope.STATE, Scope.METRICS, None)]
    assert asked == [True, False, False]
    assert all(file.allows("Bearer s3cret", scope) for scope in (*Scope, None))


def test_a_token_in_two_files_is_good_for_both(token_file: Path) -> None:
    """Whoever puts the same text into two files gets what both allow."""
    token_file.with_name("scrape.token").write_text("same")
    token_file.with_name("page.token").write_text("same")
    assert granted(TokenFile(token_file), "same") == ({"metrics", "state", "read results", "read rollups"}, None)


def test_the_token_for_messages_lies_beside_the_others_and_takes_nothing_from_them(token_file: Path) -> None:
    messages = token_file.with_name(MESSAGES_TOKEN)
    messages.write_text("m3ssages\n")
    token_file.with_name("page.token").write_text("p4ge\n")
    shown = ["m3ssages", "p4ge", "s3cret"]
    assert [TokenFile(messages).allows(f"Bearer {token}") for token in shown] == [True, False, False]
    assert TokenFile(token_file).grant({"Authorization": "Bearer m3ssages"}) is None


def test_the_token_of_one_subscription(token_file: Path) -> None:
    """Typed from its definition with openssl; good for its queue alone, and only under the key of now.

    printf 'penstock scale token 1\\0shop\\0psub:durable:global:orders' |
    openssl dgst -sha256 -hmac the-key -binary | basenc --base64url
    """
    key = token_file.with_name("scale.key")
    replace(key, "the-key\n", 2_000_000_000)
    file = TokenFile(token_file)
    token = "shop.tEs8TquBNM69pocjM_DDRE4QtBsiSwahQz8EJz1lVKM"
    assert scale_token(b"the-key", SHOP, ORDERS) == token
    assert granted(file, token, ORDERS) == ({"scale"}, "shop")
    assert granted(file, token, "psub:durable:global:other") is None
    assert granted(file, token) is None
    assert granted(file, token.replace("shop.", "others."), ORDERS) is None
    assert granted(file, token.removeprefix("shop"), ORDERS) is None
    assert granted(file, "the-key", ORDERS) is None
    replace(key, "another key", 2_000_000_001)
    assert granted(file, token, ORDERS) is None
    key.unlink()
    assert granted(file, token, ORDERS) is None
    assert granted(file, scale_token(b"", SHOP, ORDERS), ORDERS) is None


def test_a_token_may_come_in_the_header_of_api_keys(token_file: Path) -> None:
    """But not beside a bearer token: that one counts."""
    file = TokenFile(token_file)
    assert file.grant({"X-API-Key": "s3cret"}) is not None
    assert file.grant({"X-API-Key": "wrong"}) is None
    assert file.grant({"X-API-Key": "s3cret", "Authorization": "Bearer wrong"}) is None


def test_an_observer_without_token_does_not_start(tmp_path: Path) -> None:
    """Absent or empty."""
    with pytest.raises(Misuse, match="can't be used"):
        TokenFile(tmp_path / "absent")
    (tmp_path / "empty").write_text(" \n")
    with pytest.raises(Misuse, match="it is empty"):
        TokenFile(tmp_path / "empty")


def test_a_certificate_that_cannot_be_loaded_is_a_misuse(tmp_path: Path) -> None:
    """No such file, and not a certificate."""
    with pytest.raises(Misuse, match="can't be used"):
        ServerCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    (tmp_path / "tls.crt").write_text("x")
    (tmp_path / "tls.key").write_text("x")
    with pytest.raises(Misuse, match="can't be used") as told:
        ServerCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    assert "--tls-cert" in told.value.cure
