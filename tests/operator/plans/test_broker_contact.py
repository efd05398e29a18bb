"""Since when a broker is away, for a deletion and for an outage: what happens to a broker, and what both rules make of
it.

The times are typed in seconds. The operator looks at the Broker first at 1000, and the last column of both is asked at
2000.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.resources import broker, subscription

from penstock_operator.brokers.broker_contacts import BrokerContacts
from penstock_operator.plans import deletion, outage
from penstock_operator.plans.decisions import BrokerView, Reach

ZERO = datetime(2026, 3, 1, 12, tzinfo=UTC)
STARTED, ASKED = 1000, 2000

Event = tuple[float, str]
"""When it happens, and what."""


def at(seconds: float) -> datetime:
    return ZERO + timedelta(seconds=seconds)


def contacts_after(*events: Event, shown: float | None) -> BrokerContacts:
    """What an operator knows after these events; `shown`: since when the status says that the broker is away."""
    clock = [at(STARTED)]
    contacts = BrokerContacts(lambda: clock[0])
    contacts.of("shop/main")
    for when, what in events:
        clock[0] = at(when)
        match what:
            case "answers":
                contacts.answered("shop/main")
            case "is looked at":
                contacts.looked_at("shop/main")
            case "is lost":
                contacts.lost("shop/main")
            case "is too new":
                contacts.not_understood("shop/main")
            case "is scaled to zero":
                contacts.stopped("shop/main")
            case _:
                raise AssertionError(what)
        contacts.reported("shop/main", outage.began(broker(status_since(shown)), at(when)))
    return contacts


def status_since(shown: float | None) -> dict[str, Any]:
    condition = {
        "type": "Available",
        "status": "True" if shown is None else "Unknown",
        "reason": "Serving" if shown is None else "BrokerUnreachable",
        "lastTransitionTime": at(0 if shown is None else shown).isoformat(),
    }
    return {"conditions": [condition]}


def unanswered(contacts: BrokerContacts) -> float:
    """Seconds that count for a deletion that was requested long ago."""
    deleted = subscription(metadata={"deletionTimestamp": at(0).isoformat()})
    view = BrokerView(reach=Reach.UNREACHABLE, unreachable_since=contacts.of("shop/main").unasked_since)
    return deletion.view_of(
        deleted, broker=view, is_duplicate=False, namespace_terminating=False, now=at(ASKED), reply=None
    ).unanswered_seconds


CASES = [
    # id, since when the status says that it is away, what happens,
    #                                             seconds for a deletion, is it an outage
    pytest.param(None, [], 1000, True, id="start-and-no-attempt-has-ended-for-long"),
    pytest.param(None, [(1990, "answers"), (1991, "is lost")], 9, False, id="start-then-a-loss"),
    pytest.param(None, [(1001, "is lost")], 1000, True, id="start-and-it-never-answers"),
    pytest.param(None, [(1001, "answers"), (1990, "is lost"), (1995, "answers")], 0, False, id="blip-that-is-over"),
    pytest.param(None, [(1001, "answers"), (1971, "is lost")], 29, False, id="just-before-the-grace-of-a-deletion"),
    pytest.param(None, [(1001, "answers"), (1970, "is lost")], 30, False, id="at-the-grace-of-a-deletion"),
    pytest.param(None, [(1001, "answers"), (1881, "is lost")], 119, False, id="just-before-the-grace-of-an-outage"),
    pytest.param(None, [(1001, "answers"), (1880, "is lost")], 120, True, id="at-the-grace-of-an-outage"),
    pytest.param(None, [(1001, "answers"), (1200, "is lost"), (1900, "is lost")], 800, True, id="long-outage"),
    pytest.param(
        None, [(1001, "answers"), (1200, "is lost"), (1800, "answers"), (1990, "is lost")], 10, False, id="resumed"
    ),
    pytest.param(
        500, [(1001, "answers"), (1990, "is lost")], 10, False, id="its-status-of-before-is-void-once-it-answered"
    ),
    pytest.param(
        None, [(1001, "answers"), (1200, "is lost"), (1300, "is scaled to zero")], 0, False, id="scaled-to-zero"
    ),
    pytest.param(
        500, [(1001, "is scaled to zero"), (1990, "is lost")], 10, False, id="scaled-up-again-counts-anew"
    ),
    pytest.param(None, [(1001, "answers"), (1200, "is too new")], 800, False, id="it-answers-what-is-not-understood"),
    pytest.param(
        None,
        [(1001, "answers"), (1200, "is too new"), (1990, "is lost")],
        800,
        False,
        id="it-was-not-understood-and-is-lost-now",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("shown", "events", "seconds", "is_out"), CASES)
def test_one_truth_for_both_rules(shown: float | None, events: list[Event], seconds: float, is_out: bool) -> None:
    contacts = contacts_after(*events, shown=shown)
    assert unanswered(contacts) == seconds
    assert outage.is_over_grace(contacts.of("shop/main"), at(ASKED)) is is_out


def test_an_operator_that_starts_in_an_outage_knows_its_beginning_but_lets_deletions_wait_anew() -> None:
    clock = [at(1990)]
    contacts = BrokerContacts(lambda: clock[0])
    contacts.lost("shop/main")
    contacts.reported("shop/main", outage.began(broker(status_since(500)), at(1990)))
    assert unanswered(contacts) == 10
    assert outage.is_over_grace(contacts.of("shop/main"), at(1991))
    clock[0] = at(1992)
    contacts.reported("shop/main", outage.began(broker(status_since(1991)), at(1992)))
    assert outage.is_over_grace(contacts.of("shop/main"), at(1992)), "False became Unknown in its status: no new outage"


@pytest.mark.parametrize("what", ["is lost", "is too new"])
def test_a_clock_that_is_set_back_does_not_let_a_deletion_wait_until_it_has_caught_up(what: str) -> None:
    """By two hours: the graces begin again, and are over after 30 s and after two minutes."""
    clock = [at(9000)]
    contacts = BrokerContacts(lambda: clock[0])
    contacts.lost("shop/main") if what == "is lost" else contacts.not_understood("shop/main")
    clock[0] = at(1800)
    assert unanswered(contacts) == 200
    assert not outage.is_over_grace(contacts.of("shop/main"), at(1800))
    clock[0] = at(1919)
    assert not outage.is_over_grace(contacts.of("shop/main"), at(1919))
    assert outage.is_over_grace(contacts.of("shop/main"), at(1920)) is (what == "is lost")
    assert not contacts.of("shop/main").is_awaited(at(1920), has_session=True)
    contacts.answered("shop/main")
    assert unanswered(contacts) == 0


def test_a_broker_that_is_created_anew_is_looked_at_anew() -> None:
    clock = [at(1000)]
    contacts = BrokerContacts(lambda: clock[0])
    contacts.lost("shop/main")
    contacts.forget("shop/main")
    clock[0] = at(1990)
    assert unanswered(contacts) == 10
    assert not outage.is_over_grace(contacts.of("shop/main"), at(ASKED))


@pytest.mark.parametrize(
    ("events", "has_session", "asked_at", "is_awaited"),
    [
        pytest.param([], False, 1000, True, id="not-looked-at"),
        pytest.param([], False, 1119, True, id="not-looked-at-for-long"),
        pytest.param([], False, 1120, False, id="not-looked-at-for-too-long"),
        pytest.param([(1001, "is looked at")], False, 1001, False, id="a-new-broker-without-an-address"),
        pytest.param([(1001, "is looked at")], True, 1002, True, id="the-first-attempt-is-under-way"),
        pytest.param([(1001, "is looked at")], True, 1120, False, id="it-never-ends"),
        pytest.param([(1001, "answers"), (1500, "is lost")], True, 1501, True, id="asked-with-another-password"),
        pytest.param([(1001, "answers"), (1500, "is lost")], True, 1620, False, id="and-it-never-ends"),
        pytest.param([(1001, "is scaled to zero"), (1500, "is lost")], True, 1501, True, id="scaled-up-again"),
        pytest.param(
            [(1001, "is looked at"), (1002, "is scaled to zero"), (1500, "is lost")],
            False,
            1501,
            False,
            id="scaled-up-again-and-without-an-address",
        ),
    ],
)
def test_who_has_not_asked_yet_knows_nothing(
    events: list[Event], has_session: bool, asked_at: float, is_awaited: bool
) -> None:
    contact = contacts_after(*events, shown=None).of("shop/main")
    assert contact.is_awaited(at(asked_at), has_session=has_session) is is_awaited
