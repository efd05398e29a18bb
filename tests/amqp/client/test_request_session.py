"""The client's session against frames put together by hand: flow control, splits, and peers that misbehave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.client.errors import RequestTooLong, TransportError
from penstock_amqp.client.request_session import Ended, Ready, Refusal, Reply, RequestSession, SessionSettings
from penstock_amqp.frames.frames import AMQP_HEADER, FrameReader, encode_frame, read_body
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Performative,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, Properties, decode_message, encode_message
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Symbol

SETTINGS = SessionSettings(container_id="c", node="$management", reply_to="me", credit=4)
HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def frames(*bodies: Composite) -> bytes:
    return b"".join(encode_frame(body) for body in bodies)


def flow(
    credit: int,
    *,
    count: int = 0,
    seen: int = 0,
    window: int = 100,
    handle: int | None = 7,
    drain: bool | None = None,
    echo: bool | None = None,
) -> Flow:
    return Flow(
        next_incoming_id=seen,
        incoming_window=window,
        next_outgoing_id=0,
        outgoing_window=100,
        handle=handle,
        delivery_count=None if handle is None else count,
        link_credit=None if handle is None else credit,
        drain=drain,
        echo=echo,
    )


def opening(
    *, max_frame_size: int | None = None, window: int = 100, idle: int | None = None, largest: int | None = None
) -> bytes:
    """The peer's side: the link to it has handle 7, the link back 9."""
    return AMQP_HEADER + frames(
        Open(container_id="broker", max_frame_size=max_frame_size, idle_time_out=idle),
        Begin(remote_channel=0, next_outgoing_id=0, incoming_window=window, outgoing_window=100),
        Attach(
            name="me-out",
            handle=7,
            role=True,
            source=Source(),
            target=Target(address="$management"),
            max_message_size=largest,
        ),
        Attach(
            name="me-back",
            handle=9,
            role=False,
            source=Source(address="$management"),
            target=Target(address="me"),
            initial_delivery_count=0,
        ),
    )


def sent(session: RequestSession) -> list[tuple[Performative, bytes]]:
    """What the session sends now."""
    data = session.output().removeprefix(AMQP_HEADER)
    return [read_body(frame.body, Performative) for frame in FrameReader(1 << 20).feed(data) if frame.body]


def begun(**how: int) -> RequestSession:
    session = RequestSession(SETTINGS)
    assert session.feed(opening(**how)) == [Ready(None)]
    session.output()
    return session


def ask(session: RequestSession, body: str) -> int:
    return session.request(Message(body=body))


