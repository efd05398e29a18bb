"""Records of audits, as they are sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_api.message_audit import COUNTED, ENDS, TOTALS, AuditEvent, AuditTotals, EventKind, packed, unpacked
from penstock_api.state_documents import SubscriptionState

NUMBERS = st.integers(0, 2**64 - 1)
EVENTS = st.builds(AuditEvent, st.integers(0, 255), NUMBERS, NUMBERS, NUMBERS, st.text(max_size=16))


def test_a_record_is_these_bytes() -> None:
    record = packed(EventKind.ENQUEUED, 258, 3, 2, "m-ü")
    assert record == bytes.fromhex("01000000000000010200000000000000030000000000000002046d2dc3bc")


@given(st.lists(EVENTS, max_size=5))
def test_what_is_sent_is_read(events: list[AuditEvent]) -> None:
    assert list(unpacked(b"".join(packed(*event) for event in events))) == events


def test_a_long_message_id_is_cut_at_a_whole_character() -> None:
    (event,) = unpacked(packed(EventKind.PRESENT, 1, 2, 3, "x" + "ü" * 40))
    assert event.message_id == "x" + "ü" * 31


@pytest.mark.parametrize("missing", [1, 3, 28])
def test_a_record_that_is_not_whole_is_refused(missing: int) -> None:
    with pytest.raises(ValueError, match=r"no record|behind the last byte"):
        list(unpacked(packed(EventKind.PRESENT, 1, 2, 3, "m-1")[:-missing]))


def test_every_end_counts_in_a_total_that_subscriptions_have() -> None:
    assert set(ENDS) < set(COUNTED)
    assert set(TOTALS) == set(AuditTotals.model_fields) - {"depth", "sojourn"} < set(SubscriptionState.model_fields)
