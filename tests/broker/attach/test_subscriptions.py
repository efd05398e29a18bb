"""Subscriptions of a real broker process: lifetimes, ending, stealing, containers. The table itself is tests/amqp's."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Terminus
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached
from support.broker_process import BrokerProcess
from support.proton_client import NullSource, Subscribed, close, connected, is_empty, publish, take

SHARED = Subscribed()
SHARED_VOLATILE = Subscribed(durable=False)
OWN_DURABLE = Subscribed(shared=False, global_=False)


def unsubscribe(connection: BlockingConnection, name: str) -> None:
    """What a JMS client does: attach without a source, close."""
    assert close(connection.create_receiver(None, name=name, options=NullSource(), credit=0)) is None


def test_a_durable_subscription_waits_for_its_consumers(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        connection.create_receiver("amq.topic/a", name="sub|global", options=SHARED, credit=0).detach()
        publish(connection.create_sender("amq.topic/a"), ["waited"])
    with connected(broker_process.url) as connection:
        again = connection.create_receiver("amq.topic/a", name="sub|global", options=SHARED, credit=10)
        assert take(again, 1) == [("waited", 0)]


def test_a_volatile_shared_subscription_ends_with_its_last_link(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as one, connected(broker_process.url) as two:
        first = one.create_receiver("amq.topic/a", name="v|global-volatile1", options=SHARED_VOLATILE, credit=0)
        second = two.create_receiver("amq.topic/a", name="v|global-volatile1", options=SHARED_VOLATILE, credit=0)
        publish(one.create_sender("amq.topic/a"), ["x"])
        assert close(first) is None
        assert close(second) is None
        again = two.create_receiver("amq.topic/a", name="v|global-volatile2", options=SHARED_VOLATILE, credit=10)
        assert is_empty(again)


def test_a_null_source_ends_a_subscription_and_finds_it_no_more(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        connection.create_receiver("amq.topic/a", name="sub|global", options=SHARED, credit=0).detach()
    with connected(broker_process.url) as connection:
        unsubscribe(connection, "sub|global")
        with pytest.raises(LinkDetached) as refused:
            unsubscribe(connection, "sub|global")
        assert refused.value.condition == "amqp:not-found"


def test_a_null_source_tells_the_real_source(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        connection.create_receiver("amq.topic/a", name="sub|global", options=SHARED, credit=0).detach()
    with connected(broker_process.url) as connection:
        finder = connection.create_receiver(None, name="sub|global", options=NullSource(), credit=0)
        remote = finder.link.remote_source
        assert (remote.type, remote.address, remote.durability, remote.expiry_policy) == (
            Terminus.SOURCE,
            "amq.topic/a",
            Terminus.CONFIGURATION,
            Terminus.EXPIRE_NEVER,
        )


def test_ending_one_that_others_consume_from_is_refused_and_changes_nothing(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as one, connected(broker_process.url) as two:
        consumer = one.create_receiver("amq.topic/a", name="sub|global", options=SHARED, credit=10)
        other = two.create_receiver("amq.topic/a", name="sub|global2", options=SHARED, credit=0)
        assert close(other) == ("amqp:resource-locked", "ConsumersActive")
        publish(two.create_sender("amq.topic/a"), ["still there"])
        assert take(consumer, 1) == [("still there", 0)]


def test_a_link_attached_again_elsewhere_is_stolen(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url, "app") as old, connected(broker_process.url, "app") as new:
        loser = old.create_receiver("amq.topic/a", name="mine", options=OWN_DURABLE, credit=1)
        publish(new.create_sender("amq.topic/a"), ["held"])
        assert loser.receive(timeout=60).body == "held"
        winner = new.create_receiver("amq.topic/a", name="mine", options=OWN_DURABLE, credit=10)
        assert take(winner, 1) == [("held", 1)]
        with pytest.raises(LinkDetached) as stolen:
            loser.receive(timeout=60)
        assert stolen.value.condition == "amqp:link:stolen"


def test_another_container_can_not_have_a_name_that_is_owned(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url, "a") as one, connected(broker_process.url, "b") as two:
        one.create_receiver("amq.topic/a", name="x", options=Subscribed(shared=False), credit=0)
        with pytest.raises(LinkDetached) as refused:
            two.create_receiver("amq.topic/a", name="x", options=Subscribed(shared=False), credit=0)
        assert refused.value.condition == "amqp:resource-locked"


def test_a_sole_container_keeps_others_out_while_it_lives(broker_process: BrokerProcess) -> None:
    sole = {"desired_capabilities": ["sole-connection-for-container"]}
    with connected(broker_process.url, "only", **sole) as first:
        with pytest.raises(ConnectionClosed) as refused, connected(broker_process.url, "only", **sole):
            pass
        assert refused.value.condition == "amqp:invalid-field"
        first.create_sender("amq.topic")
    with connected(broker_process.url, "only", **sole) as again:
        again.create_sender("amq.topic")


def test_the_policy_of_the_older_connection_says_which_of_two_stays(broker_process: BrokerProcess) -> None:
    sole = {"desired_capabilities": ["sole-connection-for-container"]}
    closing = {**sole, "properties": {"sole-connection-enforcement-policy": 1}}
    url = broker_process.url
    with connected(url, "only", **closing) as first, connected(url, "only", **sole) as second:
        second.create_sender("amq.topic")
        with pytest.raises(ConnectionClosed) as closed:
            first.create_sender("amq.topic")
        assert closed.value.condition == "amqp:resource-locked"
        with pytest.raises(ConnectionClosed) as refused, connected(url, "only", **closing):
            pass
        assert refused.value.condition == "amqp:invalid-field"
        second.create_sender("amq.topic/a")


def test_a_newcomer_may_ask_to_close_a_predecessor_that_asked_for_nothing(broker_process: BrokerProcess) -> None:
    closing = {
        "desired_capabilities": ["sole-connection-for-container"],
        "properties": {"sole-connection-enforcement-policy": 1},
    }
    url = broker_process.url
    with connected(url, "only") as first, connected(url, "only", **closing) as second:
        second.create_sender("amq.topic")
        with pytest.raises(ConnectionClosed) as closed:
            first.create_sender("amq.topic")
        assert closed.value.condition == "amqp:resource-locked"


def test_declared_owners_and_subscriptions_survive_kill_9(broker_process: BrokerProcess) -> None:
    with connected(broker_process.url, "app") as connection:
        connection.create_receiver("amq.topic/a", name="mine", options=OWN_DURABLE, credit=0)
        broker_process.kill()
        connection.timeout = 0.1
        broker_process.start()
    with connected(broker_process.url, "thief") as thief:
        publish(thief.create_sender("amq.topic/a"), ["after"])
    with connected(broker_process.url, "app") as connection:
        again = connection.create_receiver("amq.topic/a", name="mine", options=OWN_DURABLE, credit=10)
        assert take(again, 1) == [("after", 0)]


def test_an_unknown_exchange_is_refused_where_names_are_not_made(tmp_path: Path) -> None:
    settings: dict[str, object] = {"authentication": {"anonymous": True}}
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as broker, connected(broker.url) as connection:
        for attach in (connection.create_receiver, connection.create_sender):
            with pytest.raises(LinkDetached) as refused:
                attach("nowhere")
            assert refused.value.condition == "amqp:not-found"
