"""The option `--output` of every verb that prints rows: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

__all__ = ["with_output"]

FORMS: Final = ("table", "json")


def with_output(verb: Callable[..., int]) -> Callable[..., int]:
    """Add `--output` and its short form `--json` to a verb, which gets `as_json`."""

    @click.option(
        "--output",
        "-o",
        type=click.Choice(FORMS),
        default="table",
        show_default=True,
        help="A table for people, or one JSON object per line with all attributes.",
    )
    @click.option("--json", "short", is_flag=True, help="The same as --output json.")
    @wraps(verb)
    def with_form(*arguments: Any, output: str, short: bool, **options: Any) -> int:
        return verb(*arguments, as_json=short or output == "json", **options)

    return with_form
