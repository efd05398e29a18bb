"""A batch that fails loses nothing: a delivery whose outcome could not be handled is still among the unsettled ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from support.engine_pair import EnginePair

import penstock_native

pytestmark = pytest.mark.skipif(penstock_native.proton is None, reason="the engine in Python was chosen")

ENTRY = (1, b"x" * 1024, 0, 0, 0)


@pytest.fixture
def pair() -> Iterator[EnginePair]:
    made = EnginePair()
    yield made
    made.close()


def test_what_is_no_delivery_stays_unsettled(pair: EnginePair) -> None:
    receiver, link = pair.attach_receiver(pair.open())
    pair.endpoint.send(link, [ENTRY], 5)
    pair.exchange()
    unsettled = cast("dict[Any, Any]", pair.endpoint.engine.unsettled)
    (delivery,) = unsettled
    unsettled[delivery] = "no delivery"
    current = receiver.current
    assert current is not None
    current.update(current.ACCEPTED)
    with pytest.raises(TypeError, match="no held delivery"):
        pair.exchange()
    assert unsettled == {delivery: "no delivery"}
