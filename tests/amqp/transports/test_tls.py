"""The server's TLS against a real client of `ssl`, both over memory buffers."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.certificates import Authority, Issued

from penstock_amqp.transports.tls import ServerTls, TlsConnection, TlsError, TlsFiles, TlsFilesError


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> ServerTls:
    issued = authority.issue("broker")
    return ServerTls(TlsFiles(issued.certificate, issued.key))


class Client:
    """A TLS client over memory buffers."""

    def __init__(self, ca: Path, name: str = "broker", identity: Issued | None = None) -> None:
        context = ssl.create_default_context(cafile=ca)
        if identity is not None:
            context.load_cert_chain(identity.certificate, identity.key)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)

    def shake_hands(self, server: TlsConnection, piece: int = 1 << 20) -> bytes:
        """Shake hands, passing at most `piece` bytes at a time; return plain bytes that came for the server."""
        plain = b""
        while True:
            try:
                self.tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            data = self.outgoing.read()
            for at in range(0, len(data), piece):
                plain += server.feed(data[at : at + piece])
            self.incoming.write(server.output())
            if done:
                return plain

    def received(self) -> bytes:
        parts: list[bytes] = []
        try:
            while part := self.tls.read(1 << 16):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        return b"".join(parts)


def pair(server: ServerTls, authority: Authority) -> tuple[TlsConnection, Client]:
    connection, client = server.connection(), Client(authority.ca)
    client.shake_hands(connection)
    return connection, client


def test_bytes_go_both_ways(server: ServerTls, authority: Authority) -> None:
    connection, client = pair(server, authority)
    assert connection.version == "TLSv1.3"
    client.tls.write(b"question")
    assert connection.feed(client.outgoing.read()) == b"question"
    connection.send(b"answer")
    client.incoming.write(connection.output())
    assert client.received() == b"answer"


def test_more_than_a_record_comes_in_one_piece(server: ServerTls, authority: Authority) -> None:
    connection, client = pair(server, authority)
    large = bytes(range(256)) * 1500
    client.tls.write(large)
    assert connection.feed(client.outgoing.read()) == large
    connection.send(memoryview(large))
    client.incoming.write(connection.output())
    assert client.received() == large


def test_of_many_small_records_each_call_takes_some(server: ServerTls, authority: Authority) -> None:
    ours, client = pair(server, authority)
    for _ in range(1200):
        client.tls.write(b"x")
    assert ours.feed(client.outgoing.read()) == b"x" * 512
    assert ours.has_more
    assert ours.feed(b"") == b"x" * 512
    assert ours.feed(b"") == b"x" * 176
    assert not ours.has_more


def test_what_is_sent_before_the_handshake_waits_for_it(server: ServerTls, authority: Authority) -> None:
    connection, client = server.connection(), Client(authority.ca)
    connection.send(b"early")
    assert connection.output() == b""
    client.shake_hands(connection)
    assert client.received() == b"early"


@given(sizes=st.lists(st.integers(1, 700), min_size=1, max_size=20), body=st.binary(max_size=3000))
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_split_gives_the_same_bytes(server: ServerTls, authority: Authority, sizes: list[int], body: bytes) -> None:
    connection, client = server.connection(), Client(authority.ca)
    client.shake_hands(connection, sizes[0])
    if body:
        client.tls.write(body)
    data, plain, at = client.outgoing.read(), b"", 0
    for size in [*sizes, len(data)]:
        plain += connection.feed(data[at : at + size])
        at += size
    assert plain == body


@pytest.mark.parametrize("data", [b"AMQP\x03\x01\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"])
def test_who_does_not_speak_tls_gets_an_error(server: ServerTls, data: bytes) -> None:
    with pytest.raises(TlsError):
        server.connection().feed(data)


def test_damaged_ciphertext_is_an_error(server: ServerTls, authority: Authority) -> None:
    connection, client = pair(server, authority)
    client.tls.write(b"question")
    data = bytearray(client.outgoing.read())
    data[-1] ^= 1
    with pytest.raises(TlsError):
        connection.feed(bytes(data))


def test_a_farewell_is_seen_and_said(server: ServerTls, authority: Authority) -> None:
    connection, client = pair(server, authority)
    assert not connection.peer_closed
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    assert connection.feed(client.outgoing.read()) == b""
    assert connection.peer_closed
    connection.close()
    client.incoming.write(connection.output())
    client.tls.unwrap()


def test_clients_must_show_a_certificate_where_an_authority_is_named(authority: Authority) -> None:
    issued = authority.issue("broker", "strict")
    strict = ServerTls(TlsFiles(issued.certificate, issued.key, client_ca=authority.ca))
    connection, client = strict.connection(), Client(authority.ca, identity=authority.issue("alice"))
    client.shake_hands(connection)
    assert connection.peer_certificate is not None
    with pytest.raises(TlsError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        Client(authority.ca).shake_hands(strict.connection())


def test_files_that_changed_serve_new_connections_while_old_ones_go_on(tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    issued = first.issue("broker", "server")
    server = ServerTls(TlsFiles(issued.certificate, issued.key))
    connection, client = server.connection(), Client(first.ca)
    client.shake_hands(connection)
    assert not server.reload()
    second.issue("broker", "server")
    assert server.reload()
    assert not server.reload()
    Client(second.ca).shake_hands(server.connection())
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(first.ca).shake_hands(server.connection())
    client.tls.write(b"still here")
    assert connection.feed(client.outgoing.read()) == b"still here"


def test_files_that_cannot_be_used_leave_the_old_ones_in_use(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("broker")
    server = ServerTls(TlsFiles(issued.certificate, issued.key))
    right_key = issued.key.read_bytes()
    issued.key.write_bytes(b"half a key")
    for _ in range(2):
        with pytest.raises(TlsFilesError, match=r"broker\.key"):
            server.reload()
    Client(authority.ca).shake_hands(server.connection())
    issued.key.write_bytes(right_key)
    assert server.reload()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TlsFilesError, match=r"absent\.crt"):
        ServerTls(TlsFiles(tmp_path / "absent.crt", tmp_path / "absent.key"))
