"""Tokens as Kubernetes makes them, but with a signature of nobody, and an API server that knows some of them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field

from penstock_observer.access_reviews import PageOf, ReviewFailed, User

AUDIENCE = "penstock.dev/shop/main"


def token_for(*audiences: str, name: str = "viewer") -> str:
    """A token with these audiences; another name makes it another token."""
    parts: tuple[object, ...] = ({"alg": "RS256"}, {"aud": list(audiences), "sub": name})
    head, claims = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return f"{head}.{claims}.c2lnbmF0dXJl"


@dataclass
class KnownReaders:
    """Answers reviews from two tables, and counts the questions about tokens."""

    users: dict[str, str]
    """Token: name of its owner."""
    may: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Name and subresource."""
    problem: str | None = None
    """Why nobody gets an answer."""
    asked: list[str] = field(default_factory=list[str])

    async def user(self, token: str, audience: str) -> User | None:
        """The owner of a token."""
        assert audience == AUDIENCE
        self.asked.append(token)
        if self.problem is not None:
            raise ReviewFailed(self.problem)
        name = self.users.get(token)
        return None if name is None else User(name, {"user": name})

    async def allows(self, user: User, page: PageOf, subresource: str) -> bool:
        """Whether it is in the table."""
        assert page == PageOf("shop", "main")
        return (user.name, subresource) in self.may
