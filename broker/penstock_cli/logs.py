"""The options of the processes' logs: `--log-level` and `--log-format`. The lines go to standard error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from penstock_api.log_lines import LEVELS, LogFormat, handler_of

__all__ = ["FORMATS", "LEVELS", "log_options"]

FORMATS: Final = tuple(each.value for each in LogFormat)
_META: Final = "penstock.log."

Function = TypeVar("Function", bound=Callable[..., Any])


def _configure(ctx: click.Context, param: click.Parameter, value: str) -> None:
    """Set up logging once both options are known; they may come in any order."""
    ctx.meta[f"{_META}{param.name}"] = value
    level, form = ctx.meta.get(f"{_META}log_level"), ctx.meta.get(f"{_META}log_format")
    if level is not None and form is not None:
        logging.basicConfig(level=level.upper(), handlers=[handler_of(LogFormat(form))])


def log_options(function: Function) -> Function:
    """The options `--log-level` and `--log-format`, which set up logging before the verb runs."""
    for name, words, default, told in (
        ("--log-format", FORMATS, LogFormat.TEXT.value, "Form of the lines that are logged: text, or JSON objects."),
        ("--log-level", LEVELS, "info", "Least severe messages that are logged to standard error."),
    ):
        option = click.option(
            name,
            type=click.Choice(words),
            default=default,
            show_default=True,
            expose_value=False,
            is_eager=True,
            callback=_configure,
            help=told,
        )
        function = option(function)
    return function
