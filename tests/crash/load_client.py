"""A fast AMQP client for load and crash tests: proton's C engine through cffi, non-blocking, no reactor and no
message codec.

Written for speed: it must not be what limits a broker that is measured (about 1.3 us per message and end). It says
what happened (`accepted`, `received`) by calling back once per batch, and keeps no messages. Traps: facts of proton
0.40's C source.
"""

import socket
import struct
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

import_module("cproton")  # initialises the library
_module: Any = import_module("cproton_ffi")  # untyped
ffi: Any = _module.ffi
lib: Any = _module.lib

HEADER = b"AMQP\x00\x01\x00\x00"
_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
# sasl-init, its one field the symbol ANONYMOUS, in a frame of 25 bytes
_SASL_INIT = bytes.fromhex("00000019 02010000 00 53 41 c0 0c 01 a3 09") + b"ANONYMOUS"
_OUTCOME = b"\x00\x53\x44"
CHUNK = 65536
_IN: Any = ffi.new("char[]", CHUNK)
_IN_VIEW = memoryview(ffi.buffer(_IN))
_OUT: Any = ffi.new("char[]", 1 << 18)
_OUT_VIEW = memoryview(ffi.buffer(_OUT))
_BODY_BYTES = 1 << 17
_BODY: Any = ffi.new("char[]", _BODY_BYTES)
_ACCEPTED: int = lib.PN_ACCEPTED


class Gone(Exception):
    """The peer has closed, or the connection broke."""


class Closed(Gone):
    """The peer has closed the connection and told why: it has not ended."""


class Stream(Protocol):
    """A socket, or what speaks through one: like it, `BlockingIOError` says that there is nothing to read or no room.

    A stream takes all that it is sent, or nothing.
    """

    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def send(self, data: memoryview, /) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


def _plain(sock: socket.socket) -> Stream:
    return sock


def symbols(names: Sequence[str]) -> bytes:
    """An AMQP array of symbols."""
    items = b"".join(bytes([len(name)]) + name.encode() for name in names)
    return b"\xe0" + bytes([len(items) + 2, len(names), 0xA3]) + items


def _selector_filter(selector: str) -> bytes:
    """An AMQP map with one JMS selector, as the JMS client writes it."""
    text = selector.encode()
    described = b"\x00\x80\x00\x00\x46\x8c\x00\x00\x00\x04\xb1" + struct.pack(">I", len(text)) + text
    items = b"\xa3\x0cjms-selector" + described
    return b"\xd1" + struct.pack(">II", len(items) + 4, 2) + items


def put(data: Any, encoded: bytes) -> None:
    """Set a pn_data_t to encoded AMQP values."""
    lib.pn_data_clear(data)
    lib.pn_data_decode(data, encoded, len(encoded))
    lib.pn_data_rewind(data)


def _told(condition: Any) -> str:
    """Name and description of a condition; empty if it is not set."""
    parts = (lib.pn_condition_get_name(condition), lib.pn_condition_get_description(condition))
    return " ".join(ffi.string(part).decode() for part in parts if part != ffi.NULL)


