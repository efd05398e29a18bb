"""What ends when: the attach table "Assumptions", decision 9, and what is in the log (decision 36)."""

from __future__ import annotations

import pytest

from penstock_core.subscription_lifetime import AttachedSessions, SessionKey, has_ended, outlives_process
from penstock_core.terms import Lifetime

A1, A2, B1 = SessionKey(1, 1), SessionKey(1, 2), SessionKey(2, 1)
NOBODY = AttachedSessions()


def ends_now(lifetime: Lifetime, consumers: int, users: AttachedSessions) -> bool:
    """For a subscription that a client made."""
    return has_ended(lifetime, consumers, users, managed=False)


@pytest.mark.parametrize("lifetime", list(Lifetime))
def test_decision_14_a_managed_one_never_ends_by_its_lifetime(lifetime: Lifetime) -> None:
    assert not has_ended(lifetime, 0, NOBODY, managed=True)


@pytest.mark.parametrize("lifetime", list(Lifetime))
def test_never_while_a_link_consumes(lifetime: Lifetime) -> None:
    assert not ends_now(lifetime, 1, NOBODY)


@pytest.mark.parametrize(
    ("lifetime", "ends"),
    [
        (Lifetime.PERMANENT, False),
        (Lifetime.NO_OUTBOUND_LINK, True),
        (Lifetime.SESSION_END, False),
        (Lifetime.CONNECTION_CLOSE, False),
    ],
)
def test_when_the_last_link_is_gone(lifetime: Lifetime, ends: bool) -> None:
    assert ends_now(lifetime, 0, NOBODY.attached(A1)) is ends


@pytest.mark.parametrize(
    ("lifetime", "ends"),
    [(Lifetime.PERMANENT, False), (Lifetime.SESSION_END, True), (Lifetime.CONNECTION_CLOSE, False)],
)
def test_when_the_last_session_is_gone(lifetime: Lifetime, ends: bool) -> None:
    assert ends_now(lifetime, 0, NOBODY.attached(A1).session_ended(A1)) is ends


@pytest.mark.parametrize(
    ("lifetime", "ends"),
    [(Lifetime.PERMANENT, False), (Lifetime.SESSION_END, True), (Lifetime.CONNECTION_CLOSE, True)],
)
def test_when_the_last_connection_is_gone(lifetime: Lifetime, ends: bool) -> None:
    assert ends_now(lifetime, 0, NOBODY.attached(A1).connection_closed(1)) is ends


def test_decision_09_session_end_means_the_last_session_that_attached() -> None:
    users = NOBODY.attached(A1).attached(A2).session_ended(A1)
    assert not ends_now(Lifetime.SESSION_END, 0, users)
    assert ends_now(Lifetime.SESSION_END, 0, users.session_ended(A2))


def test_decision_09_connection_close_means_the_last_connection_that_attached() -> None:
    users = NOBODY.attached(A1).attached(B1).connection_closed(1)
    assert not ends_now(Lifetime.CONNECTION_CLOSE, 0, users)
    assert ends_now(Lifetime.CONNECTION_CLOSE, 0, users.connection_closed(2))


def test_a_connection_that_closes_takes_its_sessions_along() -> None:
    users = NOBODY.attached(A1).attached(A2).attached(B1).connection_closed(1)
    assert users == NOBODY.attached(B1)


def test_a_session_that_never_attached_changes_nothing() -> None:
    assert NOBODY.attached(A1).session_ended(B1) == NOBODY.attached(A1)


@pytest.mark.parametrize(
    ("durable", "lifetime", "kept"),
    [
        (True, Lifetime.PERMANENT, True),
        (False, Lifetime.PERMANENT, False),
        (True, Lifetime.NO_OUTBOUND_LINK, False),
        (True, Lifetime.SESSION_END, False),
        (True, Lifetime.CONNECTION_CLOSE, False),
    ],
)
def test_only_durable_and_permanent_outlives_the_process(durable: bool, lifetime: Lifetime, kept: bool) -> None:
    assert outlives_process(durable, lifetime) is kept
