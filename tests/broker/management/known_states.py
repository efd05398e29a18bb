"""A reader that asks a broker within this process only for the states that changed."""

from __future__ import annotations

from typing import cast

from penstock_amqp.types.decoder import decode_one
from penstock_amqp.types.plain_values import to_plain
from penstock_amqp.types.values import Value
from penstock_api import management
from penstock_api.state_documents import SubscriptionState
from penstock_broker.management import changed_states
from penstock_broker.management.entity_states import StateDocument, subscription_state
from penstock_broker.management.in_flight import in_flight
from penstock_broker.state.broker import Broker

__all__ = ["KnownStates", "all_documents"]

ATTRIBUTES = [field.alias or name for name, field in SubscriptionState.model_fields.items()]


class KnownStates:
    """The states that it knows, by queue name."""

    def __init__(self) -> None:
        self.states: dict[str, SubscriptionState] = {}
        self.documents: dict[str, StateDocument] = {}
        """The same, unread, of those that were followed."""
        self.token = ""
        self.told = 0
        """States in the replies to the last question."""
        self.was_whole = False

    def ask(self, broker: Broker, most: int = management.MAX_COUNT) -> None:
        """Ask until nothing is left; `most`: states in one reply."""
        self.told = 0
        self.was_whole = False
        while True:
            left = self.page(broker, most)
            if not left:
                return

    def follow(self, broker: Broker) -> None:
        """Ask for everything, and take the documents without encoding them, which is faster. Not to be mixed with
        `ask`.
        """
        task = changed_states.begin(broker, self.token, ATTRIBUTES, 1_000_000)
        while not task.prepare():
            pass
        assert task.changes is not None
        if task.is_whole:
            self.documents.clear()
        for name in task.changes.removed:
            self.documents.pop(name, None)
        while (state := task.next_state()) is not None:
            self.documents[str(state["queueName"])] = state
        answer = task.step(1)
        assert answer is not None
        self.token = str(answer.properties[management.STATES_TOKEN])

    def page(self, broker: Broker, most: int) -> int:
        """Ask once; how many states are left."""
        task = changed_states.begin(broker, self.token, ATTRIBUTES, most)
        while (answer := task.step(2)) is None:
            pass
        assert answer.encoded_body is not None
        body = cast(dict[str, list[list[object]]], to_plain(decode_one(b"".join(answer.encoded_body))))
        properties = cast(dict[str, Value], answer.properties)
        if properties[management.IS_WHOLE]:
            self.states.clear()
            self.was_whole = True
        for name in cast(list[str], body[management.REMOVED]):
            self.states.pop(name, None)
        for row in body["results"]:
            found = {key: value for key, value in zip(ATTRIBUTES, row, strict=True) if value is not None}
            state = SubscriptionState.read(found)
            self.states[state.queue_name] = state
            self.told += 1
        assert properties[management.NOW_MS] == broker.clock.now_us // 1000
        self.token = str(properties[management.STATES_TOKEN])
        left = properties[management.LEFT]
        assert isinstance(left, int)
        return left


def all_documents(broker: Broker) -> dict[str, StateDocument]:
    """What a full read tells."""
    held = in_flight(broker.clients.connections.values())
    return {each.name: subscription_state(each, held) for each in broker.topology.subscriptions.values()}
