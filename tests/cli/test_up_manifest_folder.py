"""`penstock up` reads manifests: what a good folder becomes, and that all errors come at once with their place."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from penstock_api.failure import Misuse
from penstock_cli.up import manifest_folder

GOOD = """\
apiVersion: penstock.dev/v1alpha1
kind: Broker
metadata: {name: shop}
spec: {authentication: {anonymous: true}}
---
apiVersion: penstock.dev/v1alpha1
kind: Exchange
metadata: {name: orders}
spec:
  brokerRef: {name: shop}
  type: Topic
---
apiVersion: penstock.dev/v1alpha1
kind: Subscription
metadata: {name: billing}
spec:
  brokerRef: {name: shop}
  exchangeRef: {name: orders}
  bindingKeys: [eu.#]
"""


def put(folder: Path, name: str, text: str) -> Path:
    """Write one manifest file and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text), encoding="utf-8")
    return path


def problems(folder: Path) -> list[str]:
    """The lines that reading the folder complains with, without the head line."""
    with pytest.raises(Misuse) as caught:
        manifest_folder.read(folder)
    return [line.strip() for line in caught.value.cause.splitlines()[1:]]


def test_a_folder_becomes_one_broker_with_its_topology(tmp_path: Path) -> None:
    put(tmp_path, "all.yaml", GOOD)
    read = manifest_folder.read(tmp_path)
    assert read.broker.metadata.name == "shop"
    assert [exchange.metadata.name for exchange in read.exchanges] == ["orders"]
    [(subscription, exchange)] = read.subscriptions
    assert subscription.spec.binding_keys == ("eu.#",)
    assert exchange is read.exchanges[0]


def test_files_of_sub_folders_and_other_groups_may_be_there(tmp_path: Path) -> None:
    put(tmp_path, "deep/er/all.yml", GOOD)
    put(tmp_path, "secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\n---\n")
    put(tmp_path, "README.md", "not a manifest: [")
    assert manifest_folder.read(tmp_path).broker.key == "default/shop"


def test_a_group_that_is_misspelt_is_not_taken_for_one_of_others(tmp_path: Path) -> None:
    """What it should declare would be left out without a word. Groups of others are as far from ours as theirs are."""
    file = put(tmp_path, "all.yaml", GOOD)
    others = ("rabbitmq.com/v1beta1", "kafka.strimzi.io/v1", "apps/v1", "kustomize.config.k8s.io/v1beta1", "v1")
    for number, version in enumerate(others):
        put(tmp_path, f"other{number}.yaml", f"apiVersion: {version}\nkind: Queue\nmetadata: {{name: q}}\n")
    assert manifest_folder.read(tmp_path).queues == ()
    file.write_text(
        file.read_text().replace("penstock.dev/v1alpha1\nkind: Subscription", "penstok.dev/v1\nkind: Subscription")
    )
    (problem,) = problems(tmp_path)
    assert problem.endswith(": apiVersion: 'penstok.dev' looks like 'penstock.dev' and is another group")


def test_an_empty_folder_says_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="holds no manifest"):
        manifest_folder.read(tmp_path)


def test_every_problem_is_told_at_once_with_file_line_document_and_field(tmp_path: Path) -> None:
    bad = put(
        tmp_path,
        "bad.yaml",
        """\
        apiVersion: penstock.dev/v1alpha1
        kind: Exchange
        metadata: {name: orders}
        spec: {brokerRef: {name: shop}, type: Ring}
        ---
        apiVersion: penstock.dev/v1alpha1
        kind: Subscription
        metadata: {name: billing}
        spec: {brokerRef: {name: shop}, exchangeRef: {name: orders}, scope: Container}
        ---
        just words
        """,
    )
    broken = put(tmp_path, "broken.yaml", "a: [1, 2\nb: 3\n")
    put(
        tmp_path,
        "shop.yaml",
        GOOD.split("---\n")[0],
    )
    lines = problems(tmp_path)
    assert len(lines) == 4
    assert lines[0].startswith(f"{bad}:1 (document 1): Exchange orders: spec.type: ")
    assert lines[1].startswith(f"{bad}:6 (document 2): Subscription billing: spec: ")
    assert "clientId" in lines[1]
    assert lines[2].startswith(f"{bad}:11 (document 3): a manifest is a map")
    assert lines[3].startswith(f"{broken} (document 1): not YAML: ")


@pytest.mark.parametrize("text", ["spec: {since: 2024-13-45}", "spec: " + "[" * 3000])
def test_what_yaml_can_not_hold_is_told_like_any_other_problem(tmp_path: Path, text: str) -> None:
    file = put(tmp_path, "odd.yaml", text)
    (line,) = problems(tmp_path)
    assert line.startswith(f"{file} (document 1): not YAML: ")


