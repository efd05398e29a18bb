"""Every command of the pages for an installation is checked by a test, or stands in the table with the reason why not.

`test_page_commands` checks those of kubectl and penstock on all pages of docs/; here are Helm's and hack's, and README.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.kubectl_commands import penstock_fault, words
from support.page_commands import Shown, shown
from support.shown_commands import helm_faults, notes_of, script_faults, without_placeholders

from penstock_api.resources import load

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md", "docs/how-to/install.md", "docs/how-to/upgrade.md", "docs/how-to/release.md", "docs/how-to/cluster.md",
    "helm/penstock-operator/README.md", "helm/penstock-broker/README.md",
)  # fmt: skip
COMMANDS = [each for page in PAGES for each in shown(ROOT / page)]
HELM = [each for each in COMMANDS if each.command.startswith("helm ")]
SCRIPTS = [each for each in COMMANDS if each.command.startswith("hack/")]
OURS = [each for each in COMMANDS if re.match(r"(\.venv/bin/)?penstock ", each.command)]
APPLIED = [each for each in COMMANDS if " -f examples/" in each.command or "penstock up examples/" in each.command]

ELSEWHERE = {
    "kubectl ": "tests/hack/test_page_commands.py",
    "git tag ": "a tag of this repository is made by a person",
    "for name in broker operator lag": "needs a registry; buildah has read such an archive when hack/release was made",
    "buildah login ": "needs a registry",
    'eval "$(hack/cluster env)"': "tests/e2e/test_cluster_smoke.py",
    "docker ": "there is no Docker here; hack/images builds from the same files",
}
"""What commands begin with that no test here checks, and what does it instead, or why nothing does."""


def name_of(each: Shown) -> str:
    return f"{each.page}: {each.command.splitlines()[0]}"


def test_every_command_is_checked_or_has_a_reason() -> None:
    checked = {each.command for each in (*HELM, *SCRIPTS, *OURS)}
    rest = {each.command for each in COMMANDS} - checked
    unknown = [command for command in rest if not command.startswith(tuple(ELSEWHERE))]
    assert unknown == []


def test_no_reason_is_out_of_date() -> None:
    shown_ones = [each.command for each in COMMANDS]
    assert [start for start in ELSEWHERE if not any(command.startswith(start) for command in shown_ones)] == []


@pytest.mark.built  # hack/cluster builds Helm
@pytest.mark.parametrize("each", HELM, ids=name_of)
def test_helm_takes_a_command_and_the_chart_its_values(each: Shown) -> None:
    assert helm_faults(each.command) == []


@pytest.mark.parametrize("each", SCRIPTS, ids=name_of)
def test_a_command_of_hack_has_its_options(each: Shown) -> None:
    assert script_faults(each.command) == []


@pytest.mark.parametrize("each", OURS, ids=name_of)
def test_penstock_takes_a_command(each: Shown) -> None:
    _, *arguments = words(without_placeholders(each.command))
    assert penstock_fault(arguments) is None


@pytest.mark.parametrize("each", APPLIED, ids=name_of)
def test_what_a_command_applies_are_valid_resources(each: Shown) -> None:
    (name,) = re.findall(r"examples/[\w./-]+", each.command)
    place = ROOT / name
    files = [place] if place.is_file() else sorted(place.glob("*.yaml"))
    assert files
    for file in files:
        assert load(file.read_text(encoding="utf-8"))


@pytest.mark.built
@pytest.mark.parametrize("settings", [(), ("watchNamespaces={one,two}",), ("crds.keep=false", "lag.backend=None")])
def test_the_notes_of_the_operator_print_commands_that_work(settings: tuple[str, ...]) -> None:
    commands = list(notes_of(ROOT / "helm/penstock-operator", *settings))
    assert [it.split()[0] for it in commands].count("helm") == 3
    faults = [fault for it in commands if it.startswith("helm ") for fault in helm_faults(it)]
    assert faults == []
    namespace = "one" if settings[:1] == ("watchNamespaces={one,two}",) else "my-team"
    assert f"helm test my-broker --namespace {namespace}" in commands
    assert any("kubectl create namespace" in it for it in commands) is (namespace == "my-team")


@pytest.mark.built
def test_the_notes_of_a_broker_name_the_test_only_if_there_is_one() -> None:
    chart = ROOT / "helm/penstock-broker"
    tested = list(notes_of(chart, "broker.spec.authentication.anonymous=true"))
    assert "helm test penstock --namespace penstock-system" in tested
    untested = list(notes_of(chart, "broker.spec.authentication.usersSecretRef.name=users"))
    assert tested[:-1] == untested


@pytest.mark.built
@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("helm install a helm/penstock-topic", "there is no chart 'helm/penstock-topic'"),
        ("helm install helm/penstock-broker", "wants a release and a chart"),
        ("helm upgrade a helm/penstock-operator --reuse-all", "helm upgrade has no option --reuse-all"),
        ("helm install a helm/penstock-operator --set image.name=x", "additional properties 'name' not allowed"),
        ("helm install a helm/penstock-broker", "nobody could connect to the broker"),
    ],
)
def test_a_command_of_helm_that_could_not_work_is_named(command: str, says: str) -> None:
    assert says in "\n".join(helm_faults(command))


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("hack/deploy", "there is no hack/deploy"),
        ("hack/images push REGISTRY --tls=false", "hack/images push has no option --tls"),
        ("hack/release 0.1.0 --publish", "hack/release has no option --publish"),
    ],
)
def test_a_command_of_hack_that_could_not_work_is_named(command: str, says: str) -> None:
    assert says in "\n".join(script_faults(command))
