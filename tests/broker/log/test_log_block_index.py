"""Finding a block by a message's number, in segments with copies whose numbers are lower than those before them."""

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.segments.block_index import INDEX_BYTES, BlockIndex

BLOCKS = st.lists(
    st.tuples(st.integers(1, 50), st.sampled_from((64, INDEX_BYTES // 3, INDEX_BYTES))),
    min_size=1,
    unique_by=lambda block: block[0],
)


@given(BLOCKS, st.integers(1, 50))
def test_each_block_is_met_by_who_goes_on_from_a_start_until_a_block_begins_behind_what_is_sought(
    blocks: list[tuple[int, int]], wanted: int
) -> None:
    """As a reader does. `blocks`: the lowest number of each, and its length."""
    index, at = BlockIndex(), 4096
    placed: dict[int, tuple[int, int]] = {}
    for first, length in blocks:
        index.note(first, at)
        placed[at] = (first, at + length)
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
    assert {offset for offset, (first, _) in placed.items() if first == wanted} <= met
