"""What the keys of a Secret hold."""

from __future__ import annotations

import base64
import binascii

from penstock_operator.manifest import Manifest, text_at

__all__ = ["bytes_at"]


def bytes_at(secret: Manifest | None, key: str) -> bytes | None:
    """The bytes at a key of a Secret; None if the key is missing or can't be decoded."""
    encoded = text_at(secret, "data", key)
    if encoded is None:
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return None
