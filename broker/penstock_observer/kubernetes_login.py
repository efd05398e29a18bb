"""Who may see the page by a Kubernetes token: asks `Reviews`, remembers the answers for a short time, bounds the cost.

A token that was not good before costs the API server a question at most `ASKED_PER_SECOND` times a second, however many
of them come; what does not look like a token for this Broker costs none. Those who are logged in are asked for beside
that bound, so a flood of wrong tokens does not lock them out. The clock is an argument.
Source: docs/decisions/075-login-by-kubernetes-token.md.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from penstock_api.page_login import MESSAGES, PAGE, audience_of
from penstock_observer.access_reviews import PageOf, ReviewFailed, Reviews

__all__ = ["Access", "KubernetesLogin", "Refusal"]

REMEMBERED_SECONDS: Final = 30.0
"""After this the API server is asked again: so long works a token whose owner has lost the right, or has ended."""
REFUSED_SECONDS: Final = 10.0
MOST_REMEMBERED: Final = 1000
"""Of each kind; the oldest is forgotten first."""
ASKED_PER_SECOND: Final = 2.0
ASKED_AT_ONCE: Final = 10.0
TOKEN_BYTES: Final = 8192
PARTS_OF_A_TOKEN: Final = 3


@dataclass(frozen=True, slots=True)
class Access:
    """May see the page."""

    sees_messages: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """May not see the page, now."""

    status: int
    """Of the HTTP answer: 401 nobody known, 403 not allowed, 429 and 503 not now."""
    sentence: str

    @property
    def is_final(self) -> bool:
        """Whether the same request would be refused again in a moment."""
        return self.status < 429


OTHER_AUDIENCE: Final = Refusal(
    401,
    "This Kubernetes token is for something else. The page needs one for its own audience: "
    "kubectl create token NAME --audience penstock.dev/NAMESPACE/BROKER, with namespace and name of the Broker.",
)
NOT_GOOD: Final = Refusal(
    401, "The API server does not accept this token: its time is over, its owner is deleted, or it was never good."
)
TOO_MANY: Final = Refusal(
    429, "Too many unknown tokens were shown in the last seconds, so the API server is not asked. Try again soon."
)


class KubernetesLogin:
    """What the tokens of the cluster are good for on the page of one Broker."""

    def __init__(self, reviews: Reviews, page: PageOf, *, shows_messages: bool, clock: Callable[[], float]) -> None:
        self._reviews = reviews
        self._page = page
        self._audience = audience_of(page.namespace, page.broker)
        self._shows_messages = shows_messages
        self._clock = clock
        self._good: dict[bytes, _Answer] = {}
        self._refused: dict[bytes, _Answer] = {}
        self._asked: dict[bytes, asyncio.Task[Access | Refusal]] = {}
        self._allowance = ASKED_AT_ONCE
        self._counted_at = clock()

    async def access(self, token: str) -> Access | Refusal | None:
        """What the holder of this token may see, or why nothing; None if it is no Kubernetes token."""
        audiences = _claimed_audiences(token)
        if audiences is None:
            return None
        if self._audience not in audiences:
            return OTHER_AUDIENCE
        name = hashlib.sha256(token.encode()).digest()
        known = self._good.get(name) or self._refused.get(name)
        if known is not None and known.until > self._clock():
            return known.told
        task = self._asked.get(name)
        if task is None:
            if name not in self._good and not self._may_ask():
                return TOO_MANY
            task = asyncio.create_task(self._ask(name, token))
            self._asked[name] = task
            task.add_done_callback(lambda _: self._asked.pop(name, None))
        return await asyncio.shield(task)

    def _may_ask(self) -> bool:
        now = self._clock()
        self._allowance = min(ASKED_AT_ONCE, self._allowance + (now - self._counted_at) * ASKED_PER_SECOND)
        self._counted_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    async def _ask(self, name: bytes, token: str) -> Access | Refusal:
        try:
            told = await self._reviewed(token)
        except ReviewFailed as error:
            return Refusal(503, f"The API server could not be asked who you are: {error}.")
        if isinstance(told, Access):
            self._refused.pop(name, None)
            _remember(self._good, name, _Answer(told, self._clock() + REMEMBERED_SECONDS))
        else:
            self._good.pop(name, None)
            _remember(self._refused, name, _Answer(told, self._clock() + REFUSED_SECONDS))
        return told

    async def _reviewed(self, token: str) -> Access | Refusal:
        user = await self._reviews.user(token, self._audience)
        if user is None:
            return NOT_GOOD
        if not await self._reviews.allows(user, self._page, PAGE):
            return Refusal(
                403,
                f"{user.name} may not see this page. It needs a role with the verb get for brokers/page (API group "
                f"penstock.dev) of the Broker {self._page.broker} in the namespace {self._page.namespace}.",
            )
        return Access(self._shows_messages and await self._reviews.allows(user, self._page, MESSAGES))


@dataclass(frozen=True, slots=True)
class _Answer:
    told: Access | Refusal
    until: float


def _remember(answers: dict[bytes, _Answer], name: bytes, answer: _Answer) -> None:
    answers.pop(name, None)
    while len(answers) >= MOST_REMEMBERED:
        del answers[next(iter(answers))]
    answers[name] = answer


def _claimed_audiences(token: str) -> tuple[object, ...] | None:
    """The audiences that a JSON Web Token claims, which nobody has checked; None if it is none (RFC 7519, 4.1.3)."""
    parts = token.split(".")
    if len(token) > TOKEN_BYTES or len(parts) != PARTS_OF_A_TOKEN or not token.isascii():
        return None
    try:
        claims: object = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(claims, dict):
        return None
    audiences = cast("dict[str, object]", claims).get("aud", [])
    return tuple(cast("list[object]", audiences)) if isinstance(audiences, list) else (audiences,)
