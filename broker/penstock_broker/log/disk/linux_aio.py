"""The calls of Linux AIO that an fdatasync takes: io_setup, io_submit, io_getevents and io_destroy.

`CompiledAio` (`penstock_native.aio`) takes a quarter of the instructions of `CtypesAio`, its twin, which needs no
compiled code of ours. Source: docs/decisions/104-work-of-a-short-turn.md; include/uapi/linux/aio_abi.h.
"""

import ctypes
import errno
import os
import platform
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import Protocol

import penstock_native

__all__ = ["CompiledAio", "CtypesAio", "Ended", "LinuxAio", "open_aio"]

Ended = list[tuple[int, int]]
"""Tokens of operations, each with 0 or the negative number of an error."""


class LinuxAio(Protocol):
    """A queue of the kernel's for 64 operations, which tells by an eventfd that one has ended."""

    def submit(self, descriptor: int, token: int, /) -> None:
        """Start an fdatasync; `token` has 64 bits. Raises OSError."""
        ...

    def may_be_done(self) -> bool:
        """Whether something has ended, as far as can be seen without a call of the kernel."""
        ...

    def collect(self, at_least: int, /) -> Ended:
        """What has ended since the last call. The eventfd is read first: it then tells of what ends afterwards. With
        `at_least` 1 it waits until something has. Raises OSError.
        """
        ...

    def close(self) -> None:
        """Wait for what is under way, and give the queue back; nothing may be called afterwards."""
        ...


def open_aio(eventfd: int) -> LinuxAio:
    """A queue that writes `eventfd` whenever an operation has ended.

    Raises OSError if the kernel does not have it, or if the container's seccomp profile forbids it.
    """
    return CtypesAio(eventfd) if penstock_native.aio is None else CompiledAio(eventfd)


class CompiledAio:
    """The calls in C, by `penstock_native.aio`. It is a queue for 64 operations."""

    def __init__(self, eventfd: int) -> None:
        calls = penstock_native.aio
        context = calls.setup()
        # Called once or several times in each turn: bound at once, without a method between them.
        self.submit = partial(calls.submit, context, eventfd)
        self.may_be_done = partial(calls.may_be_done, context)
        self.collect = partial(calls.collect, context, eventfd)
        self.close = partial(calls.destroy, context)


# struct iocb is 64 bytes, struct io_event 32; syscall numbers per machine.
_IOCB = Struct(
    "<QIiHhIQQqQII"
)  # data, key, rw_flags, opcode, priority, fd, buffer, bytes, offset, reserved, flags, eventfd
_EVENT = Struct("<qQqq")  # data, iocb, result, result 2
_FDSYNC = 3
_NOTIFY_EVENTFD = 1
_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}  # io_setup, io_destroy, io_getevents, io_submit
_DEPTH = 64
# The ring of ended operations, which the context points to and the process may read: struct aio_ring in fs/aio.c, whose
# magic number says that it is one. It begins with ten numbers of 32 bits: id, size, head, tail, magic and others.
_RING_HEAD, _RING_TAIL, _RING_MAGIC = 2, 3, 4
_MAGIC = 0xA10A10A1


class CtypesAio:
    """The calls by the C library's `syscall`."""

    def __init__(self, eventfd: int) -> None:
        if platform.machine() not in _NUMBERS:
            raise OSError(f"no Linux AIO numbers for {platform.machine()}")
        setup, self._destroy, self._getevents, self._submit = _NUMBERS[platform.machine()]
        self._eventfd = eventfd
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._call(setup, ctypes.c_uint(_DEPTH), ctypes.byref(self._context))
        self._control = ctypes.create_string_buffer(_IOCB.size)
        self._pointer = ctypes.c_void_p(ctypes.addressof(self._control))
        self._events = ctypes.create_string_buffer(_EVENT.size * _DEPTH)
        # Made once: each of these takes as long as the call of the kernel.
        ring = (ctypes.c_uint32 * 5).from_address(self._context.value)
        self._ring = memoryview(ring).cast("B").cast("I") if ring[_RING_MAGIC] == _MAGIC else None
        """Only looked at: Python has no way to order the reads of memory that another processor writes."""
        self._to_submit = self._context, ctypes.c_long(1), ctypes.byref(self._pointer)
        self._to_collect = ctypes.c_long(_DEPTH), self._events, ctypes.c_void_p(None)

    def _call(self, number: int, *arguments: object) -> int:
        result = int(self._syscall(ctypes.c_long(number), *arguments))
        while result < 0 and ctypes.get_errno() == errno.EINTR:  # a signal came while it waited
            result = int(self._syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result

    def submit(self, descriptor: int, token: int, /) -> None:
        data = token & 0xFFFF_FFFF_FFFF_FFFF
        place = (0, 0, 0, 0, _NOTIFY_EVENTFD, self._eventfd)
        # The kernel copies the control block while it submits, so one buffer serves all.
        _IOCB.pack_into(self._control, 0, data, 0, 0, _FDSYNC, 0, descriptor, *place)
        self._call(self._submit, *self._to_submit)

    def may_be_done(self) -> bool:
        ring = self._ring
        return ring is not None and ring[_RING_HEAD] != ring[_RING_TAIL]

    def collect(self, at_least: int, /) -> Ended:
        with suppress(BlockingIOError):
            os.eventfd_read(self._eventfd)
        count = self._call(self._getevents, self._context, ctypes.c_long(at_least), *self._to_collect)
        unpacked = (_EVENT.unpack_from(self._events, at) for at in range(0, count * _EVENT.size, _EVENT.size))
        return [(token, result) for token, _, result, _ in unpacked]

    def close(self) -> None:
        self._ring = None
        self._call(self._destroy, self._context)  # waits for what is under way
