"""A put while the log is replayed: kept with its payload, or as numbers and lengths alone, which can be paged."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

from penstock_broker.log.format.records import Put
from penstock_broker.log.format.route_sets import ReachedQueues
from penstock_broker.log.recovery.paged_puts import BATCH, PagedPuts


class LivePut:
    """A put that at least one of its queues has not acknowledged."""

    __slots__ = ("_acked", "_queues", "older", "put", "segment", "staged")

    def __init__(self, put: Put, segment: int, queues: ReachedQueues, staged: tuple[int, int, int] | None) -> None:
        self.put = put
        self.segment = segment
        """Where its newest record lies."""
        self.staged = staged
        """The body that follows the put's own payload: its number, the offset in it, its length."""
        self.older: tuple[int, ...] = ()
        """Segments with earlier puts of the message, from which compaction has copied it."""
        self._queues = queues
        self._acked: set[int] | None = None

    def ack(self, incarnation: int) -> bool:
        """It has left this queue; true if it is in none any more. Costs the same, however many queues it reached."""
        known = self._queues.known
        if len(known) < 2:
            return incarnation in known
        if self._acked is None:
            self._acked = set()
        self._acked.add(incarnation)
        return len(self._acked) >= len(known) and self._acked.issuperset(known)

    def is_in(self, incarnation: int) -> bool:
        """Whether the queue got it and has not acknowledged it."""
        return incarnation in self._queues.known and (self._acked is None or incarnation not in self._acked)

    @property
    def reached(self) -> tuple[ReachedQueues, Collection[int]]:
        """The queues that got it, and those of them that have acknowledged it."""
        return self._queues, self._acked or ()

    def reach(self, incarnations: tuple[int, ...]) -> None:
        """It is in these queues."""
        self._queues, self._acked = ReachedQueues(incarnations), None

    @property
    def waits_in(self) -> Sequence[int]:
        """The queues that have not acknowledged it, in the order of the route set."""
        if self._acked is None:
            return self._queues.incarnations
        return [incarnation for incarnation in self._queues.incarnations if incarnation not in self._acked]


class PlainPuts:
    """Consecutive puts of one block with one route set, by ascending number, whose payloads are not needed."""

    __slots__ = ("arrival", "expires", "lengths", "numbers", "route_set")

    def __init__(self, route_set: int, arrival: int) -> None:
        self.route_set = route_set
        self.numbers: list[int] = []
        self.lengths: list[int] = []
        """Bytes of each payload."""
        self.arrival = arrival
        """None arrived before."""
        self.expires = 0
        """When the first of those expires that do; 0: none does."""


class PutGroup:
    """Puts that are paged together: of one segment and one set of queues, by ascending number."""

    __slots__ = ("_arrival", "_expires", "_is_copied", "_lengths", "_numbers", "_queues", "_segment")

    def __init__(self, segment: int, queues: ReachedQueues, *, is_copied: bool) -> None:
        self._segment, self._queues, self._is_copied = segment, queues, is_copied
        self._numbers: list[int] = []
        self._lengths: list[int] = []
        self._arrival = self._expires = 0

    def takes(self, segment: int, queues: ReachedQueues, *, is_copied: bool) -> bool:
        is_same = segment == self._segment and queues is self._queues and is_copied == self._is_copied
        return is_same and len(self._numbers) < BATCH

    def add(self, number: int, length: int, arrival: int, expires: int) -> None:
        if not self._numbers or arrival < self._arrival:
            self._arrival = arrival
        if expires and (not self._expires or expires < self._expires):
            self._expires = expires
        self._numbers.append(number)
        self._lengths.append(length)

    def move_to(self, paged: PagedPuts) -> None:
        if self._numbers:
            told = (self._segment, self._queues, self._numbers, self._lengths, self._arrival, self._expires)
            paged.extend(*told, is_copied=self._is_copied)
            self._numbers, self._lengths, self._expires = [], [], 0


class CommonStart(NamedTuple):
    """Messages that begin with these bytes, and whose byte at offset `at` is not above `most`, may be paged and never
    expire."""

    prefix: bytes
    at: int
    most: int


class Pageable(Protocol):
    """Knows which messages can be left in the log, because a queue need not know more of them than their numbers."""

    @property
    def common_start(self) -> CommonStart | None:
        """What the message that was asked for last has in common with many others; None if nothing is known."""
        ...

    def expiry(self, data: bytes, start: int, end: int, arrival: int) -> int:
        """When the message expires whose payload lies in the bytes from `start` to `end`; 0: never. `KEEP` if it is to
        stay in memory."""
        ...


KEEP: Final = -1
