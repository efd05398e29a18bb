"""Real input from which the fuzzer's mutations begin."""

from __future__ import annotations

from typing import Final

from penstock_amqp.frames.frames import AMQP_HEADER, SASL_HEADER, encode_frame
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.messages.transaction_types import Declare, Discharge, TransactionalState
from penstock_amqp.sasl.frames import Init, Response, sasl_frame
from penstock_amqp.types.composites import to_value
from penstock_amqp.types.values import Described, Float32, Symbol, Timestamp, UInt, ULong, Value

__all__ = ["APPLIED", "CONVERSATIONS", "DIALOGUES", "FRAMES", "MESSAGES", "SELECTORS"]


def _symbols(*names: str) -> tuple[Symbol, ...]:
    return tuple(Symbol(name) for name in names)


SELECTORS: Final = tuple(
    text.encode()
    for text in (
        "colour = 'red' AND size > 5",
        "price BETWEEN 1 AND 0x7F OR NOT (a IS NULL)",
        "colour LIKE 'r_d!%%' ESCAPE '!' AND colour NOT IN ('blue', 'it''s')",
        "-size * 2.5e3 + 7L / (b - 1) <> .5d OR is_big = TRUE",
        "JMSPriority >= 4 and JMSDeliveryMode = 'PERSISTENT'",
    )
)

_OPEN = encode_frame(
    Open(container_id="fuzz", max_frame_size=4096, desired_capabilities=_symbols("SHARED-SUBS"), idle_time_out=60_000)
)
_BEGIN = encode_frame(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10))
_SELECTED = {Symbol("jms-selector"): Described(ULong(0x0000_468C_0000_0004), "colour = 'red'")}


def _receiver(name: str, handle: int, source: Source | None, *desired: str) -> bytes:
    return encode_frame(
        Attach(
            name=name,
            handle=handle,
            role=True,
            snd_settle_mode=0,
            rcv_settle_mode=0,
            source=source,
            target=Target(),
            desired_capabilities=_symbols(*desired) or None,
        )
    )


def _sender(name: str, handle: int, target: Target | Coordinator) -> bytes:
    return encode_frame(
        Attach(name=name, handle=handle, role=False, source=Source(), target=target, initial_delivery_count=0)
    )


def _flow(handle: int, credit: int, *, drain: bool = False) -> bytes:
    return encode_frame(
        Flow(
            next_incoming_id=0,
            incoming_window=10,
            next_outgoing_id=0,
            outgoing_window=10,
            handle=handle,
            delivery_count=0,
            link_credit=credit,
            drain=drain,
            echo=True,
        )
    )


def _whole(*frames: bytes) -> bytes:
    """The last byte is the arena's: in small pieces, so that the broker has answered the Begin before a transfer."""
    return AMQP_HEADER + _OPEN + _BEGIN + b"".join(frames) + b"\x00"


_MESSAGE = encode_message(Message(application_properties={"colour": "red"}, body="hello"))
_HEADER = b"\x00\x53\x70\xc0\x08\x04\x41\x50\x09\x70\x00\x00\x03\xe8"
_PROPERTIES = b"\x00\x53\x73\xc0\x0c\x04\xa1\x01m\x40\xa1\x03amq\xa1\x01k"
MESSAGES: Final = (
    _MESSAGE,
    _HEADER + _MESSAGE,
    _HEADER + _PROPERTIES + b"\x00\x53\x77\xa1\x04text",
    b"\x00\x53\x70\x45" + b"\x00\x53\x72\xc1\x16\x02\xa3\x13x-opt-delivery-time\x55\x07" + b"\x00\x53\x75\xa0\x01x",
    # Properties up to an absolute expiry.
    _HEADER + b"\x00\x53\x73\xc0\x12\x09" + 8 * b"\x40" + b"\x83\x00\x00\x01\x8b\xcf\xe5\x68\x00" + b"\x00\x53\x77\x40",
)
_SIZES: Final[tuple[Value, ...]] = (7, 1.5, True, None, UInt(2**31), Timestamp(2**40), Float32(0.5), "x" * 300, b"raw")
APPLIED: Final = tuple(
    encode_message(Message(application_properties={"size": size, "colour": "blau"}, body="hello")) for size in _SIZES
)


def _transfer(
    handle: int,
    number: int,
    payload: bytes,
    *,
    more: bool = False,
    settled: bool = False,
    state: TransactionalState | None = None,
) -> bytes:
    return encode_frame(
        Transfer(
            handle=handle,
            delivery_id=number,
            delivery_tag=bytes((number,)),
            message_format=0,
            more=more,
            settled=settled,
            state=state,
        ),
        payload=payload,
    )


