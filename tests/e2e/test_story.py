"""The story's parts: a disruption comes while messages are sent, and some are left for behind the last."""

from __future__ import annotations

import pytest
from e2e.story import ends_of_parts


@pytest.mark.parametrize(
    ("messages", "shares", "expected"),
    [
        (400, [0.5], [300, 400]),
        (10_000, [0.33, 0.66], [4_950, 8_300, 10_000]),
        (400, [], [400]),
    ],
)
def test_each_disruption_is_in_the_middle_of_a_part_and_the_last_part_has_none(
    messages: int, shares: list[float], expected: list[int]
) -> None:
    assert ends_of_parts(messages, shares) == expected
