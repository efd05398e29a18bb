"""Messages too large for memory, as whoever forwards them sees them.

A streamed message is a subclass of `bytes`: its bytes are the sections before the body, which is what routing,
selectors and rewriting look at; `len` is the whole message, and `read` gives any piece of it. Who stores them is the
caller's business (the broker's log does).
"""

from __future__ import annotations

from typing import Protocol, cast

__all__ = ["Streamed", "behind", "is_streamed", "streamed"]


class Streamed(Protocol):
    """What a streamed message can do beside being bytes."""

    def __len__(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes of the whole message from `offset` on, fewer at the end. Raises OSError."""
        ...

    def with_head(self, head: bytes) -> bytes:
        """The same message with another beginning in the place of its own bytes."""
        ...


def is_streamed(data: bytes) -> bool:
    """Whether there is more than the bytes."""
    return data.__class__ is not bytes


def streamed(data: bytes) -> Streamed:
    """`data`, which is streamed, with its other side."""
    return cast(Streamed, data)


def behind(data: bytes, head: bytes) -> bytes:
    """The message `data` with `head` in the place of its bytes, and whatever else it has behind that."""
    return head if data.__class__ is bytes else cast(Streamed, data).with_head(head)
