"""Which segments are rewritten, in logs of any length that are looked at in pieces of any length."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.compaction.segment_choice import SegmentChoice
from penstock_broker.log.segments.segment import Segment

SIZE = 1000
SHARES = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=40)
"""Of each segment, the messages that were put, of 100 bytes each, and how many of ten of these have left."""
LATER = 1 << 60


def segments_of(shares: list[tuple[int, int]]) -> list[Segment]:
    found: list[Segment] = []
    for number, (put, left) in enumerate(shares, 1):
        segment = Segment(number, Path(), 0, SIZE, SIZE, 1)
        segment.put_places, segment.put_bytes, segment.largest_put = put, put * 100, 100
        segment.live = put - min(put, left)
        found.append(segment)
    return found


def choose(segments: list[Segment], piece: int, kept_from: int = LATER, *, is_full: bool = False) -> SegmentChoice:
    choice = SegmentChoice(segments[-1].number, kept_from, is_full=is_full, suspects=True)
    for start in range(0, len(segments), piece):
        choice.add(segments[start : start + piece])
    return choice


@given(shares=SHARES, piece=st.integers(1, 10), kept_from=st.integers(1, 41), is_full=st.booleans())
def test_a_choice_in_pieces_is_the_same_as_one_in_one_go(
    shares: list[tuple[int, int]], piece: int, kept_from: int, is_full: bool
) -> None:
    segments = segments_of(shares)
    at_once = choose(segments, len(segments), kept_from, is_full=is_full)
    in_pieces = choose(segments, piece, kept_from, is_full=is_full)
    assert in_pieces.chosen() == at_once.chosen()
    assert in_pieces.doubtful() == at_once.doubtful()
    assert in_pieces.places == sum(put for put, _ in shares)
    assert abs(in_pieces.alive - sum(segment.live for segment in segments) / 10) < 1e-6


@given(shares=SHARES, piece=st.integers(1, 10), kept_from=st.integers(1, 41))
def test_whenever_more_is_in_use_than_the_bound_allows_a_segment_is_chosen_that_gives_much_back(
    shares: list[tuple[int, int]], piece: int, kept_from: int
) -> None:
    segments = segments_of(shares)
    movable = [each for each in segments[:-1] if each.live and each.number < kept_from]
    chosen = choose(segments, piece, kept_from).chosen()
    alive = sum(each.live / 10 for each in movable)
    if abs(len(movable) - (7 / 4 * alive + 2)) > 1e-6:
        assert bool(chosen) == (len(movable) > 7 / 4 * alive + 2)
    assert set(chosen) <= set(movable)
    assert len(chosen) <= 4
    assert all(each.live / 10 < 4 / 7 for each in chosen)
    least = min((each.live for each in movable), default=0)
    assert not chosen or chosen[0].live == least


def test_of_segments_with_about_as_much_alive_the_oldest_are_chosen_since_they_have_their_acks_in_common() -> None:
    segments = segments_of([(10, 10 - live) for live in (5, 1, 5, 1, 1, 5, 1, 1, 1, 5)])
    assert [each.number for each in choose(segments, 3).chosen()] == [2, 4, 5, 7]
