"""Signs tokens for tests, and writes the keys that check them."""

from __future__ import annotations

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

__all__ = ["AUDIENCE", "ISSUER", "NOW", "Signer"]

ISSUER = "https://kubernetes.default.svc"
AUDIENCE = "penstock.dev/shop/main"
NOW = 1_800_000_000
"""2027-01-15T08:00:00Z."""


class Signer:
    """One key of an issuer; `algorithm` is RS256 or ES256."""

    def __init__(self, algorithm: str = "RS256", key_id: str | None = "k1") -> None:
        self.algorithm = algorithm
        self.key_id = key_id
        self._key: Any = (
            rsa.generate_private_key(65537, 2048) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
        )

    def claims(self, **others: object) -> dict[str, object]:
        """What Kubernetes puts into the token of a ServiceAccount; None leaves a claim out."""
        claims: dict[str, object] = {
            "iss": ISSUER,
            "aud": [AUDIENCE],
            "sub": "system:serviceaccount:shop:billing",
            "iat": NOW - 60,
            "nbf": NOW - 60,
            "exp": NOW + 3600,
            **others,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, **others: object) -> bytes:
        headers = {"kid": self.key_id} if self.key_id is not None else None
        return jwt.encode(self.claims(**others), self._key, self.algorithm, headers=headers).encode()

    def jwk(self) -> dict[str, object]:
        kind = jwt.get_algorithm_by_name(self.algorithm)
        made: dict[str, object] = json.loads(kind.to_jwk(self._key.public_key()))
        return {**made, "use": "sig", "alg": self.algorithm, **({"kid": self.key_id} if self.key_id else {})}

    def jwks(self, *others: Signer) -> bytes:
        return json.dumps({"keys": [each.jwk() for each in (self, *others)]}).encode()

    def pem(self) -> bytes:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        public: bytes = self._key.public_key().public_bytes(serialization.Encoding.PEM, form)
        return public

    def private_pem(self) -> bytes:
        private: bytes = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return private
