"""proton 0.40 frees a link twice if an event has the last reference to it, and the link the last one to its session.

A random client brought that about, with links that had much to send when their session ended. Here it is made of
proton's functions.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import pytest
from native.watched_endpoint import WatchedEndpoint

from penstock_amqp.endpoint import buffers
from penstock_amqp.endpoint.events import Event, SessionEnded
from penstock_amqp.endpoint.proton import ffi
from penstock_amqp.endpoint.proton.compiled_engine import CompiledEngine
from penstock_amqp.endpoint.proton.engine import ProtonEngine
from penstock_amqp.frames.frames import AMQP_HEADER, encode_frame
from penstock_amqp.frames.performatives import Attach, Begin, End, Open, Source, Target


def end_a_session(kind: type[ProtonEngine]) -> None:
    """The End of a session with a link is answered, and the last event that waits is of the link."""
    watched = WatchedEndpoint(kind)
    endpoint, transport = watched.endpoint, watched.engine._transport
    attach = Attach(name="l", handle=0, role=True, source=Source(address="q"), target=Target())
    watched.feed(
        AMQP_HEADER
        + encode_frame(Open(container_id="c"))
        + encode_frame(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10))
        + encode_frame(attach)
    )
    (link,) = endpoint.all_links()
    told: list[Event] = []
    endpoint.receive_bytes(encode_frame(End()), told)
    (ended,) = (event[2] for event in told)
    assert isinstance(ended, SessionEnded)
    of_proton = link.ptr
    endpoint.end(ended.session)
    assert ffi.transport_peek(transport, buffers.OUTPUT, buffers.OUTPUT_BYTES) > 0  # the End is written
    ffi.link_detach(of_proton)
    assert endpoint.output() > 0
    watched.free()


@pytest.mark.parametrize("kind", [CompiledEngine, ProtonEngine])
def test_a_link_whose_event_is_the_last_of_its_session_is_freed_once(kind: type[ProtonEngine]) -> None:
    """The sanitizers say so (`test_sanitized`). Without them it depends on what else is free whether it is noticed."""
    end_a_session(kind)
