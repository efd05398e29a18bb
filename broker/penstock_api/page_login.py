"""What a Kubernetes token must be made for, and what its owner must be allowed, to log in to the page of a Broker.

Observer, operator and charts say the same. Pure. Source: docs/decisions/075-login-by-kubernetes-token.md.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ACCOUNT_CA", "ACCOUNT_TOKEN", "API_GROUP", "BROKERS", "MESSAGES", "PAGE", "VERB", "audience_of"]

API_GROUP: Final = "penstock.dev"
BROKERS: Final = "brokers"
PAGE: Final = "page"
"""Name of a subresource of a Broker. It exists in rules of roles only; no such address is served."""
MESSAGES: Final = "messages"
"""The same, for headers and bodies of messages."""
VERB: Final = "get"

ACCOUNT_TOKEN: Final = "token"
"""File of the observer's own ServiceAccount token, in the folder of its account."""
ACCOUNT_CA: Final = "ca.crt"
"""File with the authority of the API server's certificate, beside it."""


def audience_of(namespace: str, broker: str) -> str:
    """The audience of tokens for one Broker: such a token is worth nothing to the API server or to another Broker."""
    return f"{API_GROUP}/{namespace}/{broker}"
