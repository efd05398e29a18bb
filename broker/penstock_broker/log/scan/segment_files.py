"""The files of a log's segments as they are found: which of them belong to the log, and what of them can be read.

A page that the disk can't read (EIO) is taken as zeros, so that it becomes damage like any other
(docs/reference/disk-faults.md). That holds only where sound blocks follow that call the missing ones synced. Where they
don't, nobody can say whether something promised lies in the page, and the log is refused (`Unreadable`).
"""

import errno
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from penstock_broker.log.disk.files import FileLayer, read_all
from penstock_broker.log.disk.spare_segments import number_of
from penstock_broker.log.format.blocks import SEGMENT_START, SegmentHeader, decode_segment_header
from penstock_broker.log.format.lost_log_id import NoAgreement, find_lost_id
from penstock_broker.log.scan.block_scan import Cut, SegmentData

LOGGER = logging.getLogger(__name__)

MEDIUM_ERRORS: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA, errno.EREMOTEIO})
"""Errors by which file systems say that a part of a file is lost. All others are about the whole volume or process."""
PAGE: Final = 4096
PIECE: Final = 64 * 1024
MOST_UNREADABLE: Final = 1024 * 1024
"""Bytes of one segment that may be unreadable. More than that looks like a volume that fails as a whole."""

_NAME: Final = re.compile(r"(segment|spare|digest)-[0-9a-f]{16}\.log")
_CURE: Final = "mend it with `penstock log repair`, or bring the volume back"

ByteSpan = tuple[int, int]  # first byte, byte behind the last


class ForeignSegment(Exception):
    """Segments of several logs lie in this folder, and none of these logs has most of them. The message names them."""


class Unreadable(Exception):
    """What can't be read is too much, or in a place where something promised may lie. The message names it."""


@dataclass(slots=True)
class FoundSegment:
    """A segment's file. `header` is None if neither copy of it is sound."""

    path: Path
    handle: int
    data: SegmentData
    header: SegmentHeader | None
    unreadable: list[ByteSpan]
    """Spans that the disk could not read, as far as the file was read."""


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """`found`: the segments of the log in order; `foreign`: those of other logs; `log_id`: None if there is no log."""

    found: list[FoundSegment]
    foreign: list[FoundSegment]
    log_id: bytes | None


def names_of(kind: str, names: Iterable[str]) -> list[str]:
    """The names of the log's files of this kind ("segment", "spare" or "digest"), by number. Others that look
    alike are told."""
    found: list[str] = []
    for name in names:
        if _NAME.fullmatch(name) and name.startswith(f"{kind}-"):
            found.append(name)
        elif name.startswith(f"{kind}-"):
            LOGGER.warning("%s is not a file of the log: it is ignored", name)
    return sorted(found, key=number_of)


def find_segments(files: FileLayer, folder: Path, opened: Callable[[], None] = lambda: None) -> SegmentFiles:
    """Open the segments of a folder; `opened` is called after each. Raises NewerFormat, ForeignSegment, Unreadable, or
    OSError.
    """
    contents = _Contents(files)
    found: list[FoundSegment] = []
    for name in names_of("segment", files.names(folder)):
        found.append(_open(files, folder / name, contents))
        opened()
    log_id = _most_common_id(found)
    foreign = [item for item in found if item.header is not None and item.header.log_id != log_id]
    own = [item for item in found if item.header is None or item.header.log_id == log_id]
    if log_id is None and own:
        log_id = _lost_id(folder, own)
    return SegmentFiles(own, foreign, log_id)


def refuse_unreadable_end(found: Sequence[FoundSegment], cut: Cut) -> None:
    """Raise Unreadable if the disk could not read something behind the place where the log seems to end."""
    for item in found:
        for start, end in item.unreadable:
            if (item.data.number, end) > (cut.segment, cut.offset):
                raise Unreadable(
                    f"{item.path}, bytes {start} to {end}, can't be read, and may hold what the log ends with: {_CURE}"
                )


