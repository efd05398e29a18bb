"""Back ends that call fdatasync, and fsync for the names in a folder, so that the broker's thread does not wait for it.

There are three: the kernel's asynchronous I/O (Linux AIO), one thread, and the caller itself. Each takes (token,
handles), makes `descriptor` (an eventfd) readable when an fdatasync has ended, and then hands out (token, error). Linux
AIO's FDSYNC takes about 100 us in all, of which 4 to 20 us are the caller's; the thread costs a switch of the GIL
besides. An error is reported once and the call is never repeated, because after a failed fdatasync the state of the
page cache is unknown. Source: docs/decisions/042-failed-fdatasync.md.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from penstock_broker.log.disk.files import FileLayer
from penstock_broker.log.disk.linux_aio import LinuxAio, open_aio

LOGGER = logging.getLogger(__name__)

Done = list[tuple[int, OSError | None]]


class SyncChoice(Enum):
    """Which back end syncs.

    `AUTO`: Linux AIO if the kernel and the container's seccomp profile allow it, else a thread.
    """

    AUTO = "auto"
    AIO = "aio"
    THREAD = "thread"
    INLINE = "inline"


class Syncer(Protocol):
    """One back end. The caller chooses the tokens; several syncs may be under way at a time."""

    name: str
    descriptor: int
    is_immediate: bool
    """What is submitted has ended when `submit` returns."""

    def submit(self, token: int, handles: Sequence[int]) -> None:
        """Start an fdatasync of these files. Never raises: `done` hands out a failure."""
        ...

    def submit_folder(self, token: int, folder: Path) -> None:
        """Start an fsync of the folder's names. Never raises: `done` hands out a failure."""
        ...

    def done(self) -> Done:
        """The tokens, each with its error or None, whose syncs have ended since the last call. Never waits."""
        ...

    def may_be_done(self) -> bool:
        """Whether `done` would hand something out now, as far as can be seen without a call of the kernel; `descriptor`
        tells it in any case.
        """
        ...

    def wait(self) -> Done:
        """As `done`, but wait until at least one sync has ended."""
        ...

    def close(self) -> None:
        """Wait for the syncs that are under way, and give the descriptor back."""
        ...


class InlineSyncer:
    """Syncs within `submit`: the simplest back end, for tests and tools."""

    name = "inline"
    is_immediate = True

    def __init__(self, files: FileLayer) -> None:
        self._files = files
        self._done: Done = []
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def submit(self, token: int, handles: Sequence[int]) -> None:
        self._done.append((token, _sync(self._files, handles)))
        os.eventfd_write(self.descriptor, 1)

    def submit_folder(self, token: int, folder: Path) -> None:
        self._done.append((token, _sync_folder(self._files, folder)))
        os.eventfd_write(self.descriptor, 1)

    def done(self) -> Done:
        done, self._done = self._done, []
        _drain(self.descriptor)
        return done

    wait = done

    def may_be_done(self) -> bool:
        return bool(self._done)

    def close(self) -> None:
        os.close(self.descriptor)


class ThreadSyncer:
    """One thread that only syncs, and so hardly ever holds the GIL."""

    name = "thread"
    is_immediate = False

    def __init__(self, files: FileLayer) -> None:
        self._files = files
        self._tasks: SimpleQueue[tuple[int, Callable[[], OSError | None]] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, OSError | None]] = SimpleQueue()
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="penstock-log-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            token, action = task
            self._done.put((token, action()))
            os.eventfd_write(self.descriptor, 1)

    def submit(self, token: int, handles: Sequence[int]) -> None:
        self._tasks.put((token, partial(_sync, self._files, tuple(handles))))

    def submit_folder(self, token: int, folder: Path) -> None:
        self._tasks.put((token, partial(_sync_folder, self._files, folder)))

    def done(self) -> Done:
        _drain(self.descriptor)
        done: Done = []
        while not self._done.empty():
            done.append(self._done.get())
        return done

    def may_be_done(self) -> bool:
        return not self._done.empty()

    def wait(self) -> Done:
        return [self._done.get(), *self.done()]

    def close(self) -> None:
        self._tasks.put(None)
        self._thread.join()
        os.close(self.descriptor)


