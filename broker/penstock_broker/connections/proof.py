"""What a login stands on: a user's record, or a signed token. Without it the connection ends (`serving.standing`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock_amqp.sasl.credentials import CredentialRecord

__all__ = ["Proof", "Signed"]


@dataclass(frozen=True, slots=True)
class Signed:
    """A token by which somebody logged in: by whom and by which key it was signed, and its end, leeway included."""

    issuer: str
    key: bytes
    ends_us: int


Proof: TypeAlias = CredentialRecord | Signed
"""None of both: nothing can take the login away."""
