"""Runs in a pod of a test: it logs in with the projected token of its ServiceAccount, and prints the user that it then
is.

Arguments: the host of the broker, the SASL mechanism. Files: the token, and the CA from the ConfigMap `<broker>-ca`.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock_amqp.client.address import Address
from penstock_amqp.client.management import ManagementClient
from penstock_amqp.sasl.frames import Init
from penstock_amqp.types.values import Symbol
from penstock_api.management import EntityType

TOKEN = Path("/var/run/token/token")
CA = Path("/var/run/ca/ca.crt")


@dataclass(frozen=True, slots=True)
class Bearer:
    """The mechanism XOAUTH2, or OAUTHBEARER of RFC 7628."""

    mechanism: str

    def init(self, hostname: str | None) -> Init:
        head = "user=" if self.mechanism == "XOAUTH2" else "n,,"
        response = f"{head}\x01auth=Bearer {TOKEN.read_text().strip()}\x01\x01"
        return Init(mechanism=Symbol(self.mechanism), initial_response=response.encode(), hostname=hostname)

    def respond(self, challenge: bytes) -> bytes:
        return b"\x01"


async def main(host: str, mechanism: str) -> None:
    """Log in and print the user."""
    address = Address(host=host, port=5671, tls=ssl.create_default_context(cafile=str(CA)), server_name=host)
    client = await ManagementClient.connect(address, login=Bearer(mechanism), container_id=mechanism)
    (own,) = await client.query_all(EntityType.CONNECTION)
    sys.stdout.write(f"{mechanism}: {own['user']}\n")
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
