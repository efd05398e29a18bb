"""Sections of messages put together by hand, for tests that look into them."""

from __future__ import annotations

__all__ = ["amqp_value", "described", "fields", "mapping", "string", "symbol"]


def described(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value


def fields(*items: bytes, wide: bool = False) -> bytes:
    return _compound(0xC0, items, wide)


def mapping(*items: bytes, wide: bool = False) -> bytes:
    return _compound(0xC1, items, wide)


def _compound(code: int, items: tuple[bytes, ...], wide: bool) -> bytes:
    body = b"".join(items)
    if wide:
        return bytes((code + 0x10,)) + (len(body) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big") + body
    return bytes((code, len(body) + 1, len(items))) + body


def string(letters: str) -> bytes:
    raw = letters.encode()
    return bytes((0xA1, len(raw))) + raw


def symbol(letters: str) -> bytes:
    return bytes((0xA3, len(letters))) + letters.encode()


def amqp_value(letters: str) -> bytes:
    return described(0x77, string(letters))
