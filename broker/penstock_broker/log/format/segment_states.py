"""Records of type 28, "segment": what is needed of each segment, so that one that is lost is told from a recycled one.

Pure. Source: docs/decisions/086-lost-segments.md; the layout is that of docs/reference/log-format.md.
"""

from struct import Struct
from typing import Final

from penstock_broker.log.format.records import SegmentState

SEGMENT_STATE: Final = 28
"""The record's type."""
_FIXED: Final = Struct("<QQQ")  # segment, first message, last message; then pairs
_WHOLE: Final = Struct("<BBHIQQQ")  # the same behind type, flags, reserved, length of the body
_PAIR: Final = Struct("<QQ")  # incarnation, live messages
_IS_OVER, _IS_PARTIAL, _HAS_COPIES = 1, 2, 4


def segment_state_record(state: SegmentState) -> bytes:
    """See `SegmentState`."""
    flags = state.is_over * _IS_OVER | state.is_partial * _IS_PARTIAL | state.has_copies * _HAS_COPIES
    length = _FIXED.size + _PAIR.size * len(state.live)
    numbers = state.segment, state.first_message, state.last_message
    return _WHOLE.pack(SEGMENT_STATE, flags, 0, length, *numbers) + b"".join(_PAIR.pack(*each) for each in state.live)


def decode_segment_state(flags: int, body: memoryview) -> SegmentState:
    """The record with these flags and this body. Raises struct.error if the body has another length."""
    segment, first, last = _FIXED.unpack_from(body)
    return SegmentState(
        segment,
        first,
        last,
        tuple(_PAIR.iter_unpack(body[_FIXED.size :])),
        is_over=bool(flags & _IS_OVER),
        is_partial=bool(flags & _IS_PARTIAL),
        has_copies=bool(flags & _HAS_COPIES),
    )
