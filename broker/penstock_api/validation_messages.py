"""Pydantic's validation errors in words for the author of a document: the path of each field, and what is wrong with
it.

Pydantic's own messages speak of inputs, tags and instances, for people who know the models. People who write manifests,
settings and requests know fields. Values are never repeated, because they may be secret. Pure.
"""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

__all__ = ["validation_messages"]

_WORDS: Final = {
    "extra_forbidden": "there is no such field",
    "missing": "is required",
    "model_type": "a map of fields should be here",
    "dict_type": "a map should be here",
    "tuple_type": "a list should be here",
}
"""Our message by pydantic's type of error. For all other types pydantic's own message is used."""
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


def _path(detail: ErrorDetails, leave_out: object) -> str:
    return ".".join(str(step) for step in detail["loc"] if step != leave_out)


def _sentence(detail: ErrorDetails) -> str:
    if detail["type"] == "union_tag_invalid":
        context = detail.get("ctx", {})
        return f"{context['discriminator'].strip(chr(39))} is one of {context['expected_tags']}"
    return _WORDS.get(detail["type"], detail["msg"].removeprefix(_OURS))
