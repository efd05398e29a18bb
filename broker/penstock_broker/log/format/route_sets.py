"""Route sets: the numbers that stand for sets of queues in puts, as they are written and as they are read.

A set is known as long as somebody uses it, and no longer: ten thousand subscriptions that are made one after the other
while messages flow, and each combination of twenty selectors, make sets of which few are in use at any time. Each
segment defines the sets that it uses; one that differs little from another that the segment has is defined by the
difference. So ten thousand sets that grow by one queue each take a few hundred kilobytes, and not half a gigabyte.

Source: docs/decisions/079-route-sets.md; docs/reference/log-format.md, "Records".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from weakref import WeakValueDictionary

from penstock_broker.log.format.record_codec import route_difference_record, route_record
from penstock_broker.log.format.records import RouteDifference, RouteSet

__all__ = ["LEAST_QUEUES", "MOST_MADE", "KnownRouteSets", "ReachedQueues", "RouteSets", "SegmentRoutes"]

HIGHEST: Final = 0xFFFF_FFFF
"""The number of a set has 32 bits."""

LEAST_QUEUES: Final = 8
"""A set of fewer queues is always defined by itself."""

MOST_MADE: Final = 1_000_000
"""Queues of all sets together that are remembered for differences, or while a log is read."""

MOST_DEFINED: Final = 100_000
"""Definitions that are kept, while a log is read, beyond the segment that they stand in."""


class SegmentRoutes:
    """The route sets that the newest segment has defined."""

    __slots__ = ("_bases", "_weight", "numbers")

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        """Only `note` and `clear` change it."""
        self._weight = 0
        self._bases: dict[int, tuple[int, tuple[int, ...]]] = {}
        """The set defined last, by its first queue: subscriptions that come and go rarely change that one."""

    def clear(self) -> None:
        """A new segment has begun."""
        self.numbers.clear()
        self._bases.clear()
        self._weight = 0

    def definition(self, number: int, incarnations: tuple[int, ...]) -> bytes:
        """The record that has to stand before the first put of this set."""
        if len(incarnations) >= LEAST_QUEUES:
            base = self._bases.get(incarnations[0])
            if base is not None:
                queues, others = frozenset(incarnations), frozenset(base[1])
                removed, added = others - queues, queues - others
                if len(removed) + len(added) < len(incarnations) // 2:
                    return route_difference_record(number, base[0], sorted(removed), sorted(added))
        return route_record(number, incarnations)

    def note(self, number: int, incarnations: tuple[int, ...]) -> None:
        """The definition of this set was written, for the first time in the segment."""
        self.numbers.add(number)
        if len(incarnations) >= LEAST_QUEUES:
            if self._weight >= MOST_MADE:
                self._bases.clear()
                self._weight = 0
            self._bases[incarnations[0]] = (number, incarnations)
            self._weight += len(incarnations)


class RouteSets:
    """The sets in use. Whoever asks for a number gives it back when no put will name it any more."""

    __slots__ = ("_defined", "_next", "_numbers", "_taken", "_uses", "incarnations", "released")

    def __init__(self, next_number: int, defined: Callable[[], Iterable[int]] = tuple) -> None:
        """`next_number`: higher than all numbers that segments define. `defined`: gives these; it is asked each time
        when numbers begin anew.
        """
        self._defined = defined
        self._taken: frozenset[int] = frozenset()
        """Numbers that segments defined, or that were in use, when numbers began anew: who reads those segments must
        find the old sets."""
        self.incarnations: dict[int, tuple[int, ...]] = {}
        """By number. A set that was given back stays until `forget_released`: a put may still name it."""
        self._numbers: dict[tuple[int, ...], int] = {}
        self._uses: dict[int, int] = {}
        self.released: list[int] = []
        """Given back: `forget_released` has something to do."""
        self._next = next_number

    def number(self, incarnations: tuple[int, ...]) -> int:
        """The number that stands for these queues, until it is given back as often as it was asked for."""
        number = self._numbers.get(incarnations)
        if number is None:
            number = self._numbers[incarnations] = self._unused()
            self.incarnations[number] = incarnations
        self._uses[number] = self._uses.get(number, 0) + 1
        return number

    def fresh(self) -> int:
        """A number for a set that is defined and used in one segment only, and not remembered."""
        return self._unused()

    def release(self, number: int) -> None:
        """Give a number back; puts of this turn may have named it."""
        self._uses[number] -= 1
        if not self._uses[number]:
            self.released.append(number)

    def forget_released(self) -> None:
        """All puts are written: forget the sets that nobody uses."""
        for number in self.released:
            if not self._uses.get(number, 1):
                del self._uses[number], self._numbers[self.incarnations.pop(number)]
        self.released.clear()

    def _unused(self) -> int:
        """A number that is not in use, nor defined by any segment: those given since numbers began anew are lower than
        the next one, and the others are known."""
        number = self._next
        while number > HIGHEST or number in self.incarnations or number in self._taken:
            number += 1
            if number > HIGHEST:
                number, self._taken = 1, frozenset((*self._defined(), *self.incarnations))
        self._next = number + 1
        return number


class ReachedQueues:
    """The queues, by incarnation, that a route set stands for; all its puts share this."""

    __slots__ = ("__weakref__", "incarnations", "known")

    def __init__(self, incarnations: tuple[int, ...]) -> None:
        self.incarnations = incarnations
        self.known = frozenset(incarnations)


class KnownRouteSets:
    """The route sets of a log that is being read."""

    __slots__ = ("_defined", "_segment", "_shared", "_weight", "highest", "made")

    def __init__(self) -> None:
        self.highest = 0
        """The highest number that was defined."""
        self.made: dict[int, ReachedQueues] = {}
        """The queues of sets that puts named last; what is not here may be found by `queues`."""
        self._weight = 0
        self._defined: dict[int, tuple[int, ...] | RouteDifference] = {}
        self._segment = 0
        self._shared: WeakValueDictionary[tuple[int, ...], ReachedQueues] = WeakValueDictionary()
        """Those that live puts refer to, or `made`."""

    def define(self, record: RouteSet | RouteDifference, segment: int = 0) -> None:
        """Take in a definition; it holds for the puts behind it in this segment. Without `segment` all are kept."""
        if segment != self._segment:
            self._segment = segment
            if len(self._defined) > MOST_DEFINED:
                self._defined.clear()  # each segment defines the sets that it uses
        number = record.route_set
        self.highest = max(self.highest, number)
        made = self.made.get(number)
        if isinstance(record, RouteDifference):
            self._defined[number] = record
        elif made is None or made.incarnations != record.incarnations:
            self._defined[number] = record.incarnations
        else:
            self._defined[number] = made.incarnations
            return
        if made is not None:
            del self.made[number]

    def knows(self, number: int) -> bool:
        """Whether the set was defined."""
        return number in self._defined

    def incarnations(self, number: int) -> tuple[int, ...]:
        """The queues of a set; none if it is not defined."""
        found = self.queues(number)
        return () if found is None else found.incarnations

    def queues(self, number: int) -> ReachedQueues | None:
        """The queues of a set; None if it is not defined, which is damage."""
        found = self.made.get(number)
        if found is not None:
            return found
        incarnations = self._resolved(number)
        if incarnations is None:
            return None
        found = self._shared.get(incarnations)
        if found is None:
            found = self._shared[incarnations] = ReachedQueues(incarnations)
        if self._weight >= MOST_MADE:
            self.made, self._weight = {}, 0
        self.made[number] = found
        self._weight += len(incarnations) + 1
        return found

    def _resolved(self, number: int) -> tuple[int, ...] | None:
        """Follow the differences back to a set that is known, and do them again from there."""
        differences: list[RouteDifference] = []
        base: tuple[int, ...] | None = None
        seen = set[int]()
        while base is None:
            made, defined = self.made.get(number), self._defined.get(number)
            if made is not None:
                base = made.incarnations
            elif isinstance(defined, tuple):
                base = defined
            elif defined is None or number in seen:
                return None  # the definition that all begins with is lost
            else:
                seen.add(number)
                differences.append(defined)
                number = defined.base
        queues = dict.fromkeys(base)
        for each in reversed(differences):
            for incarnation in each.removed:
                queues.pop(incarnation, None)
            queues.update(dict.fromkeys(each.added))
        return tuple(queues)
