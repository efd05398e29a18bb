"""Token and certificate files: compared, replaced while running, refused when useless."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock_api.failure import Misuse
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
    assert TokenFile(token_file).allows(header)


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
    assert not TokenFile(token_file).allows(header)


def replace(path: Path, text: str, second: int) -> None:
    """Change a file and, for certain, its modification time."""
    path.write_text(text)
    os.utime(path, (second, second))


def test_a_rotated_token_holds_at_once(token_file: Path) -> None:
    """The old one no longer does."""
    token = TokenFile(token_file)
    replace(token_file, "new", 2_000_000_000)
    assert token.allows("Bearer new")
    assert not token.allows("Bearer s3cret")


def test_a_bad_rotation_keeps_the_old_token(token_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Empty, then gone: told, and nobody is locked out; an empty token never lets anybody in."""
    token = TokenFile(token_file)
    replace(token_file, "", 2_000_000_000)
    assert token.allows("Bearer s3cret")
    assert not token.allows("Bearer ")
    token_file.unlink()
    assert token.allows("Bearer s3cret")
    assert "can't be read again" in caplog.text


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
