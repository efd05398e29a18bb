"""Who reads the page: by a token of the observer, by a Kubernetes token, or by the cookie of a session that began with
one of them. The one place in which the page checks a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock_api.observer_tokens import Scope
from penstock_observer.kubernetes_login import Access, KubernetesLogin, Refusal
from penstock_observer.page_sessions import Sessions
from penstock_observer.secrets import TokenFile

__all__ = ["UNKNOWN", "Reader", "Readers"]

SCHEME: Final = "bearer "
UNKNOWN: Final = Refusal(
    401,
    "The observer does not know this token, or it is not for the page. Take page.token: on Kubernetes it is in the "
    "Secret BROKER-observer, elsewhere the token in the file of --token-file will do.",
)


@dataclass(frozen=True, slots=True)
class Reader:
    """Someone who has shown a token."""

    has_session: bool
    """With a cookie, so there is something to log out from."""
    sees_messages: bool
    """May see headers and bodies of messages, which a permission of its own allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Everything that tells a reader from a stranger."""

    token: TokenFile
    messages_token: TokenFile | None
    """Whose holder also sees messages; None: nobody does."""
    sessions: Sessions
    kubernetes: KubernetesLogin | None = None
    """None: tokens of the cluster are not known here."""

    async def of(self, headers: Mapping[str, str], cookie: str | None) -> Reader | Refusal | None:
        """Who asks; None if nothing was shown, or a cookie whose session is over."""
        given = headers.get("Authorization")
        if given is not None:
            return await self._holder(given, has_session=False)
        token = self.sessions.token(cookie)
        return None if token is None else await self._holder(f"Bearer {token}", has_session=True)

    async def begin(self, token: str) -> str | Refusal:
        """The name of a new session for the holder of a token."""
        found = await self._holder(f"Bearer {token}", has_session=True)
        return found if isinstance(found, Refusal) else self.sessions.begin(token)

    async def _holder(self, given: str, *, has_session: bool) -> Reader | Refusal:
        if self.messages_token is not None and self.messages_token.allows(given):
            return Reader(has_session, sees_messages=True)
        if self.token.allows(given, Scope.STATE):
            return Reader(has_session, sees_messages=False)
        is_bearer = given[: len(SCHEME)].lower() == SCHEME
        if self.kubernetes is None or not is_bearer:
            return UNKNOWN
        found = await self.kubernetes.access(given[len(SCHEME) :].strip())
        return Reader(has_session, found.sees_messages) if isinstance(found, Access) else found or UNKNOWN
