"""Selectors of consumers and browsers of a queue, over the wire."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import pytest
from proton import Described, symbol
from proton.reactor import AtMostOnce, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached
from support.broker_process import BrokerProcess
from support.proton_client import Browsing, SelectedBy, arrived, close, connected, is_empty, publish, take

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import Source
from penstock_amqp.types.values import Described as WireDescribed
from penstock_amqp.types.values import Symbol, ULong
from penstock_api.management import EntityType, Operation
from penstock_api.state_documents import LinkState
from penstock_broker.attach import request
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import Selector

RED = "colour = 'red'"


def both(one: LinkOption, other: LinkOption) -> list[LinkOption]:
    return [one, other]


def bodies(receiver: BlockingReceiver, count: int) -> list[object]:
    return [body for body, _ in take(receiver, count)]


def publish_colours(connection: BlockingConnection, colours: str) -> None:
    """A message for each letter, its body the letter and its place."""
    sender = connection.create_sender("q", name=f"sender of {colours}")
    names = {"r": "red", "b": "blue"}
    for place, letter in enumerate(colours):
        publish(sender, [f"{letter}{place}"], properties={"colour": names[letter]})


def test_what_is_not_selected_stays_for_others_in_its_order(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        publish_colours(connection, "brbrb")
        red = connection.create_receiver("q", name="red", options=SelectedBy(RED), credit=10)
        assert bodies(red, 2) == ["r1", "r3"]
        assert is_empty(red)
        assert bodies(connection.create_receiver("q", name="all", credit=10), 3) == ["b0", "b2", "b4"]


def test_a_selecting_consumer_gets_what_lies_behind_a_long_backlog_once_more_after_a_kill(
    broker_process: BrokerProcess,
) -> None:
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("q")
        for number in range(1500):
            publish(sender, [f"b{number}"], properties={"colour": "blue"}, durable=number < 3)
        publish(sender, ["red"], properties={"colour": "red"})
        red = connection.create_receiver("q", name="red", options=SelectedBy(RED), credit=10)
        assert red.receive(timeout=60).body == "red"
        broker_process.kill()
    broker_process.start()
    with connected(broker_process.url) as connection:
        red = connection.create_receiver("q", name="red", options=SelectedBy(RED), credit=10)
        assert take(red, 1) == [("red", 1)]
        assert bodies(connection.create_receiver("q", name="all", credit=10), 3) == ["b0", "b1", "b2"]


def test_the_reply_names_the_selector_in_place_and_a_bad_one_is_refused(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        red = connection.create_receiver("q", name="red", options=SelectedBy("colour='red'"), credit=0)
        echoed = red.link.remote_source.filter
        assert echoed.next() is not None
        filters = echoed.get_object()
        assert filters == {symbol("jms-selector"): Described(0x0000_468C_0000_0004, "colour='red'")}
        asked: tuple[list[LinkOption], ...] = ([SelectedBy("colour =")], [SelectedBy("colour ="), Browsing()])
        for options in asked:
            with pytest.raises(LinkDetached) as refused:
                connection.create_receiver("q", name="bad", options=options, credit=1)
            assert refused.value.condition == "amqp:invalid-field"
            assert "character 9" in str(refused.value)


def test_two_selectors_on_one_link_are_refused() -> None:
    def asked(*texts: str) -> Source:
        described = [WireDescribed(ULong(0x0000_468C_0000_0004), text) for text in texts]
        return Source(address="q", filter={Symbol(f"f{number}"): each for number, each in enumerate(described)})

    assert isinstance(request.read_selector(asked("colour='red'", "colour='red'")), Selector)
    refused = request.read_selector(asked("colour='red'", "size=1"))
    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.INVALID_SELECTOR
    assert refused.error_info()["invalid-field"] == "filter"


async def test_a_browser_sees_what_waits_when_it_comes_and_changes_nothing(broker_process: BrokerProcess) -> None:
    client = await ManagementClient.connect(broker_process.management)
    with connected(broker_process.url) as connection:
        publish_colours(connection, "brrb")
        holder = connection.create_receiver("q", name="holder", credit=0)
        holder.flow(1)
        assert arrived(holder, 1) == ["b0"]
        browser = connection.create_receiver("q", name="browser", options=Browsing(), credit=10)
        publish_colours(connection, "r")
        assert bodies(browser, 3) == ["r1", "r2", "b3"]
        assert is_empty(browser)
        red = connection.create_receiver("q", name="red", options=both(Browsing(), SelectedBy(RED)), credit=10)
        assert bodies(red, 3) == ["r1", "r2", "r0"]
        assert is_empty(red)
        state = (await client.request(Operation.READ, EntityType.QUEUE, "q")).attributes
        names = ("depth", "ready", "inFlight", "delivered", "acked", "examined")
        assert [state[name] for name in names] == [5, 4, 1, 1, 0, 0]
        links = {link.name: link for link in await client.states(LinkState)}
        assert (links["red"].selector, links["browser"].selector) == (RED, None)
        for link in (browser, red, holder):
            close(link)
        taken = take(connection.create_receiver("q", name="all", credit=10), 5)
        assert taken == [("b0", 1), ("r1", 0), ("r2", 0), ("b3", 0), ("r0", 0)]
    await client.close()


def test_a_browser_sees_priorities_first_and_nothing_that_has_expired(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("q")
        publish(sender, ["short"], ttl=0.001)
        publish(sender, ["low"], priority=1)
        publish(sender, ["high"], priority=8)
        settled = connection.create_receiver("q", name="browser", options=both(Browsing(), AtMostOnce()), credit=10)
        assert [settled.receive(timeout=60).body for _ in range(2)] == ["high", "low"]
        assert is_empty(settled)
        assert bodies(connection.create_receiver("q", name="all", credit=10), 2) == ["high", "low"]


def test_presettled_selecting_consumers_take_only_their_own(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        publish_colours(connection, "rbr")
        red = connection.create_receiver("q", name="red", options=both(AtMostOnce(), SelectedBy(RED)), credit=10)
        assert [red.receive(timeout=60).body for _ in range(2)] == ["r0", "r2"]
        broker_process.kill()
    broker_process.start()
    with connected(broker_process.url) as connection:
        everything = connection.create_receiver("q", name="all", credit=10)
        assert bodies(everything, 1) == ["b1"]
        assert is_empty(everything)
