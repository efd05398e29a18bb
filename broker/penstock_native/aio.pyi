"""Linux AIO's fdatasync. A context is the address of the kernel's queue of operations; each call raises OSError.

Ended operations are read from the ring that the kernel shares with the process, without a call of the kernel.
"""

def setup() -> int:
    """A new context, for 64 operations at a time."""

def destroy(context: int, /) -> None:
    """Wait for what is under way, and give the context back; it may not be used afterwards."""

def submit(context: int, eventfd: int, descriptor: int, token: int, /) -> None:
    """Start an fdatasync. When it has ended, `eventfd` is readable, and `collect` hands out `token` (64 bits)."""

def may_be_done(context: int, /) -> bool:
    """Whether something has ended, as far as can be seen without a call of the kernel."""

def collect(context: int, eventfd: int, at_least: int, /) -> list[tuple[int, int]]:
    """What has ended since the last call: tokens, each with 0 or the negative number of an error. With `at_least` 1 it
    waits until something has. `eventfd` is read first, so that it tells only of what ends afterwards.
    """
