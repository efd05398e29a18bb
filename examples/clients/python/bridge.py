"""Empties an address of an old broker into an address of a new one, each message byte for byte and in its order.

Usage: python3 bridge.py OLD_URL OLD_ADDRESS NEW_URL NEW_ADDRESS [--client-id CLIENT | --shared NAME [--selector SELECTOR]]
URLs are amqp://USER:PASSWORD@HOST:PORT or amqps://...; it ends when nothing has come for five seconds, and prints how many it moved.
OLD_ADDRESS is a queue. With --client-id it is the name of a durable subscription of this JMS client, which must not be connected
then; what the subscription selects stays as it is. With --shared it is the topic of the shared durable subscription NAME of clients
without a ClientID; give its selector, too, if it has one: an old broker may drop the backlog of a subscription whose selector changes.
A message leaves the old broker after the new one has accepted it. SIGTERM or Ctrl-C: it takes no more, waits until the new broker has
answered for what is under way, and ends; no message is on both then. If it is killed otherwise, or loses a connection, none is lost,
and those that were under way, at most 500, may be on both, with the same message-id.
"""

import argparse
import signal
import time

from proton import Delivery, Event
from proton.reactor import LinkOption, Selector
from subscription import Command, NullSource, SharedDurable

IDLE_SECONDS = 5
LOOK_SECONDS = 0.2
WINDOW = 500


class Bridge(Command):
    """Both connections in one reactor. The tag of what is sent on finds the delivery that it came with."""

    def __init__(self, wanted: argparse.Namespace) -> None:
        super().__init__(auto_accept=False, prefetch=0)
        self.wanted = wanted
        self.waiting: dict[str, Delivery] = {}
        self.moved, self.last = 0, 0.0
        self.is_asked_to_stop = self.is_ending = self.is_over = False

    def on_start(self, event: Event) -> None:
        container, wanted = event.container, self.wanted

        def connect(url: str, client_id: str | None = None):
            container.container_id = client_id
            return container.connect(url, allow_insecure_mechs=True, reconnect=False)

        self.sender = container.create_sender(connect(wanted.new_url), wanted.new_address)
        address, name, options = wanted.old_address, None, list[LinkOption]()
        if wanted.client_id:  # no source: the old broker finds the subscription by its name, and changes nothing of it
            address, name, options = None, wanted.old_address, [NullSource()]
        elif wanted.shared:
            name, options = f"{wanted.shared}|global", [SharedDurable()]
            options += [Selector(wanted.selector, "jms-selector")] if wanted.selector else []
        self.receiver = container.create_receiver(
            connect(wanted.old_url, wanted.client_id), address, name=name, options=options
        )

    def on_link_opened(self, event: Event) -> None:
        if event.receiver:
            event.receiver.flow(WINDOW)  # no more than these are ever under way
            self.last = time.monotonic()
            event.container.schedule(LOOK_SECONDS, self)

    def on_delivery(self, event: Event) -> None:
        """Pass on the bytes, which are not read: a library that reads a message and writes it again may change it."""
        delivery, link = event.delivery, event.link
        if link.is_sender or not delivery.readable or delivery.partial:
            return
        encoded = link.recv(delivery.pending)
        link.advance()
        if self.is_ending:  # it has no outcome, and stays on the old broker
            return
        sent = self.sender.delivery(self.sender.delivery_tag())
        self.sender.stream(encoded)
        self.sender.advance()
        self.waiting[sent.tag] = delivery

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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("bridge.py", usage=(__doc__ or "").partition("Usage: ")[2])
    for name in ("old_url", "old_address", "new_url", "new_address"):
        parser.add_argument(name)
    for name in ("--client-id", "--shared", "--selector"):
        parser.add_argument(name)
    wanted = parser.parse_args()
    if (wanted.client_id and wanted.shared) or (wanted.selector and not wanted.shared):
        parser.error("--client-id and --shared are for different subscriptions, and --selector is for --shared")
    return wanted


if __name__ == "__main__":
    bridge = Bridge(arguments())

    def stop(number: int, _: object) -> None:
        bridge.is_asked_to_stop = True
        signal.signal(number, signal.SIG_DFL)  # the second one ends it at once

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    bridge.run()
