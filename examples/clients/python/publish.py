"""Publishes durable messages to the exchange `orders` and counts what the broker has accepted.

Usage: python3 publish.py amqp://USER:PASSWORD@HOST:PORT HOW_MANY [KEY]
KEY is the routing key, such as eu.fr.paris.
"""

import sys

from proton import Event, Message
from subscription import EXCHANGE, Command


class Publisher(Command):
    """Sends as fast as the broker gives credit; an accepted message is on its disk."""

    def __init__(self, url: str, count: int, key: str | None) -> None:
        super().__init__()
        self.url, self.count, self.key = url, count, key
        self.sent = self.accepted = 0

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self.url, allow_insecure_mechs=True)
        # The kind is named: where brokers make what they don't know, a name alone would become a queue.
        event.container.create_sender(connection, f"topic://{EXCHANGE}")

    def on_sendable(self, event: Event) -> None:
        while event.sender.credit and self.sent < self.count:
            event.sender.send(Message(body=f"order {self.sent}", subject=self.key, durable=True))
            self.sent += 1

    def on_accepted(self, event: Event) -> None:
        self.accepted += 1
        if self.accepted == self.count:
            print(f"{self.accepted} accepted")
            event.connection.close()

    def on_rejected(self, event: Event) -> None:
        print(f"rejected: {event.delivery.remote.condition}")
        event.connection.close()


if __name__ == "__main__":
    Publisher(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None).run()
