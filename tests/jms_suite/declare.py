"""Declares queues, exchanges and subscriptions on a broker, for JMS tests that start their own.

Usage: declare.py SOCKET, with YAML on standard input: a list of `{operation, type, name, body}`, as in
docs/reference/management.md; `operation` is CREATE if it is left out. Exit code 1 for the first refusal, on standard
error.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import yaml

from penstock_amqp.client.errors import ManagementError
from penstock_amqp.client.management import ManagementClient
from penstock_api.management import EntityType, Operation

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


if __name__ == "__main__":
    try:
        asyncio.run(declare(sys.argv[1], yaml.safe_load(sys.stdin)))
    except ManagementError as refusal:
        sys.exit(str(refusal))
