"""What damaged bytes still show of the messages in them, to say what is lost by them. Pure.

The checksum of a damaged block is wrong, so nothing in it is relied on: its records are read only to count messages for
a report. A message counts as lost if its put is seen in damaged bytes and nowhere else, and no ack of it is found.
"""

from collections.abc import Iterable

from penstock_broker.log.format.blocks import BLOCK_HEADER, NewerFormat, block_candidates
from penstock_broker.log.format.record_codec import Malformed, decode_records
from penstock_broker.log.format.records import Ack, Commit, Document, Put, Record, RouteDifference, RouteSet, StagedPut
from penstock_broker.log.format.route_sets import KnownRouteSets


class Salvage:
    """Give it every record of the log by `follow`, and damaged bytes by `look_at`, in log order; then read `losses`."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        """The queue of each incarnation, by its document, also of those that have ended."""
        self._routes = KnownRouteSets()
        self._suspected: dict[int, tuple[int, ...]] = {}  # message -> incarnations

    def follow(self, records: Iterable[Record]) -> None:
        """Take in records of a sound block."""
        for record in records:
            match record:
                case RouteSet() | RouteDifference():
                    self._routes.define(record)
                case Document():
                    self.names[record.incarnation] = record.key
                case Put():
                    self._suspected.pop(record.message, None)
                case StagedPut():
                    self._suspected.pop(record.put.message, None)
                case Commit():
                    self.follow(record.records)
                case Ack():
                    self._acked(record)
                case _:
                    pass

    def look_at(self, data: bytes) -> None:
        """Take in damaged bytes; the first of them lies at a multiple of 64 in its segment."""
        for at in block_candidates(data, 0):
            if at + BLOCK_HEADER.size > len(data):
                continue
            start, length = at + BLOCK_HEADER.size, BLOCK_HEADER.unpack_from(data, at)[3]
            try:
                for record in decode_records(memoryview(data)[start : start + length]):
                    self._suspect(record)
            except (Malformed, NewerFormat):  # here the wrong bytes begin; the records before them can be counted
                continue

    def losses(self, ended: Iterable[int]) -> dict[int, int]:
        """By incarnation, how many messages are lost. `ended`: incarnations whose messages nobody wants any more."""
        gone = frozenset(ended)
        lost: dict[int, int] = {}
        for incarnations in self._suspected.values():
            for incarnation in incarnations:
                if incarnation not in gone:
                    lost[incarnation] = lost.get(incarnation, 0) + 1
        return lost

    def _suspect(self, record: Record) -> None:
        match record:
            case RouteSet() | RouteDifference():
                if not self._routes.knows(record.route_set):
                    self._routes.define(record)
            case Document():
                self.names.setdefault(record.incarnation, record.key)
            case Put():
                self._suspected[record.message] = self._routes.incarnations(record.route_set)
            case StagedPut():
                self._suspected[record.put.message] = self._routes.incarnations(record.put.route_set)
            case Commit():
                for inner in record.records:
                    self._suspect(inner)
            case _:
                pass

    def _acked(self, ack: Ack) -> None:
        if not self._suspected:
            return
        for message in ack.messages:
            incarnations = self._suspected.get(message, ())
            if ack.incarnation in incarnations:
                self._suspected[message] = tuple(each for each in incarnations if each != ack.incarnation)
