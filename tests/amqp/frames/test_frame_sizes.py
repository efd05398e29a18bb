"""What a performative loses so that its frame fits; the order is that of the module's table, lengths are measured."""

from __future__ import annotations

import pytest

from penstock_amqp.frames.frame_sizes import fitted
from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Attach, Close, Detach, End, Error, Flow, Open, Source, Target
from penstock_amqp.types.values import Described, Symbol

CAPABILITIES = (Symbol("topic"), Symbol("shared"), Symbol("global"))
FILTER = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")}
OUTCOMES = (Symbol("amqp:accepted:list"), Symbol("amqp:rejected:list"))
OFFERED = (Symbol("SHARED-SUBS"),)

WHOLE = Attach(
    name="l",
    handle=1,
    role=False,
    source=Source(address="a", filter=FILTER, outcomes=OUTCOMES, capabilities=CAPABILITIES),
    target=Target(address="t"),
    unsettled={},
    offered_capabilities=OFFERED,
    properties={Symbol("p"): 1},
)


def test_an_attach_loses_first_what_is_missed_least() -> None:
    """Properties, the peer's own terminus, outcomes, capabilities, and last the filter; never names and addresses."""
    forms = [WHOLE]
    while (shorter := fitted(WHOLE, 0, len(encode_frame(forms[-1])) - 1)) is not None:
        assert isinstance(shorter, Attach)
        forms.append(shorter)
    told = [
        (
            each.properties is not None,
            each.target == Target(address="t"),
            each.source is not None and each.source.outcomes is not None,
            each.offered_capabilities is not None,
            each.source is not None and each.source.filter is not None,
        )
        for each in forms
    ]
    assert told == [
        (True, True, True, True, True),
        (False, True, True, True, True),
        (False, False, True, True, True),
        (False, False, False, True, True),
        (False, False, False, False, True),
        (False, False, False, False, False),
    ]
    assert forms[-1] == Attach(
        name="l", handle=1, role=False, source=Source(address="a"), target=Target(), unsettled={}
    )


def test_a_sender_s_attach_keeps_the_target_that_it_is_told() -> None:
    attach = Attach(
        name="l",
        handle=1,
        role=True,
        source=Source(address="long"),
        target=Target(address="a", capabilities=CAPABILITIES),
    )
    assert fitted(attach, 0, len(encode_frame(attach)) - 1) == Attach(
        name="l", handle=1, role=True, source=Source(), target=Target(address="a", capabilities=CAPABILITIES)
    )
    least = Attach(name="l", handle=1, role=True, source=Source(), target=Target(address="a"))
    assert fitted(attach, 0, len(encode_frame(least))) == least


def test_an_open_loses_its_properties_and_then_its_offer() -> None:
    whole = Open(container_id="c", offered_capabilities=OFFERED, properties={Symbol("p"): "x" * 100})
    offering = Open(container_id="c", offered_capabilities=OFFERED)
    assert fitted(whole, 0, len(encode_frame(whole))) is whole
    assert fitted(whole, 0, len(encode_frame(whole)) - 1) == offering
    assert fitted(whole, 0, len(encode_frame(offering)) - 1) == Open(container_id="c")


@pytest.mark.parametrize("kind", [End, Close])
def test_a_description_is_cut_before_the_info_goes(kind: type[End] | type[Close]) -> None:
    whole = kind(error=Error(condition=Symbol("x"), description="é" * 200, info={Symbol("i"): 1}))
    size = len(encode_frame(whole))
    assert fitted(whole, 0, size - 3) == kind(
        error=Error(condition=Symbol("x"), description="é" * 198, info={Symbol("i"): 1})
    )
    told = kind(error=Error(condition=Symbol("x"), info={Symbol("i"): 1}))
    assert fitted(whole, 0, len(encode_frame(told))) == told
    assert fitted(whole, 0, len(encode_frame(told)) - 1) == kind(error=Error(condition=Symbol("x")))


def test_what_has_nothing_to_lose_does_not_fit() -> None:
    flow = Flow(incoming_window=1, next_outgoing_id=1, outgoing_window=1)
    assert fitted(flow, 0, 10) is None
    assert fitted(Detach(handle=1), 0, 5) is None
    assert fitted(WHOLE, 0, 20) is None
