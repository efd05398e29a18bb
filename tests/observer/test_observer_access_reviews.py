"""What is asked of the API server, and what its answers mean; over TLS, as the Kubernetes API documents it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from penstock_observer.access_reviews import (
    ApiServerReviews,
    PageOf,
    ReviewFailed,
    User,
    access_review,
    token_review,
    user_in,
)
from penstock_operator.children import certificates

AUDIENCE = "penstock.dev/shop/main"
VIEWER = {
    "username": "system:serviceaccount:shop:viewer",
    "uid": "u-1",
    "groups": ["system:serviceaccounts", "system:authenticated"],
    "extra": {"authentication.kubernetes.io/credential-id": ["JTI=1"]},
}
GOOD = {"authenticated": True, "user": VIEWER, "audiences": [AUDIENCE]}
IDENTITY = {"user": VIEWER["username"], **{key: VIEWER[key] for key in ("uid", "groups", "extra")}}
PAGE = PageOf("shop", "main")


def test_the_questions_as_a_whole() -> None:
    assert token_review("t", AUDIENCE) == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": "t", "audiences": ["penstock.dev/shop/main"]},
    }
    assert access_review(User("viewer", {"user": "viewer", "groups": ["g"]}), PAGE, "messages") == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "viewer",
            "groups": ["g"],
            "resourceAttributes": {
                "verb": "get",
                "group": "penstock.dev",
                "resource": "brokers",
                "subresource": "messages",
                "namespace": "shop",
                "name": "main",
            },
        },
    }


def test_all_that_is_known_of_a_user_decides_what_he_may_do() -> None:
    """A role may be bound to one of his groups."""
    user = user_in(GOOD, AUDIENCE)
    assert user is not None
    assert (user.name, user.identity) == ("system:serviceaccount:shop:viewer", IDENTITY)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"authenticated": False}, id="not good"),
        pytest.param({"authenticated": "true"}, id="not a boolean"),
        pytest.param({"audiences": ["https://kubernetes.default.svc"]}, id="for another audience"),
        pytest.param({"audiences": None}, id="of an API server that does not know audiences"),
        pytest.param({"audiences": AUDIENCE}, id="audiences are no list"),
        pytest.param({"user": None}, id="of nobody"),
        pytest.param({"user": {"username": ""}}, id="without a name"),
    ],
)
def test_every_other_answer_is_no_user(changes: dict[str, object]) -> None:
    assert user_in({**GOOD, **changes}, AUDIENCE) is None


@dataclass
class ApiServer:
    """Speaks the contract: knows one token of its own client, and answers what a test says."""

    answers: dict[str, Any]
    status: int = 201
    seen: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    agents: set[str] = field(default_factory=set[str])
    """Who said that it asks."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """A review that was made, with its status."""
        review = await request.json()
        self.agents.add(request.headers["User-Agent"])
        self.seen.append((request.path, request.headers["Authorization"], review))
        if self.status >= 300:
            return web.json_response({"kind": "Status", "reason": "Forbidden"}, status=self.status)
        return web.json_response({**review, "status": self.answers[review["kind"]]}, status=self.status)


@asynccontextmanager
async def serving(server: ApiServer, account: Path) -> AsyncGenerator[str, None]:
    """The URL; `account` gets the token and the authority."""
    now = datetime.now(UTC)
    ca = certificates.make_ca("cluster", now)
    pair = certificates.make_server(ca, ["localhost"], now)
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key), ("ca.crt", ca.certificate)):
        (account / name).write_bytes(content)
    (account / "token").write_text("own\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "tls.crt", account / "tls.key")
    app = web.Application()
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
        yield f"https://localhost:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_over_tls_with_the_observer_s_own_token(tmp_path: Path) -> None:
    server = ApiServer({"TokenReview": GOOD, "SubjectAccessReview": {"allowed": True}})
    async with serving(server, tmp_path) as url:
        reviews = ApiServerReviews(url, tmp_path)
        user = await reviews.user("theirs", AUDIENCE)
        assert user is not None
        assert await reviews.allows(user, PAGE, "page")
        (tmp_path / "token").write_text("own-2")  # as kubelet replaces it
        server.answers["SubjectAccessReview"] = {"allowed": False, "denied": True, "reason": "no"}
        assert not await reviews.allows(user, PAGE, "page")
    assert [(path, own) for path, own, _ in server.seen] == [
        ("/apis/authentication.k8s.io/v1/tokenreviews", "Bearer own"),
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", "Bearer own"),
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", "Bearer own-2"),
    ]
    assert server.seen[0][2]["spec"] == {"token": "theirs", "audiences": [AUDIENCE]}
    assert server.agents == {f"penstock-observer/{version('penstock')}"}
    assert server.seen[1][2]["spec"]["groups"] == ["system:serviceaccounts", "system:authenticated"]


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (403, GOOD, "it does not let the observer ask (403): pageLogin of the operator's chart allows it"),
        (401, GOOD, "it answered with the status 401"),
        (302, GOOD, "it answered with the status 302"),
        (201, None, "its answer has no status"),
    ],
)
async def test_an_answer_that_is_none(tmp_path: Path, status: int, answer: Any, said: str) -> None:
    async with serving(ApiServer({"TokenReview": answer}, status), tmp_path) as url:
        with pytest.raises(ReviewFailed) as failed:
            await ApiServerReviews(url, tmp_path).user("theirs", AUDIENCE)
    assert str(failed.value) == said


async def test_a_token_is_shown_to_nobody_but_the_api_server(tmp_path: Path) -> None:
    server = ApiServer({"TokenReview": GOOD})
    async with serving(server, tmp_path) as url:
        (tmp_path / "ca.crt").write_bytes(certificates.make_ca("another", datetime.now(UTC)).certificate)
        with pytest.raises(ReviewFailed, match="certificate verify failed"):
            await ApiServerReviews(url, tmp_path).user("theirs", AUDIENCE)
    assert server.seen == []


async def test_an_observer_without_an_account_says_so(tmp_path: Path) -> None:
    with pytest.raises(ReviewFailed, match="own token or authority can't be read"):
        await ApiServerReviews("https://localhost:1", tmp_path).user("theirs", AUDIENCE)
