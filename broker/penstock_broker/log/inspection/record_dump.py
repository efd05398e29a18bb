"""The records of a log one after the other, as plain values: for `penstock log dump`. Nothing is changed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from penstock_broker.log.disk.files import FileLayer
from penstock_broker.log.format.blocks import BlockHeader, seed_of
from penstock_broker.log.format.records import (
    Ack,
    CheckpointBegin,
    CheckpointEnd,
    Closed,
    Commit,
    Count,
    Deleted,
    DeliveredUpTo,
    Document,
    EndReason,
    Part,
    Put,
    Record,
    Remark,
    RouteDifference,
    RouteSet,
    SegmentState,
    StagedPut,
    Start,
    VolatilePut,
)
from penstock_broker.log.format.route_sets import KnownRouteSets
from penstock_broker.log.recovery.record_reader import records_of
from penstock_broker.log.scan.block_scan import Hole, KnownSegment, scan
from penstock_broker.log.scan.segment_files import find_segments

_REASONS = {reason.value: reason.name.lower() for reason in EndReason}

Value = str | int | bytes | list[int] | list[str]


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """One record, or something damaged (`type` is "damaged").

    `segment` and `offset`: where its block lies. `fields`: what the record says.
    """

    segment: int
    offset: int
    sequence: int
    epoch: int
    time_ms: int
    type: str
    fields: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is listed: records of one segment only, about one queue only; `payloads`: with the bytes of messages."""

    segment: int | None = None
    queue: str | None = None
    payloads: bool = False


class UnknownQueue(Exception):
    """No document in the log has this name."""


class UnknownSegment(Exception):
    """The log has no segment of this number."""


def list_records(files: FileLayer, folder: Path, wanted: Wanted) -> Iterator[ListedRecord]:
    """The records in log order. Raises UnknownQueue, UnknownSegment, NewerFormat, ForeignSegment, Unreadable, or
    OSError.
    """
    segments = find_segments(files, folder)
    try:
        data = {item.data.number: item.data for item in segments.found}
        if wanted.segment is not None and wanted.segment not in data:
            raise UnknownSegment(f"this log has no segment {wanted.segment}, but has {_spans(data)}")
        lister = _Lister(wanted)

        items: list[BlockHeader | Hole] = []

        def learn(item: BlockHeader | Hole | KnownSegment) -> None:
            assert not isinstance(item, KnownSegment), "all segments are read here"
            if wanted.segment is None or item.segment == wanted.segment:
                items.append(item)
            if isinstance(item, BlockHeader):
                for record in records_of(data[item.segment].data, item)[0]:
                    lister.learn(record)

        scan(list(data.values()), seed_of(segments.log_id or b""), learn)
        if wanted.queue is not None and wanted.queue not in lister.names.values():
            raise UnknownQueue(f"no queue or subscription of this log has the name {wanted.queue!r}")
        for item in items:
            if isinstance(item, Hole):
                yield ListedRecord(item.segment, item.start, item.first, 0, 0, "damaged", {"end": item.end})
                continue
            records, error = records_of(data[item.segment].data, item)
            for record in records:
                yield from lister.listed(item, record)
            if error:
                yield ListedRecord(
                    item.segment, item.offset, item.sequence, item.epoch, item.time_ms, "damaged", {"reason": error}
                )
    finally:
        for each in (*segments.found, *segments.foreign):
            files.close(each.handle)


def _spans(numbers: Iterable[int]) -> str:
    """Numbers, as "1 to 3, 7"; ascending."""
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = spans[-1][0], number
        else:
            spans.append((number, number))
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in spans) or "none"


