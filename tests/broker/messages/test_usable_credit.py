"""Which links could take the first message that waits: the figures by which a broker that is stuck can be told from one
that is right to keep a message.

A broker that works has served such a link already. So these tests put a message into the queue past everything that
would serve it, as if the broker had forgotten it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from itertools import count

import pytest
from broker.queue.ordered_messages import order_flags
from proton import Delivery, Described, Message, Receiver, Terminus, symbol, ulong
from support.stepped_broker import Peer, SteppedBroker

from penstock_api.management import DeliveryPolicy, EntityType
from penstock_broker.management import declare
from penstock_broker.management.entity_states import queue_state
from penstock_broker.messages import usable_credit
from penstock_broker.state.links import Consumer

NAMES = count(1)
FORGOTTEN = 1_000_000
"""The number of the message that the broker has forgotten."""


def forget(timed: SteppedBroker, message: Message) -> None:
    """Put a message behind all that waits in `jobs`, and do not serve it."""
    data = bytes(message.encode())
    available = timed.now_ms * 1000
    timed.queue("jobs").put([(FORGOTTEN, data, available, 0, order_flags(data))])


def attach(
    timed: SteppedBroker, credit: int, *, selector: str = "", priority: int = 0, most_bytes: int = 0
) -> tuple[Peer, Receiver]:
    """A consumer of `jobs` on a connection of its own."""
    peer = timed.connect()
    link = peer.session.receiver(f"from jobs {next(NAMES)}")
    link.source.address = "jobs"
    if selector:
        link.source.filter.put_dict({symbol("s"): Described(ulong(0x0000_468C_0000_0004), selector)})
    if priority:
        link.properties = {symbol("priority"): priority}
    if most_bytes:
        link.max_message_size = most_bytes
    link.open()
    link.flow(credit)
    peer.pump()
    return peer, link


def usable(timed: SteppedBroker) -> tuple[int, int]:
    """The links that could take it, and their credit."""
    return usable_credit.for_first_message(timed.queue("jobs"))


def test_every_consumer_of_a_plain_queue_could_take_it(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    attach(timed, 7)
    attach(timed, 2)
    attach(timed, 0)
    assert usable(timed) == (0, 0)  # nothing waits
    forget(timed, Message("m"))
    assert usable(timed) == (3, 9)
    state = queue_state(timed.broker.topology.queues["jobs"], {})
    assert (state["usableConsumers"], state["usableCredit"], state["credit"]) == (3, 9, 9)


def test_nothing_is_usable_without_consumers(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    forget(timed, Message("m"))
    assert usable(timed) == (0, 0)


def test_a_standby_of_an_exclusive_consumer_can_take_nothing(timed: SteppedBroker) -> None:
    timed.make_queue("jobs", DeliveryPolicy(exclusive_consumer=True))
    attach(timed, 0)
    attach(timed, 5)
    forget(timed, Message("m"))
    state = queue_state(timed.broker.topology.queues["jobs"], {})
    assert (state["usableConsumers"], state["usableCredit"], state["credit"]) == (1, 0, 5)


def test_a_standby_of_an_exclusive_consumer_is_told_that_nothing_waits(timed: SteppedBroker) -> None:
    """AMQP 1.0 part 2, 2.6.7: `available` is what waits for the credit of this link."""
    timed.make_queue("jobs", DeliveryPolicy(exclusive_consumer=True))
    attach(timed, 0)
    attach(timed, 5)
    forget(timed, Message("m"))
    consumers = timed.queue("jobs").links.consumers
    assert [each.available() for each in consumers if isinstance(each, Consumer)] == [1, 0]


def test_a_link_whose_selector_does_not_match_can_not_take_it(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    attach(timed, 4, selector="colour = 'red'")
    attach(timed, 3, selector="colour = 'blue'")
    attach(timed, 2, selector="colour = 'blue'")
    forget(timed, Message("m", properties={"colour": "red"}))
    examined = timed.queue("jobs").backlog.examination.total
    assert usable(timed) == (1, 4)
    assert timed.queue("jobs").backlog.examination.total == examined


def test_a_message_that_nobody_selects_makes_no_credit_usable(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    attach(timed, 4, selector="colour = 'red'")
    forget(timed, Message("m", properties={"colour": "green"}))
    assert usable(timed) == (0, 0)


def test_no_more_than_sixteen_selectors_are_evaluated(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    for number in range(17):
        attach(timed, 1, selector=f"size > {number}")
    forget(timed, Message("m", properties={"size": 100}))
    assert usable(timed) == (16, 16)


def test_only_the_link_that_owns_the_group_can_take_it(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    owner, link = attach(timed, 1)
    timed.connect().send("jobs", Message("g1", group_id="g"))
    assert owner.bodies() == ["g1"]
    attach(timed, 5)
    forget(timed, Message("g2", group_id="g"))
    assert usable(timed) == (1, 0)
    timed.broker.work.schedule(timed.queue("jobs"))  # the other one looks at it, and leaves it to the owner
    timed.turn()
    assert usable(timed) == (1, 0)
    link.flow(2)
    assert owner.bodies() == ["g1", "g2"]


def test_links_of_a_lower_priority_count(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    attach(timed, 0, priority=9)
    attach(timed, 3)
    forget(timed, Message("m"))
    assert usable(timed) == (2, 3)


def test_a_browser_takes_nothing(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer = timed.connect()
    link = peer.session.receiver("browser")
    link.source.address, link.source.distribution_mode = "jobs", Terminus.DIST_MODE_COPY
    link.open()
    link.flow(10)
    peer.pump()
    forget(timed, Message("m"))
    assert len(timed.queue("jobs").links.browsers) == 1
    assert usable(timed) == (0, 0)


def test_a_link_that_takes_no_message_so_long_can_not_take_it(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    attach(timed, 4, most_bytes=1000)
    attach(timed, 2, most_bytes=9000)
    forget(timed, Message("x" * 5000))
    assert usable(timed) == (1, 2)


def test_a_link_that_called_it_undeliverable_can_not_take_it(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    peer, _ = attach(timed, 3)
    timed.connect().send("jobs", Message("m"))
    peer.take(Delivery.MODIFIED, failed=True, undeliverable=True)
    assert timed.queue("jobs").waiting == 1
    assert usable(timed) == (0, 0)
    attach(timed, 0)
    assert usable(timed) == (1, 0)


def test_a_client_that_does_not_read_has_no_usable_credit(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    attach(timed, 1000)
    sender = timed.connect()
    for _ in range(100):
        sender.send("jobs", Message(b"x" * 50_000))
    state = queue_state(timed.broker.topology.queues["jobs"], {})
    ready, credit = state["ready"], state["credit"]
    assert isinstance(ready, int) and isinstance(credit, int)
    assert ready > 0 and credit > 900
    assert (state["usableConsumers"], state["usableCredit"]) == (1, 0)


@pytest.mark.parametrize("exclusive", [True, False])
def test_what_waits_goes_to_the_standby_when_the_other_leaves(timed: SteppedBroker, exclusive: bool) -> None:
    """The one that leaves holds nothing, so nothing comes back that would wake the queue."""
    timed.make_queue("jobs", DeliveryPolicy(exclusive_consumer=exclusive))
    first, link = attach(timed, 1)
    timed.connect().send("jobs", Message("g1", group_id="g"))
    first.take()
    standby, _ = attach(timed, 5)
    timed.connect().send("jobs", Message("g2", group_id="g"))
    assert (link.credit, standby.bodies()) == (0, [])
    first.drop()
    assert standby.bodies() == ["g2"]


def test_what_waits_goes_to_the_others_when_the_queue_is_exclusive_no_more(timed: SteppedBroker) -> None:
    timed.make_queue("jobs", DeliveryPolicy(exclusive_consumer=True))
    attach(timed, 0)
    standby, _ = attach(timed, 5)
    timed.connect().send("jobs", Message("m"))
    assert standby.bodies() == []
    declare.declare(timed.broker, EntityType.QUEUE, "jobs", {}, update=True)
    assert standby.bodies() == ["m"]
