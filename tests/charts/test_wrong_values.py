"""What nobody can use is refused by Helm, with the name of the value, before anything of it reaches the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.helm_template import BROKER, OPERATOR, template

pytestmark = pytest.mark.built  # hack/cluster builds Helm

OPEN = "broker.spec.authentication.anonymous=true"


@pytest.mark.parametrize("group", ["global", "crds", "image", "lagImage", "lag", "rbac", "uninstallGuard", "dashboard"])
def test_a_group_without_its_values_is_named(group: str) -> None:
    """`lag:` with nothing below it, or the values of an older chart (`--reuse-values`)."""
    done = template(OPERATOR, f"{group}=null")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"missing property '{group}'" in done.stderr


@pytest.mark.parametrize("value", ["crds.enabled", "crds.keep", "rbac.create", "serviceAccount.create"])
def test_a_switch_that_is_neither_on_nor_off_is_named(value: str) -> None:
    """Null would mean off: with `crds.keep` off, all resources go when the release is uninstalled."""
    group, _, name = value.partition(".")
    done = template(OPERATOR, f"{value}=null")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"at '/{group}': missing property '{name}'" in done.stderr


@pytest.mark.parametrize(
    "setting",
    [
        "nameOverride=A_b",
        "fullnameOverride=X Y",
        "serviceAccount.name=X",
        "priorityClassName=X Y",
        "dashboard.namespace=X",
        "image.tag=a b",
        "imagePullSecrets[0].name=X",
        "clusterDomain=x y",
        "resources.limits.memory=-1",
        "resources.requests.cpu=much",
        "tolerations[0].kee=x",
        "lag.tolerations[0].effect=NoSchedul",
        "lag.cpuLimit=much",
        "lag.deadlineMinutes=5",
        "lag.deadlineMinutes=1441",
        "lag.executors.cpuLimit=1Gi",
        "lag.priorityClassName=X Y",
        "affinity.nodeAfinity.a=b",
    ],
)
def test_what_the_api_server_would_refuse_is_refused_with_the_name_of_the_value(setting: str) -> None:
    done = template(OPERATOR, setting)
    assert (done.returncode, done.stdout) == (1, "")
    assert "/" + setting.partition("=")[0].split("[")[0].split(".nodeAfinity")[0].replace(".", "/") in done.stderr


@pytest.mark.parametrize("amount", ["1", "250m", "0.5", "64Ki", "1.5Gi", "2G"])
def test_amounts_are_what_kubernetes_takes(amount: str) -> None:
    done = template(OPERATOR, f"resources.limits.memory={amount}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("chart", "settings", "sentence"),
    [
        (BROKER, ("exchanges.e.brokerRef.name=b",), "exchanges.e.brokerRef: leave it out"),
        (BROKER, ("queues.q.brokerRef.name=b",), "queues.q.brokerRef: leave it out"),
        (
            BROKER,
            ("exchanges.e.type=Topic", "subscriptions.s.brokerRef.name=b"),
            "subscriptions.s.brokerRef: leave it out",
        ),
        (BROKER, ("scaleTokens={all}",), "scaleTokens: there is no subscription all in subscriptions"),
    ],
)
def test_a_sentence_says_what_to_do(chart: Path, settings: tuple[str, ...], sentence: str) -> None:
    done = template(chart, OPEN, *settings)
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr


@pytest.mark.parametrize("release", ["a" * 31, "1st", "a.b"])
def test_a_release_whose_name_no_broker_may_have_is_told_where_to_write_another(release: str) -> None:
    done = template(BROKER, OPEN, release=release)
    assert (done.returncode, done.stdout) == (1, "")
    assert f'a Broker can\'t be called "{release}", as this release: write another name into broker.name' in done.stderr
    assert template(BROKER, OPEN, "broker.name=main", release=release).returncode == 0