class AioSyncer:
    """Linux AIO's IOCB_CMD_FDSYNC: it needs no thread.

    Raises OSError if the kernel does not have it, or if the container's seccomp profile forbids it.
    """

    name = "aio"
    is_immediate = False

    def __init__(self, files: FileLayer, open_queue: Callable[[int], LinuxAio] = open_aio) -> None:
        self._files = files
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._queue = open_queue(self.descriptor)
        except BaseException:
            os.close(self.descriptor)
            raise
        self._under_way: dict[int, int] = {}
        self._errors: dict[int, OSError] = {}
        self._failed: Done = []
        self._folders: SimpleQueue[tuple[int, OSError | None]] = SimpleQueue()
        self._folder_threads: list[threading.Thread] = []
        """One for each fsync of a folder that is under way, which is a few times per segment: the kernel has none of
        these for folders on every file system."""
        self.may_be_done = self._queue.may_be_done  # asked in each turn

    def submit(self, token: int, handles: Sequence[int]) -> None:
        under_way = self._under_way
        for handle in handles:
            descriptor = self._files.descriptor(handle)
            assert descriptor is not None, "chosen only for files with a descriptor"
            try:
                self._queue.submit(descriptor, token)
            except OSError as error:
                self._errors.setdefault(token, error)
                continue
            under_way[token] = under_way.get(token, 0) + 1
        if token not in under_way:
            self._failed.append((token, self._errors.pop(token, None)))
            os.eventfd_write(self.descriptor, 1)

    def submit_folder(self, token: int, folder: Path) -> None:
        thread = threading.Thread(
            target=self._sync_folder, args=(token, folder), name="penstock-log-names", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the machine, or the container, has no thread left for us
            self._sync_folder(token, folder)
        else:
            self._folder_threads.append(thread)

    def _sync_folder(self, token: int, folder: Path) -> None:
        self._folders.put((token, _sync_folder(self._files, folder)))
        os.eventfd_write(self.descriptor, 1)

    def done(self) -> Done:
        return self._collect(0)

    def wait(self) -> Done:
        done = self.done()
        while not done:
            if self._folder_threads:
                self._folder_threads[0].join()
            done = self._collect(0 if self._folder_threads else 1)
        return done

    def _collect(self, at_least: int) -> Done:
        ended = self._queue.collect(at_least)  # first, because it reads the descriptor: that tells of folders, too
        done, self._failed = self._failed, []
        if self._folder_threads or not self._folders.empty():
            self._collect_folders(done)
        for token, result in ended:
            if result < 0:
                self._errors.setdefault(token, OSError(-result, os.strerror(-result)))
            left = self._under_way.pop(token) - 1
            if left:
                self._under_way[token] = left
            else:
                done.append((token, self._errors.pop(token, None)))
        return done

    def _collect_folders(self, done: Done) -> None:
        while not self._folders.empty():
            done.append(self._folders.get())
        self._folder_threads = [each for each in self._folder_threads if each.is_alive()]

    def close(self) -> None:
        for thread in self._folder_threads:
            thread.join()
        self._queue.close()
        os.close(self.descriptor)


def choose(files: FileLayer, probe: int, choice: SyncChoice) -> Syncer:
    """The back end for `choice`. AUTO tries a sync of the open file `probe` before it relies on Linux AIO."""
    match choice:
        case SyncChoice.INLINE:
            return InlineSyncer(files)
        case SyncChoice.THREAD:
            return ThreadSyncer(files)
        case SyncChoice.AIO:
            return AioSyncer(files)
        case SyncChoice.AUTO:
            return _automatic(files, probe)


def _automatic(files: FileLayer, probe: int) -> Syncer:
    if files.descriptor(probe) is None:
        return ThreadSyncer(files)
    try:
        syncer = AioSyncer(files)
    except OSError as error:
        LOGGER.info("the log syncs by a thread: Linux AIO is not available here (%s)", error)
        return ThreadSyncer(files)
    syncer.submit(0, [probe])
    [(_, refusal)] = syncer.wait()
    if refusal is None:
        return syncer
    syncer.close()
    LOGGER.info("the log syncs by a thread: this file system refuses Linux AIO's FDSYNC (%s)", refusal)
    return ThreadSyncer(files)


def _sync(files: FileLayer, handles: Sequence[int]) -> OSError | None:
    return _outcome(partial(_sync_all, files, handles))


def _sync_all(files: FileLayer, handles: Sequence[int]) -> None:
    for handle in handles:
        files.fdatasync(handle)


def _sync_folder(files: FileLayer, folder: Path) -> OSError | None:
    return _outcome(partial(files.fsync_folder, folder))


def _outcome(sync: Callable[[], None]) -> OSError | None:
    """What became of a sync. Whatever it raises is a failure: who waits for a sync that never ends waits for ever."""
    try:
        sync()
    except OSError as error:
        return error
    except Exception as error:
        return OSError(errno.EIO, f"a sync could not be done: {error!r}")
    return None


def _drain(descriptor: int) -> None:
    try:
        os.eventfd_read(descriptor)
    except BlockingIOError:
        return
