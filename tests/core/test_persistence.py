"""Which messages are kept: docs/decisions/036-what-is-durable.md."""

from __future__ import annotations

import pytest

from penstock_core.persistence import effective_persistence, is_kept
from penstock_core.terms import Persistence

AS_SENT, ALWAYS = Persistence.AS_SENT, Persistence.ALWAYS


@pytest.mark.parametrize(
    ("exchange", "queue", "managed", "holds"),
    [
        (None, None, True, ALWAYS),
        (None, None, False, AS_SENT),
        (AS_SENT, None, True, AS_SENT),
        (ALWAYS, None, False, ALWAYS),
        (ALWAYS, AS_SENT, True, AS_SENT),
        (AS_SENT, ALWAYS, False, ALWAYS),
    ],
)
def test_the_policy_that_holds(
    exchange: Persistence | None, queue: Persistence | None, managed: bool, holds: Persistence
) -> None:
    assert effective_persistence(exchange, queue, managed=managed) is holds


@pytest.mark.parametrize(
    ("policy", "durable", "kept"),
    [(AS_SENT, True, True), (AS_SENT, False, False), (ALWAYS, True, True), (ALWAYS, False, True)],
)
def test_what_is_kept(policy: Persistence, durable: bool, kept: bool) -> None:
    assert is_kept(policy, durable) is kept
