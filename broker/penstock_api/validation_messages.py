"""What pydantic holds against a document, in words for whoever wrote it: the path of each field and what it should be.

Pydantic speaks of inputs, tags and instances to those who know the models; people who write manifests, settings and
requests know fields. Values are never repeated: they may be secret. Pure.
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
"""By pydantic's type of error; what isn't here is plain enough as pydantic says it."""
_OURS: Final = "Value error, "
"""What pydantic puts before the sentence of a validator of ours."""


def validation_messages(error: ValidationError, *, whole: str = "document", leave_out: object = None) -> list[str]:
    """One `path.of.the.field: what is wrong` for each fault, in the order of the document.

    Args:
        whole: stands for the path where the document as a whole is wrong.
        leave_out: a step that stands in paths without being a field, such as the kind by which a union is told apart.
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
