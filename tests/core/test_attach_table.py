"""The twelve rows, typed in again from the page "JMS 2.0 shared subscription support" (the attach table), never from
the code.

One test per row, in the page's order; what it says about queue, reply and offered capability.
"""

from __future__ import annotations

from itertools import product

import pytest
from core.factories import CONTAINER, attaching, there

from penstock_core.attach import Create, FoundSubscription, decide, identities_to_look_up, look_up
from penstock_core.attach_table import NULL_SOURCE, TABLE, AttachKey, NullSourceKey
from penstock_core.identity import queue_name
from penstock_core.reason import ErrorCondition, Refuse
from penstock_core.source_reply import source_reply
from penstock_core.terms import Exclusivity

LINK_NAME = "mysub|2"

# SHARED, GLOBAL, TERMINUS DURABILITY; name of the queue; durable; exclusivity policy; capabilities on the source
WITH_SOURCE = [
    pytest.param(
        False, False, 0, "psub:volatile:container:client-1:private%7Cn1", False, "link", {"topic"}, id="no-no-no"
    ),
    pytest.param(False, False, 1, "psub:durable:container:client-1:mysub%7C2", True, "link", {"topic"}, id="no-no-yes"),
    pytest.param(
        False, True, 0, "psub:volatile:container:client-1:private%7Cn1", False, "link", {"topic"}, id="no-yes-no"
    ),
    pytest.param(False, True, 2, "psub:durable:global:mysub%7C2", True, "link", {"topic", "global"}, id="no-yes-yes"),
    pytest.param(
        True, False, 0, "psub:volatile:container:client-1:mysub", False, "shared", {"topic", "shared"}, id="yes-no-no"
    ),
    pytest.param(
        True, False, 2, "psub:durable:container:client-1:mysub", True, "shared", {"topic", "shared"}, id="yes-no-yes"
    ),
    pytest.param(
        True, True, 0, "psub:volatile:global:mysub", False, "shared", {"topic", "shared", "global"}, id="yes-yes-no"
    ),
    pytest.param(
        True, True, 1, "psub:durable:global:mysub", True, "shared", {"topic", "shared", "global"}, id="yes-yes-yes"
    ),
]

# SHARED, GLOBAL; the queue that is looked for ("and 'true' durability")
NULL_SOURCES = [
    pytest.param(False, False, "psub:durable:container:client-1:mysub%7C2", id="null-no-no"),
    pytest.param(False, True, "psub:durable:global:mysub%7C2", id="null-no-yes"),
    pytest.param(True, False, "psub:durable:container:client-1:mysub", id="null-yes-no"),
    pytest.param(True, True, "psub:durable:global:mysub", id="null-yes-yes"),
]


@pytest.mark.parametrize(
    ("shared", "global_", "durability", "queue", "durable", "exclusivity", "capabilities"), WITH_SOURCE
)
def test_row_with_a_source(
    shared: bool, global_: bool, durability: int, queue: str, durable: bool, exclusivity: str, capabilities: set[str]
) -> None:
    request = attaching(LINK_NAME, shared=shared, global_=global_, durability=durability)
    decision = decide(request, None, None)
    assert isinstance(decision, Create)
    assert queue_name(decision.identity) == queue
    assert decision.identity.durable is durable
    assert decision.exclusivity is {"shared": Exclusivity.SHARED, "link": Exclusivity.LINK}[exclusivity]
    reply = source_reply(request, decision)
    assert set(reply.capabilities) == capabilities
    assert reply.capabilities[0] == "topic"
    assert reply.offered_capabilities == ("SHARED-SUBS",)


@pytest.mark.parametrize(("shared", "global_", "queue"), NULL_SOURCES)
def test_row_with_a_null_source(shared: bool, global_: bool, queue: str) -> None:
    request = attaching(LINK_NAME, shared=shared, global_=global_, null_source=True, container_id=CONTAINER)
    looked_for = identities_to_look_up(request)[0]
    assert queue_name(looked_for) == queue
    existing = there(looked_for)
    assert look_up(request, {looked_for: existing}) == FoundSubscription(existing)
    missing = look_up(request, {})
    assert isinstance(missing, Refuse)
    assert missing.condition is ErrorCondition.NOT_FOUND


def test_the_table_is_total() -> None:
    both = (False, True)
    assert list(TABLE) == [AttachKey(*key) for key in product(both, both, both)]
    assert list(NULL_SOURCE) == [NullSourceKey(*key) for key in product(both, both)]
