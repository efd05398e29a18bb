"""Pydantic's validation errors in words for the author of a document: the path of each field, and what is wrong with
it.

Pydantic's own messages speak of inputs, tags and instances, for people who know the models. People who write manifests,
settings and requests know fields. Values are never repeated, because they may be secret. Pure.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

__all__ = ["validation_messages"]

_WORDS: Final = {
    "extra_forbidden": "there is no such field",
    "missing": "is required",
    "model_type": "a map of fields should be here",
    "dict_type": "a map should be here",
    "tuple_type": "a list should be here",
    "list_type": "a list should be here",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_pattern_mismatch": "must match the pattern {pattern}",
}
"""Our message by pydantic's type of error, with fields of its context."""
_TOO_SHORT: Final = frozenset({"string_too_short", "too_short"})
_NAMES: Final = re.compile(r"^(?:Input|Value|String|Tuple|Number|Dictionary|List) should\b")
"""What pydantic's messages of all other types begin with: it names its own kinds of values."""
_OURS: Final = "Value error, "
"""What pydantic puts before the message of a validator of ours."""


def validation_messages(error: ValidationError, *, whole: str = "document", leave_out: object = None) -> list[str]:
    """One message `path.of.the.field: what is wrong` for each error, in the order of the document.

    Args:
        whole: stands instead of a path where the document as a whole is wrong.
        leave_out: a step of pydantic's paths that is not a field, such as the `kind` that selects a model of a union.
    """
    details = error.errors(include_url=False, include_input=False)
    return [f"{_path(each, leave_out) or whole}: {_sentence(each)}" for each in details]


@cache
def _alternatives() -> frozenset[str]:
    """What pydantic puts into a path where a field may be of several types: the name of each of these types."""
    found: set[type[BaseModel]] = set()
    further = BaseModel.__subclasses__()
    while further:
        model = further.pop()
        found.add(model)
        further += model.__subclasses__()
    return frozenset({"bool", "int", "float", "str", *(model.__name__ for model in found)})


def _path(detail: ErrorDetails, leave_out: object) -> str:
    return ".".join(str(step) for step in detail["loc"] if step != leave_out and step not in _alternatives())


def _sentence(detail: ErrorDetails) -> str:
    if detail["type"] == "union_tag_invalid":
        context = detail.get("ctx", {})
        return f"{context['discriminator'].strip(chr(39))} is one of {context['expected_tags']}"
    if detail["type"] in _TOO_SHORT and detail.get("ctx", {}).get("min_length") == 1:
        return "must not be empty"
    words = _WORDS.get(detail["type"])
    if words is not None:
        return words.format(**detail.get("ctx", {}))
    return _NAMES.sub("must", detail["msg"].removeprefix(_OURS))
