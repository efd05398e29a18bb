"""The demo is never silent for long, and never speaks while it waits for a person."""

from __future__ import annotations

import threading

from e2e.narration import Narration


def test_a_step_that_takes_long_is_said_again_every_twenty_seconds() -> None:
    now, told = [100.0], list[str]()
    narration = Narration(told.append, lambda: now[0])
    narration.still()
    narration.say("compiling")
    for second in range(1, 50):
        now[0] = 100.0 + second
        narration.still()
    now[0] = 175.0
    narration.say("a table\nits last line")
    for moment in (194.0, 195.0, 214.9, 215.0):
        now[0] = moment
        narration.still()
    assert told == [
        "[0:00] compiling",
        "[0:20]   20 s since: compiling",
        "[0:40]   40 s since: compiling",
        "[1:15] a table",
        "[1:15] its last line",
        "[1:35]   20 s since: its last line",
        "[1:55]   40 s since: its last line",
    ]


def test_nothing_is_said_while_a_person_is_waited_for() -> None:
    now, told = [0.0], list[str]()
    narration = Narration(told.append, lambda: now[0], waits_for_a_person=("press Ctrl-C",))
    narration.say("press Ctrl-C")
    now[0] = 3600.0
    narration.still()
    narration.say("ending")
    now[0] = 3620.0
    narration.still()
    assert told == ["[0:00] press Ctrl-C", "[60:00] ending", "[60:20]   20 s since: ending"]


def test_a_thread_says_it_until_the_demo_ends() -> None:
    now, said = [0.0], threading.Event()
    told = list[str]()

    def tell(text: str) -> None:
        told.append(text)
        if "since" in text:
            said.set()

    with Narration(tell, lambda: now[0]) as narration:
        narration.say("a step")
        now[0] = 20.0
        assert said.wait(60)
    assert not [each for each in threading.enumerate() if each.name == "narration"]
