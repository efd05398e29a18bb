"""Finding a block by a message's number, in segments with copies whose numbers are lower than those before them."""

from hypothesis import example, given
from hypothesis import strategies as st

from penstock_broker.log.segments.block_index import INDEX_BYTES, BlockIndex, Start

BLOCKS = st.lists(
    st.tuples(
        st.lists(st.integers(1, 50), min_size=1, max_size=4, unique=True),
        st.sampled_from((64, INDEX_BYTES // 3, INDEX_BYTES)),
    ),
    min_size=1,
)


@example([([10, 40], INDEX_BYTES), ([20], INDEX_BYTES)], 40, 0)
@given(BLOCKS, st.integers(1, 50), st.integers(0, 20))
def test_each_block_is_met_by_who_goes_on_from_a_start_until_a_block_begins_behind_what_is_sought(
    blocks: list[tuple[list[int], int]], wanted: int, more: int
) -> None:
    """As a reader does. `blocks`: the numbers in each, and its length. Compaction may copy what lay far apart into one
    block, and into the next what lies between.
    """
    index, at = BlockIndex(), 4096
    placed: dict[int, tuple[int, int]] = {}
    holding: set[int] = set()
    for numbers, length in blocks:
        index.note(min(numbers), max(numbers), at)
        placed[at] = (min(numbers), at + length)
        if any(wanted <= number <= wanted + more for number in numbers):
            holding.add(at)
        at += length
    met: set[int] = set()
    starts = index.starts(wanted, wanted + more)
    assert [start.first for start in starts] == sorted(start.first for start in starts)
    for start in starts:
        offset, end = start.offset, start.end or at
        while offset < end:
            first, following = placed[offset]
            assert first >= start.first
            if first > wanted + more:
                break
            met.add(offset)
            offset = following
    assert holding <= met


def test_a_copy_among_many_that_were_made_while_messages_came_is_looked_for_in_one_place() -> None:
    index, at = BlockIndex(), 4096 + INDEX_BYTES
    index.note(99_999, 99_999, 4096)
    for copy in range(500):
        index.note(10 * copy + 1, 10 * copy + 10, at)
        index.note(100_000 + copy, 100_000 + copy, at + INDEX_BYTES)
        at += 2 * INDEX_BYTES
    assert len(index.starts(2345, 2345)) == 1
    assert len(index.starts(100_250, 100_250)) == 1
    assert [start.first for start in index.starts(2345, 2362)] == [2341, 2351, 2361]


def test_of_blocks_that_follow_each_other_one_is_noted_in_16_kib() -> None:
    index = BlockIndex()
    for first, offset in ((1, 4096), (3, 4160), (5, 4096 + 16_384 - 64), (7, 4096 + 16_384)):
        index.note(first, first + 1, offset)
    assert len(index) == 2
    assert index.starts(6, 6) == [Start(4096, 0, 1)]
    assert index.starts(8, 9) == [Start(20_480, 0, 1)]
    assert index.starts(9, 9) == []
    assert [index.next_after(offset) for offset in (0, 4096, 20_479, 20_480)] == [4096, 20_480, 20_480, 0]
