"""What the templates draw: order, sentences, and that nothing which clients choose becomes part of the page itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from observer.samples import a_broker, a_subscription
from page.html import elements, text_of
from page.lags import NOON_MS, a_lag, a_snapshot

from penstock_api.lag_result import LagState, PaceLag, RepeatedMessageLag, SlowPart
from penstock_api.message_operations import PeekedMessage
from penstock_api.state_documents import ExchangeState
from penstock_page import render
from penstock_page.bodies import shown_message
from penstock_page.documents import (
    BrokerPlace,
    Consumer,
    Exchanges,
    Freshness,
    LastRun,
    MessagesPage,
    Overview,
    SubscriptionPage,
)
from penstock_page.subscription_list import Wanted, listing
from penstock_page.time_series import time_series_of
from penstock_page.trouble import SLOW_PARTS

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "</title></style><h1>owned</h1>",
    "{{ 7*7 }}{% raw %}",
    "a&b=c#d%2F?e\r\nSet-Cookie: x=y",
    "\u202eevil\x00\x1b[2J",
]
ADVICE = {
    "Consumers that would keep up",
    "A busy consumer accepts, a minute",
    "Mean wait for a consumer",
    "Mean hold by a consumer",
    "What takes long",
}
FRESH = Freshness(polled_ms=NOON_MS, seconds_ago=3, problem=None)
PLACE = BrokerPlace("main", "shop", 0)


def an_overview(*lags: Any, **changes: Any) -> str:
    """The page of these subscriptions."""
    values: dict[str, Any] = {
        "place": PLACE,
        "broker": a_broker(NOON_MS),
        "freshness": FRESH,
        "listing": listing(lags, changes.pop("wanted", Wanted())),
        "exchanges": Exchanges(),
        "states": {},
        "depths": {},
        "refresh_seconds": 10,
    }
    return render.overview(Overview(**(values | changes)), can_log_out=True)


def a_page(**changes: Any) -> str:
    """The page of one subscription."""
    snapshots = [a_snapshot(at, at, age=at, enqueued=at, expired=at // 100) for at in range(0, 310, 10)]
    values: dict[str, Any] = {
        "place": PLACE,
        "freshness": FRESH,
        "lag": a_lag(),
        "state": a_subscription(),
        "time_series": time_series_of(snapshots, NOON_MS, NOON_MS + 300_000, 10_000),
        "course_problem": None,
        "hours": 0,
    }
    return render.subscription(SubscriptionPage(**(values | changes)), can_log_out=False)


def test_an_overview_shows_each_subscription_with_its_sentence() -> None:
    stalled = a_lag(
        "psub:b",
        state=LagState.STALLED,
        message="no message was accepted",
        messages=1375,
        oldest_age_seconds=839,
        lost=2,
        consumers=1,
    )
    page = an_overview(a_lag("psub:a"), stalled, states={"psub:b": a_subscription()}, depths={"psub:b": [1, 5, 3]})
    rows = [row for row in text_of(page, "tr") if "psub:" in row]
    assert rows[0] == "psub:bon events ✖ Stalled no message was accepted 1,375 13 min 59 s 2 1"
    assert rows[1].startswith("psub:a ✔ OK the consumers have caught up")
    assert 'aria-label="1 messages at first, at most 5, 3 now"' in page
    assert "2 of 2 subscriptions, those in trouble first" in text_of(page, "caption")
    assert "✖ Stalled 1" in text_of(page, "a")
    assert '<meta http-equiv="refresh" content="10">' in page
    assert "http-equiv" not in an_overview(refresh_seconds=None)


def test_pages_lead_to_each_other_with_the_same_search() -> None:
    lags = [a_lag(f"q{number}", state=LagState.LAGGING) for number in range(120)]
    page = an_overview(*lags, wanted=Wanted("q", LagState.LAGGING, 2, False))
    links = {element.text: element.attributes["href"] for element in elements(page) if element.tag == "a"}
    assert links["Next page"] == "./?q=q&state=Lagging&page=3&refresh=off"
    assert links["Page before"] == "./?q=q&state=Lagging&refresh=off"
    assert len([row for row in elements(page) if row.tag == "tr"]) == 50 + 2


def test_what_is_not_known_is_said() -> None:
    away = Freshness(polled_ms=None, seconds_ago=None, problem="the broker does not answer: refused")
    page = an_overview(freshness=away, broker=None, exchanges=Exchanges(problem="the broker does not answer"))
    text = " ".join(" ".join(text_of(page, "main")).split())
    assert "The states are Unknown: the broker does not answer: refused." in text
    assert "The broker has not answered yet." in text
    assert "The exchanges are not known: the broker does not answer." in text


def test_a_subscription_has_its_figures_plots_consumers_and_losses() -> None:
    lag = a_lag(
        state=LagState.POISON,
        message="the delivery of some messages fails",
        drain_seconds_low=50,
        drain_seconds_high=70,
        repeated=(RepeatedMessageLag(id="m-7", delivery_count=9, age_seconds=61),),
    )
    consumers = [
        Consumer(container="c-1", user="ann", link="l", transfers=75, share_percent=75, unsettled=2, credit=10)
    ]
    page = a_page(lag=lag, consumers=consumers)
    rows = text_of(page, "tr")
    assert "m-7 9 1 min 1 s" in rows
    assert "c-1 ann l 75 75 % 2 10" in rows
    assert "expired 3" in rows
    assert text_of(page, "h1") == ["psub:durable:global:orders"]
    assert "✖ Poison: the delivery of some messages fails." in text_of(page, "p")
    assert "50 s to 1 min 10 s" in text_of(page, "dd")
    pictures = [element.attributes["aria-label"] for element in elements(page) if element.tag == "svg"]
    assert pictures[0] == "Messages waiting. depth: at most 300, 300 at the end."
    assert len(pictures) == 4


def test_what_an_administrator_took_out_is_shown_beside_the_losses() -> None:
    """Both in a row of their own: what has left is all there."""
    snapshots = [a_snapshot(0), a_snapshot(10, dropped=2, moved=3, purged=5)]
    rows = text_of(a_page(time_series=time_series_of(snapshots, NOON_MS, NOON_MS + 10_000, 10_000)), "tr")
    assert "dropped (by a limit or a rebind) 2" in rows
    assert "moved by an administrator, which is no loss 3" in rows
    assert "purged by an administrator, which is no loss 5" in rows


def test_what_is_due_later_is_no_lag() -> None:
    lag = a_lag(messages=1_500, ready=400, in_flight=80, scheduled=1_020, stranded=20)
    page = a_page(lag=lag)
    figures = dict(zip(text_of(page, "dt"), text_of(page, "dd"), strict=True))
    assert figures["Messages waiting (lag)"] == "500"
    assert figures["Due later"] == "1,000"
    assert figures["Stranded: no destination takes them"] == "20"
    (row,) = (each for each in text_of(an_overview(lag), "tr") if "psub:" in each)
    assert "500" in row and "1,500" not in row
    assert "Stranded: no destination takes them" not in text_of(a_page(lag=a_lag()), "dt")


def test_what_would_keep_up_is_shown_where_it_is_known() -> None:
    lag = a_lag(
        consumers=2,
        suggested_consumers=5,
        capacity_per_minute=1200,
        mean_wait_millis=90_000,
        mean_hold_millis=250,
        slow_part=SlowPart.QUEUE,
    )
    page = a_page(lag=lag)
    figures = dict(zip(text_of(page, "dt"), text_of(page, "dd"), strict=True))
    assert {name: figures[name] for name in ADVICE} == {
        "Consumers that would keep up": "5",
        "A busy consumer accepts, a minute": "1,200",
        "Mean wait for a consumer": "1 min 30 s",
        "Mean hold by a consumer": "250 ms",
        "What takes long": "the queue: messages wait longer than they are held",
    }
    (row,) = (each for each in text_of(an_overview(lag), "tr") if "psub:" in each)
    assert "25 would keep up" in row, "the two numbers are on two lines"


def test_nothing_is_said_of_what_would_keep_up_where_nobody_knows() -> None:
    assert not ADVICE & set(text_of(a_page(lag=a_lag(consumers=2)), "dt"))
    assert "keep up" not in an_overview(a_lag(consumers=2))
    assert "keep up" not in an_overview(a_lag(consumers=2, suggested_consumers=2)), "it is the number that there is"


@pytest.mark.parametrize("part", SlowPart)
def test_every_slow_part_has_words(part: SlowPart) -> None:
    page = a_page(lag=a_lag(slow_part=part, mean_wait_millis=1, mean_hold_millis=1))
    assert SLOW_PARTS[part] in text_of(page, "dd")


def test_what_only_a_run_knows_is_shown_with_the_time_that_it_is_about() -> None:
    lag = a_lag(sojourn_p50_millis=20, sojourn_p95_millis=4000, wait_p95_millis=3500, messages=77)
    run = LastRun(name="main-lag-<1>", begin_ms=NOON_MS - 900_000, end_ms=NOON_MS, lag=lag)
    page = a_page(run=run)
    assert "Run main-lag-<1>, about the time from 2026-01-01 11:45:00 UTC to 2026-01-01 12:00:00 UTC." in text_of(
        page, "p"
    )
    figures = list(zip(text_of(page, "dt"), text_of(page, "dd"), strict=True))
    at = figures.index(("Half were done within", "20 ms"))
    assert figures[at : at + 5] == [
        ("Half were done within", "20 ms"),
        ("95 % were done within", "4.0 s"),
        ("99 % were done within", "–"),
        ("95 % waited for a consumer for at most", "3.5 s"),
        ("95 % were held by a consumer for at most", "–"),
    ]
    assert ("Messages waiting (lag)", "0") in figures, "what is live is not taken from the run"
    assert "lag job" not in a_page()


def test_a_run_says_what_is_different_from_the_hours_before() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    sentence = "4 times as many messages arrive as in the 24 hours before 12:00 UTC: 480 instead of 120 a minute"
    lag = a_lag(
        arrival_per_minute=480,
        settled_per_minute=100,
        lost=0,
        sojourn_p95_millis=20,
        past_hour=PaceLag(end=noon, seconds=3590, arrival_per_minute=125, settled_per_minute=125, lost=1),
        past_day=PaceLag(
            end=noon, seconds=86_000, arrival_per_minute=120, settled_per_minute=119, lost=7, sojourn_p95_millis=9
        ),
        changes=(sentence,),
    )
    page = a_page(run=LastRun(name="r", begin_ms=NOON_MS, end_ms=NOON_MS + 300_000, lag=lag))
    assert sentence in text_of(page, "li")
    rows = text_of(page, "tr")
    at = rows.index("Window until 12:05:00 5 min 0 s 480 100 0 20 ms")
    assert rows[at + 1 : at + 3] == [
        "One hour until 12:00:00 59 min 50 s 125 125 1 –",
        "Up to a day until 12:00:00 23 h 53 min 120 119 7 9 ms",
    ]
    without = a_page(run=LastRun(name="r", begin_ms=NOON_MS, end_ms=NOON_MS, lag=a_lag()))
    assert "hours before" not in without


def test_what_expires_before_its_turn_is_shown_where_it_is_known() -> None:
    page = a_page(lag=a_lag(expiring_soon=1200, expiry_risk_percent=40))
    figures = dict(zip(text_of(page, "dt"), text_of(page, "dd"), strict=True))
    assert figures["Expire before their turn, at this pace"] == "1,200 (40 % of the ready ones)"
    assert "Expire before" not in a_page()


def messages_page(hostile: str, state: Literal["Ready", "Scheduled"] = "Ready", available_ms: int = NOON_MS) -> str:
    """One message that a client chose."""
    message = PeekedMessage(
        number=1,
        state=state,
        durable=True,
        priority=4,
        size_bytes=10,
        available_ms=available_ms,
        message_id=hostile,
        subject=hostile,
        annotations={hostile: hostile},
        application_properties={hostile: hostile},
        body=hostile,
    )
    page = MessagesPage(
        place=PLACE,
        freshness=FRESH,
        queue_name=hostile,
        is_subscription=True,
        offset=20,
        count=1,
        depth=1,
        messages=[shown_message(message)],
    )
    return render.messages(page, can_log_out=True)


def test_a_message_that_is_not_due_yet_waits_since_no_time() -> None:
    """One whose delay is near the highest number is due never."""
    ready, later = messages_page("a"), messages_page("a", "Scheduled", (2**63 - 1) // 1000)
    assert ("Waits since" in text_of(ready, "dt"), "Due" in text_of(ready, "dt")) == (True, False)
    figures = dict(zip(text_of(later, "dt"), text_of(later, "dd"), strict=True))
    assert (figures["Due"], "Waits since" in figures) == ("after the year 9999", False)


def test_dead_letters_are_linked_for_those_who_may_see_them() -> None:
    state = a_subscription(dead_letter="graves")
    links = [each.attributes["href"] for each in elements(a_page(state=state, sees_messages=True)) if each.tag == "a"]
    assert "messages?queue=graves" in links
    assert "messages?queue=psub%3Adurable%3Aglobal%3Aorders" in links
    assert "messages?" not in a_page(state=state)
    assert "messages?queue=a" not in a_page(state=a_subscription(dead_letter="a/key"), sees_messages=True)


def everything(hostile: str) -> list[str]:
    """Both pages with this text wherever a client can put one."""
    name = f"psub:{hostile}"
    state = a_subscription(queue_name=name, exchange=hostile, binding_keys=(hostile,), selector=hostile)
    lag = a_lag(
        name,
        owner_namespace=hostile,
        owner_name=hostile,
        message=hostile,
        repeated=(RepeatedMessageLag(id=hostile, delivery_count=2, age_seconds=1),),
    )
    exchange = ExchangeState(
        name=hostile,
        exchange_type=hostile,
        durable=True,
        unroutable="Accept",
        revision=1,
        bound_subscriptions=1,
        received=1,
        received_bytes=1,
        unroutable_messages=0,
    )
    consumer = Consumer(
        container=hostile, user=hostile, link=hostile, transfers=1, share_percent=None, unsettled=0, credit=0
    )
    fresh = Freshness(polled_ms=NOON_MS, seconds_ago=3, problem=hostile, ledger_problem=hostile)
    return [
        an_overview(lag, states={name: state}, exchanges=Exchanges(rows=[exchange], total=1), freshness=fresh),
        an_overview(lag, wanted=Wanted(search=hostile), place=BrokerPlace(hostile, hostile, 0)),
        a_page(lag=lag, state=state, consumers=[consumer], course_problem=hostile, freshness=fresh),
        messages_page(hostile),
        render.login(to=render.subscription_address(hostile), minutes=60, refused=hostile),
        render.problem(hostile, hostile),
    ]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_name_becomes_a_part_of_the_page(hostile: str) -> None:
    """The same elements with the same attributes as for a harmless name; addresses stay ours."""
    for page, harmless in zip(everything(hostile), everything("name"), strict=True):
        found, wanted = elements(page), elements(harmless)
        assert [element.tag for element in found] == [element.tag for element in wanted]
        assert [set(element.attributes) for element in found] == [set(element.attributes) for element in wanted]
        assert not {"script", "img", "iframe", "object", "style"} & {element.tag for element in found}
        for element in found:
            for attribute in ("href", "action", "src"):
                address = urlsplit(element.attributes.get(attribute, ""))
                assert (address.scheme, address.netloc) == ("", "")
        assert "\u202e" not in page
        assert "\x00" not in page and "\x1b" not in page


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_name_comes_back_from_its_address(hostile: str) -> None:
    """Whatever it is, also one with `&`, `%` and `#`."""
    address = urlsplit(render.subscription_address(hostile, 6, False))
    assert address.path == "subscription"
    assert parse_qs(address.query) == {"queue": [hostile], "hours": ["6"], "refresh": ["off"]}


def test_no_template_trusts_a_text() -> None:
    """Autoescape is on everywhere, and nothing turns it off."""
    for path in render.TEMPLATES.glob("*.html"):
        text = path.read_text()
        assert "safe" not in text.replace("safely", ""), path
        assert "autoescape" not in text, path
        assert "<script" not in text and "http://" not in text and "https://" not in text, path
