"""The body of a request, made of what was typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from penstock_api.failure import Misuse
from penstock_api.management import ManagementDocument
from penstock_api.validation_messages import validation_messages

__all__ = ["request_body"]

D = TypeVar("D", bound=ManagementDocument)


def request_body(model: type[D], typed: Mapping[str, object]) -> D:
    """The document with these values. Raises `Misuse` if the broker could not take one of them."""
    try:
        return model.model_validate(typed)
    except ValidationError as error:
        raise Misuse(
            "\n".join(validation_messages(error, whole="request")), "Nothing was asked of the broker."
        ) from error
