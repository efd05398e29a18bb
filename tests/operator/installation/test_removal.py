"""An operator's release is uninstalled only when nothing depends on it; the refusal says what would happen."""

from __future__ import annotations

from collections.abc import AsyncIterator

from support.api_server_in_memory import ApiServerInMemory
from support.resources import broker, exchange

from penstock_operator.cluster.api_server import ApiResource, KubeError
from penstock_operator.installation.inspection import names_by_kind
from penstock_operator.installation.removal import Release, refusal_of_removal
from penstock_operator.manifest import Manifest

KEEPING = Release("penstock", "penstock-system", keeps_crds=True)
REMOVING = Release("penstock", "penstock-system", keeps_crds=False)
NONE: dict[str, list[str]] = {"Broker": [], "Exchange": [], "Subscription": []}


def test_without_resources_it_may_go() -> None:
    assert refusal_of_removal(KEEPING, NONE) is None
    assert refusal_of_removal(REMOVING, NONE) is None


def test_a_refusal_says_how_many_there_are_what_would_happen_and_what_to_do() -> None:
    refusal = refusal_of_removal(KEEPING, {**NONE, "Broker": ["shop/main"], "Subscription": ["shop/a", "shop/b"]})
    assert refusal is not None
    assert refusal.exit_code == 1
    assert refusal.cause.startswith(
        "Release penstock is not uninstalled, because there are still 1 Broker and 2 Subscriptions "
        "(Broker shop/main). Without the operator they would stay and brokers would go on, but no deletion of an "
        "Exchange, a Subscription or a Queue would ever end"
    )
    assert "helm uninstall penstock --namespace penstock-system --no-hooks" in refusal.cure
    assert "docs/how-to/upgrade.md#uninstall" in refusal.cure


def test_a_single_subscription_without_a_broker_is_a_reason_too() -> None:
    """It has the operator's finalizer: without the operator its deletion never ends."""
    refusal = refusal_of_removal(KEEPING, {**NONE, "Subscription": ["shop/a"]})
    assert refusal is not None
    assert "there are still 1 Subscription (Subscription shop/a)." in refusal.cause


def test_if_the_crds_would_go_the_refusal_says_that_messages_may_be_lost() -> None:
    refusal = refusal_of_removal(REMOVING, {**NONE, "Broker": [f"n{number}/main" for number in (4, 3, 2, 1)]})
    assert refusal is not None
    assert "4 Brokers (Broker n1/main, n2/main, n3/main, ...)" in refusal.cause
    assert "Its value crds.keep is false: the CRDs would be removed, and with them all of these." in refusal.cause
    assert "the messages of those whose storage.whenDeleted is Delete would be gone" in refusal.cause
    assert refusal.cure.startswith("To keep them, run `helm upgrade` with crds.keep=true")


async def test_resources_of_all_namespaces_are_found() -> None:
    kube = ApiServerInMemory()
    for made in (broker(), exchange()):
        kube.user_applies(made.model_dump(mode="json", by_alias=True, exclude_none=True))
    found = await names_by_kind(kube)
    assert await names_by_kind(kube, ("shop",)) == found
    assert await names_by_kind(kube, ("other",)) == {kind: [] for kind in found}
    assert (found["Broker"], found["Exchange"], found["Subscription"]) == (["shop/main"], ["shop/orders"], [])


def test_what_an_operator_of_some_namespaces_leaves_concerns_them_and_their_crds_concern_all() -> None:
    assert Release("one", "home", keeps_crds=True, namespaces=("a", "b")).concerned == ("a", "b")
    assert Release("one", "home", keeps_crds=False, namespaces=("a", "b")).concerned == ()


async def test_a_cluster_without_the_crds_has_no_resources() -> None:
    class WithoutCrds(ApiServerInMemory):
        async def list(
            self, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
        ) -> AsyncIterator[Manifest]:
            if kind.plural:
                raise KubeError(404, f"there is no {kind.plural}")
            yield {}

    assert {len(names) for names in (await names_by_kind(WithoutCrds())).values()} == {0}
