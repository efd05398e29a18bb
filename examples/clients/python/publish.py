"""Publishes durable messages to the exchange `orders` and counts what the broker has accepted.

Usage: python3 publish.py amqp://USER:PASSWORD@HOST:PORT HOW_MANY [KEY]
KEY is the routing key, such as eu.fr.paris.
"""

from collections import deque

from proton import Event, Message
from subscription import EXCHANGE, Command, arguments


class Publisher(Command):
    """Sends as fast as the broker gives credit; an accepted message is on its disk. What has no answer when a connection
    is lost is sent again on the next one, so it may be there twice.
    """

    def __init__(self, url: str, count: int, key: str | None) -> None:
        super().__init__()
        self.url, self.count, self.key = url, count, key
        self.left = deque(range(count))
        self.waiting: dict[str, int] = {}

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self.url, allow_insecure_mechs=True)
        # The kind is named: where brokers make what they don't know, a name alone would become a queue.
        event.container.create_sender(connection, f"topic://{EXCHANGE}")

    def on_sendable(self, event: Event) -> None:
        while event.sender.credit and self.left:
            number = self.left.popleft()
            sent = event.sender.send(Message(body=f"order {number}", subject=self.key, durable=True))
            self.waiting[sent.tag] = number

    def on_accepted(self, event: Event) -> None:
        self.waiting.pop(event.delivery.tag, None)
        if not self.left and not self.waiting:
            print(f"{self.count} accepted")
            event.connection.close()

    def on_rejected(self, event: Event) -> None:
        self.refuse(event, f"rejected: {event.delivery.remote.condition}")

    def on_released(self, event: Event) -> None:
        self.refuse(event, "not taken, without a reason")

    def on_disconnected(self, event: Event) -> None:
        self.left.extendleft(sorted(self.waiting.values(), reverse=True))
        self.waiting.clear()


if __name__ == "__main__":
    url, how_many, *key = arguments(__doc__, 2)
    Publisher(url, int(how_many), key[0] if key else None).run()
