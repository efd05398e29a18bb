"""The page over HTTP: who gets in, for how long, and what a stranger learns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer
from observer.kubernetes_tokens import AUDIENCE, KnownReaders, token_for
from observer.page_site import BEARER, Clock, Site, serving
from observer.samples import START_MS, a_poll, a_result, a_subscription
from page.html import elements, text_of
from page.lags import a_lag

from penstock_observer.page_sessions import MOST_SESSIONS, SESSION_SECONDS, Sessions

TestServer.__test__ = False  # pytest would collect it by its name

ORDERS = "psub:durable:global:orders"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A page without a broker."""
    async with serving(tmp_path) as site:
        yield site


@pytest.mark.parametrize("path", ["/page/", f"/page/subscription?queue={ORDERS}", "/page/nowhere"])
async def test_a_stranger_sees_the_form_and_nothing_else(site: Site, path: str) -> None:
    """Not even which pages and subscriptions exist."""
    site.answer(a_poll(START_MS, a_subscription(depth=5)))
    for headers, expected in (({}, 200), ({"Authorization": "Bearer wrong"}, 401), ({"Cookie": "a=session-0"}, 200)):
        async with site.reader.get(f"{site.base}{path}", headers=headers) as answer:
            body = await answer.text()
            assert (answer.status, answer.url.path) == (
                expected,
                "/page/login" if expected == 200 else path.split("?")[0],
            )
        assert text_of(body, "h1") == ["Log in"]
        assert "shop" not in body


async def test_the_form_leads_back_to_where_a_stranger_wanted_to_go(site: Site) -> None:
    _, body = await site.get(f"/page/subscription?queue={ORDERS}&hours=6")
    [hidden] = [each for each in elements(body) if each.attributes.get("name") == "to"]
    assert hidden.attributes["value"] == f"subscription?queue={ORDERS}&hours=6"
    assert 'value="./"' in (await site.get("/page/login?to=//evil.example"))[1]


async def test_a_reader_logs_in_goes_on_and_out(site: Site) -> None:
    """The cookie can't be read by scripts or sent from other sites, and does not hold the token."""
    site.answer(a_poll(START_MS, a_subscription(depth=5)))
    status, to, _ = await site.log_in(to=f"subscription?queue={ORDERS}&hours=6")
    assert (status, to) == (303, f"subscription?queue={ORDERS}&hours=6")
    [cookie] = site.reader.cookie_jar
    assert (cookie.value, cookie["httponly"], cookie["samesite"], cookie["path"], cookie["max-age"]) == (
        "session-0",
        True,
        "Strict",
        "/page",
        "3600",
    )
    status, body = await site.get(f"/page/{to}")
    assert (status, text_of(body, "h1")) == (200, [ORDERS])
    status, body = await site.get("/page/")
    assert (status, text_of(body, "h1")) == (200, ["Lag of shop/main"])
    async with site.reader.post(f"{site.base}/page/logout", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "login")
    assert (await site.get("/page/", headers={"Cookie": f"{cookie.key}=session-0"}, allow_redirects=False))[0] == 303


async def test_a_method_that_the_page_lacks_is_answered_with_those_that_it_has(site: Site) -> None:
    """RFC 9110, 15.5.6."""
    async with site.reader.post(f"{site.base}/page/style.css") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "GET,HEAD")


async def test_the_wrong_token_is_refused(site: Site) -> None:
    status, _, body = await site.log_in("wrong")
    assert status == 401
    assert "does not know this token" in body
    assert "Take page.token: on Kubernetes it is in the Secret BROKER-observer" in body
    assert "wrong" not in body
    assert list(site.reader.cookie_jar) == []


@pytest.mark.parametrize(
    "to", ["https://evil.example/", "//evil.example", "../v1/lag/live", "subscription/../x", "\r\nX: y"]
)
async def test_after_the_login_nobody_is_sent_elsewhere(site: Site, to: str) -> None:
    assert (await site.log_in(to=to))[:2] == (303, "./")


