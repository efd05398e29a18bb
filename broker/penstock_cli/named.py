"""The type of arguments that name something of a broker: a text that is not empty, as that of a variable nobody set."""

from __future__ import annotations

import click

__all__ = ["ADDRESS", "NAME"]


class _Named(click.types.StringParamType):
    """`what`: what could be written there."""

    def __init__(self, what: str) -> None:
        self._what = what

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text as it is; an empty one is reported as wrong usage."""
        text = super().convert(value, param, ctx)
        if not text:
            self.fail(f"it is empty; name {self._what}", param, ctx)
        return text


ADDRESS = _Named("a queue, a subscription, or EXCHANGE/KEY, as the verb takes it")
NAME = _Named("what is to be made")
