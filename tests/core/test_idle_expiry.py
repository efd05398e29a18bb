"""When a subscription that nobody uses has been left behind: docs/reference/configuration.md."""

from __future__ import annotations

import pytest

from penstock_core.idle_expiry import GRACE_SECONDS, has_idled

HOUR = 3_600_000_000  # microseconds


@pytest.mark.parametrize(
    ("now_us", "unused_since_us", "started_us", "limit_seconds", "is_permanent", "managed", "answer"),
    [
        (3 * HOUR, 2 * HOUR, 0, 3600, True, False, True),
        (3 * HOUR - 1, 2 * HOUR, 0, 3600, True, False, False),
        (3 * HOUR, 0, 0, 3600, True, False, False),  # in use
        (3 * HOUR, 1, 0, None, True, False, False),  # nobody asked for it
        (3 * HOUR, 1, 0, 3600, True, True, False),  # a resource's
        (3 * HOUR, 1, 0, 3600, False, False, False),  # ends by its lifetime
        (3 * HOUR, 1, 3 * HOUR - 599_000_000, 3600, True, False, False),  # just started
        (3 * HOUR, 1, 3 * HOUR - 600_000_000, 3600, True, False, True),
        (3 * HOUR, 1, 3 * HOUR - 5_000_000, 5, True, False, True),
        (3 * HOUR, 1, 3 * HOUR - 4_999_999, 5, True, False, False),
    ],
)
def test_who_has_idled(
    now_us: int,
    unused_since_us: int,
    started_us: int,
    limit_seconds: int | None,
    is_permanent: bool,
    managed: bool,
    answer: bool,
) -> None:
    assert GRACE_SECONDS == 600
    assert (
        has_idled(
            now_us=now_us,
            unused_since_us=unused_since_us,
            started_us=started_us,
            limit_seconds=limit_seconds,
            is_permanent=is_permanent,
            managed=managed,
        )
        is answer
    )
