"""What the commands share: the two sources that a shared durable subscription needs, as options for proton's
`create_receiver`, and how a command begins and ends.
"""

import sys

from proton import Data, Event, Link, Terminus
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption

EXCHANGE = "orders"


class Command(MessagingHandler):
    """A command says in a sentence if the broker does not let it in, or refuses what it asks, and ends with exit code 1."""

    failed = False

    def on_transport_error(self, event: Event) -> None:
        condition = event.transport.condition
        if condition is None or condition.name != "amqp:unauthorized-access":
            why = condition.description if condition else "it closed the connection"
            print(f"no connection to the broker, trying again: {why}", file=sys.stderr, flush=True)
            super().on_transport_error(event)  # proton connects again
            return
        self.refuse(event, f"refused: {condition.description}")

    def on_link_error(self, event: Event) -> None:
        self.refuse(event, f"refused: {event.link.remote_condition}")

    def refuse(self, event: Event, why: str) -> None:
        """Say why, and end with exit code 1."""
        print(why, flush=True)
        self.failed = True
        event.connection.close()

    def run(self) -> None:
        Container(self).run()
        sys.exit(1 if self.failed else 0)


def arguments(about: str | None, least: int) -> list[str]:
    """What stands behind the command's name. Prints the usage in `about`, and ends with exit code 2, if it is too little."""
    given = sys.argv[1:]
    if len(given) < least:
        print((about or "").partition("\n\n")[2].strip(), file=sys.stderr)
        sys.exit(2)
    return given


class SharedDurable(LinkOption):
    """The source of a shared, durable, global subscription; the subscription's name is the link's name up to `|`."""

    def apply(self, link: Link) -> None:
        link.source.durability = Terminus.DELIVERIES
        link.source.expiry_policy = Terminus.EXPIRE_NEVER
        link.source.capabilities.put_array(False, Data.SYMBOL)
        link.source.capabilities.enter()
        for capability in ("topic", "shared", "global"):
            link.source.capabilities.put_symbol(capability)
        link.source.capabilities.exit()


class NullSource(LinkOption):
    """No source: looks up a subscription that exists, by the link's name, and never receives from it."""

    def apply(self, link: Link) -> None:
        link.source.type = Terminus.UNSPECIFIED