async def test_a_session_ends_by_time_and_with_its_token(site: Site) -> None:
    await site.log_in()
    site.clock.seconds += SESSION_SECONDS - 1
    assert (await site.get("/page/"))[0] == 200
    site.clock.seconds += 1
    assert (await site.get("/page/", allow_redirects=False))[0] == 303
    await site.log_in()
    assert (await site.get("/page/"))[0] == 200
    site.token.write_text("another, longer one\n")
    assert (await site.get("/page/", allow_redirects=False))[0] == 303


async def test_a_form_of_another_site_is_refused(site: Site) -> None:
    status, _, body = await site.log_in(headers={"Sec-Fetch-Site": "cross-site"})
    assert (status, text_of(body, "h1")) == (403, ["Not from here"])
    assert list(site.reader.cookie_jar) == []


async def test_a_form_that_is_too_large_is_refused(site: Site) -> None:
    assert (await site.log_in("x" * 20_000))[0] == 413


async def test_a_bearer_token_needs_no_cookie(site: Site) -> None:
    """And has nothing to log out from."""
    status, body = await site.get("/page/", headers=BEARER)
    assert (status, "Log out" in body) == (200, False)
    await site.log_in()
    assert "Log out" in (await site.get("/page/"))[1]


@pytest.mark.parametrize(
    "path", ["/page/", "/page/login", "/page/style.css", "/page/icon.svg", "/page/nowhere", "/page"]
)
async def test_every_answer_forbids_scripts_frames_and_caches(site: Site, path: str) -> None:
    async with site.reader.get(f"{site.base}{path}", headers=BEARER, allow_redirects=False) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


async def test_what_does_not_exist_is_a_page_too(site: Site) -> None:
    status, body = await site.get("/page/nowhere", headers=BEARER)
    assert (status, text_of(body, "h1")) == (404, ["Not Found"])
    status, body = await site.get("/page/subscription?queue=<b>", headers=BEARER)
    assert (status, "<b>" in body, "&lt;b&gt;" in body) == (404, False, True)


async def test_a_broker_that_is_away_is_unknown_with_the_reason(site: Site) -> None:
    """The last figures stay, named as such."""
    _, body = await site.get("/page/", headers=BEARER)
    assert "The broker has not answered yet." in body
    for step in range(3):
        site.answer(a_poll(START_MS + step * 10_000, a_subscription()))
    assert "✔ Idle" in " ".join(text_of((await site.get("/page/", headers=BEARER))[1], "td"))
    site.page.live.away("the broker does not answer: refused")
    site.clock.seconds += 15
    _, body = await site.get("/page/", headers=BEARER)
    assert "✔ Idle" in " ".join(text_of(body, "td")), "one missed poll"
    assert "2023-11-14 22:20:20 UTC, 15 s ago by the observer's clock." in body
    site.page.live.away("the broker does not answer: refused")
    site.clock.seconds += 10
    _, body = await site.get("/page/", headers=BEARER)
    assert "? Unknown" in text_of(body, "td")
    assert "the broker does not answer: refused" in text_of(body, "td")
    assert "2023-11-14 22:20:20 UTC, 25 s ago by the observer's clock." in body


async def test_an_answer_that_is_old_is_not_shown_as_the_present(site: Site) -> None:
    """Also if nothing failed: the poll that hangs says nothing."""
    for step in range(3):
        site.answer(a_poll(START_MS + step * 10_000, a_subscription()))
    site.clock.seconds += 61
    _, body = await site.get("/page/", headers=BEARER)
    assert "? Unknown" in text_of(body, "td")
    assert "the last answer of the broker is 61 s old, and no newer one has come" in text_of(body, "td")


async def test_the_plot_reads_segments_and_what_is_not_in_one_yet(site: Site) -> None:
    """Ten polls, of which seven fill a segment of a minute."""
    for step in range(10):
        state = a_subscription(depth=step, ready=step, enqueued=step, oldest_available_ms=START_MS)
        site.answer(a_poll(START_MS + step * 10_000, state, a_subscription("other", depth=700)))
    assert len(site.page.ledger.segments) == 1
    for query in ("", "&hours=1", "&hours=48", "&hours=nonsense"):
        _, body = await site.get(f"/page/subscription?queue={ORDERS}{query}", headers=BEARER)
        assert "10 snapshots from" in body
        assert 'aria-label="Messages waiting. depth: at most 9, 9 at the end."' in body
        assert "The consumers are not known one by one: the broker does not answer: refused." in body


