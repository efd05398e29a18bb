"""`penstock up`: options."""

from __future__ import annotations

import click

__all__ = ["up"]


@click.command()
def up() -> int:
    """x"""
    return 0
