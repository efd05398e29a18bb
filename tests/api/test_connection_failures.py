"""Errors of the network in words: no number, tuple or class of Python is left."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from penstock_api.connection_failures import connection_failure

UNTRUSTED = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1006)")
UNTRUSTED.verify_message = "self-signed certificate"
PLAIN = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
PLAIN.reason = "WRONG_VERSION_NUMBER"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "nothing listens there"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "there is no such socket"),
        (FileNotFoundError(errno.ENOENT, "x", "/ca.crt"), "/ca.crt can't be read (No such file or directory)"),
        (socket.gaierror(-2, "Name or service not known"), "no address is known for this name"),
        (socket.gaierror(-1, "Bad value for ai_flags"), "no address is known for this name"),
        (TimeoutError(), "nothing answered in time"),
        (OSError(errno.EMFILE, "x"), "Too many open files"),
        (UNTRUSTED, "its certificate is not trusted: self-signed certificate"),
        (PLAIN, "TLS could not be agreed on (wrong version number); check that this port speaks TLS"),
        (ConnectionError("the broker said no"), "the broker said no"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_a_failure_is_told_in_words(error: OSError, words: str) -> None:
    assert connection_failure(error) == words
