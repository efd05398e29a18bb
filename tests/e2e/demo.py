"""What hack/demo runs once the machine is found fit: `python -m e2e.demo --work DIR --messages N ...`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import click
from e2e import cluster_demo, local_demo
from e2e.narration import Narration
from e2e.page_visit import STAYING
from e2e.story import StoryError

__all__ = ["main"]


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(1)  # an exception, so that `with` blocks end what they started


def _play(options: argparse.Namespace, say: Callable[[str], None]) -> None:
    say("compiling the JMS clients (the first time Maven downloads what they need)")
    local_demo.build_clients(options.work / "maven.log")
    if not options.cluster:
        local_demo.play(options.work, options.messages, say, stays=options.stay)
    elif options.context is not None:
        cluster = cluster_demo.Cluster(dict(os.environ), options.context, options.registry)
        cluster_demo.play(cluster, options.work, options.messages, say, stays=options.stay)
    else:
        with cluster_demo.own_cluster(say) as cluster:
            cluster_demo.play(cluster, options.work, options.messages, say, stays=options.stay)


def main() -> int:
    """Play the story; 0 if everything was as it should be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--context")
    parser.add_argument("--registry")
    parser.add_argument("--stay", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    try:
        with Narration(waits_for_a_person=(STAYING,)) as narration:
            _play(options, narration.say)
    except (StoryError, TimeoutError, RuntimeError) as error:
        click.echo(f"hack/demo: {error}", err=True)
        return 1
    except KeyboardInterrupt:
        click.echo("hack/demo: ended by Ctrl-C before all was shown", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
