"""`penstock lag report` and `penstock lag --watch` against an observer that serves a real ledger."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from observer.samples import START_MS, a_poll, a_subscription
from page.html import elements, text_of

from penstock_api.lag_result import LagState
from penstock_api.management import Owner
from penstock_api.state_documents import DurationHistogram, RepeatedMessage, SubscriptionState
from penstock_cli.main import run
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.http import Api, make_app
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.results import BrokerPod, ResultStore
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import Poll, RowOrigin
from penstock_observer.secrets import TokenFile

TestServer.__test__ = False  # pytest would collect it by its name

OLD = START_MS - 600_000
HOSTILE = "<script>alert(1)</script>"


@dataclass
class Site:
    """An observer's address, its parts, and a folder to write to."""

    url: str
    live: LiveView
    ledger: Ledger
    lag: LiveLag
    folder: Path

    def poll(self, step: int, *states: SubscriptionState) -> None:
        """The broker answers, ten seconds after the poll before."""
        self.observe(a_poll(START_MS + step * 10_000, *states))

    def observe(self, poll: Poll) -> None:
        """The broker answers so."""
        self.lag.observe(poll)
        self.live.answered(poll, tuple(self.lag.lags()))
        self.ledger.append(poll)

    async def penstock(self, *arguments: str) -> int:
        """Exit code of the command, which runs beside the observer."""
        options = ["--observer", self.url, "--token-file", str(self.folder / "token")]
        return await asyncio.to_thread(run, ["lag", *arguments, *options])


@asynccontextmanager
async def a_site(folder: Path, namespace: str = "shop") -> AsyncGenerator[Site]:
    """An observer without its poll loop."""
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text("s3cret\n")
    place = BrokerPod("main", namespace, 0)
    sealing, keeping = SealLimits(60, 1000, 10**9), RetentionLimits(10**12, 10**12)
    ledger = Ledger(folder / "ledger", RowOrigin("main", 0, 10_000), sealing, keeping)
    results = ResultStore(folder / "results", place, keep=3)
    live = LiveView()
    api = Api(live, ledger, results, place, TokenFile(folder / "token"), lambda: datetime(2026, 1, 1, tzinfo=UTC))
    async with TestServer(make_app(api)) as server:
        url = str(server.make_url("")).rstrip("/")
        yield Site(url, live, ledger, LiveLag(0, 10_000, Thresholds()), folder)
    ledger.close()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """That of shop/main."""
    async with a_site(tmp_path) as found:
        yield found


def states(step: int) -> list[SubscriptionState]:
    """One without consumers, one that loses, one that is well."""
    return [
        a_subscription(
            "unconsumed", depth=step, ready=step, enqueued=step, oldest_available_ms=OLD, unused_since_ms=OLD
        ),
        a_subscription(
            HOSTILE,
            depth=5,
            ready=5,
            enqueued=5 + step * 10,
            dead_lettered=step * 10,
            oldest_available_ms=OLD,
            consumers=1,
            credit=5,
            owner=Owner(cluster_id="local", kind="Subscription", namespace="shop", name="losing", uid="u-1"),
            repeated=(RepeatedMessage(id="m-1", delivery_count=3, available_ms=OLD, state="Ready"),),
        ),
        a_subscription(
            "well", depth=2, scheduled=2, enqueued=step + 2, delivered=step, acked=step, consumers=1, credit=5
        ),
    ]


def fill(site: Site, polls: int = 49) -> None:
    """Eight minutes; the last segment is finished with the last poll."""
    for step in range(polls):
        site.poll(step, *states(step))


