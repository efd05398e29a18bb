"""The page in Debian's Chromium: what a person does with it, with and without JavaScript, and whether everybody can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from observer.page_site import TOKEN, Site, serving
from observer.samples import START_MS, a_poll, a_subscription
from page.accessibility import contrast_faults, structure_faults
from page.browser import browsing, chromium
from playwright.async_api import Browser

from penstock_api.state_documents import RepeatedMessage, SubscriptionState

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>"


def states(step: int) -> list[SubscriptionState]:
    """A healthy one, one without consumers, one that loses, one with a hostile name, and 60 that are idle."""
    old = START_MS - 600_000
    return [
        a_subscription("healthy", enqueued=step * 10, delivered=step * 10, acked=step * 10, consumers=1, credit=5),
        a_subscription(
            "unconsumed",
            depth=40 + step,
            ready=40 + step,
            enqueued=40 + step,
            oldest_available_ms=old,
            unused_since_ms=old,
        ),
        a_subscription(
            "losing",
            depth=5,
            ready=5,
            enqueued=5 + step * 10,
            dead_lettered=step * 10,
            oldest_available_ms=old,
            consumers=1,
            credit=5,
            repeated=(RepeatedMessage(id=HOSTILE, delivery_count=3, available_ms=old, state="Ready"),),
        ),
        a_subscription(HOSTILE, subscription_name="x", exchange=HOSTILE),
        *(a_subscription(f"idle-{number:02}") for number in range(60)),
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests: to start it takes longer than to use it."""
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A page that has seen fifteen polls."""
    async with serving(tmp_path) as site:
        for step in range(15):
            site.answer(a_poll(START_MS + step * 10_000, *states(step)))
        yield site


@pytest.mark.parametrize("scripts", [True, False], ids=["with JavaScript", "without JavaScript"])
async def test_a_person_finds_the_subscription_in_trouble(site: Site, browser: Browser, scripts: bool) -> None:
    """From a link to the form, to the overview, by search to the subscription, and out; nothing is complained about."""
    async with browsing(browser, scripts=scripts) as window:
        tab = window.tab
        await tab.goto(f"{site.base}/page/?refresh=off")
        await tab.get_by_label("Token").fill("wrong")
        await tab.keyboard.press("Enter")
        await tab.get_by_role("alert").wait_for()
        assert "does not know this token" in await tab.get_by_role("alert").inner_text()
        # The answer to a wrong token is 401, which the browser notes.
        assert [each.split(" (")[0] for each in window.complaints] == [
            "error: Failed to load resource: the server responded with a status of 401"
        ] or not scripts
        window.complaints.clear()
        await tab.get_by_label("Token").fill(TOKEN)
        await tab.keyboard.press("Enter")
        await tab.wait_for_url(f"{site.base}/page/?refresh=off")
        names = [name.split("\n")[0] for name in await window.rows()]
        assert names[:3] == [
            "psub:durable:global:losing",
            "psub:durable:global:unconsumed",
            "psub:durable:global:healthy",
        ]
        assert len(names) == 50
        await tab.get_by_role("link", name="Next page").click()
        assert len(await window.rows()) == 14
        await tab.get_by_label("Part of the name").fill("UNCONS")
        await tab.get_by_role("button", name="Search").click()
        assert len(await window.rows()) == 1
        await tab.get_by_role("link", name="psub:durable:global:unconsumed").click()
        assert await tab.locator("h1").inner_text() == "psub:durable:global:unconsumed"
        assert "Unconsumed: no consumer for 740 s; 54 messages wait" in await tab.locator("main").inner_text()
        assert await tab.locator("figure svg").count() == 4
        await tab.get_by_role("button", name="Log out").click()
        await tab.wait_for_url("**/page/login")
        await tab.goto(f"{site.base}/page/")
        assert await tab.locator("h1").inner_text() == "Log in"
        assert window.complaints == []
        assert window.hosts == {site.base.removeprefix("http://")}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everybody_can_read_it(site: Site, browser: Browser, scheme: Literal["light", "dark"]) -> None:
    """Every kind of page, in both colour schemes; hostile names stay names."""
    async with browsing(browser, scheme=scheme, width=400) as window:
        tab = window.tab
        await tab.goto(f"{site.base}/page/login")
        faults = {"login": [*await structure_faults(tab), *await contrast_faults(tab)]}
        await tab.get_by_label("Token").fill(TOKEN)
        await tab.keyboard.press("Enter")
        await tab.wait_for_url(f"{site.base}/page/")
        await tab.keyboard.press("Tab")
        assert await tab.locator(":focus").inner_text() == "Skip to the content"
        pages = {
            "overview": "",
            "search": "?q=script&refresh=off",
            "subscription": "subscription?refresh=off&queue=psub:durable:global:losing",
            "nowhere": "nowhere",
        }
        for name, address in pages.items():
            await tab.goto(f"{site.base}/page/{address}")
            faults[name] = [*await structure_faults(tab), *await contrast_faults(tab)]
            # On a small screen the page itself does not scroll sideways, only its tables do.
            if not await tab.evaluate("document.documentElement.scrollWidth <= innerWidth"):
                faults[name].append("it is wider than the screen")
            if name == "subscription":
                assert HOSTILE in await tab.locator("table", has_text="Failed deliveries").inner_text()
            if name == "search":
                assert await window.rows() == [f"psub:durable:global:{HOSTILE}\non {HOSTILE}"]
        site.page.live.away(f"the broker does not answer: {HOSTILE}")
        site.page.live.away(f"the broker does not answer: {HOSTILE}")
        await tab.goto(f"{site.base}/page/?refresh=off")
        faults["away"] = [*await structure_faults(tab), *await contrast_faults(tab)]
        assert "the states are unknown" in (await tab.locator(".notice").inner_text()).lower()
        assert {name: found for name, found in faults.items() if found} == {}
        assert [each for each in window.complaints if "404" not in each] == []


async def test_a_phone_shows_labels_that_can_be_read_and_rows_that_are_low(site: Site, browser: Browser) -> None:
    """The labels of the plots were 5 pixels high, and one sentence made a row as high as nine lines."""
    async with browsing(browser, width=390) as window:
        tab = window.tab
        await tab.goto(f"{site.base}/page/?refresh=off")
        await tab.get_by_label("Token").fill(TOKEN)
        await tab.keyboard.press("Enter")
        row = tab.get_by_role("row").filter(has_text="unconsumed").first
        sentence = await row.locator("td").nth(1).bounding_box()
        assert sentence is not None
        assert sentence["width"] >= 256
        await tab.get_by_role("link", name="psub:durable:global:unconsumed").click()
        boxes = [await label.bounding_box() for label in await tab.locator("figure svg text").all()]
        assert boxes
        assert all(box is not None and box["height"] >= 9 and box["x"] >= 0 for box in boxes)
        assert await tab.evaluate("document.documentElement.scrollWidth") <= 390
