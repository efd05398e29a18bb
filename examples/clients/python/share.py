"""Makes the shared durable subscription NAME of the exchange `orders`, unless it is there, and consumes by two receivers.

Usage: python3 share.py amqp://USER:PASSWORD@HOST:PORT NAME HOW_MANY
Prints `ready`, then `RECEIVER BODY` per message; leaves after HOW_MANY, and the subscription goes on collecting.
"""

from proton import Event
from subscription import EXCHANGE, Command, SharedDurable, arguments

RECEIVERS = 2


class Sharing(Command):
    """Two links of one subscription: their names differ behind `|`. They could as well be in two processes."""

    def __init__(self, url: str, subscription: str, count: int) -> None:
        super().__init__(auto_accept=False, prefetch=2)  # few, so that no receiver keeps messages from the other
        self.url, self.subscription, self.left = url, subscription, count
        self.waiting = RECEIVERS

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self.url, allow_insecure_mechs=True)
        for number in range(1, RECEIVERS + 1):
            name = f"{self.subscription}|{number}"
            event.container.create_receiver(connection, EXCHANGE, name=name, options=SharedDurable())

    def on_link_opened(self, event: Event) -> None:
        self.waiting -= 1
        if self.waiting == 0:
            print("ready", flush=True)

    def on_message(self, event: Event) -> None:
        if self.left == 0:
            return  # came while we were leaving; without an outcome it goes to another consumer
        print(f"{event.receiver.name.rpartition('|')[2]} {event.message.body}", flush=True)
        self.accept(event.delivery)
        self.left -= 1
        if self.left == 0:
            event.connection.close()  # without closing the links, which would end the subscription


if __name__ == "__main__":
    url, name, how_many = arguments(__doc__, 3)
    Sharing(url, name, int(how_many)).run()
