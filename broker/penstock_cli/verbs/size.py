"""The type of options that take a size: bytes, or a quantity as Kubernetes writes it, such as 16Mi."""

from __future__ import annotations

import click

__all__ = ["SIZE", "Size"]


class Size(click.ParamType[int]):
    """Converts a text to bytes; a number is taken as it is."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes, after checking the text; a wrong one is reported as wrong usage."""
        from penstock_api.quantity import quantity_bytes

        if isinstance(value, int):
            return value
        try:
            size = quantity_bytes(value)
        except ValueError:
            self.fail(f"{value!r} is not a size; write bytes, or a number with a unit, such as 16Mi", param, ctx)
        if size < 0:
            self.fail(f"{value!r} is less than nothing", param, ctx)
        return size


SIZE = Size()
