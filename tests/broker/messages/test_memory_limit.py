"""A real broker that gets more than its memory takes, while consumers are away. `hack/soak/memory` is the long form."""

from __future__ import annotations

from pathlib import Path

from broker.messages.memory_load import drain, flood, half_sent
from support.broker_process import BrokerProcess

MIB = 1024 * 1024
SIZE = 32 * 1024
BUDGET = 16 * MIB
COUNT = 48 * MIB // SIZE
"""Three times what messages may take, of each of two kinds."""
CREDIT = 8 * MIB // SIZE
"""Messages that are under way to a consumer take memory, too: half of what they may."""
BOUND = 3 * BUDGET
"""Besides the messages, the process has output and what the allocator keeps: 25 to 35 MiB in all, however many come.
With the levels of memory switched off it has 65 MiB, and with a budget that is never reached 86."""


def test_more_than_memory_takes_is_accepted_and_all_comes(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings={"memory": {"maxBytes": BUDGET}}) as broker:
        before = broker.resident_bytes()
        highest = before

        def watch() -> None:
            nonlocal highest
            highest = max(highest, broker.resident_bytes())

        volatile, refused = flood(broker.port, "volatile", COUNT, SIZE, durable=False, watch=watch)
        assert (len(volatile), refused) == (COUNT, 0), broker.log()
        durable, refused = flood(broker.port, "durable", COUNT, SIZE, durable=True, watch=watch)
        assert (len(durable), refused) == (COUNT, 0), broker.log()
        assert drain(broker.port, "durable", COUNT, SIZE, watch, credit=CREDIT) == durable
        assert drain(broker.port, "volatile", COUNT, SIZE, watch, credit=CREDIT) == volatile
        assert highest - before < BOUND, f"{(highest - before) / MIB:.1f} MiB"
        assert "not durable are written to the log" in broker.log()


def test_many_half_messages_take_a_part_of_the_memory(tmp_path: Path) -> None:
    """Without a limit for all connections together they would take 24 MiB."""
    with BrokerProcess(tmp_path / "data", settings={"memory": {"maxBytes": BUDGET}}) as broker:
        before = broker.resident_bytes()
        peers = [half_sent(broker.port, number, 600_000) for number in range(40)]
        grown = broker.resident_bytes() - before
        for peer in peers:
            peer.free()
        assert grown < 14 * MIB
