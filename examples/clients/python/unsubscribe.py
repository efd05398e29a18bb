"""Ends the shared durable subscription NAME, with what it holds. Refused while anybody consumes from it.

Usage: python3 unsubscribe.py amqp://USER:PASSWORD@HOST:PORT NAME
Prints `ended`, or `refused: ` and why.
"""

from proton import Event, Terminus
from subscription import Command, NullSource, arguments


class Unsubscribing(Command):
    """Looks the subscription up by a link without a source, and closes that link."""

    def __init__(self, url: str, subscription: str) -> None:
        super().__init__(prefetch=0)
        self.url, self.subscription = url, subscription

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self.url, allow_insecure_mechs=True)
        # `|global` says whose subscription is meant: that of all clients, not of this container
        event.container.create_receiver(connection, None, name=f"{self.subscription}|global", options=NullSource())

    def on_link_opened(self, event: Event) -> None:
        if event.link.remote_source.type != Terminus.UNSPECIFIED:  # found: the answer carries its source
            event.link.close()

    def on_link_closed(self, event: Event) -> None:
        if not event.link.remote_condition:
            print("ended")
            event.connection.close()

    def on_link_error(self, event: Event) -> None:
        self.refuse(event, f"refused: {event.link.remote_condition.description}")


if __name__ == "__main__":
    url, name = arguments(__doc__, 2)
    Unsubscribing(url, name).run()
