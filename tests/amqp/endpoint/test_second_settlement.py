"""A sender that asked for rcv-settle-mode second: it settles what we answered, and then we do; or it does not."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Delivery, Link, Sender
from support.engine_pair import EnginePair

from penstock_amqp.endpoint.events import EventKind
from penstock_amqp.endpoint.links import InLink
from penstock_amqp.frames.performatives import Target

WINDOW = 4


@pytest.fixture
def pair() -> Iterator[EnginePair]:
    pair = EnginePair()
    yield pair
    pair.close()


def attached(pair: EnginePair) -> tuple[Sender, InLink]:
    """A sender that settles first, with credit for `WINDOW` messages."""
    sender = pair.open().sender("s")
    sender.target.address = "t"
    sender.snd_settle_mode = Link.SND_UNSETTLED
    sender.rcv_settle_mode = Link.RCV_SECOND
    sender.open()
    pair.exchange()
    link = pair.attached().link
    assert isinstance(link, InLink)
    pair.endpoint.attach_reply(link, source=None, target=Target(address="t"), settles_second=True, peer_settles=0)
    pair.endpoint.credit(link, WINDOW)
    pair.exchange()
    return sender, link


def answered(pair: EnginePair, sender: Sender, link: InLink) -> list[Delivery]:
    """Deliveries that use up the credit, which were accepted; as many more were granted."""
    sent: list[Delivery] = []
    for number in range(WINDOW):
        sent.append(sender.delivery(f"t{number}"))
        sender.stream(b"message")
        sender.advance()
    came = [arrival for event in pair.exchange() if event[0] is EventKind.MESSAGES for arrival in event[2]]
    pair.endpoint.accept([delivery for delivery, _, _ in came])
    pair.endpoint.credit(link, WINDOW)
    pair.exchange()
    assert [each.remote_state for each in sent] == [Delivery.ACCEPTED] * WINDOW
    return sent


def tick(pair: EnginePair) -> int:
    due = pair.endpoint.tick(1_000, pair.events)
    pair.exchange()
    return due


def test_credit_comes_with_what_the_sender_settles(pair: EnginePair) -> None:
    """Or what it leaves unsettled would grow without end."""
    sender, link = attached(pair)
    sent = answered(pair, sender, link)
    assert ([each.settled for each in sent], sender.credit) == ([False] * WINDOW, 0)
    sent[0].settle()
    sent[2].settle()
    pair.exchange()
    assert sender.credit == 2


def test_what_the_sender_does_not_settle_is_settled_by_us_at_the_second_look(pair: EnginePair) -> None:
    """Some clients ask for second, and wait for the broker to settle all the same."""
    sender, link = attached(pair)
    sent = answered(pair, sender, link)
    assert tick(pair) == 1_001  # soon again, as long as there is such a link
    assert ([each.settled for each in sent], sender.credit) == ([False] * WINDOW, 0)
    tick(pair)
    assert ([each.settled for each in sent], sender.credit) == ([True] * WINDOW, WINDOW)
    again = answered(pair, sender, link)
    tick(pair)
    assert [each.settled for each in again] == [False] * WINDOW  # these were answered since the last look


def test_a_connection_without_such_a_link_is_looked_at_when_it_must_be(pair: EnginePair) -> None:
    _, link = attached(pair)
    pair.endpoint.detach(link, closed=True)
    pair.exchange()
    assert tick(pair) == 61_000
