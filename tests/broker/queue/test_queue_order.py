"""Which consumer gets which message of a queue, and when: priorities, groups, ranks, exclusive consumers.

Against a real broker process, killed in the middle where state must survive.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from proton import Delivery, Link, symbol
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver
from support.broker_process import BrokerProcess
from support.proton_client import arrived, close, connected, is_empty, publish, take

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import DeliveryPolicy as DeliveryPolicy
from penstock_api.management import EntityType, Operation, QueueDeclaration, QueueLimits

CLOSING = 0xFFFF_FFFF


class Ranked(LinkOption):
    """A property of the attach."""

    def __init__(self, name: str, priority: int) -> None:
        self._name = name
        self._priority = priority

    def apply(self, link: Link) -> None:
        link.properties = {symbol(self._name): self._priority}


def bodies(receiver: BlockingReceiver, count: int) -> list[object]:
    return [body for body, _ in take(receiver, count)]


def limited(
    connection: BlockingConnection, name: str, credit: int, *options: LinkOption, address: str = "q"
) -> BlockingReceiver:
    """A receiver that gets so many messages and no more; the broker knows of them already."""
    receiver = connection.create_receiver(address, name=name, credit=0, options=list(options))
    receiver.flow(credit)
    connection.create_sender("q", name=f"behind {name}")  # a round trip
    return receiver


def undeliverable_here(receiver: BlockingReceiver) -> None:
    """Say so of the oldest delivery that is held."""
    assert receiver.fetcher is not None
    receiver.fetcher.unsettled[0].local.undeliverable = True
    receiver.settle(Delivery.MODIFIED)


def publish_with_priorities(connection: BlockingConnection) -> None:
    sender = connection.create_sender("q")
    for number, priority in enumerate((4, 0, 9, 4, 7, 9, 1)):
        publish(sender, [f"{priority}.{number}"], priority=priority)


BY_PRIORITY = ["9.2", "9.5", "7.4", "4.0", "4.3", "1.6", "0.1"]


def test_higher_priorities_are_delivered_first(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        publish_with_priorities(connection)
        assert bodies(connection.create_receiver("q", credit=10), 7) == BY_PRIORITY


def test_priorities_hold_after_a_kill_and_what_came_back_is_first_of_its_priority(
    broker_process: BrokerProcess,
) -> None:
    with connected(broker_process.url) as connection:
        publish_with_priorities(connection)
        assert arrived(limited(connection, "l", 4), 4) == BY_PRIORITY[:4]
        broker_process.kill()
    broker_process.start()
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("q"), ["9.new"], priority=9)
        taken = take(connection.create_receiver("q", credit=10), 8)
        assert [body for body, _ in taken] == ["9.2", "9.5", "9.new", "7.4", "4.0", "4.3", "1.6", "0.1"]


async def test_what_has_to_give_way_is_the_oldest_of_the_lowest_priority(broker_process: BrokerProcess) -> None:
    client = await ManagementClient.connect(broker_process.management)
    await client.create(QueueDeclaration(limits=QueueLimits(max_messages=3, overflow="DropOldest")), "q")
    with connected(broker_process.url) as connection:
        publish_with_priorities(connection)
        state = (await client.request(Operation.READ, EntityType.QUEUE, "q")).attributes
        assert (state["depth"], state["ready"], state["dropped"], state["enqueued"]) == (3, 3, 4, 7)
        assert bodies(connection.create_receiver("q", credit=10), 3) == ["9.2", "9.5", "7.4"]
    await client.close()


def test_a_group_goes_to_one_consumer_and_to_the_next_in_order_when_that_leaves(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection, connected(broker_process.url) as other:
        first = connection.create_receiver("q", name="first", credit=100)
        second = other.create_receiver("q", name="second", credit=100)
        sender = connection.create_sender("q")
        for number in range(6):
            publish(sender, [f"a{number}"], group_id="a", group_sequence=number)
            publish(sender, [f"b{number}"], group_id="b", group_sequence=number)
        assert arrived(first, 6) == [f"a{number}" for number in range(6)]
        assert arrived(second, 6) == [f"b{number}" for number in range(6)]
        close(first)
        assert arrived(second, 6) == [f"a{number}" for number in range(6)]
        publish(sender, ["a6"], group_id="a", group_sequence=6)
        assert arrived(second, 1) == ["a6"]


def test_groups_keep_to_one_consumer_after_a_kill(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("q")
        for number in range(4):
            publish(sender, [f"a{number}", f"b{number}"], group_id="x")
        broker_process.kill()
    broker_process.start()
    with connected(broker_process.url) as one, connected(broker_process.url) as two:
        first = limited(one, "first", 1)
        assert arrived(first, 1) == ["a0"]
        second = two.create_receiver("q", name="second", credit=100)
        assert is_empty(second)
        first.flow(100)
        assert arrived(first, 7) == ["b0", "a1", "b1", "a2", "b2", "a3", "b3"]


def test_after_a_closing_message_the_group_is_anybodys(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection, connected(broker_process.url) as other:
        sender = connection.create_sender("q")
        publish(sender, ["one"], group_id="g")
        first = limited(connection, "first", 1)
        assert arrived(first, 1) == ["one"]
        second = other.create_receiver("q", name="second", credit=10)
        publish(sender, ["last"], group_id="g", group_sequence=CLOSING)
        publish(sender, ["next"], group_id="g")
        assert is_empty(second)
        second.flow(10)
        first.flow(1)
        assert (arrived(first, 1), arrived(second, 1)) == (["last"], ["next"])


async def test_an_exclusive_queue_has_one_consumer_at_a_time(broker_process: BrokerProcess) -> None:
    client = await ManagementClient.connect(broker_process.management)
    await client.create(QueueDeclaration(delivery=DeliveryPolicy(exclusive_consumer=True)), "q")
    await client.close()
    with connected(broker_process.url) as one, connected(broker_process.url) as two:
        first = limited(one, "first", 2)
        second = two.create_receiver("q", name="second", credit=100)
        third = two.create_receiver("q", name="third", credit=100, options=Ranked("priority", 5))
        publish(one.create_sender("q"), ["1", "2", "3", "4"])
        assert arrived(first, 2) == ["1", "2"]
        assert is_empty(second) and is_empty(third)
        close(first)
        third.flow(100)
        assert arrived(third, 4) == ["1", "2", "3", "4"]
        assert is_empty(second)


def test_consumers_of_higher_rank_come_first_while_they_have_credit(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as one, connected(broker_process.url) as two:
        low = one.create_receiver("q", name="low", credit=100)
        high = limited(two, "high", 3, Ranked("rabbitmq:priority", 10))
        sender = one.create_sender("q")
        publish(sender, list(range(5)))
        assert (arrived(high, 3), arrived(low, 2)) == ([0, 1, 2], [3, 4])


def test_an_address_ranks_its_consumer_for_clients_that_can_not_say_it_otherwise(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as one, connected(broker_process.url) as two:
        low = one.create_receiver("q", name="low", credit=100)
        high = limited(two, "high", 1, address="q?consumer-priority=1")
        publish(one.create_sender("q"), [0, 1])
        assert (arrived(high, 1), arrived(low, 1)) == ([0], [1])


def test_what_everybody_calls_undeliverable_here_stays_for_who_comes_next(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("q"), ["odd", "even"])
        for name in ("one", "two"):
            receiver = limited(connection, name, 1)
            assert arrived(receiver, 1) == ["odd"]
            undeliverable_here(receiver)
            receiver.flow(1)
            assert arrived(receiver, 1) == ["even"]
            receiver.release(delivered=False)
        assert take(connection.create_receiver("q", name="three", credit=10), 2) == [("odd", 0), ("even", 0)]
