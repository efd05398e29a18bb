"""Declares a topology on a broker through its management socket, and says in a line each what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock_amqp.management_client import Entry, ManagementAnswer, ManagementClient
from penstock_api.failing import Failure
from penstock_api.management import EntityType, Outcome
from penstock_cli.up.topology import Declared

__all__ = ["Declaration", "declare"]

LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Declaration:
    """What the broker answered to one CREATE."""

    declared: Declared
    answer: ManagementAnswer

    @property
    def is_news(self) -> bool:
        """False if the broker had all of it already."""
        return self._outcome != Outcome.UNCHANGED.value

    @property
    def _outcome(self) -> str:
        return str(self.answer.attributes.get("outcome", "")) if self.answer.is_success else "Refused"

    def __str__(self) -> str:
        text = f"{self.declared.resource}: {self._outcome}"
        if not self.answer.is_success:
            return f"{text}: {self.answer.description} ({self.answer.reason or self.answer.status})"
        blocked = self.answer.attributes.get("blockedBy")
        return f"{text} by {blocked}" if blocked is not None else text


async def declare(socket: Path, topology: Sequence[Declared], seconds: float) -> list[Declaration]:
    """Wait for the broker to serve its management socket, then declare all of `topology` in its order.

    One refusal changes nothing of the others; it is in the answers.

    Raises:
        Failure: the broker does not serve within `seconds`, or goes while it is asked.
    """
    client = await _connect(socket, seconds)
    try:
        answers: list[ManagementAnswer] = []
        for kind in (EntityType.EXCHANGE, EntityType.SUBSCRIPTION):
            entries = [Entry(one.type, one.name, one.body) for one in topology if one.type is kind]
            answers += await client.create_all(entries)
    except (ConnectionError, TimeoutError) as error:
        raise Failure(f"the broker went while its topology was declared: {error}.", "See the broker's log.") from error
    finally:
        await client.close()
    return [Declaration(one, answer) for one, answer in zip(topology, answers, strict=True)]


async def _connect(socket: Path, seconds: float) -> ManagementClient:
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return await ManagementClient.connect(f"unix:{socket}")
        except (OSError, TimeoutError) as error:  # not there yet
            if asyncio.get_running_loop().time() > deadline:
                raise Failure(f"the broker does not answer on {socket} after {seconds:.0f} s: {error}") from error
            await asyncio.sleep(LOOK_SECONDS)
