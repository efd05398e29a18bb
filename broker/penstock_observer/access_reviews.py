"""Asks the API server whose a token is (TokenReview) and what its owner may see (SubjectAccessReview).

Decides nothing and keeps nothing: see `kubernetes_login`. The observer's own token and the authority are read for each
question, because kubelet replaces them. Source: Kubernetes API, authentication.k8s.io/v1 and authorization.k8s.io/v1.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, Protocol, cast

import aiohttp

from penstock_api.page_login import ACCOUNT_CA, ACCOUNT_TOKEN, API_GROUP, BROKERS, VERB

__all__ = ["ApiServerReviews", "PageOf", "ReviewFailed", "Reviews", "User", "access_review", "token_review", "user_in"]

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
USER_AGENT: Final = f"penstock-observer/{version('penstock')}"
"""Who asks, as the API server's audit log shows it."""
TIMEOUT_SECONDS: Final = 5.0
FORBIDDEN: Final = 403

Document = Mapping[str, object]


class ReviewFailed(Exception):
    """The API server gave no answer that can be used; the text says why, without a full stop."""


@dataclass(frozen=True, slots=True)
class User:
    """Whose token it is, as the API server says."""

    name: str
    """Such as system:serviceaccount:shop:viewer."""
    identity: Document
    """All that a review of access may say about the user."""


@dataclass(frozen=True, slots=True)
class PageOf:
    """The Broker whose page it is."""

    namespace: str
    broker: str


class Reviews(Protocol):
    """Who answers the two questions. Both raise ReviewFailed."""

    async def user(self, token: str, audience: str) -> User | None:
        """The owner of a token that is good for this audience; None if the token is not good."""
        ...

    async def allows(self, user: User, page: PageOf, subresource: str) -> bool:
        """Whether the user may `get` this subresource of the Broker."""
        ...


def token_review(token: str, audience: str) -> Document:
    """The question whose a token is."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }


def user_in(status: Document, audience: str) -> User | None:
    """The owner of the token, from the `status` of a TokenReview; None if the token is not good.

    "A client of the TokenReview API that sets the spec.audiences field should validate that a compatible audience
    identifier is returned in the status.audiences field": an API server that does not know audiences returns none.
    """
    audiences, user = status.get("audiences"), status.get("user")
    is_for_us = isinstance(audiences, list) and audience in cast("list[object]", audiences)
    if status.get("authenticated") is not True or not is_for_us or not isinstance(user, dict):
        return None
    told = cast("dict[str, object]", user)
    name = told.get("username")
    if not isinstance(name, str) or not name:
        return None
    known = {"user": name, "groups": told.get("groups"), "uid": told.get("uid"), "extra": told.get("extra")}
    return User(name, {key: value for key, value in known.items() if value is not None})


def access_review(user: User, page: PageOf, subresource: str) -> Document:
    """The question whether a user may see something of a Broker."""
    wanted = {
        "verb": VERB,
        "group": API_GROUP,
        "resource": BROKERS,
        "subresource": subresource,
        "namespace": page.namespace,
        "name": page.broker,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**user.identity, "resourceAttributes": wanted},
    }


class ApiServerReviews:
    """Reviews by the API server at `url`, asked as the ServiceAccount whose token and authority are in `account`."""

    def __init__(self, url: str, account: Path) -> None:
        self._url = url
        self._account = account

    async def user(self, token: str, audience: str) -> User | None:
        """The owner of a token that is good for this audience; None if the token is not good."""
        return user_in(await self._status(TOKEN_REVIEWS, token_review(token, audience)), audience)

    async def allows(self, user: User, page: PageOf, subresource: str) -> bool:
        """Whether the user may `get` this subresource of the Broker."""
        status = await self._status(ACCESS_REVIEWS, access_review(user, page, subresource))
        return status.get("allowed") is True

    async def _status(self, path: str, review: Document) -> Document:
        """The `status` of the answer to a review."""
        try:
            own = (self._account / ACCOUNT_TOKEN).read_text(encoding="ascii").strip()
            trust = ssl.create_default_context(cafile=str(self._account / ACCOUNT_CA))
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ReviewFailed(f"the observer's own token or authority can't be read: {error}") from error
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        headers = {"Authorization": f"Bearer {own}", "User-Agent": USER_AGENT}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.post(f"{self._url}{path}", json=review, ssl=trust, allow_redirects=False) as answer,
            ):
                return await _status_of(answer)
        except TimeoutError as error:
            raise ReviewFailed(f"it did not answer within {TIMEOUT_SECONDS:.0f} seconds") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise ReviewFailed(str(error) or type(error).__name__) from error


async def _status_of(answer: aiohttp.ClientResponse) -> Document:
    if answer.status == FORBIDDEN:
        raise ReviewFailed("it does not let the observer ask (403): pageLogin of the operator's chart allows it")
    if answer.status >= 300:
        raise ReviewFailed(f"it answered with the status {answer.status}")
    document: object = await answer.json()
    status = cast("dict[str, object]", document).get("status") if isinstance(document, dict) else None
    if not isinstance(status, dict):
        raise ReviewFailed("its answer has no status")
    return cast("dict[str, object]", status)
