"""Rows of a poll: one per subscription, the broker's last, every column of the ledger present."""

from __future__ import annotations

from observer.samples import START_MS, a_poll, a_subscription

from penstock_api.ledger_format import COLUMNS
from penstock_api.management import Owner
from penstock_api.state_documents import DurationHistogram, RepeatedMessage
from penstock_observer.rows import RowOrigin, rows_of

WRITER = RowOrigin(broker="main", ordinal=0, interval_ms=10_000)


def test_an_empty_broker_is_still_one_row() -> None:
    """A heartbeat: who, when, and that there is nothing."""
    (row,) = rows_of(a_poll(), WRITER, 41)
    assert {name: value for name, value in row.items() if value is not None} == {
        "seq": 41,
        "kind": "broker",
        "poll": 41,
        "time_ms": START_MS,
        "broker": "main",
        "ordinal": 0,
        "instance": "i-1",
        "epoch": 3,
        "started_ms": START_MS - 60_000,
        "interval_ms": 10_000,
        "complete": True,
        "connections": 2,
        "subscriptions": 0,
        "durable_work": "Ok",
    }


def test_subscription_rows_come_before_the_row_that_closes_the_poll() -> None:
    """seq goes on without gaps, and every row names the closing one."""
    rows = rows_of(a_poll(START_MS, a_subscription("a"), a_subscription("b")), WRITER, 7)
    assert [(row["seq"], row["kind"], row["poll"], row["queue_name"]) for row in rows] == [
        (7, "subscription", 9, "psub:durable:global:a"),
        (8, "subscription", 9, "psub:durable:global:b"),
        (9, "broker", 9, None),
    ]


def test_a_subscription_row_carries_owner_totals_and_buckets() -> None:
    """Names of the resource, figures, and the sparse histogram as two lists and a sum."""
    owner = Owner(cluster_id="c", kind="Subscription", namespace="shop", name="orders", uid="u-1")
    state = a_subscription(
        owner=owner,
        depth=5,
        ready=3,
        in_flight=2,
        acked=9,
        sojourn=DurationHistogram(indexes=(-1, 8), counts=(4, 5), sum_ms=99),
    )
    row = rows_of(a_poll(START_MS, state), WRITER, 1)[0]
    assert (row["owner_namespace"], row["owner_name"], row["owner_uid"]) == ("shop", "orders", "u-1")
    assert (row["depth"], row["ready"], row["in_flight"], row["acked"]) == (5, 3, 2, 9)
    assert (row["sojourn_indexes"], row["sojourn_counts"], row["sojourn_sum_ms"]) == ((-1, 8), (4, 5), 99)


def test_a_subscription_row_says_what_moved_is_stranded_usable_and_repeated() -> None:
    """The repeated messages as JSON, in the broker's order; any character of an id survives."""
    again = (
        RepeatedMessage(id='ä"1', delivery_count=9, available_ms=START_MS - 500, state="Ready"),
        RepeatedMessage(id="#7", delivery_count=2, available_ms=START_MS, state="InFlight"),
    )
    state = a_subscription(moved=3, stranded=1, usable_credit=40, usable_consumers=2, repeated=again)
    row = rows_of(a_poll(START_MS, state), WRITER, 1)[0]
    assert (row["moved"], row["stranded"], row["usable_credit"], row["usable_consumers"]) == (3, 1, 40, 2)
    assert row["repeated"] == (
        '[{"id":"ä\\"1","deliveryCount":9,"availableMs":1700000399500},'
        '{"id":"#7","deliveryCount":2,"availableMs":1700000400000}]'
    )


def test_what_an_earlier_broker_does_not_say_is_null() -> None:
    """Not 0: it would read as if no link could take a message. Nothing repeated is null, too."""
    row = rows_of(a_poll(START_MS, a_subscription(credit=5)), WRITER, 1)[0]
    assert (row["credit"], row["usable_credit"], row["usable_consumers"], row["repeated"]) == (5, None, None, None)
    said = rows_of(a_poll(START_MS, a_subscription(credit=5, usable_credit=0)), WRITER, 1)[0]
    assert said["usable_credit"] == 0


def test_every_row_has_every_column_and_no_other() -> None:
    """The Parquet writer takes columns by name; a forgotten one would be a hole in history."""
    names = {column.name for column in COLUMNS}
    for row in rows_of(a_poll(START_MS, a_subscription()), WRITER, 1):
        assert set(row) == names


def test_columns_that_may_not_be_null_never_are() -> None:
    """In broker rows and in subscription rows."""
    required = {column.name for column in COLUMNS if not column.nullable}
    assert required == {"seq", "kind", "poll", "time_ms", "broker", "ordinal", "instance", "epoch"}
    for row in rows_of(a_poll(START_MS, a_subscription()), WRITER, 1):
        assert all(row[name] is not None for name in required)