def answer_frames(number: int, *, settled: bool = False, pieces: int = 1, body: str = "answer") -> bytes:
    payload = encode_message(Message(properties=Properties(correlation_id=str(number)), body=body))
    size = -(-len(payload) // pieces)
    parts = [payload[at : at + size] for at in range(0, len(payload), size)]
    data = b""
    for index, part in enumerate(parts):
        head = Transfer(handle=9, more=index < len(parts) - 1)
        if index == 0:
            head = Transfer(handle=9, delivery_id=number, delivery_tag=b"t", settled=settled, more=len(parts) > 1)
        data += encode_frame(head, payload=part)
    return data


def test_it_begins_without_waiting_for_the_peer() -> None:
    opened, began, out, back = (performative for performative, _ in sent(RequestSession(SETTINGS)))
    assert isinstance(opened, Open)
    assert opened.container_id == "c"
    assert opened.idle_time_out == 15_000
    assert isinstance(began, Begin)
    assert out == Attach(
        name="me-out",
        handle=0,
        role=False,
        source=Source(),
        target=Target(address="$management"),
        initial_delivery_count=0,
    )
    assert back == Attach(
        name="me-back", handle=1, role=True, source=Source(address="$management"), target=Target(address="me")
    )


def test_credit_is_granted_once_the_link_back_is_there() -> None:
    session = RequestSession(SETTINGS)
    session.output()
    session.feed(opening())
    ((granted, _),) = sent(session)
    assert isinstance(granted, Flow)
    assert (granted.handle, granted.link_credit, granted.delivery_count) == (1, 4, 0)


def test_requests_wait_for_credit() -> None:
    session = begun()
    for body in ("a", "b", "c"):
        ask(session, body)
    assert sent(session) == []
    session.feed(frames(flow(2)))
    first, second = sent(session)
    assert first == (
        Transfer(handle=0, delivery_id=0, delivery_tag=b"\0\0\0\0", message_format=0),
        encode_message(Message(body="a")),
    )
    assert decode_message(second[1]).body == "b"
    session.feed(frames(flow(1, count=2, seen=2)))
    assert [decode_message(payload).body for _, payload in sent(session)] == ["c"]


def test_credit_counts_from_the_peer_s_delivery_count() -> None:
    session = begun()
    session.feed(frames(flow(2)))
    ask(session, "a")
    # The peer grants two, not having seen the first: one is left.
    session.feed(frames(flow(2)))
    ask(session, "b")
    ask(session, "c")
    assert len(sent(session)) == 2


def test_a_large_request_is_cut_to_the_peer_s_frames_and_waits_for_its_window() -> None:
    session = begun(max_frame_size=512, window=2)
    session.feed(frames(flow(1, window=2)))
    session.request(Message(body="x" * 2000))
    parts = sent(session)
    assert len(parts) == 2
    session.feed(frames(flow(0, window=100, seen=2, handle=None)))
    parts += sent(session)
    heads = [head for head, _ in parts if isinstance(head, Transfer)]
    assert [bool(head.more) for head in heads] == [True] * (len(heads) - 1) + [False]
    assert [head.delivery_id for head in heads] == [0] + [None] * (len(heads) - 1)
    assert all(len(encode_frame(head, payload=payload)) <= 512 for head, payload in parts)
    assert decode_message(b"".join(payload for _, payload in parts)).body == "x" * 2000


@pytest.mark.parametrize(
    ("largest", "most", "limit"), [(1000, None, 1000), (1000, 2000, 1000), (2000, 1000, 1000), (0, 1000, 1000)]
)
def test_a_request_that_is_too_long_is_not_sent(largest: int, most: int | None, limit: int) -> None:
    session = begun(largest=largest)
    session.feed(frames(flow(4)))
    text = "x" * (limit - len(encode_message(Message(body="x" * 300))) + 300)
    assert len(encode_message(Message(body=text))) == limit
    session.request(Message(body=text), most)
    assert [type(body) for body, _ in sent(session)] == [Transfer]
    with pytest.raises(
        RequestTooLong, match=r"it has 1,001 bytes, and may have 1,000 \(amqp:link:message-size-exceeded"
    ):
        session.request(Message(body=f"{text}x"), most)
    assert sent(session) == []


@pytest.mark.parametrize("largest", [None, 0])
def test_a_peer_without_a_limit_takes_everything(largest: int | None) -> None:
    session = begun() if largest is None else begun(largest=largest)
    session.feed(frames(flow(4, window=10_000)))
    ask(session, "x" * 100_000)
    assert sent(session) != []


def test_a_request_that_still_waits_can_be_forgotten() -> None:
    session = begun()
    number = ask(session, "a")
    ask(session, "b")
    session.forget(number)
    session.feed(frames(flow(5)))
    assert [decode_message(payload).body for _, payload in sent(session)] == ["b"]


def test_a_request_that_has_begun_to_leave_is_finished_though_forgotten() -> None:
    session = begun(max_frame_size=512, window=1)
    session.feed(frames(flow(5, window=1)))
    number = session.request(Message(body="x" * 600))
    session.forget(number)
    session.feed(frames(flow(5, window=50, seen=1)))
    assert sent(session)[-1][0] == Transfer(handle=0)


def test_a_drain_uses_up_the_credit() -> None:
    session = begun()
    session.feed(frames(flow(5, drain=True)))
    ((told, _),) = sent(session)
    assert isinstance(told, Flow)
    assert (told.handle, told.delivery_count, told.link_credit) == (0, 5, 0)
    ask(session, "a")
    assert sent(session) == []


@pytest.mark.parametrize(("theirs", "ours"), [(None, None), (7, 0), (9, 1)])
def test_an_echo_is_answered(theirs: int | None, ours: int | None) -> None:
    session = begun()
    session.feed(frames(flow(0, handle=theirs, echo=True)))
    ((told, _),) = sent(session)
    assert isinstance(told, Flow)
    assert told.handle == ours


def test_answers_are_settled_in_runs_and_credit_is_topped_up() -> None:
    session = begun()
    events = session.feed(answer_frames(0) + answer_frames(1) + answer_frames(2, settled=True))
    assert [event.message.body for event in events if isinstance(event, Reply)] == ["answer"] * 3
    (settled, _), (granted, _) = sent(session)
    assert settled == Disposition(role=True, first=0, last=1, settled=True, state=Accepted())
    assert isinstance(granted, Flow)
    assert (granted.delivery_count, granted.link_credit, granted.next_incoming_id) == (3, 4, 3)


def test_an_answer_comes_in_several_frames() -> None:
    session = begun()
    (event,) = session.feed(answer_frames(0, pieces=5, body="y" * 100))
    assert isinstance(event, Reply)
    assert event.message.body == "y" * 100


def test_an_aborted_answer_is_dropped() -> None:
    session = begun()
    head = Transfer(handle=9, delivery_id=0, delivery_tag=b"t", more=True)
    aborted = encode_frame(head, payload=b"\x00\x53") + frames(Transfer(handle=9, aborted=True))
    assert session.feed(aborted) == []
    (event,) = session.feed(answer_frames(1))
    assert isinstance(event, Reply)


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        pytest.param(Rejected(error=Error(condition=Symbol("amqp:not-allowed"))), "amqp:not-allowed", id="rejected"),
        pytest.param(Rejected(), "rejected", id="rejected-without-error"),
        pytest.param(Released(), "released", id="released"),
        pytest.param(Modified(), "modified", id="modified"),
    ],
)
def test_a_request_that_is_not_taken_is_told_by_its_number(state: Composite, condition: str) -> None:
    session = begun()
    session.feed(frames(flow(5)))
    numbers = [ask(session, body) for body in "abc"]
    (first, second) = session.feed(frames(Disposition(role=True, first=0, last=1, settled=True, state=state)))
    assert isinstance(first, Refusal)
    assert isinstance(second, Refusal)
    assert [first.number, second.number] == numbers[:2]
    assert first.error.condition == condition


