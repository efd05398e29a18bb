"""Bodies of live messages put together again from the parts that recovery has found."""

import logging
from collections.abc import Sequence

from penstock_broker.log.bodies import Bodies, Extent, LargePayload, StagedBody
from penstock_broker.log.living import Living
from penstock_broker.log.replaying import PartPlace, Replay

LOGGER = logging.getLogger(__name__)

_HEAD_BYTES = 64 * 1024  # of a large payload that was put without a head of its own, what is kept in memory


def fetch_bodies(replay: Replay, living: Living, bodies: Bodies, inline_bytes: int) -> dict[int, list[int]]:
    """Give each live put with a staged body its payload; bodies that several puts name are shared.

    Puts whose parts are not all there are taken out of `replay`; returns their messages per incarnation.
    """
    queues = {document.incarnation for document in replay.documents.values()}
    known: dict[int, StagedBody | None] = {}
    incomplete: dict[int, list[int]] = {}
    for number, live in sorted(replay.puts.items()):
        lives_in = queues.intersection(live.incarnations).difference(live.acked)
        if live.staged is None or not lives_in:  # of a queue that has ended, parts may be recycled already
            continue
        body_number, offset, length = live.staged
        if body_number not in known:
            known[body_number] = _assemble(bodies, living, body_number, length, replay.parts.get(body_number, ()))
        body = known[body_number]
        if body is not None:
            live.put = live.put._replace(payload=_payload(live.put.payload, body, offset, inline_bytes))
            continue
        LOGGER.error("message %d is lost: not all parts of its body can be read", number)
        for incarnation in lives_in:
            incomplete.setdefault(incarnation, []).append(number)
        del replay.puts[number]
    return incomplete


def _assemble(
    bodies: Bodies, living: Living, number: int, length: int, places: Sequence[PartPlace]
) -> StagedBody | None:
    """The body, or None if something of its `length` bytes lacks."""
    body = bodies.stage(number)
    for place in sorted(places, key=lambda place: place.offset):
        if place.offset != body.length or place.segment not in living.by_number:
            return None
        body.length += place.length
        body.place(Extent(living.by_number[place.segment], place.at, place.length))
    return body if body.length == length else None


def _payload(head: bytes, body: StagedBody, offset: int, inline_bytes: int) -> bytes:
    if len(head) + body.length - offset <= inline_bytes:
        return head + body.read(offset, body.length - offset)
    if not head:
        head = body.read(offset, _HEAD_BYTES)
        offset += len(head)
    return LargePayload.of(head, body, offset)
