"""Declares queues, exchanges and subscriptions on a broker, for JMS tests that start their own.

The arguments are the socket and a file of YAML, a list of `{operation, type, name, body}` as in
docs/reference/management.md; `operation` is CREATE if it is left out. Exit code 1 for the first refusal, on standard
error.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from penstock_amqp.client.errors import ManagementError
from penstock_amqp.client.management import ManagementClient
from penstock_api.management import EntityType, Operation

__all__ = ["declare", "main"]

SECONDS = 300.0
"""Only a test that fails waits so long."""


async def declare(socket: str, requests: list[dict[str, Any]]) -> None:
    """Send them one after the other. Raises `ManagementError` for a refusal."""
    client = await ManagementClient.connect(f"unix:{socket}", timeout_seconds=SECONDS)
    try:
        for request in requests:
            operation = Operation(request.get("operation", "CREATE"))
            answer = await client.request(operation, EntityType(request["type"]), request.get("name"), request["body"])
            answer.check()
    finally:
        await client.close()


def main(arguments: Sequence[str]) -> int:
    """Declare what the arguments say; the exit code."""
    socket, file = arguments
    try:
        asyncio.run(declare(socket, yaml.safe_load(Path(file).read_text(encoding="utf-8"))))
    except ManagementError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 1
    return 0
