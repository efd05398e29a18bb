"""Proton's sessions and links: what the peer said of them, and how they are answered, ended and freed.

This module must not know what a link is for. Source: AMQP 1.0 part 2, 2.5, 2.6 and 2.7.3.
"""

from __future__ import annotations

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.endpoint.proton import data_objects, ffi
from penstock_amqp.frames.performatives import Coordinator, Source, Target

__all__ = [
    "close_session",
    "credit_of",
    "current_of",
    "drained",
    "end_link",
    "free_link",
    "has_unsettled",
    "is_sender",
    "name_of",
    "open_link",
    "outgoing_bytes",
    "peer_drains",
    "peer_error",
    "queued",
    "refuse_link",
    "session_of",
    "set_max_message_size",
    "set_session_capacity",
    "set_settle_modes",
    "unread_bytes",
    "write_termini",
]

session_of = ffi.link_session
is_sender = ffi.link_is_sender  # we send on it
credit_of = ffi.link_credit
current_of = ffi.link_current  # the delivery that is being sent, or read
peer_drains = ffi.link_get_drain
drained = ffi.link_drained
queued = ffi.link_queued  # messages that were sent on a link and wait for the peer's window
has_unsettled = ffi.link_unsettled
open_link = ffi.link_open
free_link = ffi.link_free
set_max_message_size = ffi.link_set_max_message_size
outgoing_bytes = ffi.session_outgoing_bytes  # message bytes of a session that wait for the peer's window
unread_bytes = ffi.session_incoming_bytes  # message bytes of a session that came and were not read
set_session_capacity = ffi.session_set_incoming_capacity


def name_of(link: Ptr) -> str:
    """The name by which the engine knows a link."""
    return ffi.text(ffi.link_name(link))


def peer_error(link: Ptr) -> AmqpError | None:
    """The error with which the peer detached a link."""
    return data_objects.read_condition(ffi.link_remote_condition(link))


def write_termini(link: Ptr, source: Source | None, target: Target | Coordinator | None) -> None:
    """Write the source and target that really exist into the reply to an attach."""
    data_objects.write_source(ffi.link_source(link), source)
    data_objects.write_target(ffi.link_target(link), target)


def set_settle_modes(link: Ptr, *, sender: int | None = None, receiver: int | None = None) -> None:
    """Set the settle modes of the reply to an attach (2.8.2, 2.8.3); None leaves one as it is."""
    if sender is not None:
        ffi.link_set_snd_settle_mode(link, sender)
    if receiver is not None:
        ffi.link_set_rcv_settle_mode(link, receiver)


def refuse_link(link: Ptr) -> None:
    """Prepare an attach that refuses: with a null source if the peer receives, with a null target if it sends."""
    own = ffi.link_source(link) if ffi.link_is_sender(link) else ffi.link_target(link)
    ffi.terminus_set_type(own, ffi.UNSPECIFIED)


def end_link(link: Ptr, *, closed: bool, error: AmqpError | None) -> None:
    """Detach or close a link, and free it."""
    if error is not None:
        data_objects.write_condition(ffi.link_condition(link), error)
    if closed:
        ffi.link_close(link)
    else:
        ffi.link_detach(link)
    ffi.link_free(link)


def close_session(session: Ptr) -> None:
    """End a session, and free it. Its links are to be freed before."""
    ffi.session_close(session)
    ffi.session_free(session)
