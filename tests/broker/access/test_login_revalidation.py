"""Connections whose login does not hold any more are closed, and told why; all others stay."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.logins import ScramLogin, bearer_login
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream
from support.token_signer import AUDIENCE, ISSUER, Signer
from support.waiting import until

from penstock_amqp.frames.performatives import Close, End
from penstock_amqp.sasl.client import ClientMechanism, Login, NotAuthenticated
from penstock_amqp.types.values import Symbol
from penstock_broker.access.connection import Phase

SIGNER, OTHER = Signer("ES256", "k1"), Signer("ES256", "k2")
START_SECONDS = 1000
"""Time of day of a `TimedBroker` that has just been made."""
LEEWAY_SECONDS = 30


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[SteppedBroker]:
    keys = tmp_path / "keys"
    keys.write_bytes(SIGNER.jwks())
    issuer = {"issuer": ISSUER, "audiences": [AUDIENCE], "keysFile": str(keys), "leewaySeconds": LEEWAY_SECONDS}
    broker = SteppedBroker({"authentication": {"tokens": [issuer], "anonymous": True, "allowInsecurePlain": True}})
    yield broker
    broker.close()


@contextmanager
def bearer(timed: SteppedBroker, seconds: int) -> Generator[tuple[RawClient, SteppedStream]]:
    """A client with a token of so many seconds."""
    stream = SteppedStream(timed)
    token = SIGNER.token(iat=None, nbf=None, exp=START_SECONDS + seconds).decode()
    with RawClient(0, f"for-{seconds}", login=bearer_login("", token), stream=stream) as client:
        client.begin()
        yield client, stream


def told(client: RawClient) -> tuple[str, str, object]:
    """Condition, description and reason of the Close that comes."""
    error = client.expect(Close).error
    assert error is not None
    return str(error.condition), error.description or "", (error.info or {}).get(Symbol("penstock:reason"))


def test_a_connection_ends_with_its_token_and_leeway(timed: SteppedBroker) -> None:
    with bearer(timed, 60) as (short, short_stream), bearer(timed, 3600) as (long, long_stream):
        timed.pass_ms((60 + LEEWAY_SECONDS - 1) * 1000)
        assert not short_stream.has_something()
        timed.pass_ms(2000)
        condition, description, reason = told(short)
        assert (condition, reason) == ("amqp:unauthorized-access", "LoginExpired")
        assert "'system:serviceaccount:shop:billing'" in description
        assert "connect again with a new one" in description
        assert not long_stream.has_something()
        timed.pass_ms(3600 * 1000)
        assert told(long)[2] == "LoginExpired"


def test_tokens_that_end_together_end_a_few_connections_per_turn(timed: SteppedBroker) -> None:
    """Each look at the clock takes 1.5 ms: two connections are closed per turn."""
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(bearer(timed, 60))
        served = list(timed.broker.clients.connections.values())
        timed.now_ms += (60 + LEEWAY_SECONDS) * 1000
        timed.step_seconds = 0.0015
        is_open = {5: None}
        for _ in range(12):  # the timers of some turns are others
            timed.turn()
            is_open[sum(each.phase is Phase.OPEN for each in served)] = None
        timed.step_seconds = 0.0
        assert list(is_open) == [5, 3, 1, 0]


def test_a_clock_that_jumps_ends_tokens_too(timed: SteppedBroker) -> None:
    with bearer(timed, 3600) as (client, _):
        timed.skew_ms = (3600 + LEEWAY_SECONDS) * 1000
        timed.pass_ms(1000)
        assert told(client)[2] == "LoginExpired"


def test_who_logs_in_again_and_again_leaves_nothing_behind(timed: SteppedBroker) -> None:
    revalidation = timed.loop.login_revalidation
    with bearer(timed, 3600) as (client, _):
        for _ in range(1100):
            with bearer(timed, 3600):
                pass
            timed.turn()
        assert revalidation.waiting <= 1003
        timed.pass_ms((3600 + LEEWAY_SECONDS) * 1000)
        assert told(client)[2] == "LoginExpired"


# -- files, at a running broker ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "users"
    made.mkdir()
    for user in ("ann", "bob", "cid"):
        (made / user).write_text(f"{user}-first")
    (tmp_path / "keys").write_bytes(SIGNER.jwks(OTHER))
    return made


@pytest.fixture
def broker(tmp_path: Path, folder: Path) -> Iterator[BrokerProcess]:
    issuer = {"issuer": ISSUER, "audiences": [AUDIENCE], "keysFile": str(tmp_path / "keys")}
    authentication = {"usersFolder": str(folder), "scramIterations": 4096, "tokens": [issuer], "anonymous": True}
    with BrokerProcess(tmp_path / "data", dev=False, settings={"authentication": authentication}) as process:
        yield process


def check_served(client: RawClient) -> None:
    """The broker still answers on the connection."""
    client.begin(1)
    client.send(End(), channel=1)
    client.expect(End)


Opens = Callable[[str, ClientMechanism | None], RawClient]


@pytest.fixture
def opened(broker: BrokerProcess) -> Iterator[Opens]:
    """Makes clients with a session, and closes them in the end."""
    with ExitStack() as stack:

        def make(name: str, login: ClientMechanism | None) -> RawClient:
            client = stack.enter_context(RawClient(broker.port, name, login=login))
            client.begin()
            return client

        yield make


def signed_by(signer: Signer) -> ClientMechanism:
    now = int(time.time())
    return bearer_login("", signer.token(iat=now, nbf=now, exp=now + 600).decode())


@pytest.mark.parametrize("login", [Login, ScramLogin])
def test_whose_password_is_changed_or_removed_is_closed_and_nobody_else(
    opened: Opens, folder: Path, login: Callable[[str, str], ClientMechanism]
) -> None:
    ann, bob, cid = (opened(user, login(user, f"{user}-first")) for user in ("ann", "bob", "cid"))
    nobody = opened("nobody", None)
    # What a mounted Secret does: every file is a new one, whether or not it says something new.
    (folder / "cid").write_text("cid-first\n")
    (folder / "ann").write_text("ann-second")
    assert told(ann)[0] == "amqp:unauthorized-access"
    (folder / "bob").unlink()
    condition, description, reason = told(bob)
    assert (condition, reason) == ("amqp:unauthorized-access", "LoginWithdrawn")
    assert "'bob' was removed" in description
    check_served(cid)
    check_served(nobody)
    opened("ann", login("ann", "ann-second"))
    with pytest.raises(NotAuthenticated):
        opened("bob", login("bob", "bob-first"))


def test_whose_key_is_taken_back_is_closed_and_nobody_else(
    broker: BrokerProcess, opened: Opens, tmp_path: Path
) -> None:
    kept, gone = opened("kept", signed_by(SIGNER)), opened("gone", signed_by(OTHER))
    (tmp_path / "keys").write_text("nothing that can be used")
    until(lambda: "keeps its old keys" in broker.log(), "the broker to say that it keeps the old keys")
    check_served(gone)
    (tmp_path / "keys").write_bytes(SIGNER.jwks())
    condition, description, reason = told(gone)
    assert (condition, reason) == ("amqp:unauthorized-access", "LoginWithdrawn")
    assert "is not trusted any more" in description
    check_served(kept)
