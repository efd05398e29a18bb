"""`penstock up` lets in whom its manifests let in, and nobody else; what it can't honour it refuses."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml
from e2e.local_site import LocalSite
from support.logins import ScramLogin, bearer_login
from support.raw_client import RawClient
from support.token_signer import ISSUER, Signer

from penstock_amqp.frames.performatives import Close, Detach, Target
from penstock_amqp.sasl.client import Login, NotAuthenticated
from penstock_amqp.types.values import Symbol
from penstock_api.failure import Misuse
from penstock_api.resources import Broker, parse
from penstock_cli.up.layout import Layout
from penstock_cli.up.security import is_open, security_settings

SIGNER = Signer("ES256")


def manifest(**spec: object) -> dict[str, object]:
    return {"apiVersion": "penstock.dev/v1alpha1", "kind": "Broker", "metadata": {"name": "shop"}, "spec": spec}


def secret(name: str, namespace: str = "default", **content: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, **content}


USERS = secret("users", stringData={"ann": "secret"}, data={"bob": base64.b64encode(b"hidden").decode()})
KEYS: dict[str, object] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "keys"},
    "data": {"keys": SIGNER.jwks().decode()},
}
NOTHING: list[dict[str, object]] = []
NO_DATA: dict[str, object] = {}
TOKENS: list[dict[str, object]] = [{"issuer": ISSUER, "keysConfigMapRef": {"name": "keys"}, "algorithms": ["ES256"]}]


def put(folder: Path, *manifests: dict[str, object]) -> Path:
    folder.mkdir()
    (folder / "all.yaml").write_text(yaml.safe_dump_all(manifests))
    return folder


def test_users_tokens_permissions_and_limits_of_the_manifest_hold(tmp_path: Path) -> None:
    broker = manifest(
        authentication={"usersSecretRef": {"name": "users"}, "tokens": TOKENS},
        permissions=[{"users": ["ann"], "actions": ["Publish", "Create"], "queues": ["work"]}],
        limits={"connectionsPerUser": 1},
        transactions={"maxOpenPerConnection": 3},
        announce={"failoverServers": [{"hostname": "two.example", "port": 5672}]},
    )
    with LocalSite(put(tmp_path / "in", broker, USERS, KEYS), tmp_path / "data") as site:
        site.wait_until_serving()
        port = int(str(site.state()["amqp"]).rpartition(":")[2])
        for wrong in (None, Login("guest", "guest"), Login("ann", "hidden")):
            with pytest.raises(NotAuthenticated):
                RawClient(port, "c", login=wrong)
        with (
            RawClient(port, "ann", login=Login("ann", "secret")) as ann,
            RawClient(port, "second", login=Login("ann", "secret")) as second,
        ):
            error = second.expect(Close).error
            assert error is not None
            assert "User 'ann' has 1 connections open" in (error.description or "")
            told = (ann.open.properties or {})[Symbol("failover-server-list")]
            assert "two.example" in str(told)
            ann.begin()
            assert ann.attach_sender("s", Target(address="work")).target is not None
            assert ann.attach_sender("t", Target(address="other")).target is None
            refused = ann.expect(Detach).error
            assert refused is not None
            assert str(refused.condition) == "amqp:unauthorized-access"
        with RawClient(port, "bob", login=ScramLogin("bob", "hidden")):
            pass
        token = SIGNER.token(iat=None, nbf=None, exp=4_000_000_000, aud=["penstock.dev/default/shop"]).decode()
        with RawClient(port, "token", login=bearer_login("", token)):
            pass
        assert (tmp_path / "data" / "secrets").stat().st_mode & 0o077 == 0
        assert "guest/guest" not in (tmp_path / "up.log").read_text()


def broker_of(**spec: object) -> Broker:
    made = parse(manifest(**spec))
    assert isinstance(made, Broker)
    return made


@pytest.mark.parametrize(
    ("authentication", "manifests", "words"),
    [
        ({"tokens": [{"issuer": "Cluster"}]}, NOTHING, "tokens of the cluster"),
        ({"usersSecretRef": {"name": "users"}}, NOTHING, "names the Secret users, and no manifest"),
        ({"usersSecretRef": {"name": "users"}}, [secret("users", "other")], "in namespace default"),
        ({"usersSecretRef": {"name": "users"}}, [secret("users", data={"ann": "?"})], "data is not base64"),
        ({"usersSecretRef": {"name": "users"}}, [secret("users", stringData={"../x": "?"})], "can't be the key"),
        ({"tokens": TOKENS}, [{**KEYS, "data": NO_DATA}], "has no key `keys`"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    tmp_path: Path, authentication: dict[str, object], manifests: list[dict[str, object]], words: str
) -> None:
    folder = put(tmp_path / "in", *manifests)
    layout = Layout(tmp_path, tmp_path)
    with pytest.raises(Misuse, match=words):
        security_settings(broker_of(authentication=authentication), folder, layout)


def test_users_that_are_in_the_manifests_no_more_are_nobody(tmp_path: Path) -> None:
    layout, broker = Layout(tmp_path, tmp_path), broker_of(authentication={"usersSecretRef": {"name": "users"}})
    security_settings(broker, put(tmp_path / "one", USERS), layout)
    assert {path.name for path in (layout.secrets / "users").iterdir()} == {"ann", "bob"}
    security_settings(broker, put(tmp_path / "two", secret("users", stringData={"ann": "new"})), layout)
    assert {path.name: path.read_text() for path in (layout.secrets / "users").iterdir()} == {"ann": "new"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"authentication": {"anonymous": True}}, True),
        ({"authentication": {"anonymous": True}, "permissions": []}, False),
        ({"authentication": {"anonymous": True, "usersSecretRef": {"name": "users"}}}, False),
    ],
)
def test_only_a_manifest_that_lets_everybody_in_means_development_mode(spec: dict[str, object], expected: bool) -> None:
    assert is_open(broker_of(**spec)) is expected
