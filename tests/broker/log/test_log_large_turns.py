"""Turns that no segment can hold: each message is found where it lies, and the log goes on."""

from itertools import combinations
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue, opened, settle
from broker.log.simulated_files import SimulatedFiles


def test_a_message_is_found_when_the_rest_of_its_turn_begins_a_segment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, _ = opened(tmp_path, SimulatedFiles())
    incarnation, route = a_queue(log)
    log.write()
    numbers = [log.put(route, bytes(100), 0) for _ in range(110)]
    for index in range(14):  # documents alone begin the last of the segments
        log.topology("exchange", f"e{index}", bytes(1000))
    log.write()
    assert log.segments > 2
    reading = log.read(incarnation, numbers[0], numbers[-1], 1000, 1 << 20)
    assert [put.message for put in reading.puts] == numbers
    log.ack_many(incarnation, numbers)
    settle(log)
    assert not [each for each in caplog.records if each.levelname == "ERROR"], "each ack names one message that lives"
    log.close()


def test_route_sets_that_no_segment_holds_together_are_split_with_their_messages(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = opened(tmp_path, files)
    queues = [a_queue(log, f"q{index}")[0] for index in range(300)]
    log.write()
    sets = [
        tuple(first + second) for first, second in combinations((queues[at : at + 50] for at in range(0, 300, 50)), 2)
    ]
    routes = [log.route_set(each) for each in sets]
    numbers = [log.put(route, b"m", 0) for route in routes for _ in range(2)]
    log.write()
    assert log.failed is None
    for at, reached in enumerate(sets):
        for incarnation in reached:
            log.ack_many(incarnation, [numbers[2 * at]])
    log.close()
    log, after = opened(tmp_path, files)
    for incarnation in queues:
        own = [numbers[2 * at + 1] for at, each in enumerate(sets) if incarnation in each]
        assert [item.number for item in after.messages[incarnation]] == own
    log.close()
