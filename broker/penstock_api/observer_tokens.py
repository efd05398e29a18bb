"""What the tokens of the observer's HTTP interface may do, and how the token of one subscription is derived.

The observer reads the tokens from one folder; the operator writes that folder as a Secret. A token is good for the
scopes of its file. Tokens of single subscriptions are not stored: each is computed from one key, so ten thousand
subscriptions need no ten thousand secrets. Pure. Source: docs/decisions/070-observer-tokens.md,
docs/reference/observer.md "Tokens".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from enum import Enum
from typing import Final

__all__ = [
    "API_KEY_HEADER",
    "FULL_TOKEN",
    "MESSAGES_TOKEN",
    "SCALE_KEY",
    "TOKEN_SCOPES",
    "Scope",
    "namespace_of",
    "scale_token",
]


class Scope(Enum):
    """What one path of the interface gives or takes."""

    METRICS = "metrics"
    SCALE = "scale"
    """The figures of one subscription for an autoscaler."""
    STATE = "state"
    """How all subscriptions stand now, for people."""
    LEDGER = "ledger"
    READ_RESULTS = "read results"
    WRITE_RESULTS = "write results"
    READ_ROLLUPS = "read rollups"
    WRITE_ROLLUPS = "write rollups"


FULL_TOKEN: Final = "token"
"""The key of the token for everything; the only one in earlier releases."""

TOKEN_SCOPES: Final[Mapping[str, frozenset[Scope]]] = {
    FULL_TOKEN: frozenset(Scope),
    "scrape.token": frozenset({Scope.METRICS}),
    "ledger.token": frozenset({Scope.LEDGER, Scope.READ_ROLLUPS}),
    "results.token": frozenset({Scope.READ_RESULTS, Scope.WRITE_RESULTS}),
    "lag.token": frozenset(
        {Scope.LEDGER, Scope.READ_RESULTS, Scope.WRITE_RESULTS, Scope.READ_ROLLUPS, Scope.WRITE_ROLLUPS}
    ),
    "page.token": frozenset({Scope.STATE, Scope.READ_RESULTS, Scope.READ_ROLLUPS}),
    "operator.token": frozenset({Scope.STATE, Scope.READ_RESULTS}),
}
"""Name of a token's file, which is also its key in the Secret: what it is good for."""

SCALE_KEY: Final = "scale.key"
"""The file with the key of the tokens of single subscriptions. It is not a token itself."""

MESSAGES_TOKEN: Final = "messages.token"
"""The file with the token of the page whose holder also sees messages. It is good for no path of the interface, and it
exists only if the Broker's page shows messages.
"""

API_KEY_HEADER: Final = "X-API-Key"
"""A header that may carry a token in place of `Authorization`, as autoscalers of the method apiKey send it."""

_PURPOSE: Final = b"penstock scale token 1"


def scale_token(key: bytes, namespace: str, queue_name: str) -> str:
    """The token that reads the scale of one subscription: `NAMESPACE.CODE`, 43 characters after the dot.

    `namespace`: of the Subscription; the token ends to be good when another namespace declares the queue. The code is
    the HMAC-SHA-256 (RFC 2104) of purpose, namespace and queue name under `key`, in base64url without padding.
    """
    content = b"\0".join((_PURPOSE, namespace.encode(), queue_name.encode()))
    code = base64.urlsafe_b64encode(hmac.digest(key, content, hashlib.sha256)).rstrip(b"=")
    return f"{namespace}.{code.decode()}"


def namespace_of(token: str) -> str:
    """The namespace that a token of `scale_token` names; empty if it has none. It says nothing about the code."""
    return token.rpartition(".")[0]
