"""Logging in at a running broker: SCRAM and PLAIN, wrong and unknown, while others go on undisturbed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.logins import ScramLogin
from support.proton_client import connected, publish, take
from support.raw_client import RawClient

from penstock_amqp.frames.frames import SASL_HEADER, FrameReader, read_body
from penstock_amqp.sasl.client import Login, NotAuthenticated
from penstock_amqp.sasl.credentials import format_record, make_record
from penstock_amqp.sasl.frames import Init, Mechanisms, SaslCode, sasl_frame
from penstock_amqp.types.values import Symbol


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("users")
    (folder / "ann").write_text("secret\n")
    (folder / "stored").write_text(format_record(make_record("kept elsewhere", b"s" * 16, 4096)))
    return folder


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, users: Path) -> Iterator[BrokerProcess]:
    settings: dict[str, object] = {"authentication": {"usersFolder": str(users)}, "autoCreate": True}
    with BrokerProcess(tmp_path_factory.mktemp("logging-in") / "data", dev=False, settings=settings) as process:
        yield process


def offered(port: int) -> list[str]:
    """The mechanisms that a listener offers, in its order."""
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall(SASL_HEADER)
        data = b""
        reader = FrameReader(65_536)
        while len(data) < 8:
            data += sock.recv(65_536)
        reader.add(data[8:])
        while (frame := reader.next()) is None:
            reader.add(sock.recv(65_536))
    mechanisms, _ = read_body(frame.body, Mechanisms)
    return [str(name) for name in mechanisms.sasl_server_mechanisms]


def test_what_can_work_is_offered_in_the_order_of_preference(broker: BrokerProcess) -> None:
    assert offered(broker.port) == ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]


def test_where_secrets_would_be_seen_only_scram_is_offered(tmp_path: Path) -> None:
    settings: dict[str, object] = {"authentication": {"users": {"ann": "secret"}}}
    with BrokerProcess(tmp_path / "data", dev=False, listen=("0.0.0.0:0",), settings=settings) as process:
        assert offered(process.port) == ["SCRAM-SHA-512", "SCRAM-SHA-256"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("user", "password"), [("ann", "secret"), ("stored", "kept elsewhere")])
def test_scram_lets_in_and_proves_the_broker(broker: BrokerProcess, mechanism: str, user: str, password: str) -> None:
    login = ScramLogin(user, password, mechanism)
    with RawClient(broker.port, "c", login=login):
        assert login.is_proven


def test_a_login_does_not_wait_until_the_passwords_of_all_users_are_hashed(tmp_path: Path) -> None:
    folder = tmp_path / "users"
    folder.mkdir()
    for number in range(2500):
        (folder / f"user{number}").write_text("secret")
    settings: dict[str, object] = {"authentication": {"usersFolder": str(folder), "scramIterations": 65_536}}
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as process:
        login = ScramLogin("user1234", "secret")
        with RawClient(process.port, "c", login=login):
            assert login.is_proven


@pytest.mark.parametrize(("user", "password"), [("ann", "secret"), ("stored", "kept elsewhere")])
def test_plain_lets_in_with_the_same_records(broker: BrokerProcess, user: str, password: str) -> None:
    for _ in range(2):  # the second one from memory
        with RawClient(broker.port, "c", login=Login(user, password)):
            pass


@pytest.mark.parametrize("user", ["ann", "nobody", "../ann", "x" * 300])
@pytest.mark.parametrize("kind", [Login, ScramLogin])
def test_wrong_and_unknown_get_the_same_answer(
    broker: BrokerProcess, user: str, kind: type[Login] | type[ScramLogin]
) -> None:
    with pytest.raises(NotAuthenticated) as refused:
        RawClient(broker.port, "c", login=kind(user, "wrong"))
    assert refused.value.code is SaslCode.AUTH


def test_a_user_that_does_not_exist_has_the_same_salt_each_time(broker: BrokerProcess) -> None:
    def first_challenge(user: str) -> bytes:
        init = Init(mechanism=Symbol("SCRAM-SHA-256"), initial_response=f"n,,n={user},r=abc".encode())
        with socket.create_connection(("127.0.0.1", broker.port), 20) as sock:
            sock.sendall(SASL_HEADER + sasl_frame(init))
            data = b""
            while b"i=16384" not in data:
                data += sock.recv(65_536)
            return data.partition(b"s=")[2].partition(b",")[0]

    assert first_challenge("nobody") == first_challenge("nobody")
    assert first_challenge("nobody") != first_challenge("noone")


def test_a_new_password_holds_from_the_next_login_on(broker: BrokerProcess, users: Path) -> None:
    (users / "carl").write_text("before")
    with RawClient(broker.port, "c", login=ScramLogin("carl", "before")):
        (users / "carl").write_text("after!")
        with RawClient(broker.port, "d", login=ScramLogin("carl", "after!")):
            pass
        for login in (ScramLogin("carl", "before"), Login("carl", "before")):
            with pytest.raises(NotAuthenticated):
                RawClient(broker.port, "e", login=login)


def test_refusals_are_logged_with_the_user_and_without_the_secret(broker: BrokerProcess) -> None:
    with pytest.raises(NotAuthenticated):
        RawClient(broker.port, "c", login=Login("mallory", "wr0ng-secret"))
    log = broker.log()
    assert "as user 'mallory': wrong user name or password" in log
    assert "wr0ng-secret" not in log


def test_proton_logs_in_with_plain(broker: BrokerProcess) -> None:
    with connected(broker.url, user="ann", password="secret", allow_insecure_mechs=True) as connection:
        publish(connection.create_sender("q"), ["x"])


def test_hashing_keeps_nobody_waiting_but_who_logs_in(tmp_path: Path) -> None:
    folder = tmp_path / "users"
    folder.mkdir()
    settings: dict[str, object] = {
        "authentication": {"usersFolder": str(folder), "anonymous": True, "scramIterations": 2_000_000},
        "limits": {"loginSeconds": 300},
        "autoCreate": True,
    }
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as broker:
        slow: list[socket.socket] = []
        for number in range(20):  # each needs more than a second of hashing, one after the other; nobody waits for it
            (folder / f"user{number}").write_text("secret")
            sock = socket.create_connection(("127.0.0.1", broker.port), 20)
            init = Init(mechanism=Symbol("PLAIN"), initial_response=f"\0user{number}\0secret".encode())
            sock.sendall(SASL_HEADER + sasl_frame(init))
            slow.append(sock)
        with connected(broker.url, allowed_mechs="ANONYMOUS") as connection:
            sender, receiver = connection.create_sender("q"), connection.create_receiver("q", credit=10)
            for number in range(100):
                publish(sender, [number])
                assert take(receiver, 1) == [(number, 0)]
        last = slow[-1]
        last.setblocking(False)
        answer = last.recv(65_536)  # the mechanisms; no outcome yet
        assert b"\x00\x53\x44" not in answer
        for sock in slow:
            sock.close()
