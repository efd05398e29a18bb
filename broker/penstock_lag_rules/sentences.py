"""Parts of the sentence that says why a subscription has its state. Each is without its full stop."""

from __future__ import annotations

from penstock_lag_rules.figures import Figures, Growth, RepeatedMessage, Standing
from penstock_lag_rules.thresholds import Thresholds
from penstock_lag_rules.trend import became_due, due_later, per_minute

__all__ = ["attached", "backlog", "due", "held", "losses", "named", "rates", "seconds", "spent", "waiting"]


def backlog(f: Figures) -> str:
    """What waits, and since when; and what is due later, which does not wait."""
    now = f.standing
    age = "" if now.age_ms is None else f", the oldest for {seconds(now.age_ms)}"
    stranded = f"; {now.stranded} of them for a destination that does not take them" if now.stranded else ""
    return f"{waiting(now.waiting)}{age}{stranded}{due(now)}"


def due(now: Standing) -> str:
    """How many messages are due later, as the end of a sentence; empty if none is."""
    if now.later == 0:
        return ""
    more = " more" if now.waiting else ""
    return f"; 1{more} is due later" if now.later == 1 else f"; {now.later}{more} are due later"


def held(now: Standing) -> str:
    """That nobody else could take what waits, as the end of a sentence; empty if it is not so."""
    if now.hold_ms is None or not 0 < now.in_flight == now.waiting:
        return ""
    return f"; consumers hold all of it, the longest for {seconds(now.hold_ms)}"


def waiting(messages: int) -> str:
    """How many messages wait."""
    return "1 message waits" if messages == 1 else f"{messages} messages wait"


def attached(now: Standing) -> str:
    """How many consumers there are, and how many of them may take the first ready message if that is not all."""
    consumers = "1 consumer is attached" if now.consumers == 1 else f"{now.consumers} consumers are attached"
    usable = now.usable_consumers
    if usable is None or now.ready == 0 or usable >= now.consumers:
        return consumers
    return f"{consumers}, of which {usable or 'none'} may take the first message that is ready"


def rates(f: Figures) -> str:
    """How many messages came, became due, and went in the recent span, for each minute."""
    span = f.recent
    come = per_minute(span.growth.enqueued, span.elapsed_ms)
    go = per_minute(span.growth.acked, span.elapsed_ms)
    if due := per_minute(became_due(span, f.standing), span.elapsed_ms):
        return f"{come} messages a minute arrive, {due} become due, and {go} are accepted"
    if later := per_minute(due_later(span, f.standing), span.elapsed_ms):
        return f"{come} messages a minute arrive, of which {later} are due later, and {go} are accepted"
    return f"{come} messages a minute arrive and {go} are accepted"


def spent(f: Figures, t: Thresholds) -> str:
    """Where messages spend their time: with the consumers, or before."""
    waits, holds = f.wait.mean_ms, f.hold.mean_ms
    if waits is None or holds is None or min(f.wait.count, f.hold.count) < t.minimum_durations:
        return ""
    return f"; on average a message waited {_short(waits)} for a consumer and was held for {_short(holds)}"


def losses(grown: Growth) -> str:
    """How messages were lost, with the count of each kind."""
    parts = (
        (grown.expired, "expired", "expired"),
        (grown.dead_lettered, "became a dead letter", "became dead letters"),
        (grown.dropped, "was dropped", "were dropped"),
        (grown.lost_at_restart, "was lost at a restart of the broker", "were lost at a restart of the broker"),
    )
    return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in parts if count)


def named(messages: tuple[RepeatedMessage, ...] | list[RepeatedMessage]) -> str:
    """The first of these messages by its id, in brackets; empty if there is none."""
    if not messages:
        return ""
    worst = messages[0]
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    return f" ({worst.id} failed {worst.delivery_count} times{more})"


def _short(milliseconds: int) -> str:
    """As exact as it matters."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 10_000 else seconds(milliseconds)


def seconds(milliseconds: int) -> str:
    """Whole seconds with their unit."""
    return f"{milliseconds // 1000} s"
