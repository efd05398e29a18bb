"""Composite types: a frozen dataclass per type, its fields in wire order, each with its wire type.

`None` always means that the field is absent (or null) on the wire; defaults of the specification are the reader's
business, because an attach has to tell "absent" from "session-end". Source: AMQP 1.0 part 1, section 1.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, TypeVar, cast

from penstock_amqp.errors import DecodeError, EncodeError
from penstock_amqp.types import values
from penstock_amqp.types.encoder import array_of
from penstock_amqp.types.values import Array, Described, Symbol, ULong, Value, wire_name

__all__ = [
    "ADDRESS",
    "ANY",
    "BINARY",
    "BOOLEAN",
    "MAP",
    "STATE",
    "STRING",
    "SYMBOL",
    "SYMBOLS",
    "SYMBOL_MAP",
    "TIMESTAMP",
    "UBYTE",
    "UINT",
    "ULONG",
    "USHORT",
    "Composite",
    "FieldKind",
    "OtherAddress",
    "from_value",
    "missing_field",
    "nested",
    "numbered",
    "optional",
    "required",
    "to_value",
]

C = TypeVar("C", bound="Composite")
_BY_DESCRIPTOR: dict[object, type[Composite]] = {}
_FIELDS: dict[object, tuple[Field[Any], ...]] = {}


@dataclass(frozen=True, slots=True)
class FieldKind:
    """How a field is read from, and written to, the wire. `read` raises `ValueError` with a reason."""

    read: Callable[[Value], object]
    write: Callable[[Any], object]


class Composite:
    """Base of all composite types; a subclass is a frozen dataclass and names its descriptor."""

    __slots__ = ()
    CODE: ClassVar[int]
    NAME: ClassVar[str]

    def __init_subclass__(cls) -> None:
        # dataclass(slots=True) makes the class a second time; the later one, which is used, replaces the first.
        _BY_DESCRIPTOR[ULong(cls.CODE)] = cls
        _BY_DESCRIPTOR[Symbol(cls.NAME)] = cls


def optional(kind: FieldKind) -> Any:
    """Declare a field that may be absent."""
    return field(default=None, metadata={"kind": kind, "required": False})


def required(kind: FieldKind) -> Any:
    """Declare a field that the specification calls mandatory."""
    return field(metadata={"kind": kind, "required": True})


def numbered(value: Described) -> Described:
    """`value` with the symbolic descriptors of composite types replaced by numeric ones, also in its fields."""
    named = _BY_DESCRIPTOR.get(value.descriptor) if isinstance(value.descriptor, Symbol) else None
    fields = value.value
    if isinstance(fields, list):
        fields = [numbered(each) if isinstance(each, Described) else each for each in fields]
    return Described(value.descriptor if named is None else ULong(named.CODE), fields)


def from_value(value: Value, expected: type[C] | tuple[type[C], ...], at: int = 0) -> C:
    """Make the composite that `value` describes.

    Raises `DecodeError` with offset `at` if it is none of `expected`, or if a field is missing or of another type.
    """
    if not isinstance(value, Described):
        raise DecodeError(f"a described list was expected, not {wire_name(type(value))}", at)
    kind = _BY_DESCRIPTOR.get(value.descriptor)
    if kind is None or not issubclass(kind, expected):
        raise DecodeError(f"{_told(value, kind)} describes nothing that may stand here", at)
    if not isinstance(value.value, list):
        raise DecodeError(f"{kind.NAME} is a list, not {wire_name(type(value.value))}", at)
    return cast(C, _from_list(kind, value.value, at))


def _told(value: Described, kind: type[Composite] | None) -> str:
    """The descriptor of a value, by its name if we know it as that of `kind`."""
    if kind is not None:
        return kind.NAME
    return repr(str(value.descriptor)) if isinstance(value.descriptor, str) else f"0x{value.descriptor:02x}"


def _from_list(kind: type[Composite], items: list[Value], at: int) -> Composite:
    known = _fields(kind)
    if len(items) > len(known):
        raise DecodeError(f"{kind.NAME} has {len(known)} fields, not {len(items)}", at)
    found: dict[str, object] = {}
    for position, declared in enumerate(known):
        item = items[position] if position < len(items) else None
        if item is None:
            if declared.metadata["required"]:
                raise DecodeError(f"{kind.NAME} lacks its mandatory field {_wire_name(declared)}", at)
            continue
        try:
            found[declared.name] = declared.metadata["kind"].read(item)
        except ValueError as error:
            raise DecodeError(f"{kind.NAME}, field {_wire_name(declared)}: {error}", at) from None
    return kind(**found)


def missing_field(kind: type[Composite], value: Value) -> str | None:
    """The first mandatory field of `kind` that `value`, the described list of one, lacks; None if it has all of them.

    Other fields are not looked at: for frames of which nothing else has to be known.
    """
    items = value.value if isinstance(value, Described) and isinstance(value.value, list) else []
    for position, declared in enumerate(_fields(kind)):
        if declared.metadata["required"] and (position >= len(items) or items[position] is None):
            return _wire_name(declared)
    return None


def to_value(composite: Composite) -> Described:
    """Make the described list that stands for `composite`, without trailing nulls."""
    items: list[Value] = []
    for declared in _fields(type(composite)):
        item = getattr(composite, declared.name)
        try:
            items.append(None if item is None else declared.metadata["kind"].write(item))
        except ValueError as error:
            raise EncodeError(f"{composite.NAME}, field {_wire_name(declared)}: {error}") from None
    while items and items[-1] is None:
        items.pop()
    return Described(ULong(composite.CODE), items)


def _fields(kind: type[Composite]) -> tuple[Field[Any], ...]:
    known = _FIELDS.get(kind)
    if known is None:
        known = _FIELDS[kind] = fields(cast(Any, kind))
    return known


def _wire_name(declared: Field[Any]) -> str:
    return declared.name.rstrip("_").replace("_", "-")


def _scalar(wire: type, make: Callable[[Any], object] | None = None) -> FieldKind:
    def read(value: Value) -> object:
        if type(value) is not wire:
            raise ValueError(f"{wire_name(wire)} expected, not {wire_name(type(value))}")
        return value

    return FieldKind(read, make or wire)


def _read_symbols(value: Value) -> tuple[Symbol, ...]:
    items = value.items if isinstance(value, Array) else (value,)
    symbols = tuple(item for item in items if isinstance(item, Symbol))
    if len(symbols) != len(items):
        found = next(wire_name(type(item)) for item in items if not isinstance(item, Symbol))
        told = f"an array of type {found}" if isinstance(value, Array) else found
        raise ValueError(f"a symbol or an array of symbols expected, not {told}")
    return symbols


def _write_symbols(symbols: tuple[str, ...]) -> Array | None:
    return array_of(tuple(Symbol(symbol) for symbol in symbols)) if symbols else None


def _read_map(value: Value) -> Mapping[Value, Value]:
    if not isinstance(value, dict):
        raise ValueError(f"map expected, not {wire_name(type(value))}")
    return value


def _read_symbol_map(value: Value) -> Mapping[Value, Value]:
    pairs = _read_map(value)
    # The specification wants symbols; several clients send strings, which read the same.
    if not all(isinstance(key, str) for key in pairs):
        found = next(wire_name(type(key)) for key in pairs if not isinstance(key, str))
        raise ValueError(f"the keys of this map are symbols, not {found}")
    return pairs


def _read_state(value: Value) -> object:
    """Read a delivery state or outcome: one of ours if it is known, else as it came."""
    if isinstance(value, Described) and value.descriptor in _BY_DESCRIPTOR:
        return nested(Composite).read(value)
    if isinstance(value, Described):
        return value
    raise ValueError(f"a delivery state is a described value, not {wire_name(type(value))}")


def nested(*expected: type[Composite]) -> FieldKind:
    """Declare a field that holds one of the composite types `expected`."""

    def read(value: Value) -> object:
        try:
            return from_value(value, expected)
        except DecodeError as error:
            raise ValueError(error.reason) from None

    return FieldKind(read, to_value)


def _write_state(state: object) -> object:
    return to_value(state) if isinstance(state, Composite) else state


class OtherAddress(str):
    """An address that is neither a string nor a symbol. It has no text."""

    __slots__ = ("kind",)
    kind: str
    """What AMQP calls its type."""

    def __new__(cls, kind: str) -> OtherAddress:
        made = super().__new__(cls)
        made.kind = kind
        return made


def _read_address(value: Value) -> str:
    # The type of an address is up to the node's container (part 3, 3.5.3). A symbol means the same as a string here.
    return str(value) if isinstance(value, str) else OtherAddress(wire_name(type(value)))


def _as_it_is(value: Value) -> Value:
    return value


ADDRESS = FieldKind(_read_address, str)
ANY = FieldKind(_as_it_is, _as_it_is)
BINARY = _scalar(bytes)
BOOLEAN = _scalar(bool)
MAP = FieldKind(_read_map, dict)
STATE = FieldKind(_read_state, _write_state)
STRING = _scalar(str)
SYMBOL = _scalar(Symbol)
SYMBOL_MAP = FieldKind(_read_symbol_map, dict)
SYMBOLS = FieldKind(_read_symbols, _write_symbols)
TIMESTAMP = _scalar(values.Timestamp)
UBYTE = _scalar(values.UByte)
UINT = _scalar(values.UInt)
ULONG = _scalar(values.ULong)
USHORT = _scalar(values.UShort)
