"""Whether a command of Helm or of hack/ on a page could work as it is printed: the program, its options, the chart and
its values. `kubectl` and `penstock` are in `kubectl_commands`.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kube.binaries import located
from kube.settings import folders
from support.kubectl_commands import words

__all__ = ["helm_faults", "notes_of", "script_faults", "without_placeholders"]

ROOT: Final = Path(__file__).resolve().parents[2]
PLACEHOLDERS: Final = {
    '"$(hack/images tag)"': "0f3c",
    "REGISTRY": "registry.example/team",
    "PASSWORD": "secret",
    "TAG": "0f3c",
    "DIR": "/tmp",
}
RELEASED: Final = re.compile(r"build/release/[\d.]+/(penstock-\w+)-[\d.]+\.tgz")
"""A chart that hack/release has packed; its source is the same."""
CHART_VERBS: Final = ("install", "upgrade")
VALUES: Final = ("--set", "--set-string")
WITH_VALUE: Final = (*VALUES, "--namespace", "--timeout")


def without_placeholders(command: str) -> str:
    """The command with a value for each word that a reader has to replace."""
    for word, value in PLACEHOLDERS.items():
        command = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", value, command)
    return command


def helm_faults(command: str) -> list[str]:
    """Why `helm` would not take a command; for an installation it renders the chart with the values as printed."""
    _, verb, *rest = words(without_placeholders(command))
    options, names = _split(rest)
    faults = [f"helm {verb} has no option {name}" for name, _ in options if not _has_option(("helm", verb), name)]
    if verb not in CHART_VERBS:
        return faults
    if len(names) != 2:
        return [*faults, f"helm {verb} wants a release and a chart, not {names}"]
    chart = RELEASED.sub(r"helm/\1", names[1])
    if not (ROOT / chart / "Chart.yaml").is_file():
        return [*faults, f"there is no chart {names[1]!r}"]
    values = [f"{name}={value}" for name, value in options if name in VALUES]
    done = _run("helm", "template", names[0], str(ROOT / chart), *values)
    return faults if done.returncode == 0 else [*faults, done.stderr.strip()]


def script_faults(command: str) -> list[str]:
    """Why a command of hack/ would not take its options."""
    first, *rest = words(without_placeholders(command))
    if not (ROOT / first).is_file():
        return [f"there is no {first}"]
    verb = rest[0] if rest and re.fullmatch("[a-z]+", rest[0]) and f" {rest[0]} " in f"{_help((first,))} " else ""
    called = (first, verb) if verb and first in ("hack/images", "hack/cluster") else (first,)
    options = [word.partition("=")[0] for word in rest if word.startswith("--") and word != "--help"]
    return [f"{' '.join(called)} has no option {name}" for name in options if not _has_option(called, name)]


def _split(arguments: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    options: list[tuple[str, str]] = []
    names: list[str] = []
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("--"):
            names.append(word)
        elif name in WITH_VALUE and not equals:
            options.append((name, next(rest)))
        else:
            options.append((name, value))
    return options, names


def _has_option(called: tuple[str, ...], option: str) -> bool:
    return re.search(rf"{re.escape(option)}(?![\w-])", _help(called)) is not None


@functools.cache
def _help(called: tuple[str, ...]) -> str:
    done = _run(*called, "--help")
    return done.stdout if done.returncode == 0 else ""


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    program = str(located(folders())["helm"]) if command[0] == "helm" else str(ROOT / command[0])
    return subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)


def notes_of(chart: Path, *settings: str) -> Iterator[str]:
    """The commands that a chart's NOTES.txt prints, which are indented by two."""
    options = [f"--set={it}" for it in settings]
    done = _run("helm", "install", "penstock", str(chart), "--dry-run=client", "--namespace=penstock-system", *options)
    assert done.returncode == 0, done.stderr
    taken: list[str] = []
    for line in done.stdout.partition("\nNOTES:\n")[2].splitlines():
        if taken or re.match("  (kubectl|helm) ", line):
            taken.append(line.strip())
            if not line.endswith("\\"):
                yield "\n".join(taken)
                taken = []
