"""Linux AIO by compiled code and by ctypes: both submit, collect and fail alike."""

import ctypes
import errno
import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock_native
from penstock_broker.log import RealFiles
from penstock_broker.log.disk.linux_aio import CompiledAio, CtypesAio, LinuxAio, open_aio
from penstock_broker.log.disk.syncers import AioSyncer

RING_BYTES = 32
"""What stands before the events in struct aio_ring, whose fifth number is the magic one."""


@pytest.fixture(params=[CompiledAio, CtypesAio])
def make(request: pytest.FixtureRequest) -> Callable[[int], LinuxAio]:
    if request.param is CompiledAio and penstock_native.aio is None:
        pytest.skip("the engine in Python was chosen")
    made: Callable[[int], LinuxAio] = request.param
    return made


@pytest.fixture
def syncer(make: Callable[[int], LinuxAio]) -> Iterator[AioSyncer]:
    syncer = AioSyncer(RealFiles(), make)
    yield syncer
    syncer.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    with (tmp_path / "file").open("wb") as opened:
        yield opened.fileno()


def test_compiled_code_serves_unless_python_was_chosen() -> None:
    eventfd = os.eventfd(0, os.EFD_NONBLOCK)
    queue = open_aio(eventfd)
    asked = os.environ.get("PENSTOCK_ENGINE", "compiled")
    assert type(queue) is (CompiledAio if asked == "compiled" else CtypesAio)
    queue.close()
    os.close(eventfd)


def test_tokens_come_back_through_many_rounds_of_the_ring(syncer: AioSyncer, file: int) -> None:
    for token in (*range(2000), -1, -3, 2**62):
        syncer.submit(token, [file])
        assert syncer.wait() == [(token, None)]
    assert syncer.done() == []


def test_a_sync_of_several_files_ends_once(syncer: AioSyncer, file: int, tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as first, (tmp_path / "b").open("wb") as second:
        syncer.submit(5, [file, first.fileno(), second.fileno()])
        assert syncer.wait() == [(5, None)]
    assert syncer.done() == []


def test_the_descriptor_is_readable_until_the_end_is_collected(syncer: AioSyncer, file: int) -> None:
    poll = select.epoll()
    poll.register(syncer.descriptor, select.EPOLLIN)
    assert not syncer.may_be_done()
    syncer.submit(1, [file])
    assert poll.poll(60) == [(syncer.descriptor, select.EPOLLIN)]
    assert syncer.may_be_done()
    assert syncer.done() == [(1, None)]
    assert not syncer.may_be_done()
    assert poll.poll(0) == []
    poll.close()


def test_a_file_that_cannot_be_synced_is_told(syncer: AioSyncer) -> None:
    """The kernel refuses a pipe as it would refuse a descriptor of a failed volume."""
    reader, writer = os.pipe()
    syncer.submit(9, [writer])
    assert select.select([syncer.descriptor], [], [], 60)[0]
    [(token, error)] = syncer.wait()
    assert token == 9
    assert str(error) == "[Errno 22] Invalid argument"
    os.close(reader)
    os.close(writer)


def test_one_file_of_several_that_cannot_be_synced_is_told(syncer: AioSyncer, file: int) -> None:
    reader, writer = os.pipe()
    syncer.submit(9, [file, writer])
    [(token, error)] = syncer.wait()
    assert token == 9
    assert str(error) == "[Errno 22] Invalid argument"
    os.close(reader)
    os.close(writer)


def test_signals_do_not_end_a_wait(syncer: AioSyncer, file: int) -> None:
    """Their handlers run meanwhile: SIGTERM comes while the log is closed, for example."""
    came: list[int] = []

    def handler(number: int, frame: object) -> None:
        came.append(number)
        if len(came) == 3:
            signal.setitimer(signal.ITIMER_REAL, 0)
            syncer.submit(7, [file])  # nothing else ends the wait

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        assert syncer.wait() == [(7, None)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(came) == 3


def test_what_the_handler_of_a_signal_raises_ends_a_wait(syncer: AioSyncer, file: int) -> None:
    class Interrupted(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(Interrupted):
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            syncer.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    syncer.submit(7, [file])
    assert syncer.wait() == [(7, None)]


@pytest.mark.skipif(penstock_native.aio is None, reason="the engine in Python was chosen")
def test_a_kernel_with_another_ring_is_asked(file: int) -> None:
    eventfd = os.eventfd(0, os.EFD_NONBLOCK)
    calls = penstock_native.aio
    context = calls.setup()
    ring = (ctypes.c_uint32 * (RING_BYTES // 4)).from_address(context)
    assert ring[4] == 0xA10A10A1
    ring[4] = 0
    try:
        for token in range(300):
            calls.submit(context, eventfd, file, token)
            assert not calls.may_be_done(context)
            assert calls.collect(context, eventfd, 1) == [(token, 0)]
        assert calls.collect(context, eventfd, 0) == []
    finally:
        ring[4] = 0xA10A10A1
        calls.destroy(context)
        os.close(eventfd)


def test_a_queue_that_was_given_back_is_refused(make: Callable[[int], LinuxAio]) -> None:
    eventfd = os.eventfd(0, os.EFD_NONBLOCK)
    queue = make(eventfd)
    queue.close()
    with pytest.raises(OSError, match="Invalid argument") as raised:
        queue.close()
    assert raised.value.errno == errno.EINVAL
    os.close(eventfd)
