"""`penstock completion`: the script by which a shell completes verbs and options."""

from __future__ import annotations

import click

__all__ = ["completion"]

SHELLS = ("bash", "zsh", "fish")
COMPLETE = "_PENSTOCK_COMPLETE"
"""The variable by which click is asked for completions; its name comes from the program's."""


@click.command(short_help="Print the script with which a shell completes verbs and options.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the script with which SHELL completes the verbs and options of `penstock`.

    \b
    Examples:
      source <(penstock completion bash)                                   # for this shell
      penstock completion zsh > "${fpath[1]}/_penstock"                    # for every new one
      penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None, f"click has no completion for {shell}"
    click.echo(made(ctx.find_root().command, {}, "penstock", COMPLETE).source())
    return 0
