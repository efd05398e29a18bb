"""When a watch is overdue, and when the operator is no longer live because of it."""

from __future__ import annotations

from penstock_operator.cluster.watch_activity import WatchActivity


def activity() -> WatchActivity:
    made = WatchActivity(timeout=300)
    made.expect(["/a", "/b"], now=1000)
    return made


def test_a_watch_that_was_never_opened_is_overdue_after_its_time_out_and_a_minute() -> None:
    made = activity()
    assert made.overdue(1360) == []
    assert made.overdue(1361) == ["/a", "/b"]


def test_each_watch_is_judged_alone() -> None:
    made = activity()
    made.opened("/a", 1300)
    assert made.overdue(1361) == ["/b"]
    made.opened("/b", 1361)
    assert made.overdue(1362) == []
    assert made.overdue(1661) == ["/a"]


def test_the_operator_is_live_until_a_new_start_of_the_watches_did_not_help() -> None:
    made = activity()
    made.opened("/b", 1600)
    assert made.problem(1660) is None
    assert made.problem(1661) == "the watches of /a were not opened again for 661 s"


def test_what_nobody_expects_is_not_judged() -> None:
    made = activity()
    made.opened("/c", 1000)
    made.expect(["/b"], now=2000)
    assert made.overdue(2000) == ["/b"]
    made.opened("/b", 2000)
    assert made.overdue(2360) == []
