"""The five frames of the SASL dialogue. Source: AMQP 1.0 part 5, section 5.3.3."""

# ruff: noqa: RUF009 - optional() and required() return dataclass fields, which ruff cannot see.

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from penstock_amqp.frames.frames import SASL_FRAME, encode_frame
from penstock_amqp.types import composites as kinds
from penstock_amqp.types.composites import Composite, optional, required
from penstock_amqp.types.values import Symbol

__all__ = ["Challenge", "Init", "Mechanisms", "Response", "SaslCode", "SaslOutcome", "SaslPerformative", "sasl_frame"]


class SaslCode(IntEnum):
    """How a dialogue ended (5.3.3.6)."""

    OK = 0
    AUTH = 1
    """Wrong credentials, or credentials that may not be used so."""
    SYS = 2
    """The system failed."""
    SYS_PERM = 3
    """The system failed, and will fail again until an administrator repairs it."""
    SYS_TEMP = 4
    """The system failed; trying again later may help."""


class SaslPerformative(Composite):
    """What the body of a SASL frame begins with."""

    __slots__ = ()
    CODE: ClassVar[int] = -2
    NAME: ClassVar[str] = "penstock:no-sasl-performative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanisms(SaslPerformative):
    """5.3.3.1."""

    CODE: ClassVar[int] = 0x40
    NAME: ClassVar[str] = "amqp:sasl-mechanisms:list"

    sasl_server_mechanisms: tuple[Symbol, ...] = required(kinds.SYMBOLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Init(SaslPerformative):
    """5.3.3.2."""

    CODE: ClassVar[int] = 0x41
    NAME: ClassVar[str] = "amqp:sasl-init:list"

    mechanism: Symbol = required(kinds.SYMBOL)
    initial_response: bytes | None = optional(kinds.BINARY)
    hostname: str | None = optional(kinds.STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge(SaslPerformative):
    """5.3.3.3."""

    CODE: ClassVar[int] = 0x42
    NAME: ClassVar[str] = "amqp:sasl-challenge:list"

    challenge: bytes = required(kinds.BINARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response(SaslPerformative):
    """5.3.3.4."""

    CODE: ClassVar[int] = 0x43
    NAME: ClassVar[str] = "amqp:sasl-response:list"

    response: bytes = required(kinds.BINARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslOutcome(SaslPerformative):
    """5.3.3.5."""

    CODE: ClassVar[int] = 0x44
    NAME: ClassVar[str] = "amqp:sasl-outcome:list"

    code: int = required(kinds.UBYTE)
    additional_data: bytes | None = optional(kinds.BINARY)


def sasl_frame(body: SaslPerformative) -> bytes:
    """Write a SASL frame."""
    return encode_frame(body, type=SASL_FRAME)