def _open(files: FileLayer, path: Path, contents: "_Contents") -> FoundSegment:
    number = number_of(path.name)
    handle = files.open(path, create=False)
    opened = contents.by_number[number] = _Opened(path, handle, [])
    data = SegmentData(number, files.size(handle), contents.load)
    found = FoundSegment(path, handle, data, None, opened.unreadable)
    try:
        page = files.pread(handle, SEGMENT_START, 0)
    except OSError as error:
        if error.errno not in MEDIUM_ERRORS:
            raise
        page = b""
    found.header = decode_segment_header(page)
    return found


def _most_common_id(found: Sequence[FoundSegment]) -> bytes | None:
    ids = [item.header.log_id for item in found if item.header is not None]
    for log_id in set(ids):
        if ids.count(log_id) * 2 > len(ids):
            return log_id
    if ids:
        names = ", ".join(item.path.name for item in found if item.header is not None)
        raise ForeignSegment(f"{names} in {found[0].path.parent} belong to several logs: leave those of one log there")
    return None


def _lost_id(folder: Path, found: Sequence[FoundSegment]) -> bytes | None:
    try:
        log_id = find_lost_id((item.data.number, item.data.data) for item in found)
    except NoAgreement:
        raise Unreadable(f"no segment in {folder} has a header that can be read, nor sound blocks: {_CURE}") from None
    if log_id is not None:
        LOGGER.error("the log is damaged: no segment in %s has a sound header; its id was found by its blocks", folder)
    return log_id


class _Opened(NamedTuple):
    """An open file, and where the disk could not read it."""

    path: Path
    handle: int
    unreadable: list[ByteSpan]


class _Contents:
    """Reads segments and keeps one of them at a time: the whole log need not fit into memory.

    It refers to no `FoundSegment`, because these refer to it: what it keeps is freed with the last of them.
    """

    def __init__(self, files: FileLayer) -> None:
        self.by_number: dict[int, _Opened] = {}
        self._files = files
        self._number, self._content = -1, b""

    def load(self, number: int) -> bytes:
        if number != self._number:
            self._content = b""  # free one before the next is read
            self._content, self._number = self._read(self.by_number[number]), number
        return self._content

    def _read(self, item: _Opened) -> bytes:
        try:
            return read_all(self._files, item.handle)
        except OSError as error:
            if error.errno not in MEDIUM_ERRORS:
                raise
        content, unreadable = read_around(self._files, item.handle, item.path)
        for span in unreadable:
            if span not in item.unreadable:
                LOGGER.error("the disk can't read %s, bytes %d to %d: they are taken as zeros", item.path, *span)
        item.unreadable[:] = unreadable
        return content


def read_around(files: FileLayer, handle: int, path: Path, most: int = MOST_UNREADABLE) -> tuple[bytes, list[ByteSpan]]:
    """The file with zeros for what the disk can't read, and where that is. Raises Unreadable if it is more than `most`
    bytes, or OSError.
    """
    size = files.size(handle)
    content = bytearray(size)
    spans: list[ByteSpan] = []
    for piece in range(0, size, PIECE):
        if _copy(files, handle, content, piece, min(PIECE, size - piece)):
            continue
        for page in range(piece, min(piece + PIECE, size), PAGE):
            if not _copy(files, handle, content, page, min(PAGE, size - page)):
                end = min(page + PAGE, size)
                spans = [*spans[:-1], (spans[-1][0], end)] if spans and spans[-1][1] == page else [*spans, (page, end)]
        if sum(end - start for start, end in spans) > most:
            raise Unreadable(f"{path}: more than {most} bytes can't be read from byte {spans[0][0]} on: {_CURE}")
    return bytes(content), spans


def _copy(files: FileLayer, handle: int, content: bytearray, start: int, length: int) -> bool:
    """Read into `content`. False if the disk can't read all of it."""
    done = 0
    try:
        while done < length:
            data = files.pread(handle, length - done, start + done)
            if not data:
                break
            content[start + done : start + done + len(data)] = data
            done += len(data)
    except OSError as error:
        if error.errno not in MEDIUM_ERRORS:
            raise
        return False
    return True