def test_a_missing_broker_and_two_brokers_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "all.yaml", "---\n".join(GOOD.split("---\n")[1:]))
    assert any("exactly one Broker is needed, found: none" in line for line in problems(tmp_path))
    put(tmp_path, "all.yaml", GOOD)
    put(tmp_path, "more.yaml", GOOD.split("---\n")[0].replace("shop", "other"))
    assert any("exactly one Broker is needed, found: " in line and "more.yaml:1" in line for line in problems(tmp_path))


def test_references_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    file = put(tmp_path, "all.yaml", GOOD.replace("exchangeRef: {name: orders}", "exchangeRef: {name: other}"))
    [line] = problems(tmp_path)
    assert line == (
        f"{file}:13 (document 3): Subscription default/billing: spec.exchangeRef: no Exchange default/other is declared"
    )


def test_what_an_unreadable_manifest_may_declare_is_not_missed(tmp_path: Path) -> None:
    put(tmp_path, "all.yaml", GOOD.replace("type: Topic", "typ: Topic"))
    [line] = problems(tmp_path)
    assert line.endswith("Exchange orders: spec.typ: there is no such field")
    put(tmp_path, "all.yaml", GOOD.replace("anonymous: true", "anonymous: perhaps"))
    [line] = problems(tmp_path)
    assert "Broker shop: spec.authentication.anonymous: " in line


def test_a_resource_of_another_broker_is_named(tmp_path: Path) -> None:
    file = put(
        tmp_path,
        "all.yaml",
        GOOD.replace("  brokerRef: {name: shop}\n  exchangeRef", "  brokerRef: {name: b}\n  exchangeRef"),
    )
    [line] = problems(tmp_path)
    assert line == (
        f"{file}:13 (document 3): Subscription default/billing: "
        "spec.brokerRef: names default/b, but the Broker here is default/shop"
    )


def test_a_resource_that_stands_twice_is_named(tmp_path: Path) -> None:
    file = put(tmp_path, "all.yaml", GOOD + "---\n" + GOOD.split("---\n")[1])
    assert problems(tmp_path) == [
        f"{file}:21 (document 4): Exchange default/orders: metadata.name: already declared at {file}:6 (document 2)"
    ]


def test_two_resources_that_mean_one_subscription_are_named(tmp_path: Path) -> None:
    twin = (
        GOOD.split("---\n")[2]
        .replace("name: billing", "name: twin")
        .replace("spec:", "spec:\n  subscriptionName: billing")
    )
    put(tmp_path, "all.yaml", GOOD)
    file = put(tmp_path, "twin.yaml", twin)
    [line] = problems(tmp_path)
    assert line.startswith(
        f"{file}:1 (document 1): Subscription default/twin: is the durable subscription 'billing' (global), which "
    )


def test_a_selector_that_is_none_is_named(tmp_path: Path) -> None:
    file = put(tmp_path, "all.yaml", GOOD + '  filter: {selector: "amount > > 3"}\n')
    [line] = problems(tmp_path)
    assert line.startswith(f"{file}:13 (document 3): Subscription default/billing: spec.filter.selector: ")


QUEUE = """\
apiVersion: penstock.dev/v1alpha1
kind: Queue
metadata: {name: invoices}
spec: {brokerRef: {name: shop}, queueName: shop.invoices}
"""


def test_a_queue_belongs_to_the_broker_too(tmp_path: Path) -> None:
    put(tmp_path, "all.yaml", GOOD)
    put(tmp_path, "queue.yaml", QUEUE)
    (queue,) = manifest_folder.read(tmp_path).queues
    assert (queue.metadata.name, queue.spec.queue_name) == ("invoices", "shop.invoices")


def test_two_queues_of_one_name_and_one_of_another_broker_are_told(tmp_path: Path) -> None:
    put(tmp_path, "all.yaml", GOOD)
    first = put(tmp_path, "first.yaml", QUEUE)
    second = put(tmp_path, "second.yaml", QUEUE.replace("name: invoices", "name: bills"))
    third = put(tmp_path, "third.yaml", QUEUE.replace("name: shop", "name: bank").replace("invoices", "fees"))
    assert problems(tmp_path) == [
        f"{third}:1 (document 1): Queue default/fees: spec.brokerRef: names default/bank, but the Broker here is "
        "default/shop",
        f"{second}:1 (document 1): Queue default/bills: is the queue 'shop.invoices', which Queue default/invoices at "
        f"{first}:1 (document 1) declares",
    ]
