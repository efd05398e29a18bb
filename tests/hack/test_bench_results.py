"""What the benchmarks make of their measurements: percentiles, medians, ratios, tables, and the client's answer."""

from __future__ import annotations

import json
import math
import re

import pytest
from benching.bar_chart import Bar, bars
from benching.fanout import further_copies
from benching.load_client import LoadFailed, measured
from benching.log_chart import Line, LogChart
from benching.results import Column, Run, medians, percentile, relative, table
from benching.sync_calls import SyncCalls, counted_calls

PART = {"seconds": 2.0, "sent": 100, "accepted": 100, "received": 50, "broker_cpu": 0.001, "client_cpu": 0.0005}
PRINTED: dict[str, object] = {
    "window": PART,
    "whole": {**PART, "seconds": 4.0, "received": 100},
    "earlier": 0,
    "refused": 0,
    "unanswered": 0,
    "missing": 0,
    "latency": [[1_000_000, 50], [2_000_000, 40], [3_000_000, 9], [9_000_000, 1]],
    "late": [[500_000, 100]],
    "answer": [[1_500_000, 99], [4_000_000, 1]],
}


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 10.0), (0.51, 20.0), (0.9, 20.0), (0.99, 30.0), (0.999, 40.0), (1.0, 40.0)]
)
def test_a_percentile_is_what_that_share_does_not_exceed(share: float, value: float) -> None:
    assert percentile([(10, 500), (20, 400), (30, 90), (40, 10)], share) == value


def test_of_nothing_there_is_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing was counted"):
        percentile([], 0.5)


def test_a_flow_counts_until_the_last_message_has_come() -> None:
    assert measured(json.dumps(PRINTED)).flow() == {"rate": 25.0, "broker_us": 10.0, "client_us": 5.0}


def test_waiting_producers_show_accepts_and_how_long_they_took() -> None:
    figures = measured(json.dumps(PRINTED)).answers()
    assert figures == {"rate": 50.0, "p50_ms": 1.5, "p99_ms": 1.5, "broker_us": 10.0}


def test_latencies_of_a_broker_that_keeps_up() -> None:
    figures = measured(json.dumps(PRINTED)).latencies(offered=25)
    assert figures == {
        "rate": 25.0,
        "p50_ms": 1.0,
        "p90_ms": 2.0,
        "p99_ms": 3.0,
        "p99.9_ms": 9.0,
        "late_p99_ms": 0.5,
        "broker_us": 20.0,
    }


def test_a_broker_that_does_not_keep_up_has_no_percentiles() -> None:
    assert measured(json.dumps(PRINTED)).latencies(offered=26) == {"rate": 25.0, "broker_us": 20.0}


@pytest.mark.parametrize("wrong", ["refused", "unanswered", "missing"])
def test_a_run_that_lost_messages_is_none(wrong: str) -> None:
    with pytest.raises(LoadFailed, match=f"3 messages: {wrong}"):
        measured(json.dumps({**PRINTED, wrong: 3}))


def test_a_message_that_comes_twice_is_not_lost() -> None:
    assert measured(json.dumps({**PRINTED, "missing": -3})).twice == 3


def test_each_figure_has_its_own_median_and_one_that_is_mostly_missing_has_none() -> None:
    runs = [
        Run(1, "ours", "small", {"rate": 10.0, "p50": 1.0}),
        Run(1, "theirs", "small", {"rate": 7.0}),
        Run(1, "ours", "large", {"rate": 3.0}),
        Run(2, "ours", "small", {"rate": 30.0}),
        Run(3, "ours", "small", {"rate": 20.0}),
        Run(2, "theirs", "small", {}),
    ]
    assert medians(runs) == [
        Run(0, "ours", "small", {"rate": 20.0}),
        Run(0, "theirs", "small", {}),
        Run(0, "ours", "large", {"rate": 3.0}),
    ]


def test_a_ratio_is_one_of_the_same_round_and_case() -> None:
    runs = [
        Run(1, "ours", "small", {"rate": 10.0}),
        Run(1, "theirs", "small", {"rate": 5.0}),
        Run(2, "ours", "small", {"rate": 4.0}),
        Run(2, "theirs", "small", {"rate": 1.0}),
        Run(2, "theirs", "large", {"rate": 1.0}),
        Run(3, "theirs", "small", {}),
    ]
    found = relative(runs, "ours", "rate", "share")
    assert [run.figures.get("share") for run in found] == [1.0, 0.5, 1.0, 0.25, None, None]


