"""A turn larger than a segment: parts that fit, nothing torn apart, the order kept."""

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.disk.files import Buffer
from penstock_broker.log.format.record_codec import closed_record, put_record
from penstock_broker.log.write.writer import split_records

FIXED = 32  # bytes of a put before its payload, see docs/reference/log-format.md


def pieces(sizes: list[int | None]) -> list[Buffer]:
    """A put with a payload of each size, as the log appends it; None is a record of another kind."""
    result: list[Buffer] = []
    for number, size in enumerate(sizes, 1):
        if size is None:
            result.append(closed_record())
        else:
            record = put_record(number % 3, number, 0, bytes(size))
            result += [record[:FIXED], record[FIXED:]]
    return result


@given(st.lists(st.one_of(st.none(), st.integers(0, 300)), max_size=40))
def test_parts_fit_and_put_together_are_the_whole(sizes: list[int | None]) -> None:
    whole = pieces(sizes)
    parts = list(split_records(whole, 400))
    assert [piece for part in parts for piece in part.records] == whole
    assert all(0 < sum(map(len, part.records)) <= 400 for part in parts)
    messages = sorted(message for part in parts for row in part.puts.values() for message in row)
    assert messages == [number for number, size in enumerate(sizes, 1) if size is not None]
    for part in parts:
        numbers = [message for row in part.puts.values() for message in row]
        assert part.first_message == min(numbers, default=0)