def test_sessions_are_bounded() -> None:
    """The oldest one ends."""
    clock, names = Clock(), count()
    sessions = Sessions(clock, lambda: f"s{next(names)}")
    for _ in range(MOST_SESSIONS + 1):
        sessions.begin("t")
    assert sessions.token("s0") is None
    assert (sessions.token("s1"), sessions.token(f"s{MOST_SESSIONS}")) == ("t", "t")
    sessions.end("s1")
    sessions.end("never")
    assert (sessions.token("s1"), sessions.token(None), sessions.token("")) == (None, None, None)


async def test_a_kubernetes_token_logs_in_for_as_long_as_its_owner_may_see_the_page(tmp_path: Path) -> None:
    viewer = token_for(AUDIENCE)
    reviews = KnownReaders({viewer: "viewer"}, {("viewer", "page")})
    async with serving(tmp_path, reviews=reviews) as site:
        site.answer(a_poll(START_MS, a_subscription(depth=5)))
        assert (await site.log_in(viewer))[:2] == (303, "./")
        assert (await site.get("/page/"))[0] == 200
        status, body = await site.get("/page/messages?queue=x")
        assert (status, "Messages are private." in body) == (403, True)
        reviews.may.add(("viewer", "messages"))
        site.clock.seconds += 30
        status, body = await site.get("/page/messages?queue=x")
        assert (status, "The messages can&#39;t be shown" in body) == (502, True)  # there is no broker in this test
        reviews.problem = "it did not answer within 5 seconds"
        site.clock.seconds += 30
        status, body = await site.get("/page/")
        assert (status, text_of(body, "h1"), "it did not answer within 5 seconds" in body) == (503, ["Not now"], True)
        reviews.problem = None
        assert (await site.get("/page/"))[0] == 200, "the session goes on"
        reviews.may.clear()
        site.clock.seconds += 30
        status, body = await site.get("/page/")
        assert (status, text_of(body, "h1"), "viewer may not see this page" in body) == (403, ["Log in"], True)
        assert "orders" not in body


async def test_a_program_sends_a_kubernetes_token_with_every_request(tmp_path: Path) -> None:
    viewer = token_for(AUDIENCE)
    async with serving(tmp_path, reviews=KnownReaders({viewer: "viewer"}, {("viewer", "page")})) as site:
        site.answer(a_poll(START_MS, a_subscription(depth=5)))
        for scheme, expected in (("Bearer", 200), ("bearer", 200), ("Basic", 401)):
            assert (await site.get("/page/", headers={"Authorization": f"{scheme} {viewer}"}))[0] == expected
        other = {"Authorization": f"Bearer {token_for('https://kubernetes.default.svc')}"}
        status, body = await site.get("/page/", headers=other)
        assert (status, "kubectl create token NAME --audience" in body, "shop" in body) == (401, True, False)


async def test_without_an_account_no_kubernetes_token_is_known(site: Site) -> None:
    status, _, body = await site.log_in(token_for(AUDIENCE))
    assert (status, "does not know this token" in body) == (401, True)


async def test_the_newest_run_s_figures_are_shown_with_the_subscription(site: Site) -> None:
    site.answer(a_poll(START_MS, a_subscription(depth=5)))
    assert "lag job" not in (await site.get(f"/page/subscription?queue={ORDERS}", headers=BEARER))[1]
    entry = a_lag(ORDERS, sojourn_p95_millis=4000)
    now = datetime(2026, 1, 2, tzinfo=UTC)
    for number, lags in ((1, (a_lag("another"),)), (2, (a_lag("another"), entry))):
        end = now - timedelta(minutes=10 - number)
        site.page.results.put(f"run-{number}", a_result(f"run-{number}", end, subscriptions=lags), now)
    status, body = await site.get(f"/page/subscription?queue={ORDERS}", headers=BEARER)
    assert (status, "Run run-2, about the time from 2026-01-01 23:47:00 UTC" in " ".join(text_of(body, "p"))) == (
        200,
        True,
    )
    assert "4.0 s" in text_of(body, "dd")
