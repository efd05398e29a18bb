# pyright: reportIncompleteStub=false
# Proton's functions have their types in penstock_amqp/endpoint/proton/ffi.py.
"""Proton's functions, as `penstock_amqp.endpoint.proton.ffi` names them, and the batches of one engine.

Pointers are integers. Each function takes exactly the objects that proton's function of that name takes.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

_Line: TypeAlias = tuple[int, int, int, list[Any], dict[Any, Any], Sent, dict[Any, Any], dict[Any, Any], object]
"""A plain socket and its engine: descriptor, transport, collector, bodies, receivers, unsettled, aside, unconfirmed;
and an object of the caller's.
"""

class Sent:
    """Deliveries that were sent and are not settled, by their pointers, in the order of sending. Each is a tuple whose
    first field is the link."""

    all: dict[Any, Any]
    """All of them, and whatever is put in: what is asked for is whole until more is sent, or something is settled."""
    def add(self, delivery: int, held: object) -> None:
        """Note a delivery that was sent."""

def load(path: str) -> None:
    """Take the functions from proton's library. Raises ImportError if it has not all of them."""

def use(messages: object, accepted: object, noticed: int, transport_error: int) -> None:
    """The first fields of events, the types of proton's events that `drain` stops at (one bit each), and the type that
    `output` leaves in place. Once for the process.
    """

def drain(
    collector: int,
    receivers: dict[Any, Any],
    unsettled: Sent,
    aside: dict[Any, Any],
    unconfirmed: dict[Any, Any],
    out: list[Any],
) -> tuple[int, int, Any] | None:
    """Append what is plain to `out` up to the first event that is not, which stays the collector's first: its type and
    its pointer; or below 0 and the delivery: -1 a message that is not plain, -2 an outcome that is not plain, with what
    stood in `unsettled`; -3 a state of a delivery in `unconfirmed`; -4 one in `aside`, which has to be recalled; -5 one
    of a link on which we send, which is in none of them and of which proton holds bytes, or which is current; -6 one of
    a link on which we receive, which was read before and names a transaction. None: no event is left.
    """

def push_plain(
    transport: int,
    data: memoryview,
    start: int,
    size: int,
    held: int,
    missing: int,
    capacity: int,
    most_events: int,
    collector: int,
    receivers: dict[Any, Any],
    unsettled: Sent,
    aside: dict[Any, Any],
    unconfirmed: dict[Any, Any],
    out: list[Any],
) -> tuple[int, int, int, int, int, tuple[int, int, Any] | None] | None:
    """Give the engine the bytes of `data` from `start` to `size`, piece by piece, and drain its events after each,
    until something comes that is not plain, or over `most_events` more are in `out`. `held`, `missing`: see
    `frames.input_tap.InputTap`; `capacity`: of the transport when it holds nothing. Returns how many bytes were taken;
    where the last piece begins, from `start` on; how many bytes of an incomplete frame the engine held before it;
    `held` and `missing` after it; and what `drain` returned. None: the first bytes are not plain.
    """

def read_plain(
    fd: int | None,
    most: int,
    transport: int,
    data: memoryview,
    capacity: int,
    most_events: int,
    collector: int,
    receivers: dict[Any, Any],
    unsettled: Sent,
    aside: dict[Any, Any],
    unconfirmed: dict[Any, Any],
    out: list[Any],
) -> int | tuple[int, tuple[int, int, int, int, int, tuple[int, int, Any] | None] | None]:
    """Read once from the socket `fd` into `data`, `most` bytes at most (None: these bytes are there already), and go on
    as `push_plain` from 0 to what came; the engine holds nothing of a frame. Returns how many bytes came, if all were
    plain, no frame is incomplete, no message costs as much as a request, and no flow of a session may be among them;
    0: the peer has ended; below 0: -errno. Otherwise how many bytes came, and what `push_plain` returns.
    """

def read_together(
    lines: list[_Line], most: int, data: memoryview, most_events: int, bulk: int, out: list[list[Any]]
) -> int | tuple[int, tuple[int, int, int, int, int, tuple[int, int, Any] | None] | None] | None:
    """`read_plain` for several. Each gets a list of its own in `out`, up to the first that does not bring less than
    `bulk` bytes which are one run of messages, or of accepts, and nothing else: returns what `read_plain` returns for
    that one, whose bytes are in `data`. None: there is none. After an exception, which is of the last one in `out`,
    nothing was done for those behind it.
    """

def send(
    link: object,
    pointer: int,
    entries: list[Any],
    now_us: int,
    unsettled: Sent | None,
    tag: int,
    frame: int,
    bodies: list[Any] | None,
) -> int | tuple[int, int, int]:
    """Send entries, and note them in `unsettled` (None: they are settled at once). `tag`: of the last delivery before.
    `frame`: longest streamed message, in bytes. `bodies`: empty at first, it keeps messages of 256 B to 64 KiB that fit
    a frame for `output`, and the engine gets none of their bytes; None: it gets all messages. Returns the last tag; and
    if a streamed message is longer, its position and its delivery, of which nothing is sent yet.
    """

def accept(deliveries: Iterable[Any]) -> None:
    """Accept and settle."""

def settle(deliveries: Iterable[Any]) -> None:
    """Settle without an outcome."""

def any_in_state(came: list[tuple[Any, list[Any]]], state: int, /) -> bool:
    """Whether the first message of any run has this state. Each run is the only event of its list."""

def output(transport: int, collector: int, buffer: memoryview, bodies: list[Any]) -> int:
    """Move what is to be sent into the buffer, with the `bodies` that `send` kept, and drop the flow events that proton
    raises for our own transfers.
    Returns how many bytes; -1 - bytes if the engine has failed behind them.
    """

def pop_event(collector: int) -> None:
    """Take the first event off, if there is one, and hold its session meanwhile: see `ffi.pop_event`."""

def send_output(
    transport: int, collector: int, buffer: memoryview, bodies: list[Any], fd: int
) -> tuple[int, int] | None:
    """As `output`, and send the bytes to the socket `fd`. None: the socket took all, and there is no more. Otherwise
    what `output` returns, and how many of the bytes the socket took; below 0: -errno.
    """

def send_outputs(lines: list[_Line], buffer: memoryview) -> tuple[int, tuple[int, int]] | None:
    """`send_output` for several. None: all sockets took all, and there is no more. Otherwise the position of the first
    of which that is not so, and what `send_output` returns for it: its bytes are in the buffer, and nothing was done
    for those behind it.
    """

def __getattr__(name: str) -> Any: ...