class _Lister:
    def __init__(self, wanted: Wanted) -> None:
        self.names: dict[int, str] = {}
        """Queue by incarnation, those that have ended included."""
        self._wanted = wanted
        self._routes = KnownRouteSets()
        self._bodies: dict[int, tuple[int, ...]] = {}  # body -> incarnations of the puts that name it

    def learn(self, record: Record) -> None:
        match record:
            case Document() if record.incarnation:
                self.names[record.incarnation] = record.key
            case RouteSet() | RouteDifference():
                self._routes.define(record)
            case StagedPut():
                routed = self._routes.incarnations(record.put.route_set)
                self._bodies[record.body] = self._bodies.get(record.body, ()) + routed
            case Commit():
                for inner in record.records:
                    self.learn(inner)
            case _:
                pass

    def listed(self, block: BlockHeader, record: Record) -> Iterator[ListedRecord]:
        if isinstance(record, Commit):
            inner = [each for each in record.records if self._is_wanted(each)]
            if inner or self._wanted.queue is None:
                fields: dict[str, Value] = {"records": len(record.records)}
                yield self._listed(block, "commit", fields)
            for each in inner:
                yield self._listed(block, *self._described(each), transacted=True)
        elif self._is_wanted(record):
            yield self._listed(block, *self._described(record))

    def _listed(
        self, block: BlockHeader, kind: str, fields: dict[str, Value], *, transacted: bool = False
    ) -> ListedRecord:
        if transacted:
            kind = f"commit/{kind}"
        return ListedRecord(block.segment, block.offset, block.sequence, block.epoch, block.time_ms, kind, fields)

    def _is_wanted(self, record: Record) -> bool:
        name = self._wanted.queue
        if name is None:
            return True
        match record:
            case Document() | Deleted():
                return record.key == name
            case RouteSet() | RouteDifference():
                about = self._routes.incarnations(record.route_set)
            case Put():
                about = self._routes.incarnations(record.route_set)
            case VolatilePut():
                about = self._routes.incarnations(record.put.route_set)
            case StagedPut():
                about = self._routes.incarnations(record.put.route_set)
            case Part():
                about = self._bodies.get(record.body, ())
            case Ack() | Remark():
                about = (record.incarnation,)
            case DeliveredUpTo():
                about = tuple(each[0] for each in record.numbers)
            case Count():
                about = tuple(each[0] for each in record.counts)
            case _:
                return False
        return name in (self.names.get(incarnation) for incarnation in about)

    def _queues(self, incarnations: tuple[int, ...]) -> list[str]:
        return [self.names.get(incarnation, f"incarnation {incarnation}") for incarnation in incarnations]

    def _described(self, record: Record) -> tuple[str, dict[str, Value]]:
        match record:
            case Put():
                fields: dict[str, Value] = {
                    "message": record.message,
                    "queues": self._queues(self._routes.incarnations(record.route_set)),
                    "arrivalUs": record.arrival,
                    "flags": record.flags,
                    "bytes": len(record.payload),
                }
                if self._wanted.payloads:
                    fields["payload"] = record.payload
                return "put", fields
            case VolatilePut():
                return "volatilePut", self._described(record.put)[1]
            case StagedPut():
                _, fields = self._described(record.put)
                fields["bytes"] = len(record.put.payload) + record.length - record.offset
                return "stagedPut", {**fields, "body": record.body}
            case Part():
                return "part", {"body": record.body, "offset": record.offset, "bytes": record.length}
            case Ack():
                fields = {"queue": self._queues((record.incarnation,))[0], "messages": list(record.messages)}
                if isinstance(record.messages, range):
                    fields["messages"] = f"{record.messages.start}-{record.messages.stop - 1}"
                return "ack", {**fields, "reason": _REASONS.get(record.reason, str(record.reason))}
            case Document():
                fields = {"kind": record.kind, "name": record.key, "incarnation": record.incarnation}
                return "document", {**fields, "content": record.payload.decode("utf-8", "replace")}
            case Deleted():
                return "deleted", {"kind": record.kind, "name": record.key}
            case RouteSet():
                return "route", {"routeSet": record.route_set, "queues": self._queues(record.incarnations)}
            case RouteDifference():
                fields = {"routeSet": record.route_set, "base": record.base}
                queues = {"removed": self._queues(record.removed), "added": self._queues(record.added)}
                return "routeDifference", {**fields, **queues}
            case DeliveredUpTo():
                return "deliveredUpTo", dict(self._pairs(record.numbers))
            case Count():
                pairs = [f"{self._queues((each[0],))[0]}:{each[1]}={each[2]}" for each in record.counts]
                return "count", {"counts": pairs}
            case Remark():
                queue = self._queues((record.incarnation,))[0]
                return "remark", {"queue": queue, "message": record.message, "bytes": len(record.text)}
            case Start():
                fields = {"bootId": record.boot_id.hex(), "messageCeiling": record.message_ceiling}
                return "start", {**fields, "incarnationCeiling": record.incarnation_ceiling}
            case SegmentState():
                fields = {"number": record.segment, "over": record.is_over}
                if not record.is_over:
                    live = [f"{self._queues((each[0],))[0]}={each[1]}" for each in record.live]
                    fields |= {"messages": f"{record.first_message}-{record.last_message}", "live": live}
                return "segment", fields
            case CheckpointBegin():
                return "checkpointBegin", {"identifier": record.identifier}
            case CheckpointEnd():
                return "checkpointEnd", {"identifier": record.identifier}
            case Closed():
                return "closed", {}
            case Commit():
                return "commit", {"records": len(record.records)}
            case _:
                assert_never(record)

    def _pairs(self, numbers: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, Value]]:
        for incarnation, message in numbers:
            yield self._queues((incarnation,))[0], message
