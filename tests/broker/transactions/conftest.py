"""Clients of a broker that the test turns itself.

How it is set up says the `stepped` of each module; one whose broker is a process has fixtures of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream
from support.transaction_client import TransactionClient

from penstock_broker.queue.queue import Queue


@pytest.fixture
def queue(stepped: SteppedBroker) -> Queue:
    return stepped.queue("jobs")


@pytest.fixture
def client(stepped: SteppedBroker) -> Iterator[TransactionClient]:
    with RawClient(0, "mine", stream=SteppedStream(stepped)) as raw:
        yield TransactionClient(raw)


@pytest.fixture
def other(stepped: SteppedBroker) -> Iterator[TransactionClient]:
    """Somebody else."""
    with RawClient(0, "other", stream=SteppedStream(stepped)) as raw:
        yield TransactionClient(raw)
