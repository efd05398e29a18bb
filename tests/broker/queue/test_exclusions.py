"""Who is not to get what again: as sets would say it, in a bit for each message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.queue.exclusions import Exclusions

NUMBERS = st.sampled_from([0, 1, 2, 1023, 1024, 5000])
STEP = st.tuples(st.sampled_from(["exclude", "forget", "left"]), st.sampled_from("abc"), NUMBERS)


@given(st.lists(STEP, max_size=40))
def test_it_holds_what_sets_would_hold(steps: list[tuple[str, str, int]]) -> None:
    made = Exclusions()
    pairs: set[tuple[str, int]] = set()
    for what, consumer, number in steps:
        match what:
            case "exclude":
                made.exclude(consumer, number)
                pairs.add((consumer, number))
            case "forget":
                made.forget(number)
                pairs = {pair for pair in pairs if pair[1] != number}
            case _:
                made.left(consumer)
                pairs = {pair for pair in pairs if pair[0] != consumer}
        held = {(each, other) for each in "abc" for other in (0, 1, 2, 1023, 1024, 5000) if made.holds(each, other)}
        assert held == pairs
        assert bool(made) is bool(pairs)


def test_a_million_messages_that_one_consumer_refuses_are_a_thousand_pieces_and_go_at_once_with_it() -> None:
    """A client whose redelivery policy is used up calls each message undeliverable here."""
    made = Exclusions()
    for number in range(1 << 20):
        made.exclude("consumer", number)
    assert len(made["consumer"]) == 1024
    made.left("consumer")
    assert (dict(made), made.take_all()) == ({}, [])