def test_a_further_copy_costs_what_more_than_one_subscription_costs() -> None:
    runs = [
        Run(1, "plain", "1", {"message_us": 20.0}),
        Run(1, "plain", "1,000", {"message_us": 4016.0}),
        Run(2, "plain", "1", {}),
        Run(2, "plain", "10", {"message_us": 50.0}),
    ]
    found = further_copies(runs)
    assert [run.figures.get("further_us") for run in found] == [None, 4.0, None, None]


def test_a_table_shows_figures_as_their_columns_say_and_a_dash_for_none() -> None:
    rows = [Run(0, "ours", "small", {"rate": 12345.6, "share": 0.5}), Run(0, "theirs", "small", {"rate": 7.0})]
    assert table(rows, [Column("messages/s", "rate", ",.0f"), Column("share", "share", ".0%")]) == (
        "| case  | broker | messages/s | share |\n"
        "| ----- | ------ | ---------- | ----- |\n"
        "| small | ours   | 12,346     | 50%   |\n"
        "| small | theirs | 7          | -     |"
    )


def test_the_longest_bar_reaches_the_margin() -> None:
    drawn = bars("Rates", "per second", [Bar("small", "ours", "#111", 1234.0), Bar("small", "theirs", "#222", 617.0)])
    assert 'width="360.0" height="14" fill="#111"' in drawn
    assert 'width="180.0" height="14" fill="#222"' in drawn
    assert ">1,234<" in drawn
    assert drawn.count("font-weight") == 1


def test_names_at_the_ends_of_lines_stand_apart_and_have_room() -> None:
    long = "a name of thirty letters, or so"
    lines = [Line("low", "#111", [(1, 1.0), (10, 1.0)]), Line(long, "#222", [(1, 10.0), (10, 1.01)])]
    drawn = LogChart("Rates", "producers", (0, 1), (0, 1), "/s").drawn(lines)
    ends = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="start" fill="(#\d+)"', drawn)
    assert [(colour, x) for x, _, colour in ends] == [("#222", "419.0"), ("#111", "419.0")]
    assert float(ends[1][1]) - float(ends[0][1]) == pytest.approx(14.0)
    assert ">10/s<" in drawn


TRACE = """\
12 fdatasync(9) = 0
13 fdatasync(9 <unfinished ...>
13 <... fdatasync resumed>) = 0
12 io_submit(0x7f, 1, [{aio_data=0, aio_lio_opcode=IOCB_CMD_FDSYNC, aio_fildes=7}]) = 1
12 io_submit(0x7f, 1, [{aio_data=0, aio_lio_opcode=IOCB_CMD_PWRITE, aio_fildes=7}]) = 1
12 fsync(3) = 0
"""


def test_syncs_are_counted_once_each_however_they_are_asked_for() -> None:
    assert counted_calls(TRACE) == {"fdatasync": 2, "AIO FDSYNC": 1, "fsync": 1}


@pytest.mark.parametrize(
    ("calls", "files", "said"),
    [
        ({"fdatasync": 98}, 0, "each accept waits for a sync: 98 fdatasync for 100 accepts in turn; "),
        ({"fsync": 1}, 0, "ACCEPTS WITHOUT A SYNC: 1 fsync for 100 accepts in turn; "),
        ({}, 2, "2 files are open with O_DSYNC: no sync for 100 accepts in turn; "),
    ],
)
def test_what_a_broker_does_is_named(calls: dict[str, int], files: int, said: str) -> None:
    seen = SyncCalls(accepted=100, calls=calls, dsync_files=files, flow_accepted=5000, flow_calls=50)
    assert str(seen) == said + "at full speed 100 messages per sync"


def test_without_syncs_at_full_speed_none_is_claimed() -> None:
    assert str(SyncCalls(10, {}, 0, 5000, 0)).endswith("at full speed no sync per sync")
    assert not math.isnan(percentile([(1, 1)], 0.5))
