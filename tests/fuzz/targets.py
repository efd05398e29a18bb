"""What is fuzzed: functions of bytes that return nothing, and raise if a promise is broken whatever the bytes are.

The promises are those of the docstrings of what is called: which error a reader may raise, that what was read can be
written and read again, that a dialogue ends. Each target has seeds, real input from which mutation begins.
"""

from __future__ import annotations

import base64
import contextlib
import functools
from collections.abc import Callable
from typing import Any, Final

from fuzz.arena import Arena
from fuzz.seeds import APPLIED, CONVERSATIONS, DIALOGUES, FRAMES, MESSAGES, SELECTORS

import penstock_native
from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.frames import FrameReader, read_body
from penstock_amqp.frames.performatives import Performative
from penstock_amqp.messages import fields, message_head, times
from penstock_amqp.messages.sections import Section, check_sections
from penstock_amqp.messages.selected_fields import Selectable, SelectedFields
from penstock_amqp.sasl.credentials import CredentialRecord, fake_record, make_record
from penstock_amqp.sasl.mechanisms import (
    MECHANISMS,
    CredentialAnswer,
    External,
    Identified,
    LookUpKeys,
    OAuthBearer,
    Table,
    Verdict,
    Verify,
)
from penstock_amqp.sasl.scram import Scram
from penstock_amqp.sasl.server import Authenticated, Refused, SaslServer
from penstock_amqp.types.decoder import decode
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Symbol
from penstock_core.selector import Selector, compile_selector

__all__ = ["OFFERED", "SEEDS", "TARGETS", "answer"]

PROPERTIES: Final[tuple[dict[str, Selectable], ...]] = (
    {},
    {"colour": "red", "size": 7, "price": 1.5, "is_big": True, "JMSPriority": 4, "a": -0.0, "b": 2**63 - 1},
    {"colour": "", "size": -(2**63), "price": float("nan"), "is_big": False, "a": float("inf"), "b": "7"},
)


def selector(data: bytes) -> None:
    """A selector or a refusal with a position; evaluation never raises; its normal text says the same again."""
    text = data.decode("utf-8", "replace")
    found = compile_selector(text)
    if not isinstance(found, Selector):
        assert found is None or dict(found.info)["invalid-field"] == "filter"
        return
    results = [found.selects(values.get) for values in PROPERTIES]
    assert all(type(each) is bool for each in results)
    again = compile_selector(found.text)
    assert isinstance(again, Selector), again
    assert again.text == found.text
    assert [again.selects(values.get) for values in PROPERTIES] == results


def value(data: bytes) -> None:
    """Any bytes are a value or a DecodeError, and a value can be written and read again."""
    try:
        found, end = decode(data)
    except DecodeError as error:
        assert 0 <= error.offset <= len(data)
        return
    assert 0 < end <= len(data)
    written = encode(found)
    assert encode(decode(written)[0]) == written


def frame(data: bytes) -> None:
    """Bytes in two pieces are frames, each a performative or a DecodeError."""
    reader = FrameReader(1 << 16)
    half = len(data) // 2
    for part in (data[:half], data[half:]):
        with contextlib.suppress(DecodeError):
            reader.add(part)
            while (found := reader.next()) is not None:
                if found.body:
                    with contextlib.suppress(DecodeError):
                        read_body(found.body, Performative)


def forwarded(data: bytes) -> None:
    """A message is refused as a whole or can be looked into, rewritten and looked into again."""
    try:
        head = message_head.read_head(data)
    except DecodeError:
        return
    again = message_head.with_header(data, head, ttl=5, delivery_count=3)
    assert message_head.read_head(again).delivery_count == 3
    assert again.endswith(data[head.start :])
    with contextlib.suppress(DecodeError):
        SelectedFields(("colour", "JMSPriority", "JMSMessageID", "JMSTimestamp")).read(data, head)
    with contextlib.suppress(DecodeError):
        fields.annotation(data, head.start, "x-opt-delivery-time")
    with contextlib.suppress(DecodeError):
        times.requested_times(data, head)
    with contextlib.suppress(DecodeError):
        lasting = times.without_expiry(data, head)
        kept = message_head.read_head(lasting)
        assert kept.ttl is None and times.absolute_expiry(lasting, kept.start) is None
    with contextlib.suppress(DecodeError):
        message_head.with_annotations(data, head, {Symbol("x-opt-a"): 1}, without=times.DELAYS)
    with contextlib.suppress(DecodeError):
        fields.properties_field(data, head.start, fields.Field.TO)
    with contextlib.suppress(DecodeError):
        check_sections(data, head.start)


