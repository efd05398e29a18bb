"""Logging of every Penstock process: one line per event on standard error, with times in UTC."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

__all__ = ["LEVELS", "log_level"]

LEVELS: Final = ("debug", "info", "warning", "error")
FORMAT: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s [%(name)s]"

Function = TypeVar("Function", bound=Callable[..., Any])


def _configure(_ctx: click.Context, _param: click.Parameter, level: str) -> None:
    formatter = logging.Formatter(FORMAT, "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler])


def log_level(function: Function) -> Function:
    """The option `--log-level`, which sets up logging before the verb runs."""
    option = click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        show_default=True,
        expose_value=False,
        is_eager=True,
        callback=_configure,
        help="Least severe messages that are logged to standard error.",
    )
    return option(function)
