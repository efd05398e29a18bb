"""What clients were told and no crash may take back, and what a restart may find between two states of the model."""

from __future__ import annotations

from broker.machine.model import Identity, Image, Model, SubscriptionImage

__all__ = ["Promises", "lies_between"]


class Promises:
    """Kept by what clients saw alone, whatever the log says of itself."""

    def __init__(self) -> None:
        self.messages: set[tuple[Identity, str]] = set()
        """Accepted, for a subscription that was there."""
        self.there: dict[Identity, str] = {}
        """Attached to or found, with this binding key."""
        self.gone: set[Identity] = set()
        """Ended, or not found."""

    def outdate(self, model: Model) -> None:
        """Forget what a step has undone since: a crash may or may not find that step."""
        now = model.image()
        self.messages = {each for each in self.messages if each[0] in now and each[1] in now[each[0]].messages}
        self.there = {
            identity: key for identity, key in self.there.items() if identity in now and now[identity].key == key
        }
        self.gone = {identity for identity in self.gone if identity not in now}

    def hold(self, found: Image) -> None:
        """A restart found this."""
        for identity, body in self.messages:
            assert identity in found and body in found[identity].messages, f"{body} was accepted and is lost"
        for identity, key in self.there.items():
            assert identity in found and found[identity].key == key, f"{identity} was attached to and is lost"
        for identity in self.gone:
            assert identity not in found, f"{identity} was ended and came back"


def lies_between(found: Image, lower: Image, upper: Image) -> None:
    """A step from `lower` to `upper` is in the log, or not, or in part; everything else is exactly there."""
    assert lower.keys() & upper.keys() <= found.keys() <= lower.keys() | upper.keys()
    for identity, each in found.items():
        sides = [side[identity] for side in (lower, upper) if identity in side]
        assert each.shared in [side.shared for side in sides], identity
        assert each.key in [side.key for side in sides]
        assert each.owner in [side.owner for side in sides]
        bodies = [set(side.messages) for side in sides]
        if len(sides) == 2:
            assert bodies[0] & bodies[1] <= each.messages.keys()
        assert each.messages.keys() <= set[str]().union(*bodies)
        if identity in lower:
            _counts_hold(each, lower[identity], upper.get(identity))


def _counts_hold(found: SubscriptionImage, lower: SubscriptionImage, upper: SubscriptionImage | None) -> None:
    """Attempts are neither lost nor made up, and what a consumer may have seen says so."""
    for body, message in found.messages.items():
        before = lower.messages.get(body)
        if before is None:
            continue
        after = upper.messages.get(body) if upper is not None else None
        assert before.attempts <= message.attempts
        assert after is None or message.attempts <= after.attempts
        if before.was_delivered:
            assert message.was_delivered or message.attempts, f"{body} was delivered before and does not say so"
