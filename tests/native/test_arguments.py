"""No argument ends the process: what is wrong is an exception. A number that may be a pointer is taken for one."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine_pair import EnginePair

import penstock_native
from penstock_amqp.endpoint.buffers import FREED
from penstock_amqp.endpoint.events import EventKind
from penstock_amqp.endpoint.proton.compiled_engine import CompiledEngine
from penstock_amqp.endpoint.proton.connection import ProtonConnection

loops: Any = penstock_native.messages
proton: Any = penstock_native.proton
pytestmark = pytest.mark.skipif(loops is None, reason="the engine in Python was chosen")

REFUSALS = (TypeError, ValueError, OverflowError, BufferError)
WRONG: tuple[Any, ...] = (
    *(None, FREED, True, 0, -1, 7, 4095, 2**31, -(2**63), 2**63 - 1, 2**63, 2**64, 2**200, 1.5, "", b"", b"\0", ()),
    *((1,), [], [None], [()], [(1, 2, 3)], [(1, b"", True)], [(1, b"x", 2, 3, "flags")]),
    *([(1, (1, b"x", 2, 3, 4), 5)], {}, {1: 2}, object(), memoryview(b"abc"), int, tuple),
)
NO_POINTERS = tuple(each for each in WRONG if not (isinstance(each, int) and 4096 <= each < 2**64))
LOOPS = {
    "take_plain": 14,
    "take_batches": 14,
    "put_records": 6,
    "sent_runs": 1,
    "accepted_runs": 2,
    "read_puts": 6,
    "plain_entries": 9,
}
FIELDS = {"picked": 5, "properties_field": 4}
BATCHES = {
    "drain": 6,
    "push_plain": 14,
    "read_plain": 12,
    "read_together": 6,
    "send": 8,
    "output": 4,
    "send_output": 5,
    "send_outputs": 2,
    "any_in_state": 2,
}
MESSAGE = bytes.fromhex("00 53 73 c0 04 02 40 52 07  00 53 74 c1 06 02 a1 01 6b 52 05  00 53 77 40")
"""Its properties have a user-id (7), and its application-properties a `k` (5)."""
DESCRIPTOR_AT = {"read_plain": 0, "send_output": 4}
"""Where a descriptor stands among the arguments: whatever else this process has open is left alone."""


def refused(function: Callable[..., object], *arguments: object) -> bool:
    """Whether the function refuses the arguments; whatever else it raises comes through."""
    try:
        function(*arguments)
    except REFUSALS:
        return True
    return False


@pytest.fixture
def right() -> Iterator[dict[str, list[Any]]]:
    """Arguments that are right, by function: fresh ones, with an engine behind the pointers."""
    pair = EnginePair()
    _, link = pair.attach_receiver(pair.open())
    connection = ProtonConnection(max_frame=65_536, idle_timeout_ms=0, max_sessions=1)
    engine = CompiledEngine(connection)
    transport, collector = connection.transport, connection.collector
    tables: list[Any] = [engine.receivers, proton.Sent(), engine.aside, engine.unconfirmed, []]
    ours, theirs = socket.socketpair()
    theirs.send(b"AMQP" * 500)
    yield {
        "take_plain": [[(1, b"ab", True)], 0, b"a", 1, False, 9, 1, 2, 3, 4, [], [], [], []],
        "take_batches": [[(None, [(1, b"ab", True)])], 0, b"a", 1, False, 9, 1, 2, 3, 4, [], [], [], []],
        "put_records": [[b"a"], [], 5, 1, 2, 3],
        "sent_runs": [[(1, b"x", 2, 3, 4)]],
        "accepted_runs": [[(1, (1, b"x", 2, 3, 4), 5)], 1],
        "read_puts": [bytes(40), 0, 40, 5, tuple, []],
        "plain_entries": [[(1, 2, 3, b"ab", 0)], 0, b"a", 1, False, 8, 1, 2, []],
        "picked": [MESSAGE, 0, 0x74, {b"\xa1\x01k": "k"}, (int,) * 256],
        "properties_field": [MESSAGE, 0, 1, (int,) * 256],
        "drain": [collector, *tables],
        "push_plain": [transport, memoryview(b"AMQP"), 0, 4, 0, 0, engine.room(), 16, collector, *tables],
        "read_plain": [
            *(ours.fileno(), 4, transport, memoryview(bytearray(8)), engine.room(), 16),
            *(collector, *tables),
        ],
        "read_together": [[engine.line(ours.fileno())], 4, memoryview(bytearray(8)), 16, 8192, []],
        "send": [None, link.ptr, [(1, b"x", 2, 3, 4)], 5, proton.Sent(), 1, 9, []],
        "output": [transport, collector, memoryview(bytearray(100)), []],
        "send_output": [transport, collector, memoryview(bytearray(100)), [], ours.fileno()],
        "send_outputs": [[engine.line(ours.fileno())], memoryview(bytearray(100))],
        "any_in_state": [[(None, [(EventKind.ACCEPTED, link, [None])])], 0x34],
    }
    ours.close()
    theirs.close()
    engine.free()
    connection.let_go()()
    pair.close()


@pytest.mark.parametrize("name", [*LOOPS, *FIELDS, *BATCHES])
def test_each_argument_alone_can_be_wrong(name: str, right: dict[str, list[Any]]) -> None:
    function = getattr(proton if name in BATCHES else loops, name)
    arguments = right[name]
    assert not refused(function, *arguments)
    for at, before in enumerate(arguments):
        is_pointer = isinstance(before, int) and before >= 2**20  # other numbers are small
        if at == DESCRIPTOR_AT.get(name):
            wrongs = tuple(each for each in WRONG if not isinstance(each, int) or not 0 <= each < 2**31)
        else:
            wrongs = NO_POINTERS if is_pointer else WRONG
        for wrong in wrongs:
            told = refused(function, *[*arguments[:at], wrong, *arguments[at + 1 :]])
            assert told or not is_pointer, f"argument {at} was {wrong!r}"


@pytest.mark.parametrize(("name", "fields"), [("read_together", range(8)), ("send_outputs", range(4))])
def test_each_field_of_a_line_alone_can_be_wrong(name: str, fields: range, right: dict[str, list[Any]]) -> None:
    function, ([line], *others) = getattr(proton, name), right[name]
    for at in fields:
        wrongs = NO_POINTERS if at else tuple(each for each in WRONG if not isinstance(each, int) or each < 0)
        is_dict, is_list = isinstance(line[at], dict), isinstance(line[at], list)
        for wrong in wrongs:
            if not (is_dict and isinstance(wrong, dict)) and not (is_list and isinstance(wrong, list)):
                assert refused(function, [(*line[:at], wrong, *line[at + 1 :])], *others), f"field {at} was {wrong!r}"
    for wrong in (line[:-1], (*line, None), list(line)):
        assert refused(function, [wrong], *others)
    assert not refused(function, [line], *others)


@pytest.mark.parametrize("name", [*LOOPS, *FIELDS, *BATCHES])
def test_the_number_of_arguments_is_checked(name: str, right: dict[str, list[Any]]) -> None:
    function = getattr(proton if name in BATCHES else loops, name)
    for arguments in ([], right[name][:-1], [*right[name], None]):
        with pytest.raises(TypeError):
            function(*arguments)


@given(st.data())
def test_several_arguments_can_be_wrong(data: st.DataObject) -> None:
    counts = LOOPS | FIELDS
    name = data.draw(st.sampled_from(sorted(counts)))
    refused(getattr(loops, name), *[data.draw(st.sampled_from(WRONG)) for _ in range(counts[name])])


def functions_of_proton() -> list[str]:
    return [name for name in dir(proton or ()) if name.startswith("pn_")]


MAKERS = ("pn_collector", "pn_transport", "pn_connection")


@pytest.mark.parametrize("name", [name for name in functions_of_proton() if name not in MAKERS])
def test_no_function_of_protons_takes_what_is_no_pointer(name: str) -> None:
    """Among them the pointer of something that is freed."""
    function = getattr(proton, name)
    for wrong in NO_POINTERS:
        for others in ((), (1,), (b"",), (b"", 0), (memoryview(bytearray(4)), 4), (1, 2, 3)):
            with pytest.raises(REFUSALS):
                function(wrong, *others)


SETTERS = {
    "pn_transport_require_auth": 1,
    "pn_transport_set_max_frame": 2**32 - 1,
    "pn_transport_set_idle_timeout": 2**32 - 1,
    "pn_transport_set_channel_max": 2**16 - 1,
}


@pytest.mark.parametrize("name", SETTERS)
def test_a_number_that_c_would_cut_is_refused(name: str) -> None:
    connection = ProtonConnection(max_frame=65_536, idle_timeout_ms=0, max_sessions=1)
    function = getattr(proton, name)
    for wrong in (-1, SETTERS[name] + 1, 2**63 - 1, -(2**63), 2**64):
        with pytest.raises(OverflowError):
            function(connection.transport, wrong)
    function(connection.transport, 0)
    function(connection.transport, SETTERS[name])
    connection.let_go()()


@pytest.mark.parametrize("name", ["pn_transport_push", "pn_transport_peek"])
def test_a_buffer_is_never_read_or_written_beyond_its_end(name: str) -> None:
    connection = ProtonConnection(max_frame=65_536, idle_timeout_ms=0, max_sessions=1)
    function = getattr(proton, name)
    for size in (-1, 5, 2**31, 2**63 - 1, -(2**63), 2**63, None, "4"):
        with pytest.raises(REFUSALS):
            function(connection.transport, bytearray(4), size)
    with pytest.raises(BufferError):
        function(connection.transport, memoryview(bytearray(8))[::2], 4)
    connection.let_go()()


@pytest.mark.parametrize("name", ["accept", "settle"])
def test_only_pointers_are_settled(name: str) -> None:
    for wrong in (None, 1, [None], [0], [FREED], (-1,), [7], ["x"], [2**64]):
        with pytest.raises(REFUSALS):
            getattr(proton, name)(wrong)
    assert getattr(proton, name)([]) is None


def test_the_kinds_of_events_stay_as_they_are_when_use_fails() -> None:
    for wrong in ((), (1, 2, None, 4), (1, 2, -1, 4), (1, 2, 3, None), (1, 2, 3, 2**31), (1, 2, 2**64, 0)):
        with pytest.raises(REFUSALS):
            proton.use(*wrong)


def test_the_calls_of_linux_aio_take_no_wrong_argument() -> None:
    aio = penstock_native.aio
    context, eventfd = aio.setup(), os.eventfd(0, os.EFD_NONBLOCK)
    no_number = tuple(each for each in WRONG if not isinstance(each, int) or not 0 <= each < 2**31)
    no_token = tuple(each for each in WRONG if not isinstance(each, int) or not -(2**63) <= each < 2**63)
    wrongs: dict[str, list[tuple[Any, ...]]] = {
        "submit": [NO_POINTERS, no_number, no_number, no_token],
        "collect": [NO_POINTERS, no_number, (*no_number, 65)],
        "may_be_done": [NO_POINTERS],
        "destroy": [NO_POINTERS],
    }
    right = {"submit": [context, eventfd, eventfd, 1], "collect": [context, eventfd, 0]}
    for name, choices in wrongs.items():
        arguments = right.get(name, [context])
        for at, chosen in enumerate(choices):
            for wrong in chosen:
                with pytest.raises(REFUSALS):
                    getattr(aio, name)(*[*arguments[:at], wrong, *arguments[at + 1 :]])
        for many in ([], [*arguments, None]):
            with pytest.raises(TypeError):
                getattr(aio, name)(*many)
    with pytest.raises(TypeError):
        aio.setup(1)
    assert aio.collect(context, eventfd, 0) == []
    aio.destroy(context)
    os.close(eventfd)


@pytest.mark.parametrize("path", ["/nowhere/proton.so", "", "libc.so.6"])
def test_a_library_that_is_not_protons_is_refused_and_changes_nothing(path: str) -> None:
    with pytest.raises(ImportError, match=r"proton's library|can't be opened"):
        proton.load(path)
    with pytest.raises((TypeError, ValueError)):
        proton.load(None)
    connection = ProtonConnection(max_frame=65_536, idle_timeout_ms=0, max_sessions=1)
    assert proton.pn_transport_capacity(connection.transport) > 0
    connection.let_go()()


class Shrinking(bytes):
    """Its length empties the list in which it stands: the last references go while it is looked at."""

    home: list[Any]

    def __len__(self) -> int:
        self.home.clear()
        return 3


def test_code_of_python_that_drops_what_is_worked_on_is_survived() -> None:
    batch: list[Any] = []
    message = Shrinking(b"abc")
    message.home = batch
    batch += [(None, (1, message, 2**70, 0, 0), 2**71), (None, (2, b"", 0, 0, 0), 0)]
    del message
    assert loops.accepted_runs(batch, 1) == (3, [], [(2**70, 1)], [(2**71, 1)])


class Odd:
    """Compares as it likes, and drops the list."""

    def __init__(self, home: list[Any]) -> None:
        self.home = home

    def __eq__(self, other: object) -> bool:
        self.home.clear()
        return False

    __hash__ = None  # type: ignore[assignment]


def test_times_that_compare_by_code_of_python_are_survived() -> None:
    entries: list[Any] = []
    entries += [(1, b"a", Odd(entries), 0, 0), (2, b"b", Odd(entries), 0, 0)]
    size, runs = loops.sent_runs(entries)
    assert (size, [length for _, length in runs]) == (2, [1, 1])


def test_an_error_of_a_length_comes_through() -> None:
    class Failing(bytes):
        def __len__(self) -> int:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        loops.sent_runs([(1, Failing(), 0, 0, 0)])
    with pytest.raises(OSError, match="gone"):
        loops.accepted_runs([(None, (1, Failing(), 0, 0, 0), 0)], 1)


def test_an_error_of_a_class_or_of_a_key_comes_through() -> None:
    def failing(_: int) -> int:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        loops.properties_field(MESSAGE, 0, 1, (failing,) * 256)
    with pytest.raises(OSError, match="gone"):
        loops.picked(MESSAGE, 0, 0x74, {b"\xa1\x01k": "k"}, (failing,) * 256)
    with pytest.raises(TypeError, match="unhashable"):
        loops.picked(MESSAGE, 0, 0x74, {b"\xa1\x01k": []}, (int,) * 256)


def test_a_class_that_drops_what_is_wanted_is_survived() -> None:
    wanted: dict[bytes, Any] = {b"\xa1\x01k": b"name".decode(), b"other": "other"}

    def dropping(number: int) -> int:
        wanted.clear()
        return number

    assert loops.picked(MESSAGE, 0, 0x74, wanted, (dropping,) * 256) == {"name": 5}
