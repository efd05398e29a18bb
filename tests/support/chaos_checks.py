"""What must hold on a real node after a fault, and functions that cause faults: they kill one process or one daemon.

Used by `support.chaos`. Needs the node of hack/cluster, and root.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from typing import Any, Final, cast

from e2e import node_processes
from e2e.kube import pick, wait_for
from support.installed_operator import MINUTE, SUBSCRIPTIONS, Installation, Team

from penstock_amqp.client.errors import ManagementError
from penstock_amqp.sasl.client import NotAuthenticated
from penstock_api.management import EntityType

__all__ = [
    "Meanwhile",
    "converges",
    "kill",
    "kill_operator",
    "no_spam",
    "restarts_of",
    "subscriptions",
    "told",
    "url",
]

EVENTS_EACH: Final = 8
"""More Events about one resource than that, for one fault, is spam."""


def subscriptions(names: Collection[str], **spec: Any) -> list[dict[str, Any]]:
    """Subscriptions of the exchange `orders`."""
    return [
        {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "Subscription",
            "metadata": {"name": name},
            "spec": {
                "brokerRef": {"name": "main"},
                "exchangeRef": {"name": "orders"},
                "bindingKeys": ["no.one"],
                **spec,
            },
        }
        for name in names
    ]


def declared(team: Team) -> set[str]:
    """The subscriptions that the broker has; none while it does not answer."""

    async def ask() -> set[str]:
        management = await team.management()
        try:
            rows = await management.query_all(EntityType.SUBSCRIPTION, attributes=["subscriptionName"])
            return {str(row["subscriptionName"]) for row in rows}
        finally:
            await management.close()

    try:
        return asyncio.run(ask())
    except (OSError, TimeoutError, ManagementError, NotAuthenticated):
        return set()


def unsettled(team: Team, wanted: Collection[str], may_stay: Collection[str] = ()) -> list[str]:
    """What is not yet as declared. Exactly these Subscriptions must exist, be Ready at their newest generation, and be
    on the broker, where those of `may_stay` may be, too.
    """
    listed = cast("list[Any]", pick(team.kube.get("subscriptions,exchanges,brokers"), "items") or [])
    found = [_problem(item) for item in listed]
    there = {str(pick(item, "metadata", "name")) for item in listed if item["kind"] == "Subscription"}
    odd = there.symmetric_difference(wanted) or declared(team).symmetric_difference(wanted).difference(
        set(may_stay).difference(wanted)
    )
    return [each for each in found if each] + sorted(f"{name} is here or there alone" for name in odd)


def _problem(item: Any) -> str:
    about, status = item["metadata"], item.get("status", {})
    title = f"{item['kind']} {about['name']}"
    if "deletionTimestamp" in about:
        return f"{title} is being deleted"
    if status.get("observedGeneration") != about["generation"]:
        return f"{title} was not looked at"
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    return "" if ready["status"] == "True" else f"{title}: {ready['reason']}: {ready['message']}"


def converges(
    team: Team,
    wanted: Collection[str] = (),
    *,
    seconds: float = MINUTE,
    may_stay: Collection[str] = (),
    before_each_look: Callable[[], object] = lambda: None,
) -> None:
    """Wait until everything is as the resources declare. Raises `AssertionError` with what is not. `may_stay`:
    Subscriptions that were deleted and may still be on the broker.
    """
    every = {*SUBSCRIPTIONS, *wanted}

    def has_converged() -> bool:
        before_each_look()
        return not unsettled(team, every, may_stay)

    try:
        wait_for("all to be as it is declared", has_converged, seconds)
    except TimeoutError as error:
        raise AssertionError(f"after {seconds:.0f} s: {unsettled(team, every, may_stay)[:5]}") from error


def told(team: Team) -> dict[str, int]:
    """The number of Events about each of our resources."""
    counts: dict[str, int] = {}
    for event in cast("list[Any]", pick(team.kube.get("events"), "items") or []):
        if pick(event, "source", "component") == "penstock-operator":
            name = f"{event['involvedObject']['kind']} {event['involvedObject']['name']}"
            counts[name] = counts.get(name, 0) + int(event.get("count") or 1)
    return counts


def url(team: Team) -> Callable[[], str]:
    """The URL of the namespace's Broker for clients, without TLS."""
    host = str(team.field("service", "main-amqp", "spec", "clusterIP"))
    return lambda: f"amqp://{host}:5672"


def kill(team: Team, pod: str, verb: str) -> None:
    """Sends SIGKILL to a container's process as soon as it runs, also if the pod is replaced by another meanwhile."""

    def pid() -> int | None:
        uid = team.field("pod", pod, "metadata", "uid")
        return None if uid is None else node_processes.of_container(str(uid), verb)

    node_processes.kill(wait_for(f"`{verb}` in {pod}", pid, 4 * MINUTE))


def kill_operator(installation: Installation) -> None:
    """Sends SIGKILL to the operator's process."""

    def pid() -> int | None:
        pods = cast("list[Any]", pick(installation.home.get("pods"), "items") or [])
        found = (node_processes.of_container(each["metadata"]["uid"], "operator") for each in pods)
        return next((each for each in found if each is not None), None)

    node_processes.kill(wait_for("the operator's process", pid, 2 * MINUTE))


class Meanwhile:
    """Runs kubectl on a thread while faults happen."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._failed: list[Exception] = []
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # whatever it is: it is told by `done`
            self._failed.append(error)

    def done(self) -> None:
        """Wait until it has ended; raises what it raised."""
        self._thread.join(3 * MINUTE)
        assert not self._thread.is_alive(), "kubectl does not come back"
        for error in self._failed:
            raise error


def restarts_of(team: Team, container: str) -> int:
    """How often a container of the broker's pod has been restarted."""
    statuses = cast("list[Any]", team.field("pod", "main-0", "status", "containerStatuses") or [])
    return sum(int(each["restartCount"]) for each in statuses if each["name"] == container)


def no_spam(before: dict[str, int], after: dict[str, int]) -> None:
    grown = {name: count - before.get(name, 0) for name, count in after.items()}
    spam = {name: count for name, count in grown.items() if count > EVENTS_EACH}
    assert not spam, f"Events: {spam}"
