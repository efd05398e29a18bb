"""When an observer counts as unreachable, and which words go into the status."""

from __future__ import annotations

from datetime import timedelta

from support.resources import NOW

from penstock_operator.plans.observer_contact import ObserverContact


def at(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def failing(*seconds: float, contact: ObserverContact | None = None) -> ObserverContact:
    """Failed requests at these times."""
    made = contact or ObserverContact()
    for second in seconds:
        made = made.failed(NOW + at(second), "the observer answered 503")
    return made


def test_one_failure_is_none() -> None:
    assert not failing(0).is_unreachable(NOW + at(3600))


def test_a_minute_of_failures_is_one() -> None:
    contact = failing(0, 5, 55)
    assert not contact.is_unreachable(NOW + at(59))
    assert contact.is_unreachable(NOW + at(60))


def test_a_clock_that_is_set_back_lets_the_minute_begin_anew() -> None:
    contact = failing(7200, 7205, 5)
    assert not contact.is_unreachable(NOW + at(64))
    assert contact.is_unreachable(NOW + at(65))


def test_an_answer_in_between_ends_it() -> None:
    contact = failing(0, 30).answered(NOW + at(40))
    assert (contact.failure, contact.failures) == ("", 0)
    contact = failing(45, 90, contact=contact)
    assert not contact.is_unreachable(NOW + at(104))
    assert contact.is_unreachable(NOW + at(105))


def test_whether_it_was_ever_asked_with_success() -> None:
    assert not failing(0, 5).has_answered
    assert failing(5, contact=ObserverContact().answered(NOW)).has_answered


def test_words_that_change_with_each_request_are_renewed_every_five_minutes() -> None:
    contact = ObserverContact().failed(NOW, "refused")
    contact = contact.failed(NOW + at(5), "timed out")
    assert contact.failure == "refused"
    assert contact.failed(NOW + at(299), "timed out").failure == "refused"
    assert contact.failed(NOW + at(300), "timed out").failure == "timed out"


def test_a_fault_stays_over_a_failed_request_and_ends_with_a_good_answer() -> None:
    contact = ObserverContact().answered(NOW, "the result is not valid")
    assert (contact.failed(NOW + at(5), "refused").fault, contact.fault) == ("the result is not valid",) * 2
    assert contact.answered(NOW + at(5)).fault == ""
    assert contact.answered(NOW + at(5), "too large").fault == "the result is not valid"
    assert contact.answered(NOW + at(300), "too large").fault == "too large"


def test_long_words_are_cut() -> None:
    assert len(ObserverContact().failed(NOW, "x" * 5000).failure) == 300
