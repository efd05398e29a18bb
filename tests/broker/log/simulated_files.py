"""A file layer in memory whose power can fail: what no returned sync covers is kept, lost or torn as the test says.

Names follow the order of a journaling file system: after a crash some first part of the unsynced name changes is there;
or, if the test says so, no order but that of each file's own changes. Contents follow no order at all: each unsynced
write survives or not, by itself, in whole or in its first bytes. What a failed sync covered is not written any more, as
on Linux, which calls such pages clean.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock_broker.log.disk.files import Buffer

ENDLESS = 1 << 40
"""Space that nobody counts."""


class PowerCut(BaseException):
    """The machine stops here. Not an Exception: no code under test may catch it by accident."""


@dataclass(slots=True)
class _Inode:
    durable: bytearray = field(default_factory=bytearray)
    current: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])


def write_at(content: bytearray, offset: int, data: bytes) -> None:
    """A write as a file does it: a gap reads as zeros."""
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _each_by_itself(states: list[dict[Path, _Inode]], kept: Callable[[int], int]) -> dict[Path, _Inode]:
    """The names after a crash on a file system that keeps the changes of one file in order, and no others."""
    inodes = {id(inode): inode for state in states for inode in state.values()}
    found: dict[Path, _Inode] = {}
    for key, inode in inodes.items():
        names = [next((path for path, each in state.items() if id(each) == key), None) for state in states]
        own = [name for at, name in enumerate(names) if not at or name != names[at - 1]]
        name = own[min(kept(len(own) - 1), len(own) - 1)]
        if name is not None:
            found[name] = inode
    return found


class SimulatedFiles:
    """`space`: bytes for all files together; `steps_left`: changes until the power fails; `broken`: calls that fail;
    `unreadable`: bytes [start, end) of a file that can't be read.
    """

    def __init__(self) -> None:
        self._names: dict[Path, _Inode] = {}
        self._durable_names: dict[Path, _Inode] = {}
        self._name_changes: list[dict[Path, _Inode]] = []
        self._handles: dict[int, _Inode] = {}
        self._next_handle = 3
        self._boot = 1
        self.space = ENDLESS
        self.steps_left = 1 << 40
        self.steps = 0
        self.broken: set[str] = set()
        self.unreadable: dict[Path, tuple[int, int]] = {}
        self.synced_calls = 0

    # What tests do --------------------------------------------------------------------------------------------------

    def unsynced_writes(self) -> int:
        """How many writes a crash now could lose."""
        return sum(len(inode.unsynced) for inode in self._all_inodes())

    def crash(self, survives: Callable[[int], int], names_kept: int | Callable[[int], int]) -> None:
        """Power off and on. `survives(length)` says how many of the first bytes of an unsynced write stay.

        `names_kept`: how many of the unsynced changes of names stay; or, asked with how many of one file there are, how
        many of that file's.
        """
        for inode in self._all_inodes():
            for offset, data in inode.unsynced:
                kept = survives(len(data))
                if kept:
                    write_at(inode.durable, offset, data[:kept])
            inode.unsynced.clear()
            inode.current = bytearray(inode.durable)
        states = [self._durable_names, *self._name_changes]
        if callable(names_kept):
            self._durable_names = _each_by_itself(states, names_kept)
        else:
            self._durable_names = states[min(names_kept, len(states) - 1)]
        self._names = dict(self._durable_names)
        self._name_changes.clear()
        self._handles.clear()
        self._boot += 1
        self.steps_left = 1 << 40
        self.broken.clear()

    def kill(self) -> None:
        """The process ends, the machine does not: everything written stays, and stays unsynced."""
        self._handles.clear()
        self.steps_left = 1 << 40
        self.broken.clear()

    def mount_anew(self) -> None:
        """The volume was lost, and comes back to a machine that went on: nothing unsynced is left of it."""
        self.crash(lambda length: 0, 0)
        self._boot -= 1

    def fail_syncs(self) -> None:
        """A sync of each file has failed, and then the process ends: what was unsynced can be read until the power
        fails.
        """
        self.forget_unsynced()
        self.kill()

    def forget_unsynced(self) -> None:
        """A sync of each file has failed: what was unsynced is not written any more."""
        for inode in self._all_inodes():
            inode.unsynced.clear()

    def content(self, path: Path) -> bytearray:
        """The bytes of a file, to be looked at or damaged in place (as if synced so)."""
        inode = self._names[path]
        inode.durable = inode.current
        inode.unsynced.clear()
        return inode.current

    def paths(self) -> list[Path]:
        return sorted(self._names)

    def copy(self, folder: Path | None = None) -> "SimulatedFiles":
        """The same disk once more, without open files, so that many crashes can be tried from one point.

        `folder`: where all files lie on the copy.
        """

        def at(path: Path) -> Path:
            return path if folder is None else folder / path.name

        twin = SimulatedFiles()
        inodes = {
            id(inode): _Inode(bytearray(inode.durable), bytearray(inode.current), list(inode.unsynced))
            for inode in self._all_inodes()
        }
        twin._names = {at(path): inodes[id(inode)] for path, inode in self._names.items()}
        twin._durable_names = {at(path): inodes[id(inode)] for path, inode in self._durable_names.items()}
        twin._name_changes = [
            {at(path): inodes[id(inode)] for path, inode in state.items()} for state in self._name_changes
        ]
        twin._boot, twin.space, twin.unreadable = self._boot, self.space, dict(self.unreadable)
        return twin

    def path_of(self, handle: int) -> Path:
        """The name that an open file has now."""
        return next(path for path, inode in self._names.items() if inode is self._handles[handle])

    def _all_inodes(self) -> list[_Inode]:
        found: dict[int, _Inode] = {}
        for names in (self._names, self._durable_names, *self._name_changes):
            found.update({id(inode): inode for inode in names.values()})
        return list(found.values())

    def _step(self, call: str) -> None:
        self.steps += 1
        if self.steps_left <= 0:
            raise PowerCut(call)
        self.steps_left -= 1
        if call in self.broken:
            raise OSError(errno.EIO, f"{call} is broken")

    # What the log does ----------------------------------------------------------------------------------------------

    def names(self, folder: Path) -> list[str]:
        return sorted(path.name for path in self._names if path.parent == folder)

    def open(self, path: Path, *, create: bool) -> int:
        if path not in self._names:
            if not create:
                raise FileNotFoundError(path)
            self._step("create")
            self._names[path] = _Inode()
            self._name_changes.append(dict(self._names))
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._handles[handle] = self._names[path]
        return handle

    def close(self, handle: int) -> None:
        del self._handles[handle]

    def size(self, handle: int) -> int:
        return len(self._handles[handle].current)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        for path, (start, end) in self.unreadable.items():
            is_it = self._names.get(path) is self._handles[handle]
            if is_it and offset < end and offset + length > start:
                raise OSError(errno.EIO, "the disk can't read this")
        return bytes(self._handles[handle].current[offset : offset + length])

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        self._step("pwrite")
        inode = self._handles[handle]
        growth = offset + len(data) - len(inode.current)
        if growth > 0 and self.space < ENDLESS:
            free = self.space - sum(len(other.current) for other in self._all_inodes())
            if growth > free:
                raise OSError(errno.ENOSPC, "no space left")
        write_at(inode.current, offset, bytes(data))
        inode.unsynced.append((offset, bytes(data)))
        return len(data)

    def fdatasync(self, handle: int) -> None:
        inode = self._handles[handle]
        try:
            self._step("fdatasync")
        except OSError:
            inode.unsynced.clear()
            raise
        self.synced_calls += 1
        for offset, data in inode.unsynced:
            write_at(inode.durable, offset, data)
        inode.unsynced.clear()

    def rename(self, old: Path, new: Path) -> None:
        self._step("rename")
        self._names[new] = self._names.pop(old)
        self._name_changes.append(dict(self._names))

    def link(self, old: Path, new: Path) -> None:
        self._step("link")
        self._names[new] = self._names[old]
        self._name_changes.append(dict(self._names))

    def unlink(self, path: Path) -> None:
        self._step("unlink")
        del self._names[path]
        self._name_changes.append(dict(self._names))

    def fsync_folder(self, folder: Path) -> None:
        self._step("fsync_folder")
        self._durable_names = dict(self._names)
        self._name_changes.clear()

    def boot_id(self) -> bytes:
        return self._boot.to_bytes(16, "little")

    def descriptor(self, handle: int) -> int | None:
        return None
