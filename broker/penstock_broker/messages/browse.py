"""Sends copies of the messages that wait in a queue to the links that browse it.

A browser gets a snapshot: what a consumer could have taken at the time of the attach, in that order, except what has
expired since, with the headers that a consumer would get. It does not see messages that were with consumers then, or
that come later. Nothing that a browser says of its copies changes anything, so outcomes are not known here.

Source: JMS 2.0, 6.1.7; docs/decisions/011-browsing.md.
"""

from __future__ import annotations

from functools import partial

from penstock_amqp.endpoint.events import DATA, Entry
from penstock_broker.messages.dispatch import HELD_BACK_BYTES, TURN_BYTES, header_room
from penstock_broker.messages.due_times import deadline
from penstock_broker.messages.read_retries import retry_after_ms
from penstock_broker.messages.sent_header import as_shown
from penstock_broker.queue.backlog import EXAMINED_PER_VISIT
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser

__all__ = ["serve_browser"]


def serve_browser(broker: Broker, browser: Browser) -> None:
    """Send as many copies as the link has credit and this turn allows."""
    link, connection = browser.link, browser.connection
    if not browser.is_active or connection.is_blocked:
        return
    if connection.endpoint.is_congested(link, HELD_BACK_BYTES):
        connection.is_congested = True
        return
    entries, error = _next(browser, broker.clock.now_us)
    if entries:
        connection.turn_bytes += _send(browser, entries, broker.clock.now_us)
        link.credit -= len(entries)
        broker.work.touch(connection)
    if error is not None:
        after_ms = retry_after_ms(broker, browser.queue, error, " for a browser")
        broker.clock.after(after_ms, partial(_go_on, broker, browser))
    elif link.credit > 0 and browser.pending:
        broker.work.browsing.append(browser)
    elif link.drain:
        if connection.endpoint.drained(link):
            broker.work.touch(connection)
        else:
            connection.is_congested = True  # as for consumers that drain, see `drains.finish_drains`


def _send(browser: Browser, entries: list[Entry], now_us: int) -> int:
    """Send copies with the header that a consumer would get; how many bytes they have."""
    endpoint, size = browser.connection.endpoint, 0
    as_they_are: list[Entry] = []
    for entry in entries:
        data = as_shown(browser.queue, entry, now_us)
        size += len(data)
        if data is entry[DATA]:
            as_they_are.append(entry)
            continue
        if as_they_are:
            endpoint.send(browser.link, as_they_are, now_us)
            as_they_are = []
        endpoint.send_as(browser.link, entry, data, now_us)
    if as_they_are:
        endpoint.send(browser.link, as_they_are, now_us)
    return size


def _go_on(broker: Broker, browser: Browser) -> None:
    if browser.is_active and browser.link.is_open:
        broker.work.browsing.append(browser)


def _next(browser: Browser, now_us: int) -> tuple[list[Entry], OSError | None]:
    """Take what can be sent now from the snapshot, and why there is no more if that can't be read now; what is longer
    than the link takes is left out. So much is looked at as a turn allows.
    """
    entries: list[Entry] = []
    pending, selection = browser.pending, browser.cursor
    size, to_examine, room = 0, EXAMINED_PER_VISIT, header_room(browser.queue)
    while pending and len(entries) < browser.link.credit and size < TURN_BYTES and to_examine:
        try:
            entry = pending.popleft()
        except OSError as error:
            return entries, error
        expires = deadline(browser.queue, entry)
        if (expires and expires <= now_us) or 0 < browser.link.max_bytes < len(entry[DATA]) + room:
            to_examine -= 1
            continue
        if selection is not None:
            to_examine -= 1
            if not selection.wants(entry):
                continue
        entries.append(entry)
        size += len(entry[DATA])
    return entries, None
