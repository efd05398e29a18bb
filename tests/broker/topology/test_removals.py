"""Which names were removed since a revision, and from when on it is not known any more."""

from __future__ import annotations

from penstock_broker.topology import removals
from penstock_broker.topology.removals import Removals


def test_what_was_removed_after_a_revision_is_told_the_last_first() -> None:
    made = Removals()
    made.note("a", 5)
    made.note("b", 6)
    made.note("c", 9)
    assert made.since(5) == ["c", "b"]
    assert made.since(0) == ["c", "b", "a"]
    assert made.since(9) == []


def test_a_name_that_is_removed_again_is_told_once() -> None:
    made = Removals()
    made.note("a", 5)
    made.note("b", 6)
    made.note("a", 7)
    assert made.since(4) == ["a", "b"]
    assert made.since(6) == ["a"]


def test_only_the_last_two_and_a_half_thousand_are_known() -> None:
    assert removals.KEPT == 2_500
    made = Removals()
    for number in range(1, 2_502):
        made.note(f"s{number}", number)
    assert made.since(0) is None
    known = made.since(1)
    assert known is not None
    assert (len(known), known[0], known[-1]) == (2_500, "s2501", "s2")
