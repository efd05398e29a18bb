"""What the engine's output becomes before it is sent."""

from __future__ import annotations

from typing import cast

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.endpoint.links import OutLink, Session
from penstock_amqp.endpoint.output_changes import AttachAdditions, OutputChanges
from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Attach, Begin, Close, End, Error, Flow, Open, Source, Target
from penstock_amqp.types.values import Symbol

NOWHERE = cast(Ptr, None)
BEGIN = Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=5)
FLOW = Flow(next_incoming_id=0, incoming_window=5, next_outgoing_id=0, outgoing_window=5)
OPEN = encode_frame(Open(container_id="broker"))


def session(channel: int, *, ended: bool = False) -> Session:
    made = Session(NOWHERE, channel)
    made.has_ended = ended
    return made


def test_the_flow_behind_a_begin_is_left_out_and_no_other() -> None:
    begun = [session(9)]
    changes = OutputChanges((), begun, None, 512)
    begin = encode_frame(Begin(remote_channel=9, next_outgoing_id=0, incoming_window=5, outgoing_window=5), 1)
    of_link = encode_frame(Flow(incoming_window=5, next_outgoing_id=0, outgoing_window=5, handle=0, link_credit=9), 1)
    other = encode_frame(FLOW, 2)
    assert changes.apply(OPEN + begin + encode_frame(FLOW, 1) + of_link + other) == OPEN + begin + of_link + other
    assert not begun


def test_a_begin_names_the_channel_of_a_session_that_has_ended_since() -> None:
    """2.7.2: whoever answers a begin sets the remote channel."""
    living, over = session(3), session(7, ended=True)
    begun = [living, over]
    expected = encode_frame(Begin(remote_channel=7, next_outgoing_id=0, incoming_window=5, outgoing_window=5), 4)
    assert OutputChanges((), begun, None, 512).apply(encode_frame(BEGIN, 4)) == expected
    assert begun == [living]
    assert (over.local_channel, living.local_channel) == (4, None)


def test_an_attach_gets_its_offer_and_tells_its_channel_and_handle() -> None:
    link, namesake = OutLink(NOWHERE, "l", session(0)), OutLink(NOWHERE, "l", session(1))
    link.session.local_channel, namesake.session.local_channel = 2, 3
    link.engine_name = "l\x1f1"
    attach = Attach(name="l\x1f1", handle=6, role=False, source=Source(), target=Target(), initial_delivery_count=0)
    offers = (AttachAdditions(namesake), AttachAdditions(link, ("SHARED-SUBS",), True))
    changed = OutputChanges(offers, [], None, 512).apply(encode_frame(attach, 2))
    expected = Attach(
        name="l",
        handle=6,
        role=False,
        source=Source(),
        target=Target(),
        unsettled={},
        initial_delivery_count=0,
        offered_capabilities=(Symbol("SHARED-SUBS"),),
    )
    assert changed == encode_frame(expected, 2)
    assert (link.local, namesake.local) == ((2, 6), None)


def test_a_close_says_our_words_behind_the_end_of_its_session() -> None:
    """2.8.17: an error of a session ends the session."""
    told = AmqpError("amqp:session:unattached-handle", "no such handle: 4", {"x": 1})
    error = Error(condition=Symbol(told.condition), description=told.description, info={Symbol("x"): 1})
    engine_s = Error(condition=Symbol("amqp:invalid-field"), description="no such handle: 4")
    data = OPEN + encode_frame(Close(error=engine_s))
    both = OPEN + encode_frame(End(error=error), 3) + encode_frame(Close(error=error))
    assert OutputChanges((), [], (told, 3), 512).apply(data) == both
    assert OutputChanges((), [], (told, None), 512).apply(data) == OPEN + encode_frame(Close(error=error))
    assert OutputChanges((), [], None, 512).apply(data) == data


def test_an_engine_that_goes_without_a_word_gets_a_close() -> None:
    told = AmqpError("amqp:connection:framing-error", "?")
    error = Error(condition=Symbol(told.condition), description="?")
    assert OutputChanges((), [], (told, None), 512).apply(OPEN) == OPEN + encode_frame(Close(error=error))
