"""A Broker with `networkPolicy`, and a program that enforces it: who still connects, and who does not any more.

Every attempt is a real one, from a pod. The same attempts are made without a policy before, and after it is taken back,
so that one which is refused is refused by the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from e2e.kube import pick, wait_for
from support.installed_operator import MINUTE, Team
from support.reach_stage import ELSEWHERE, HOME, Stage, StoryError, part, subscription

__all__ = ["play"]

ENFORCED_SECONDS: Final = 2 * MINUTE
LAG_SECONDS: Final = 5 * MINUTE
LAG_DONE: Final = "1 of 1 Brokers are done"
"""What the job logs once the observer has taken its result."""
LABELLED: Final = "labelled"
"""A client in `billing` with the label that the page's narrower policy wants."""

Attempts = dict[str, Callable[[], bool]]


def play(stage: Stage) -> None:
    """Raises StoryError or TimeoutError for what is not as the page on reach says."""
    narrow = part("networkPolicy", bool)["networkPolicy"]
    labels = narrow["clients"][0]["podSelector"]["matchLabels"]
    stage.add_client("billing", LABELLED, labels)
    tries = _attempts(stage)
    _expect(stage, "without a policy", tries, dict.fromkeys(tries, True))

    stage.patch(part("networkPolicy", lambda value: value == {}))
    refused = {f"client in {ELSEWHERE}": False, f"management from {ELSEWHERE}": False}
    _expect(stage, "networkPolicy: {}", tries, {**dict.fromkeys(tries, True), **refused})
    _look_at_what_must_work(stage, "wide")
    _expect(stage, "networkPolicy: {}, after a restart", tries, {**dict.fromkeys(tries, True), **refused})

    stage.patch({"networkPolicy": narrow})
    served = {"client in billing, labelled": True, "observer from monitoring": True}
    _expect(stage, "the narrower policy of the page", tries, {**dict.fromkeys(tries, False), **served})
    _look_at_what_must_work(stage, "narrow")

    stage.patch({"networkPolicy": None})
    _expect(stage, "the policy taken back", tries, dict.fromkeys(tries, True))


def _attempts(stage: Stage) -> Attempts:
    return {
        "client in shop": lambda: stage.is_served("shop"),
        "client in billing": lambda: stage.is_served("billing"),
        "client in billing, labelled": lambda: stage.is_served("billing", pod=LABELLED),
        f"client in {ELSEWHERE}": lambda: stage.is_served(ELSEWHERE),
        f"management from {ELSEWHERE}": lambda: stage.manages(ELSEWHERE),
        "observer from monitoring": lambda: stage.scrapes("monitoring"),
        f"observer from {ELSEWHERE}": lambda: stage.scrapes(ELSEWHERE),
    }


def _expect(stage: Stage, what: str, tries: Attempts, expected: Mapping[str, bool]) -> None:
    """Wait until every attempt ends as expected, in one look at all of them."""
    seen: dict[str, bool] = {}

    def is_so() -> bool:
        seen.update({name: attempt() for name, attempt in tries.items()})
        return seen == expected

    try:
        wait_for(what, is_so, ENFORCED_SECONDS)
    except TimeoutError:
        off = [f"{name}: {'served' if seen[name] else 'refused'}" for name in tries if seen[name] != expected[name]]
        raise StoryError(f"{what}: {', '.join(off)}") from None
    stage.tell(what)
    for name, is_served in seen.items():
        stage.say(f"          {name:<34}{'served' if is_served else 'refused'}")


def _look_at_what_must_work(stage: Stage, mark: str) -> None:
    """What the page says that always gets in: kubelet, operator, lag job."""
    shop, billing, name = stage.shop, Team(stage.kube("billing")), f"under-{mark}"
    before = stage.runs()
    stage.kube().kubectl("delete", "pod", "main-0", "--wait")
    wait_for("another pod", lambda: shop.field("pod", "main-0", "metadata", "uid") not in (None, before[0]), MINUTE)
    stage.kube().kubectl("wait", "pod/main-0", "--for=condition=Ready", "--timeout=60s")
    stage.tell("kubelet: a new pod is Ready by its probes")
    billing.apply(subscription(name))
    billing.wait_ready(f"subscription/{name}", seconds=MINUTE)
    shop.wait_ready("broker/main", seconds=MINUTE)
    live = lambda: billing.field("subscription", name, "status", "lag", "source") == "Live"  # noqa: E731
    wait_for("live lag", live, 2 * MINUTE)
    stage.tell("operator: a new Subscription is declared, and has its lag from the observer")
    _run_lag_job(stage, f"lag-{mark}")
    stage.tell("lag job: a run has read the observer, and written its result there")
    billing.kube.kubectl("delete", "subscription", name, "--wait", "--timeout=60s")
    assert stage.runs()[1] == 0, "a probe has failed, and the kubelet has started a container again"


def _run_lag_job(stage: Stage, job: str) -> None:
    home = stage.kube(HOME)

    def schedule() -> str | None:
        found = cast("list[Any]", pick(home.get("cronjobs"), "items") or [])
        return next((str(each["metadata"]["name"]) for each in found), None)

    home.kubectl("create", "job", job, f"--from=cronjob/{wait_for('the lag schedule', schedule, MINUTE)}")
    home.kubectl("wait", f"job/{job}", "--for=condition=Complete", f"--timeout={LAG_SECONDS}s")
    log = home.kubectl("logs", f"job/{job}")
    if LAG_DONE not in log:
        raise StoryError(f"the lag job did not reach the observer:\n{log}")
