"""Checks what a start reads of segments that are known by their digests: the bodies in parts that memory has to hold.

All else of such a segment is read later, and checked then. If a block with a part is not sound, the digests are laid
aside, so that the damage is found, named and copied as without them. Source: docs/decisions/085-digests.md.
"""

from collections.abc import Callable, Container, Mapping

from penstock_broker.log.disk.files import FileLayer
from penstock_broker.log.format.blocks import BLOCK_HEADER
from penstock_broker.log.format.record_codec import Malformed
from penstock_broker.log.recovery.digest_files import DigestUnusable
from penstock_broker.log.recovery.replay import Replay
from penstock_broker.log.scan.segment_files import FoundSegment
from penstock_broker.log.segments.segment import Segment
from penstock_broker.log.segments.segment_reader import sound_block

__all__ = ["check_known_bodies"]


def check_known_bodies(
    replay: Replay,
    files: FileLayer,
    found: Mapping[int, FoundSegment],
    known: Container[int],
    seed: int,
    inline_bytes: int,
    checked: Callable[[], None],
) -> None:
    """Raises DigestUnusable if part of a payload that `fetch_bodies` reads lies in a block of a `known` segment that is
    not sound. `found`: the segments by number; `seed`: see `blocks.seed_of`. `checked` is called after each block.
    """
    sound: set[tuple[int, int]] = set()
    for number in replay.staged & replay.puts.keys():
        live = replay.puts[number]
        if live.staged is None:
            continue
        body, offset, length = live.staged
        head = live.put.payload
        if head and len(head) + length - offset > inline_bytes:
            continue
        for place in replay.parts_of(body):
            block = place.segment, place.records - BLOCK_HEADER.size
            if place.segment not in known or block in sound:
                continue
            sound.add(block)
            _check(files, found[place.segment], block[1], seed)
            checked()


def _check(files: FileLayer, item: FoundSegment, at: int, seed: int) -> None:
    segment = Segment(item.data.number, item.path, item.handle, item.data.size, item.data.size, 0)
    try:
        for _ in sound_block(files, segment, at, seed):
            pass
    except Malformed as error:
        raise DigestUnusable(f"{item.path}, byte {at}: a part of a large message can't be read: {error}") from error
