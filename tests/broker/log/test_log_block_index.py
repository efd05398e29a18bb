"""Finding a block by a message's number, in segments with copies whose numbers are lower than those before them."""

from hypothesis import example, given
from hypothesis import strategies as st

from penstock_broker.log.segments.block_index import INDEX_BYTES, BlockIndex

BLOCKS = st.lists(
    st.tuples(
        st.lists(st.integers(1, 50), min_size=1, max_size=4, unique=True),
        st.sampled_from((64, INDEX_BYTES // 3, INDEX_BYTES)),
    ),
    min_size=1,
)


@example([([10, 40], INDEX_BYTES), ([20], INDEX_BYTES)], 40)
@given(BLOCKS, st.integers(1, 50))
def test_each_block_is_met_by_who_goes_on_from_a_start_until_a_block_begins_behind_what_is_sought(
    blocks: list[tuple[list[int], int]], wanted: int
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
        if wanted in numbers:
            holding.add(at)
        at += length
    met: set[int] = set()
    for start in index.starts(wanted):
        offset, end = start.offset, start.end or at
        while offset < end:
            first, following = placed[offset]
            if first > wanted:
                break
            met.add(offset)
            offset = following
    assert holding <= met