def test_an_accepted_request_is_nothing_to_tell() -> None:
    session = begun()
    session.feed(frames(flow(5)))
    ask(session, "a")
    assert session.feed(frames(Disposition(role=True, first=0, settled=True, state=Accepted()))) == []
    # A range as long as there are numbers costs nothing.
    assert session.feed(frames(Disposition(role=True, first=1, last=0, settled=True, state=Released()))) == []


def test_the_peer_s_idle_time_out_asks_for_twice_as_many_heartbeats() -> None:
    session = RequestSession(SETTINGS)
    assert session.feed(opening(idle=30_000)) == [Ready(15.0)]
    session.output()
    session.heartbeat()
    assert session.output() == HEARTBEAT


@pytest.mark.parametrize(
    ("body", "reason", "condition"),
    [
        pytest.param(
            Close(error=Error(condition=Symbol("x"), description="why")), "closed the connection: why", "x", id="close"
        ),
        pytest.param(End(), "ended the session", None, id="end"),
        pytest.param(Detach(handle=7, closed=True), "detached a link", None, id="detach"),
        pytest.param(Attach(name="other", handle=3, role=True), "nobody asked for", None, id="attach"),
    ],
)
def test_the_end_is_told_with_its_reason(body: Composite, reason: str, condition: str | None) -> None:
    session = begun()
    (event,) = session.feed(frames(body, body))
    assert isinstance(event, Ended)
    assert reason in str(event.error)
    assert event.error.condition == condition
    assert sent(session) == [(Close(), b"")]
    with pytest.raises(TransportError):
        ask(session, "a")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"AMQP\x00\x00\x09\x01", id="another-version"),
        pytest.param(b"HTTP/1.1", id="http"),
        pytest.param(AMQP_HEADER + b"\xff\xff\xff\xff\x02\x00\x00\x00", id="giant-frame"),
        pytest.param(AMQP_HEADER + b"\x00\x00\x00\x09\x02\x01\x00\x00\x40", id="sasl-frame"),
        pytest.param(opening() + frames(Transfer(handle=9)), id="delivery-without-id"),
        pytest.param(opening() + encode_frame(Transfer(handle=9, delivery_id=0), payload=b"\x01"), id="no-message"),
    ],
)
def test_what_is_not_amqp_ends_it(data: bytes) -> None:
    events = RequestSession(SETTINGS).feed(data)
    assert isinstance(events[-1], Ended)


def test_an_answer_that_never_ends_ends_the_connection() -> None:
    session = RequestSession(SessionSettings(container_id="c", node="n", reply_to="me", max_message_size=100))
    session.feed(opening())
    head = Transfer(handle=9, delivery_id=0, more=True)
    (event,) = session.feed(encode_frame(head, payload=b"x" * 60) * 2)
    assert isinstance(event, Ended)
    assert "more than 100 bytes" in str(event.error)


@given(st.lists(st.integers(1, 60), max_size=20))
def test_any_split_gives_the_same_events(sizes: list[int]) -> None:
    stream = opening() + frames(flow(3)) + answer_frames(0, pieces=4) + HEARTBEAT + answer_frames(1)
    whole = RequestSession(SETTINGS).feed(stream)
    session, events, at = RequestSession(SETTINGS), list[object](), 0
    for size in [*sizes, len(stream)]:
        events += session.feed(stream[at : at + size])
        at += size
    assert events == whole
    assert len(whole) == 3


@given(st.binary(max_size=80), st.integers(0, 300), st.binary(max_size=6))
def test_no_bytes_make_it_raise(junk: bytes, at: int, patch: bytes) -> None:
    stream = opening() + frames(flow(3)) + answer_frames(0)
    RequestSession(SETTINGS).feed(junk)
    RequestSession(SETTINGS).feed(AMQP_HEADER + junk)
    RequestSession(SETTINGS).feed(stream[:at] + patch + stream[at + len(patch) :])