COLOUR_AND_SIZE: Final = fields.encoded_keys(["colour", "size"])


def fields_read(data: bytes) -> None:
    """The compiled readers of fields read what Python reads, or nothing."""
    native: Any = penstock_native.messages
    if native is None:
        return
    for section in (Section.MESSAGE_ANNOTATIONS, Section.APPLICATION_PROPERTIES):
        picked = native.picked(data, 0, section, COLOUR_AND_SIZE, fields.CLASSES)
        if picked is not NotImplemented:
            assert repr(picked) == repr(fields._pick(data, 0, section, COLOUR_AND_SIZE))  # pyright: ignore[reportPrivateUsage]
    for field in fields.Field:
        found = native.properties_field(data, 0, field, fields.CLASSES)
        if found is not NotImplemented:
            assert repr(found) == repr(fields._properties_field(data, 0, field))  # pyright: ignore[reportPrivateUsage]


NONCE: Final = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
"""The server's part in RFC 7677, section 3, so that the client's proof of that document holds."""
SALT: Final = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
OFFERED: Final[Table] = {
    **MECHANISMS,
    "SCRAM-SHA-256": lambda: Scram("SCRAM-SHA-256", NONCE),
    "SCRAM-SHA-512": lambda: Scram("SCRAM-SHA-512", NONCE),
    "EXTERNAL": lambda: External("certified"),
    "XOAUTH2": lambda: OAuthBearer("XOAUTH2"),
}


@functools.lru_cache(1)
def _pencil() -> CredentialRecord:
    return make_record("pencil", SALT, 4096)


def dialogue(data: bytes) -> None:
    """The server's side of SASL raises nothing, and lets in only who knows the secret."""
    server = SaslServer(OFFERED, without_sasl=True)
    step = 1 + data[0] if data else 1
    for at in range(0, len(data), step):
        result = server.feed(data[at : at + step])
        while isinstance(result, Verify | LookUpKeys):
            result = server.answer(answer(result))
        server.output()
        if isinstance(result, Authenticated | Refused):
            assert isinstance(result, Refused) or result.user in ("anonymous", "certified", "guest", "user")
            return


def answer(question: Verify | LookUpKeys) -> CredentialAnswer:
    match question:
        case LookUpKeys():
            record = _pencil() if question.user == "user" else fake_record(b"key", question.user, 4096)
            return record.keys[question.mechanism]
        case Verify(secret=b"token"):
            return Identified("guest")
        case Verify():
            is_right = (question.mechanism, question.user, question.secret) == ("PLAIN", "guest", b"guest")
            return Verdict.RIGHT if is_right else Verdict.WRONG


@functools.lru_cache(1)
def _arena() -> Arena:
    return Arena()


def conversation(data: bytes) -> None:
    """A whole broker: whatever one connection says, no internal error, nothing left of it, and a witness is served."""
    _arena().serve(data)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "selector": selector,
    "value": value,
    "frame": frame,
    "forwarded": forwarded,
    "fields": fields_read,
    "dialogue": dialogue,
    "conversation": conversation,
}
SEEDS: Final[dict[str, tuple[bytes, ...]]] = {
    "selector": SELECTORS,
    "value": tuple(seed[8:] for seed in FRAMES),
    "frame": FRAMES,
    "forwarded": MESSAGES,
    "fields": (*MESSAGES, *APPLIED),
    "dialogue": DIALOGUES,
    "conversation": CONVERSATIONS,
}
