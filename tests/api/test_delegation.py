"""Which rights a resource gives, and what its Broker does not allow of them."""

from __future__ import annotations

from typing import Any

import pytest
from support.resources import broker, exchange, subscription

from penstock_api import declaration
from penstock_api.delegation import Rights, rights_of

BILLING = {"name": "billing", "namespace": "billing"}
NOT_AT_ALL = (
    "Broker main does not let its resources say who uses them. Ask those who run it to set `delegatedPermissions`, or "
    "leave the names out."
)


def refused(named: str) -> str:
    return (
        f"Broker main does not allow its resources to name {named}. Ask those who run it to add the namespace to "
        "`allowedNamespaces`, or the user to `delegatedPermissions.users`, or leave the names out."
    )


def delegating(*users: str, namespaces: tuple[str, ...] = ()) -> Any:
    return broker(permissions=[], delegatedPermissions={"users": list(users)}, allowedNamespaces=list(namespaces))


def test_a_resource_that_names_nobody_gives_no_rights() -> None:
    assert rights_of(broker(), exchange()) == Rights()
    assert rights_of(delegating(), subscription()) == Rights()


def test_a_broker_that_delegates_nothing_gives_nothing() -> None:
    assert rights_of(broker(permissions=[]), exchange(publishers=[{"serviceAccounts": ["app"]}])) == Rights(
        (), NOT_AT_ALL
    )


@pytest.mark.parametrize(
    ("namespaces", "grantee", "users", "problem"),
    [
        ((), {"serviceAccounts": ["app"]}, ("system:serviceaccount:shop:app",), ""),
        ((), {"serviceAccounts": ["*"]}, ("system:serviceaccount:shop:*",), ""),
        (
            ("billing",),
            {"namespace": "billing", "serviceAccounts": ["b", "a"]},
            ("system:serviceaccount:billing:a", "system:serviceaccount:billing:b"),
            "",
        ),
        (("*",), {"namespace": "any", "serviceAccounts": ["a"]}, ("system:serviceaccount:any:a",), ""),
        (
            ("billing",),
            {"namespace": "evil", "serviceAccounts": ["a", "b"]},
            (),
            refused("ServiceAccount evil/a, ServiceAccount evil/b"),
        ),
        ((), {"users": ["app-1"]}, ("app-1",), ""),
        ((), {"users": ["app-1", "root"], "serviceAccounts": ["a"]}, ("app-1", "system:serviceaccount:shop:a"), "root"),
        ((), {"users": ["system:serviceaccount:evil:a"]}, (), "system:serviceaccount:evil:a"),
    ],
)
def test_who_may_be_named(namespaces: tuple[str, ...], grantee: Any, users: tuple[str, ...], problem: str) -> None:
    said = problem if problem.startswith("Broker") or not problem else refused(f"user {problem}")
    found = rights_of(delegating("app-*", namespaces=namespaces), exchange(publishers=[grantee]))
    assert found == Rights(users, said)


def test_the_service_accounts_of_a_subscription_are_those_of_its_own_namespace() -> None:
    made = subscription(metadata=BILLING, consumers=[{"serviceAccounts": ["app"]}])
    assert rights_of(delegating(namespaces=("billing",)), made).users == ("system:serviceaccount:billing:app",)
    assert rights_of(delegating(), made).problem == refused("ServiceAccount billing/app")


def test_many_refused_names_are_counted() -> None:
    made = exchange(publishers=[{"users": [f"u{number}" for number in range(7)]}])
    assert rights_of(delegating(), made).problem == refused("user u0, user u1, user u2, user u3, user u4 and 2 more")
    five = exchange(publishers=[{"users": [f"u{number}" for number in range(5)]}])
    assert rights_of(delegating(), five).problem == refused("user u0, user u1, user u2, user u3, user u4")


def test_the_longest_names_of_namespace_and_service_account_can_be_declared() -> None:
    """A declaration that can't be made would be a bug at each pass, and the resource would never say why."""
    longest = ".".join(["s" * 63] * 4)[:253]
    home = {"name": "n", "namespace": "n" * 63, "uid": "u"}
    made, of = exchange(metadata=home, publishers=[{"serviceAccounts": [longest]}]), delegating(namespaces=("n" * 63,))
    (user,) = declaration.exchange_declaration(made, publishers=rights_of(of, made).users).publishers
    assert user == f"system:serviceaccount:{'n' * 63}:{longest}"
    bound = subscription(metadata=home, consumers=[{"serviceAccounts": [longest]}])
    wanted = declaration.subscription_declaration(bound, exchange="orders", consumers=rights_of(of, bound).users)
    assert wanted.consumers == (user,)