def _request(body: Declare | Discharge) -> bytes:
    return encode_message(Message(body=to_value(body)))


_SHARED = Source(
    address="amq.topic/a",
    durable=2,
    expiry_policy=Symbol("never"),
    filter=_SELECTED,
    capabilities=_symbols("topic", "shared", "global"),
)
_VOLATILE = Source(address="amq.topic", capabilities=_symbols("topic"), distribution_mode=Symbol("copy"))
_TO_TOPIC = Target(address="amq.topic/a", capabilities=_symbols("topic"))
_DYNAMIC = Target(dynamic=True, capabilities=_symbols("temporary-queue"))
_SETTLE = encode_frame(Disposition(role=True, first=0, last=3, settled=True))
_FIRST_TRANSACTION: Final = (2).to_bytes(8, "big") + (1).to_bytes(8, "big")
_IN_TRANSACTION = TransactionalState(txn_id=_FIRST_TRANSACTION, outcome=Accepted())
_GOODBYE = encode_frame(End()) + encode_frame(Close())

CONVERSATIONS: Final = (
    _whole(
        _receiver("s|global", 0, _SHARED, "SHARED-SUBS"),
        _sender("p", 1, _TO_TOPIC),
        _flow(0, 5),
        _transfer(1, 0, _MESSAGE),
        _transfer(1, 1, MESSAGES[1], settled=True),
        _SETTLE,
        encode_frame(Detach(handle=0, closed=True)),
        _GOODBYE,
    ),
    _whole(
        _receiver("v", 0, _VOLATILE),
        _sender("relay", 1, Target()),
        _flow(0, 3, drain=True),
        _transfer(1, 0, MESSAGES[2][:20], more=True),
        encode_frame(Transfer(handle=1, more=False), payload=MESSAGES[2][20:]),
        encode_frame(Transfer(handle=1, delivery_id=1, delivery_tag=b"x", aborted=True)),
        _GOODBYE,
    ),
    _whole(_receiver("s|global", 0, None, "shared", "global"), encode_frame(Detach(handle=0, closed=True)), _GOODBYE),
    _whole(
        _sender("tx", 0, Coordinator(capabilities=_symbols("amqp:local-transactions"))),
        _transfer(0, 0, b"\x00\x53\x77\x00\x53\x31\x45"),
        _sender("temp", 1, _DYNAMIC),
        _receiver("dyn", 2, Source(dynamic=True, capabilities=_symbols("temporary-queue"))),
        _receiver("$m", 3, Source(address="$management")),
        _GOODBYE,
    ),
    _whole(
        _sender("tx", 0, Coordinator(capabilities=_symbols("amqp:local-transactions"))),
        _transfer(0, 0, _request(Declare())),
        _receiver("v", 1, _VOLATILE),
        _flow(1, 9),
        _sender("p", 2, _TO_TOPIC),
        _transfer(2, 1, _MESSAGE),
        _transfer(2, 2, _MESSAGE, state=_IN_TRANSACTION),
        encode_frame(Disposition(role=True, first=0, settled=True, state=_IN_TRANSACTION)),
        _transfer(0, 3, _request(Discharge(txn_id=_FIRST_TRANSACTION))),
        encode_frame(Disposition(role=True, first=1, settled=False, state=_IN_TRANSACTION)),
        _GOODBYE,
    ),
)
FRAMES: Final = tuple(seed[8:-1] for seed in CONVERSATIONS)


def _sasl(*bodies: Init | Response) -> bytes:
    return b"".join(sasl_frame(each) for each in bodies)


def _init(mechanism: str, response: bytes) -> bytes:
    return SASL_HEADER + _sasl(Init(mechanism=Symbol(mechanism), initial_response=response))


DIALOGUES: Final = (
    _init("PLAIN", b"\x00guest\x00guest") + AMQP_HEADER,
    _init("ANONYMOUS", b"me") + AMQP_HEADER,
    _init("SCRAM-SHA-256", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    + _sasl(
        Response(
            response=b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        ),
        Response(response=b""),
    )
    + AMQP_HEADER,
    _init("SCRAM-SHA-512", b"y,,n=us=2Cer,r=fyko+d2lbbFgONRv9qkxdawL"),
    _init("XOAUTH2", b"user=me\x01auth=Bearer token\x01\x01") + AMQP_HEADER,
    _init("EXTERNAL", b"") + AMQP_HEADER,
    AMQP_HEADER + _OPEN,
)