class Peer:
    """One connection with one session. Call `read` when the socket is readable, `flush` before waiting for it."""

    def __init__(
        self, host: str, port: int, container: str, through: Callable[[socket.socket], Stream] = _plain
    ) -> None:
        """Connect, log in as ANONYMOUS and open, blocking. `through` makes what to speak through of the socket.

        Raises Gone or OSError.
        """
        sock = socket.create_connection((host, port), timeout=60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = through(sock)
        try:
            rest = self._log_in()
        except BaseException:
            self.sock.close()
            raise
        self.sock.setblocking(False)
        self._collector = lib.pn_collector()
        self._connection = lib.pn_connection()
        self._transport = lib.pn_transport()
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_set_max_frame(self._transport, CHUNK)
        lib.pn_transport_bind(self._transport, self._connection)
        lib.pn_connection_set_container(self._connection, container.encode())
        lib.pn_connection_open(self._connection)
        self.session = lib.pn_session(self._connection)
        # A window that runs out makes the engine send a flow with the handle of a link that is already detached.
        lib.pn_session_set_incoming_capacity(self.session, 1 << 30)
        lib.pn_session_open(self.session)
        self.senders: dict[Any, Sender] = {}
        self.receivers: dict[Any, Receiver] = {}
        self._ended_here: set[Any] = set()  # links whose detach of ours has been sent
        self._push(rest)

    def _log_in(self) -> bytes:
        self.sock.sendall(_SASL_HEADER + _SASL_INIT)
        data = b""
        offset = 8
        while True:
            while len(data) < offset + 4 or len(data) < offset + int.from_bytes(data[offset : offset + 4]):
                received = self.sock.recv(CHUNK)
                if not received:
                    raise Gone("while logging in")
                data += received
            size = int.from_bytes(data[offset : offset + 4])
            frame = data[offset : offset + size]
            offset += size
            if frame[8:11] == _OUTCOME:
                return data[offset:]

    def sender(self, name: str, address: str, on_accepted: Callable[[list[int]], None]) -> "Sender":
        link = lib.pn_sender(self.session, name.encode())
        lib.pn_terminus_set_address(lib.pn_link_target(link), address.encode())
        lib.pn_terminus_set_address(lib.pn_link_source(link), name.encode())
        lib.pn_link_open(link)
        sender = self.senders[link] = Sender(link, on_accepted)
        return sender

    def receiver(
        self,
        name: str,
        address: str | None,
        on_received: Callable[[bytes], bool],
        *,
        credit: int = 1000,
        capabilities: Sequence[str] = (),
        durable: bool = False,
        selector: str | None = None,
        filters: bytes | None = None,
    ) -> "Receiver":
        """`on_received` says whether to accept and settle. Address None: a null source (what unsubscribes).

        `filters` is an encoded filter set, in the place of one with the selector.
        """
        link = lib.pn_receiver(self.session, name.encode())
        source = lib.pn_link_source(link)
        if address is None:
            lib.pn_terminus_set_type(source, lib.PN_UNSPECIFIED)
        else:
            lib.pn_terminus_set_address(source, address.encode())
            if capabilities:
                put(lib.pn_terminus_capabilities(source), symbols(capabilities))
            if selector is not None:
                filters = _selector_filter(selector)
            if filters is not None:
                put(lib.pn_terminus_filter(source), filters)
            if durable:
                lib.pn_terminus_set_durability(source, lib.PN_DELIVERIES)
                lib.pn_terminus_set_expiry_policy(source, lib.PN_EXPIRE_NEVER)
        lib.pn_terminus_set_address(lib.pn_link_target(link), name.encode())
        lib.pn_link_open(link)
        receiver = self.receivers[link] = Receiver(link, credit, on_received)
        if credit:
            lib.pn_link_flow(link, credit)
        return receiver

    def read(self) -> None:
        """Take what the socket has, and act on it. Raises Gone."""
        try:
            size = self.sock.recv_into(_IN_VIEW)
        except BlockingIOError:
            return
        except OSError as error:
            raise Gone(str(error)) from error
        if not size:
            raise Gone("closed by the peer")
        self._push_buffer(_IN, size)

    def _push(self, data: bytes) -> None:
        if data:
            self._push_buffer(ffi.from_buffer(data), len(data))

    def _push_buffer(self, buffer: Any, size: int) -> None:
        offset = 0
        while offset < size:
            taken = lib.pn_transport_push(self._transport, buffer + offset, size - offset)
            if taken < 0:
                raise Gone(f"the engine failed: {taken}")
            offset += taken
            self._drain()

    def _drain(self) -> None:
        peek, pop, to_delivery = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_delivery
        collector, senders, receivers = self._collector, self.senders, self.receivers
        settle, null = lib.pn_delivery_settle, ffi.NULL
        accepted: dict[Any, list[int]] = {}
        touched: set[Any] = set()
        while (event := peek(collector)) != null:
            delivery = to_delivery(event)
            if delivery != null:
                link = lib.pn_delivery_link(delivery)
                if link in senders:
                    number = senders[link].unsettled.pop(delivery)
                    if lib.pn_delivery_remote_state(delivery) == _ACCEPTED:
                        accepted.setdefault(link, []).append(number)
                    else:
                        senders[link].not_accepted(delivery, number)
                    settle(delivery)
                elif link in receivers and lib.pn_delivery_readable(delivery) and not lib.pn_delivery_partial(delivery):
                    receivers[link].take(delivery)
                    touched.add(link)
            else:
                self._other(event)
            pop(collector)
        for link, numbers in accepted.items():
            senders[link].on_accepted(numbers)
        for link in (touched & receivers.keys()) - self._ended_here:
            receivers[link].top_up()

    def _other(self, event: Any) -> None:
        kind = lib.pn_event_type(event)
        if kind == lib.PN_LINK_REMOTE_OPEN:
            link = lib.pn_event_link(event)
            if link in self.receivers:
                source = lib.pn_link_remote_source(link)
                self.receivers[link].attached = lib.pn_terminus_get_type(source) != lib.PN_UNSPECIFIED
        elif kind in (lib.PN_LINK_REMOTE_CLOSE, lib.PN_LINK_REMOTE_DETACH):
            link = lib.pn_event_link(event)
            end = self.receivers.get(link) or self.senders.get(link)
            if end is not None:
                end.detached = _told(lib.pn_link_remote_condition(link))
            self._gone_link(link)
        elif kind == lib.PN_CONNECTION_REMOTE_CLOSE:
            raise Closed("the broker closed: " + _told(lib.pn_connection_remote_condition(self._connection)))
        elif kind == lib.PN_TRANSPORT_ERROR:
            raise Gone("the engine failed: " + _told(lib.pn_transport_condition(self._transport)))

    def _gone_link(self, link: Any) -> None:
        """Both ends are done with it: forget it, for its address may be used again."""
        self.senders.pop(link, None)
        self.receivers.pop(link, None)
        if link in self._ended_here:
            self._ended_here.remove(link)
        else:
            lib.pn_link_close(link)
        lib.pn_link_free(link)

    def flush(self) -> bool:
        """Send what is pending; False if the socket takes no more for now."""
        while (pending := lib.pn_transport_pending(self._transport)) > 0:
            size = lib.pn_transport_peek(self._transport, _OUT, min(pending, 1 << 18))
            try:
                sent = self.sock.send(_OUT_VIEW[:size])
            except BlockingIOError:
                return False
            except OSError as error:
                self._read_last()
                raise Gone(str(error)) from error
            lib.pn_transport_pop(self._transport, sent)
            if sent < size:
                return False
        return True

    def _read_last(self) -> None:
        """A broker that closes while something is on its way to it resets the connection. What it told before that can
        still be read: raises Closed if it was a Close.
        """
        for _ in range(100):  # buffers; the socket has less
            self.read()

    def tick(self) -> None:
        """Time has passed: the broker closes a connection from which nothing comes for long."""
        lib.pn_transport_tick(self._transport, time.monotonic_ns() // 1_000_000)

    def close_link(self, link: "Sender | Receiver") -> None:
        """Detach with closed=true: of a subscription, the end of it."""
        self._ended_here.add(link.link)
        lib.pn_link_close(link.link)

    def detach_link(self, link: "Sender | Receiver") -> None:
        """Detach with closed=false."""
        self._ended_here.add(link.link)
        lib.pn_link_detach(link.link)

    def free(self) -> None:
        """Drop the connection without a word."""
        self.sock.close()
        lib.pn_transport_unbind(self._transport)
        lib.pn_collector_release(self._collector)
        lib.pn_connection_release(self._connection)
        lib.pn_decref(self._transport)
        lib.pn_decref(self._connection)
        lib.pn_collector_free(self._collector)


class Sender:
    """`on_accepted(numbers)`: these messages, counted from 1 in the order of sending, were accepted."""

    def __init__(self, link: Any, on_accepted: Callable[[list[int]], None]) -> None:
        self.link = link
        self.on_accepted = on_accepted
        self.refused: list[int] = []
        self.unsettled: dict[Any, int] = {}
        self.sent = 0
        self.detached: str | None = None
        self._tag = ffi.new("pn_bytes_t[]", 1)
        self._tag_bytes = ffi.new("char[]", 8)
        self._tag_view = memoryview(ffi.buffer(self._tag_bytes)).cast("Q")
        self._tag[0].size = 8
        self._tag[0].start = self._tag_bytes

    @property
    def credit(self) -> int:
        return int(lib.pn_link_credit(self.link))

    def tag(self, number: int) -> Any:
        """The tag of a delivery; it holds until the next one is asked for."""
        self._tag_view[0] = number
        return self._tag[0]

    def not_accepted(self, delivery: Any, number: int) -> None:
        """The peer answered a message otherwise than by accepting it."""
        self.refused.append(number)

    def send(self, messages: Sequence[bytes]) -> None:
        """Queue encoded messages, unsettled; not more than `credit`."""
        link, view, tag = self.link, self._tag_view, self._tag[0]
        delivery, send, advance, unsettled = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance, self.unsettled
        for number, message in enumerate(messages, self.sent + 1):
            view[0] = number
            unsettled[delivery(link, tag)] = number
            send(link, message, len(message))
            advance(link)
        self.sent += len(messages)


class Receiver:
    """`attached`: None until answered, False if with a null source. `detached`: the condition of the peer's detach."""

    def __init__(self, link: Any, credit: int, on_received: Callable[[bytes], bool]) -> None:
        self.link = link
        self.credit = credit
        self.on_received = on_received
        self.attached: bool | None = None
        self.detached: str | None = None
        self._used = 0

    def take(self, delivery: Any) -> None:
        if self.on_received(self._read()):
            lib.pn_delivery_update(delivery, _ACCEPTED)
            lib.pn_delivery_settle(delivery)

    def _read(self) -> bytes:
        size = lib.pn_link_recv(self.link, _BODY, _BODY_BYTES)
        data: bytes = ffi.unpack(_BODY, size)
        if size == _BODY_BYTES:
            parts = [data]
            while (size := lib.pn_link_recv(self.link, _BODY, _BODY_BYTES)) > 0:
                parts.append(ffi.unpack(_BODY, size))
            data = b"".join(parts)
        lib.pn_link_advance(self.link)
        self._used += 1
        return data

    def begin(self, credit: int) -> None:
        """Give so much credit to a link that was made without any."""
        self.credit = credit
        lib.pn_link_flow(self.link, credit)

    def top_up(self) -> None:
        """Give credit back when half of it is used."""
        if self._used * 2 >= self.credit:
            lib.pn_link_flow(self.link, self._used)
            self._used = 0


def encoded(body: bytes, *, durable: bool, properties: bytes = b"") -> bytes:
    """An encoded message: header, application properties as encoded, one data section."""
    header = b"\x00\x53\x70\xc0\x02\x01\x41" if durable else b""
    return header + properties + b"\x00\x53\x75\xb0" + struct.pack(">I", len(body)) + body