async def test_a_report_says_what_the_live_state_said_at_its_end(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same states and sentences, by the same rules; plots of the worst; nothing but itself is needed."""
    fill(site)
    output = site.folder / "report.html"
    assert await site.penstock("report", "--window", "480", "--worst", "2", "--output", str(output)) == 0
    assert "3 subscriptions, 2 of them with plots" in capsys.readouterr().err
    page = output.read_text()
    live = {lag.queue_name: lag for lag in site.live.known.lags}
    shown = page.replace("&lt;", "<").replace("&gt;", ">")
    assert site.ledger.segments[-1].last_ms == START_MS + 480_000
    assert all(f"<td>{lag.message}</td>" in shown for lag in live.values())
    assert text_of(page, "h2") == ["Subscriptions", "shop/losing", "psub:durable:global:unconsumed"]
    assert "From 2023-11-14 22:20:00 UTC to 2023-11-14 22:28:00 UTC." in page
    pictures = [element.attributes["aria-label"] for element in elements(page) if element.tag == "svg"]
    assert len(pictures) == 8
    assert pictures[3] == "Messages lost. lost: at most 10, 10 at the end."
    assert "became dead letters 480" in text_of(page, "tr")
    assert "m-1 3 18 min 0 s" in text_of(page, "tr")
    (row,) = (each for each in text_of(page, "tr") if each.startswith("psub:durable:global:well "))
    assert row.endswith("the consumers have caught up; no message waits; 2 are due later 0 0 s 1"), "no lag"
    assert HOSTILE not in page
    assert not {"script", "link", "img"} & {element.tag for element in elements(page)}
    assert "default-src 'none'; style-src 'sha256-" in page


async def test_a_report_of_a_time_in_which_the_clock_was_set_knows_no_rates(site: Site) -> None:
    """Two minutes forward, two minutes before its end: as the live state says it. The polls would seem to cover enough
    of the time.
    """
    fill(site, 37)
    for step in range(37, 51):  # two segments of seven polls
        found = a_poll(START_MS + 120_000 + step * 10_000, *states(step))
        site.observe(replace(found, clock_step_ms=120_000) if step == 37 else found)
    output = site.folder / "report.html"
    assert await site.penstock("report", "--window", "480", "--output", str(output)) == 0
    sentences = {lag.message for lag in site.live.known.lags}
    told = "the clock of its broker was set forward by 120 s within the window, so rates are not known; "
    assert {sentence[: len(told)] for sentence in sentences} == {told}
    assert all(f"<td>{sentence}</td>" in output.read_text() for sentence in sentences)


async def test_a_report_of_a_day_ends_with_the_ledger(site: Site) -> None:
    """A day that is not over; another day has no subscription."""
    fill(site)
    output = site.folder / "report.html"
    assert await site.penstock("report", "--day", "2023-11-14", "--output", str(output)) == 0
    assert "From 2023-11-14 00:00:00 UTC to 2023-11-14 22:28:00 UTC." in output.read_text()
    assert await site.penstock("report", "--day", "2023-11-13", "--output", str(output)) == 0
    assert "The ledger has no subscription in this time." in output.read_text()


async def test_a_report_that_ends_after_the_ledger_says_so(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Four minutes after the last poll nobody knows how it stands, and ten minutes after it not even who is there."""
    fill(site)
    output = site.folder / "report.html"
    assert await site.penstock("report", "--as-of", "2023-11-14T22:32:00Z", "--output", str(output)) == 0
    page = output.read_text()
    assert page.count("its broker was last seen 240 s before the end of this time") == 6, "in the table and above plots"
    capsys.readouterr()
    assert await site.penstock("report", "--as-of", "2023-11-14T22:38:00Z", "--output", str(output)) == 0
    said = (
        "the ledger of main-0 has no poll in the 5 minutes before 2023-11-14 22:38:00 UTC, so its subscriptions are "
        "missing"
    )
    assert f"not complete: {said}" in capsys.readouterr().err
    assert said in output.read_text()


async def test_a_report_gives_slow_handlers_their_time_as_the_live_state_does(site: Site) -> None:
    """Ten messages took 95 to 104 s each. The row with the histogram is the first of many."""
    holds = DurationHistogram(indexes=(132,), counts=(10,), sum_ms=1_000_000)
    held: dict[str, Any] = {
        "consumers": 1,
        "credit": 9,
        "usable_credit": 0,
        "ready": 2,
        "in_flight": 1,
        "depth": 3,
        "delivered": 11,
        "acked": 10,
        "hold": holds,
    }
    state = a_subscription("slow", **held, oldest_available_ms=START_MS, oldest_hold_ms=START_MS)
    for step in range(28):  # seven polls are a segment
        site.poll(step, state)
    (live,) = site.live.known.lags
    assert live.state is LagState.LAGGING
    output = site.folder / "report.html"
    assert await site.penstock("report", "--output", str(output)) == 0
    assert f"<td>{live.message}</td>" in output.read_text()


async def test_a_long_report_tells_how_far_it_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(site)
    told: dict[str, list[tuple[int, int]]] = {}

    def follow(doing: str) -> Callable[[int, int], None]:
        return lambda done, total: told.setdefault(doing, []).append((done, total))

    monkeypatch.setattr("penstock_cli.lag.report.in_terminal", follow)
    assert await site.penstock("report", "--output", str(site.folder / "report.html")) == 0
    assert list(told) == ["copying the ledger", "judging", "reading the courses"]
    assert told["copying the ledger"] == told["reading the courses"]
    done, total = told["judging"][-1]
    assert done == total > 0


async def test_a_report_of_an_earlier_end_judges_then(site: Site) -> None:
    """A minute after the beginning nothing is lost for long, but there are snapshots enough."""
    fill(site)
    output = site.folder / "report.html"
    arguments = ("--as-of", "2023-11-14T22:20:10Z", "--output", str(output))
    assert await site.penstock("report", *arguments) == 0
    assert "there are only 2 snapshots so far; 3 are needed" in output.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["report"], 1, "has no finished segment yet.\nRun this again in a minute or two: "),
        (["report", "--observer", "http://127.0.0.1:1"], 1, "nothing listens there.\nIs the observer running, and"),
        (["report", "--day", "2023-11-14", "--window", "60"], 2, "--day can't be used together"),
        (["report", "--day", "yesterday"], 2, "does not match the format"),
        (
            ["--watch", "--observer", "http://127.0.0.1:1"],
            1,
            "can't be reached: nothing listens there.\nIs the observer",
        ),
        (["report", "--observer", "main:8080"], 2, "'main:8080' is not an address of an observer"),
        (["--watch", "--observer", "http://[::1"], 2, "'http://[::1' is not an address of an observer"),
        (["--watch", "--observer", "http://склад:80"], 1, "it has letters that are not ASCII"),
        (["--watch", "--observer", "http://a..b"], 1, "a part of the host's name is empty or too long"),
        (["--watch", "--ca-file", __file__], 2, "test_lag_commands.py holds no certificates that can be read"),
        (["report", "--as-of", "0001-01-01T00:00Z"], 1, "has no finished segment yet"),
        (["--watch", "--interval", "0"], 2, "is not in the range"),
        (["--watch", "--observer", "URL/page"], 1, "Not Found.\nIs this the address of an observer, without a path, "),
        (["--watch"], 1, "the broker has not answered yet.\nThe observer answers; see whether its broker runs."),
    ],
)
async def test_what_can_not_be_done_is_said(
    site: Site, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, complaint: str
) -> None:
    assert await site.penstock(*(word.replace("URL", site.url) for word in arguments)) == code
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["report"], ["--watch"], ["audit", "report", "--subscription", "shop/losing"]])
async def test_a_token_that_is_not_good_is_told_with_the_cure(
    site: Site, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    """Not by asking whether the observer runs: it does."""
    for token, status in (("wrong", 401), ("for-metrics", 403)):
        (site.folder / "mine").write_text(token)
        (site.folder / "scrape.token").write_text("for-metrics")
        asked = ["lag", *verb, "--observer", site.url, "--token-file", str(site.folder / "mine")]
        assert await asyncio.to_thread(run, asked) == 1
        *_, cause, cure = capsys.readouterr().err.splitlines()
        assert f" answered {status}: " in cause
        assert cure.startswith("Give a token that is good for this, by --token-file or in PENSTOCK_OBSERVER_TOKEN; ")


@pytest.mark.parametrize("verb", ["report", "--watch"])
async def test_no_observer_at_all_is_said(site: Site, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    arguments = ["lag", verb, "--observer", ",", "--token-file", str(site.folder / "token")]
    assert await asyncio.to_thread(run, arguments) == 2
    assert "--observer names no observer." in capsys.readouterr().err


async def test_days_and_times_that_no_ledger_can_have(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    fill(site)
    output = site.folder / "report.html"
    assert await site.penstock("report", "--day", "9999-12-31", "--output", str(output)) == 0
    assert "0 subscriptions" in capsys.readouterr().err
    assert await site.penstock("report", "--as-of", "0001-01-01T00:00Z", "--output", str(output)) == 2
    assert "--as-of is before there were ledgers." in capsys.readouterr().err


async def test_a_file_that_can_not_be_written_is_said(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    fill(site)
    assert await site.penstock("report", "--output", "/nonexistent/report.html") == 1
    assert "/nonexistent/report.html can't be written: No such file or directory" in capsys.readouterr().err


async def test_without_a_terminal_the_lag_is_written_once(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Whole, and without anything that is meant for a terminal."""
    fill(site, 20)
    assert await site.penstock("--watch") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "shop/main at 22:23:10 UTC: 3 subscriptions (✖ Losing 1, ✖ Unconsumed 1, ✔ OK 1)"
    assert [line.split()[0] for line in lines[2:]] == [
        "shop/losing",
        "psub:durable:global:unconsumed",
        "psub:durable:global:well",
    ]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    ("variables", "erases", "colours"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
async def test_a_terminal_gets_what_it_can_show(
    site: Site, variables: dict[str, str], erases: bool, colours: bool
) -> None:
    fill(site, 20)
    looking, shown = os.openpty()
    options = ("--count", "1", "--observer", site.url, "--token-file", str(site.folder / "token"))
    watch = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock_cli", "lag", "--watch", *options),
        stdout=shown,
        env={**{name: value for name, value in os.environ.items() if name != "NO_COLOR"}, **variables},
    )
    os.close(shown)
    assert await watch.wait() == 0
    said = os.read(looking, 65_536).decode()
    os.close(looking)
    assert said.removeprefix("\x1b[H\x1b[J").startswith("shop/main at 22:23:10 UTC: 3 subscriptions")
    assert (said.startswith("\x1b[H\x1b[J"), "\x1b[31m" in said) == (erases, colours)


async def test_an_observer_of_another_broker_of_that_name_is_left_out(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """In another namespace there are subscriptions of the same names."""
    fill(site)
    async with a_site(site.folder / "other", namespace="test") as other:
        fill(other)
        told = f"{other.url} is left out, because it is an observer of test/main, and this is about shop/main"
        assert await other.penstock("--watch", "--count", "1", "--observer", site.url) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("shop/main at ") and "3 subscriptions" in lines[0]
        assert lines[1] == f"? {told}"
        assert len(lines) == 6
        output = site.folder / "report.html"
        assert await other.penstock("report", "--output", str(output), "--observer", site.url) == 0
        said = capsys.readouterr().err.splitlines()
        assert said[-1] == f"penstock: not complete: {told}"
        assert any(line.endswith("3 subscriptions, 3 of them with plots") for line in said)


async def test_an_observer_that_is_away_is_named_beside_the_others(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command goes on with what it has."""
    fill(site)
    assert await site.penstock("--watch", "--count", "1", "--observer", "http://127.0.0.1:1") == 0
    assert "? http://127.0.0.1:1/v1/lag/live can't be reached" in capsys.readouterr().out
    output = site.folder / "report.html"
    assert await site.penstock("report", "--output", str(output), "--observer", "http://127.0.0.1:1") == 0
    assert "not complete: http://127.0.0.1:1" in capsys.readouterr().err
    assert "Not complete: http://127.0.0.1:1" in " ".join(text_of(output.read_text(), "p"))
