"""Logging in with signed tokens at a running broker: as a pod does with the token of its ServiceAccount."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.logins import bearer_login
from support.no_descriptors import no_descriptors
from support.raw_client import RawClient
from support.token_signer import AUDIENCE, ISSUER, Signer

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import Detach, Target
from penstock_amqp.sasl.client import NotAuthenticated
from penstock_api.management import EntityType
from penstock_broker.access.token_issuers import TokenIssuers
from penstock_broker.settings.security import TokenIssuer

SIGNER = Signer()
BILLING = "system:serviceaccount:shop:billing"


def token(signer: Signer = SIGNER, **others: object) -> str:
    now = int(time.time())
    return signer.token(**{"iat": now, "nbf": now, "exp": now + 600, **others}).decode()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_bytes(SIGNER.jwks())
    return path


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[BrokerProcess]:
    issuer = {"issuer": ISSUER, "audiences": [AUDIENCE], "keysFile": str(keys), "groupsClaim": "groups"}
    settings: dict[str, object] = {
        "authentication": {"tokens": [issuer]},
        "permissions": [
            {"users": ["system:serviceaccount:shop:*"], "actions": ["publish"], "queues": ["work"]},
            {"groups": ["makers"], "actions": ["publish", "create"], "queues": ["*"]},
        ],
        "autoCreate": True,
    }
    with BrokerProcess(tmp_path_factory.mktemp("tokens") / "data", dev=False, settings=settings) as process:
        yield process


@pytest.mark.parametrize("mechanism", ["XOAUTH2", "OAUTHBEARER"])
async def test_the_subject_of_the_token_is_the_user(broker: BrokerProcess, mechanism: str) -> None:
    with RawClient(broker.port, mechanism, login=bearer_login("whoever", token(), mechanism)):
        client = await ManagementClient.connect(broker.management)
        rows = await client.query_all(EntityType.CONNECTION)
        await client.close()
    assert [row["user"] for row in rows if row["containerId"] == mechanism] == [BILLING]


def test_groups_of_the_token_count_for_permissions(broker: BrokerProcess) -> None:
    with RawClient(broker.port, "a", login=bearer_login("", token(groups=["makers"]))) as maker:
        maker.begin()
        assert maker.attach_sender("s", Target(address="work")).target is not None
    with RawClient(broker.port, "b", login=bearer_login("", token())) as plain:
        plain.begin()
        assert plain.attach_sender("s", Target(address="work")).target is not None
        assert plain.attach_sender("t", Target(address="new")).target is None
        error = plain.expect(Detach).error
        assert error is not None
        assert str(error.condition) == "amqp:unauthorized-access"


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(lambda: token(exp=int(time.time()) - 60), id="expired"),
        pytest.param(lambda: token(aud=["penstock.dev/shop/other"]), id="for-another-broker"),
        pytest.param(lambda: token(iss="https://evil"), id="another-issuer"),
        pytest.param(lambda: token(Signer()), id="another-key"),
        pytest.param(lambda: "no.token.atall", id="garbage"),
    ],
)
def test_a_token_that_is_not_good_is_refused_and_logged_without_it(broker: BrokerProcess, bad: object) -> None:
    assert callable(bad)
    text = str(bad())
    with pytest.raises(NotAuthenticated):
        RawClient(broker.port, "c", login=bearer_login("mallory", text))
    assert "as user 'mallory': the token is not valid here: " in broker.log()
    assert text.rpartition(".")[2] not in broker.log()


def test_new_keys_hold_from_the_next_login_on(broker: BrokerProcess, keys: Path) -> None:
    following = Signer("ES256", "k2")
    with pytest.raises(NotAuthenticated):
        RawClient(broker.port, "c", login=bearer_login("", token(following)))
    keys.write_bytes(SIGNER.jwks(following))
    with RawClient(broker.port, "c", login=bearer_login("", token(following))):
        pass
    keys.write_text("nothing")
    with RawClient(broker.port, "d", login=bearer_login("", token(following))):
        pass
    assert "keeps its old keys" in broker.log()


def test_a_broker_does_not_start_without_its_keys(tmp_path: Path) -> None:
    issuer = {"issuer": ISSUER, "audiences": [AUDIENCE], "keysFile": str(tmp_path / "absent")}
    settings: dict[str, object] = {"authentication": {"tokens": [issuer]}}
    with pytest.raises(AssertionError, match="absent"), BrokerProcess(tmp_path / "data", dev=False, settings=settings):
        pass


def test_changed_keys_that_cannot_be_read_for_a_moment_are_read_later(tmp_path: Path) -> None:
    """A key that was taken away does not hold on because the system had no descriptor when the file changed."""
    path, now, following = tmp_path / "jwks.json", time.time(), Signer("ES256", "k2")
    path.write_bytes(SIGNER.jwks())
    issuers = TokenIssuers((TokenIssuer(issuer=ISSUER, audiences=(AUDIENCE,), keys_file=path),))
    old, _ = issuers.check(token().encode(), now)
    path.write_bytes(following.jwks())
    with no_descriptors():
        assert issuers.holds(ISSUER, old.key)
    assert not issuers.holds(ISSUER, old.key)
    issuers.check(token(following).encode(), now)
