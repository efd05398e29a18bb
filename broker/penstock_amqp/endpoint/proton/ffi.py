"""The functions of proton's C engine with types.

Every function of proton's that is called is bound here once, to a name with a signature: from the compiled module if
there is one, which costs 30 ns a call, else from `cproton_ffi.lib` (40 to 45 ns, against 55 ns through the attribute of
`lib`). The loops over messages use these names directly.

This module must not know AMQP. Source: proton/c/include/proton (0.40).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# cffi's objects have no types: this module gives them.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NewType, cast

# It initialises the library and registers the callbacks that cproton_ffi.lib needs.
import cproton  # noqa: F401 # pyright: ignore[reportUnusedImport]
from cproton_ffi import ffi as _untyped_ffi
from cproton_ffi import lib as _untyped_lib

import penstock_native
from penstock_amqp.endpoint.buffers import Buffer, Ptr, new_buffer, unpack, view

compiled: Any = penstock_native.proton
"""The compiled module, which has batches as well; None if there is none."""

_ffi: Any = _untyped_ffi
_constants: Any = _untyped_lib
_lib: Any = _untyped_lib if compiled is None else compiled

Tag = NewType("Tag", object)
"""A `pn_bytes_t` by value, or the bytes that it points to."""

_tag_bytes: Any = new_buffer(4)
_tag: Any = None if compiled is not None else _ffi.new("pn_bytes_t[]", 1)  # its struct does not keep it alive
if _tag is not None:
    _tag[0].size = 4
    _tag[0].start = _tag_bytes
TAG = cast(Tag, _tag_bytes if _tag is None else _tag[0])
TAG_VIEW: memoryview = view(_tag_bytes).cast("I")
"""Writing `TAG_VIEW[0]` changes the tag that `TAG` stands for; the engine copies it."""

_DATA_BYTES = 1024
_data = new_buffer(_DATA_BYTES)


def text(raw: object) -> str:
    """A C string, empty for NULL; bytes that are not UTF-8 are replaced, for a peer chose them."""
    if not raw:
        return ""
    return (raw if isinstance(raw, bytes) else cast(bytes, _ffi.string(raw))).decode("utf-8", "replace")


def utf8(value: str) -> bytes:
    """`value` as a C string: cut at a NUL, which C could not carry."""
    return value.split("\x00", 1)[0].encode("utf-8")


def data_bytes(data: Ptr) -> bytes:
    """The encoded content of a `pn_data_t`."""
    # To ask for the size encodes it as well; most content is short.
    known: int = _lib.pn_data_encode(data, _data, _DATA_BYTES)
    if known >= 0:
        return unpack(_data, known)
    size: int = _lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    buffer = new_buffer(size)
    written: int = _lib.pn_data_encode(data, buffer, size)
    return unpack(buffer, written) if written > 0 else b""


def set_data(data: Ptr, encoded: bytes) -> None:
    """Replace the content of a `pn_data_t` by `encoded` AMQP values."""
    _lib.pn_data_clear(data)
    at_byte = 0
    while at_byte < len(encoded):
        taken: int = _lib.pn_data_decode(data, encoded[at_byte:], len(encoded) - at_byte)
        if taken <= 0:
            raise ValueError(f"proton refuses to take {encoded[at_byte:]!r} as AMQP data: error {taken}")
        at_byte += taken
    _lib.pn_data_rewind(data)


def delivery_tag(delivery: Ptr) -> bytes:
    """The tag that its sender gave a delivery."""
    tag: Any = _lib.pn_delivery_tag(delivery)
    if compiled is not None:
        return cast(bytes, tag)
    return bytes(_ffi.unpack(tag.start, tag.size)) if tag.size else b""


# -- collector and events -------------------------------------------------------------------------------------------
collector: Callable[[], Ptr] = _lib.pn_collector
collector_peek: Callable[[Ptr], Ptr] = _lib.pn_collector_peek
collector_pop: Callable[[Ptr], bool] = _lib.pn_collector_pop
collector_release: Callable[[Ptr], None] = _lib.pn_collector_release
collector_free: Callable[[Ptr], None] = _lib.pn_collector_free
event_type: Callable[[Ptr], int] = _lib.pn_event_type
event_delivery: Callable[[Ptr], Ptr] = _lib.pn_event_delivery
event_link: Callable[[Ptr], Ptr] = _lib.pn_event_link
event_session: Callable[[Ptr], Ptr] = _lib.pn_event_session

CONNECTION_REMOTE_OPEN: int = _constants.PN_CONNECTION_REMOTE_OPEN
CONNECTION_REMOTE_CLOSE: int = _constants.PN_CONNECTION_REMOTE_CLOSE
SESSION_REMOTE_OPEN: int = _constants.PN_SESSION_REMOTE_OPEN
SESSION_REMOTE_CLOSE: int = _constants.PN_SESSION_REMOTE_CLOSE
LINK_REMOTE_OPEN: int = _constants.PN_LINK_REMOTE_OPEN
LINK_REMOTE_CLOSE: int = _constants.PN_LINK_REMOTE_CLOSE
LINK_REMOTE_DETACH: int = _constants.PN_LINK_REMOTE_DETACH
LINK_FLOW: int = _constants.PN_LINK_FLOW
TRANSPORT_ERROR: int = _constants.PN_TRANSPORT_ERROR
TRANSPORT_TAIL_CLOSED: int = _constants.PN_TRANSPORT_TAIL_CLOSED

# -- transport ------------------------------------------------------------------------------------------------------
transport: Callable[[], Ptr] = _lib.pn_transport
transport_set_server: Callable[[Ptr], None] = _lib.pn_transport_set_server
transport_require_auth: Callable[[Ptr, bool], None] = _lib.pn_transport_require_auth
transport_set_max_frame: Callable[[Ptr, int], None] = _lib.pn_transport_set_max_frame
transport_set_channel_max: Callable[[Ptr, int], int] = _lib.pn_transport_set_channel_max
transport_set_idle_timeout: Callable[[Ptr, int], None] = _lib.pn_transport_set_idle_timeout
transport_bind: Callable[[Ptr, Ptr], int] = _lib.pn_transport_bind
transport_unbind: Callable[[Ptr], int] = _lib.pn_transport_unbind
transport_capacity: Callable[[Ptr], int] = _lib.pn_transport_capacity
transport_push: Callable[[Ptr, Buffer | bytes, int], int] = _lib.pn_transport_push
transport_peek: Callable[[Ptr, Buffer, int], int] = _lib.pn_transport_peek
transport_pop: Callable[[Ptr, int], None] = _lib.pn_transport_pop
transport_tick: Callable[[Ptr, int], int] = _lib.pn_transport_tick
transport_condition: Callable[[Ptr], Ptr] = _lib.pn_transport_condition
transport_remote_max_frame: Callable[[Ptr], int] = _lib.pn_transport_get_remote_max_frame

# -- connection and session -----------------------------------------------------------------------------------------
connection: Callable[[], Ptr] = _lib.pn_connection
connection_collect: Callable[[Ptr, Ptr], None] = _lib.pn_connection_collect
connection_open: Callable[[Ptr], None] = _lib.pn_connection_open
connection_close: Callable[[Ptr], None] = _lib.pn_connection_close
connection_release: Callable[[Ptr], None] = _lib.pn_connection_release
connection_condition: Callable[[Ptr], Ptr] = _lib.pn_connection_condition
connection_remote_condition: Callable[[Ptr], Ptr] = _lib.pn_connection_remote_condition
connection_remote_container: Callable[[Ptr], object] = _lib.pn_connection_remote_container
connection_remote_hostname: Callable[[Ptr], object] = _lib.pn_connection_remote_hostname
connection_remote_properties: Callable[[Ptr], Ptr] = _lib.pn_connection_remote_properties
connection_remote_desired: Callable[[Ptr], Ptr] = _lib.pn_connection_remote_desired_capabilities
connection_set_container: Callable[[Ptr, bytes], None] = _lib.pn_connection_set_container
connection_offered: Callable[[Ptr], Ptr] = _lib.pn_connection_offered_capabilities
connection_properties: Callable[[Ptr], Ptr] = _lib.pn_connection_properties
session_open: Callable[[Ptr], None] = _lib.pn_session_open
session_close: Callable[[Ptr], None] = _lib.pn_session_close
session_free: Callable[[Ptr], None] = _lib.pn_session_free
session_set_incoming_capacity: Callable[[Ptr, int], None] = _lib.pn_session_set_incoming_capacity
session_incoming_bytes: Callable[[Ptr], int] = _lib.pn_session_incoming_bytes
session_outgoing_bytes: Callable[[Ptr], int] = _lib.pn_session_outgoing_bytes
incref: Callable[[Ptr], Ptr] = _lib.pn_incref
decref: Callable[[Ptr], int] = _lib.pn_decref

# -- link -----------------------------------------------------------------------------------------------------------
link_name: Callable[[Ptr], object] = _lib.pn_link_name
link_session: Callable[[Ptr], Ptr] = _lib.pn_link_session
link_is_sender: Callable[[Ptr], bool] = _lib.pn_link_is_sender
link_open: Callable[[Ptr], None] = _lib.pn_link_open
link_close: Callable[[Ptr], None] = _lib.pn_link_close
link_detach: Callable[[Ptr], None] = _lib.pn_link_detach
link_free: Callable[[Ptr], None] = _lib.pn_link_free
link_flow: Callable[[Ptr, int], None] = _lib.pn_link_flow
link_credit: Callable[[Ptr], int] = _lib.pn_link_credit
link_queued: Callable[[Ptr], int] = _lib.pn_link_queued
link_unsettled: Callable[[Ptr], int] = _lib.pn_link_unsettled
link_get_drain: Callable[[Ptr], bool] = _lib.pn_link_get_drain
link_drained: Callable[[Ptr], int] = _lib.pn_link_drained
link_current: Callable[[Ptr], Ptr] = _lib.pn_link_current
link_recv: Callable[[Ptr, Buffer, int], int] = _lib.pn_link_recv
link_send: Callable[[Ptr, bytes, int], int] = _lib.pn_link_send
link_advance: Callable[[Ptr], bool] = _lib.pn_link_advance
link_condition: Callable[[Ptr], Ptr] = _lib.pn_link_condition
link_remote_condition: Callable[[Ptr], Ptr] = _lib.pn_link_remote_condition
link_source: Callable[[Ptr], Ptr] = _lib.pn_link_source
link_target: Callable[[Ptr], Ptr] = _lib.pn_link_target
link_set_max_message_size: Callable[[Ptr, int], None] = _lib.pn_link_set_max_message_size
link_set_snd_settle_mode: Callable[[Ptr, int], None] = _lib.pn_link_set_snd_settle_mode
link_set_rcv_settle_mode: Callable[[Ptr, int], None] = _lib.pn_link_set_rcv_settle_mode

# -- terminus -------------------------------------------------------------------------------------------------------
terminus_set_type: Callable[[Ptr, int], int] = _lib.pn_terminus_set_type
terminus_set_address: Callable[[Ptr, bytes], int] = _lib.pn_terminus_set_address
terminus_set_durability: Callable[[Ptr, int], int] = _lib.pn_terminus_set_durability
terminus_set_expiry: Callable[[Ptr, int], int] = _lib.pn_terminus_set_expiry_policy
terminus_set_timeout: Callable[[Ptr, int], int] = _lib.pn_terminus_set_timeout
terminus_set_dynamic: Callable[[Ptr, bool], int] = _lib.pn_terminus_set_dynamic
terminus_set_distribution: Callable[[Ptr, int], int] = _lib.pn_terminus_set_distribution_mode
terminus_capabilities: Callable[[Ptr], Ptr] = _lib.pn_terminus_capabilities
terminus_filter: Callable[[Ptr], Ptr] = _lib.pn_terminus_filter
terminus_outcomes: Callable[[Ptr], Ptr] = _lib.pn_terminus_outcomes
terminus_properties: Callable[[Ptr], Ptr] = _lib.pn_terminus_properties

UNSPECIFIED: int = _constants.PN_UNSPECIFIED
SOURCE: int = _constants.PN_SOURCE
COORDINATOR: int = _constants.PN_COORDINATOR
TARGET: int = _constants.PN_TARGET
EXPIRE_WITH_LINK: int = _constants.PN_EXPIRE_WITH_LINK
EXPIRE_WITH_SESSION: int = _constants.PN_EXPIRE_WITH_SESSION
EXPIRE_WITH_CONNECTION: int = _constants.PN_EXPIRE_WITH_CONNECTION
EXPIRE_NEVER: int = _constants.PN_EXPIRE_NEVER
DIST_MODE_UNSPECIFIED: int = _constants.PN_DIST_MODE_UNSPECIFIED
DIST_MODE_COPY: int = _constants.PN_DIST_MODE_COPY
DIST_MODE_MOVE: int = _constants.PN_DIST_MODE_MOVE

# -- delivery and disposition ---------------------------------------------------------------------------------------
delivery: Callable[[Ptr, Tag], Ptr] = _lib.pn_delivery
delivery_link: Callable[[Ptr], Ptr] = _lib.pn_delivery_link
delivery_readable: Callable[[Ptr], bool] = _lib.pn_delivery_readable
delivery_pending: Callable[[Ptr], int] = _lib.pn_delivery_pending
delivery_partial: Callable[[Ptr], bool] = _lib.pn_delivery_partial
delivery_aborted: Callable[[Ptr], bool] = _lib.pn_delivery_aborted
delivery_settled: Callable[[Ptr], bool] = _lib.pn_delivery_settled
delivery_remote_state: Callable[[Ptr], int] = _lib.pn_delivery_remote_state
delivery_update: Callable[[Ptr, int], None] = _lib.pn_delivery_update
delivery_settle: Callable[[Ptr], None] = _lib.pn_delivery_settle
delivery_abort: Callable[[Ptr], None] = _lib.pn_delivery_abort
delivery_local: Callable[[Ptr], Ptr] = _lib.pn_delivery_local
delivery_remote: Callable[[Ptr], Ptr] = _lib.pn_delivery_remote
disposition_data: Callable[[Ptr], Ptr] = _lib.pn_disposition_data
disposition_condition: Callable[[Ptr], Ptr] = _lib.pn_disposition_condition
disposition_annotations: Callable[[Ptr], Ptr] = _lib.pn_disposition_annotations
disposition_is_failed: Callable[[Ptr], bool] = _lib.pn_disposition_is_failed
disposition_is_undeliverable: Callable[[Ptr], bool] = _lib.pn_disposition_is_undeliverable
disposition_set_failed: Callable[[Ptr, bool], None] = _lib.pn_disposition_set_failed
disposition_set_undeliverable: Callable[[Ptr, bool], None] = _lib.pn_disposition_set_undeliverable

RECEIVED: int = _constants.PN_RECEIVED
ACCEPTED: int = _constants.PN_ACCEPTED
REJECTED: int = _constants.PN_REJECTED
RELEASED: int = _constants.PN_RELEASED
MODIFIED: int = _constants.PN_MODIFIED

# -- conditions -----------------------------------------------------------------------------------------------------
condition_is_set: Callable[[Ptr], bool] = _lib.pn_condition_is_set
condition_clear: Callable[[Ptr], None] = _lib.pn_condition_clear
condition_set_name: Callable[[Ptr, bytes], int] = _lib.pn_condition_set_name
condition_set_description: Callable[[Ptr, bytes], int] = _lib.pn_condition_set_description
condition_get_name: Callable[[Ptr], object] = _lib.pn_condition_get_name
condition_get_description: Callable[[Ptr], object] = _lib.pn_condition_get_description
condition_info: Callable[[Ptr], Ptr] = _lib.pn_condition_info


def _pop_event(collector: Ptr) -> None:
    """Take the first event of a collector off.

    It may have the last reference to a link that ended with its session, and the link the last one to the session:
    proton 0.40 then frees the link together with the session, and once more when it comes back to the link. So the
    session is held meanwhile.
    """
    session = event_session(collector_peek(collector))
    if session:
        incref(session)
    collector_pop(collector)
    if session:
        decref(session)


pop_event: Callable[[Ptr], None] = _pop_event if compiled is None else compiled.pop_event
