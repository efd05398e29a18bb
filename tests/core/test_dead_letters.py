"""What happens to a message that no consumer accepted: docs/decisions/032-delivery-attempts.md and
033-dead-letters.md.
"""

from __future__ import annotations

import pytest

from penstock_core.dead_letters import DeathReason, Drop, Forward, Requeue, after_expiry, after_failure, after_rejection


def test_a_rejected_message_is_not_tried_again() -> None:
    assert after_rejection("dead") == Forward("dead", DeathReason.REJECTED)
    assert after_rejection(None) == Drop()


@pytest.mark.parametrize(
    ("attempts", "max_deliveries", "dead_letter", "answer"),
    [
        (1, 2, "dead", Requeue()),
        (2, 2, "dead", Forward("dead", DeathReason.DELIVERY_LIMIT)),
        (3, 2, "dead", Forward("dead", DeathReason.DELIVERY_LIMIT)),  # the limit was lowered
        (1, 1, "dead", Forward("dead", DeathReason.DELIVERY_LIMIT)),
        (99, 0, "dead", Requeue()),
        (99, 2, None, Requeue()),
    ],
)
def test_a_message_that_failed_too_often_goes_where_there_is_somewhere_to_go(
    attempts: int, max_deliveries: int, dead_letter: str | None, answer: object
) -> None:
    assert after_failure(attempts, max_deliveries, dead_letter) == answer


def test_what_expired_goes_to_its_own_destination_or_is_gone() -> None:
    assert after_expiry("late") == Forward("late", DeathReason.EXPIRED)
    assert after_expiry(None) == Drop()
