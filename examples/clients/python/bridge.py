"""Empties an address of an old broker into an address of a new one, each message untouched and in its order.

Usage: python3 bridge.py OLD_URL OLD_ADDRESS NEW_URL NEW_ADDRESS
URLs are amqp://USER:PASSWORD@HOST:PORT or amqps://...; it ends when nothing has come for five seconds, and prints how many it moved.
A message leaves the old broker after the new one has accepted it. SIGTERM or Ctrl-C: it takes no more, waits until the new broker has
answered for what is under way, and ends; no message is on both then. If it is killed otherwise, or loses a connection, none is lost,
and those that were under way, at most 500, may be on both, with the same message-id.
"""

import signal
import sys
import time

from proton import Delivery, Event
from subscription import Command

IDLE_SECONDS = 5
LOOK_SECONDS = 0.2
WINDOW = 500


class Bridge(Command):
    """Both connections in one reactor. The tag of what is sent on finds the delivery that it came with."""

    def __init__(self, old_url: str, old_address: str, new_url: str, new_address: str) -> None:
        super().__init__(auto_accept=False, prefetch=0)
        self.old, self.new = (old_url, old_address), (new_url, new_address)
        self.waiting: dict[str, Delivery] = {}
        self.moved, self.last = 0, 0.0
        self.is_asked_to_stop = self.is_ending = self.is_over = False

    def on_start(self, event: Event) -> None:
        def connect(url: str):
            return event.container.connect(url, allow_insecure_mechs=True, reconnect=False)

        self.sender = event.container.create_sender(connect(self.new[0]), self.new[1])
        self.receiver = event.container.create_receiver(connect(self.old[0]), self.old[1])

    def on_link_opened(self, event: Event) -> None:
        if event.receiver:
            event.receiver.flow(WINDOW)  # no more than these are ever under way
            self.last = time.monotonic()
            event.container.schedule(LOOK_SECONDS, self)

    def on_message(self, event: Event) -> None:
        if not self.is_ending:  # else it has no outcome, and stays on the old broker
            self.waiting[self.sender.send(event.message).tag] = event.delivery

    def on_accepted(self, event: Event) -> None:
        self.accept(self.waiting.pop(event.delivery.tag))
        self.moved += 1
        self.last = time.monotonic()
        if not self.is_ending:
            self.receiver.flow(1)
        self.leave_when_answered()

    def on_rejected(self, event: Event) -> None:
        del self.waiting[event.delivery.tag]  # what has no outcome stays on the old broker
        self.end(f"refused: {event.delivery.remote.condition}")

    on_released = on_rejected

    def on_timer_task(self, event: Event) -> None:
        if self.is_over:
            return
        if self.is_asked_to_stop and not self.is_ending:
            self.end(f"stopping: {len(self.waiting)} under way")
        elif not self.waiting and time.monotonic() - self.last > IDLE_SECONDS:
            self.is_ending = True
            self.leave_when_answered()
        event.container.schedule(LOOK_SECONDS, self)

    def end(self, why: str) -> None:
        """Take no more, and leave once the new broker has answered for what is under way."""
        if not self.is_ending:
            self.is_ending = self.failed = True
            print(why, flush=True)
        self.leave_when_answered()

    def leave_when_answered(self) -> None:
        if self.is_ending and not self.waiting and not self.is_over:
            print(f"{self.moved} moved", flush=True)
            self.leave()

    def on_link_error(self, event: Event) -> None:
        self.lose(f"refused: {event.link.remote_condition}")

    def on_connection_error(self, event: Event) -> None:
        self.lose(f"lost: {event.connection.remote_condition}")

    def on_transport_error(self, event: Event) -> None:
        condition = event.transport.condition
        is_refused = condition is not None and condition.name == "amqp:unauthorized-access"
        self.lose(f"{'refused' if is_refused else 'lost'}: {condition}")

    def lose(self, why: str) -> None:
        """There will be no more answers."""
        if not self.is_over:
            self.failed = True
            print(f"{why}\n{self.moved} moved, {len(self.waiting)} may be on both", flush=True)
            self.leave()

    def leave(self) -> None:
        self.is_over = True
        self.receiver.connection.close()
        self.sender.connection.close()


if __name__ == "__main__":
    bridge = Bridge(*sys.argv[1:5])

    def stop(number: int, _: object) -> None:
        bridge.is_asked_to_stop = True
        signal.signal(number, signal.SIG_DFL)  # the second one ends it at once

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    bridge.run()
