"""What a command of kubectl on a page refers to, and whether the project has it: resources, columns, JSON paths,
containers, files of the pod, Secrets and their keys, conditions.

The examples of all pages are about Broker `main`, Exchange `orders` and Subscription `billing` in namespace `shop`, and
an operator of release `penstock` in `penstock-system`. What an application brings along (`deploy/billing`) is not ours.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import click
import yaml

from penstock_cli.main import penstock

__all__ = ["Cluster", "Kubectl", "columns", "faults", "parsed", "penstock_fault", "words"]

ROOT: Final = Path(__file__).resolve().parents[2]
OWN: Final = "NAME"
"""An object that the reader has made."""
BUILTIN: Final = frozenset(
    {"pod", "pods", "deploy", "secret", "svc", "cronjob", "job", "scheduledsparkapplication"}
) | {
    "sparkapplication",
    "certificate",
    "certificaterequest",
    "challenge",
    "order",
    "lease",
    "cm",
    "events",
    "messaging",
    "networkpolicy",
    "node",
    "pdb",
    "pv",
    "pvc",
    "storageclass",
    "volumeattachment",
    "volumesnapshot",
    "volumesnapshotcontent",
    "resourcequota",
    "limitrange",
    "validatingadmissionpolicies",
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
}
WITH_VALUE: Final = frozenset(
    {"-n", "--namespace", "-c", "-o", "-l", "--for", "--timeout", "--tail", "--since", "--as", "--type", "-p"}
)
JOB_CONDITIONS: Final = frozenset({"Complete", "Failed"})
CONDITION: Final = re.compile(r'@\.type=="(\w+)"')
FILTER: Final = re.compile(r"\[[^\]]*\]")
STEP: Final = re.compile(r"\.(\w+)")


@dataclass(frozen=True, slots=True)
class Cluster:
    """What an operator has made of the Broker of the examples."""

    pod: Mapping[str, Any]
    """The spec of the broker's pod."""
    secret_keys: Mapping[str, frozenset[str]]
    """The keys of each Secret, by its name."""
    services: Mapping[str, frozenset[int]]
    """The ports of each Service, by its name."""
    conditions: frozenset[str]
    """Types of conditions."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A command of kubectl: the verb, what it names, its options, and the command that it runs in a pod."""

    verb: str
    names: tuple[str, ...]
    options: Mapping[str, str]
    inner: tuple[str, ...]


def words(command: str) -> list[str]:
    """The words of the first program of a pipe, without comments. Raises ValueError if a quote is not closed."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="|<>;")
    lexer.commenters = "#"
    lexer.whitespace_split = True
    taken: list[str] = []
    for word in lexer:
        if set(word) <= set("|<>;"):
            break
        taken.append(word)
    return taken


def parsed(command: str) -> Kubectl:
    """A command that begins with `kubectl`."""
    before, _, after = " ".join(map(shlex.quote, words(command)[1:])).partition(" -- ")
    names: list[str] = []
    options: dict[str, str] = {}
    rest = iter(shlex.split(before))
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            names.append(word)
        elif equals:
            options[name] = value
        else:
            names_file = word == "-f" and names[:1] in (["apply"], ["create"], ["delete"])  # `logs -f` follows
            options[word] = next(rest) if names_file or word in WITH_VALUE else ""
    return Kubectl(names[0], tuple(names[1:]), options, tuple(shlex.split(after)))


def faults(command: str, cluster: Cluster) -> list[str]:
    """Why a command could not work; empty if nothing is known against it."""
    call = parsed(command)
    return [
        *_of_resources(call, cluster),
        *_of_options(call, cluster),
        *(_of_exec(call, cluster) if call.verb == "exec" else ()),
    ]


def penstock_fault(arguments: Sequence[str]) -> str | None:
    """Why `penstock` would not take these arguments; None if it would."""
    if arguments[:1] == ["lag"]:
        return None  # it has a parser of its own
    try:
        command: click.Command = penstock
        rest = list(arguments)
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), rest.pop(0))
            if found is None:
                return f"there is no command {arguments}"
            command = found
        command.make_context(command.name, rest)
    except click.ClickException as error:
        return error.format_message()
    return None


def columns(*, wide: bool) -> list[str]:
    """The headings of `kubectl get psub`."""
    version = _crd("subscriptions")["spec"]["versions"][0]
    shown = [each for each in version["additionalPrinterColumns"] if wide or not each.get("priority")]
    return ["NAME", *(each["name"].upper() for each in shown)]


@functools.cache
def _crd(plural: str) -> dict[str, Any]:
    return cast("dict[str, Any]", yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text(encoding="utf-8")))


def _plural(word: str) -> str | None:
    """The plural of one of our kinds, by any of its names."""
    for plural in ("brokers", "exchanges", "subscriptions", "queues"):
        names = _crd(plural)["spec"]["names"]
        if word.removesuffix(".penstock.dev") in (plural, names["singular"], *names["shortNames"]):
            return plural
    return None


def _of_resources(call: Kubectl, cluster: Cluster) -> Iterator[str]:
    file = call.options.get("-f", "")
    if file:
        if file.startswith("examples/") and not (ROOT / file).exists():
            yield f"there is no file {file!r}"
    elif call.verb in ("get", "describe", "wait", "annotate", "delete", "patch", "scale", "port-forward"):
        if call.verb in ("get", "describe", "wait", "delete") and len({"/" in name for name in call.names}) > 1:
            yield "kubectl takes KIND NAME... or KIND/NAME..., not both"
        if call.names[0] == "crd":
            yield from (f"there is no CRD {name!r}" for name in call.names[1:] if not _names_crd(name))
            yield from _of_kinds(call.names[1:])
            return
        yield from _of_kinds(call.names[0].split(","))
        for kind in call.names[0].partition("/")[0].split(","):
            if kind not in BUILTIN and _plural(kind) is None:
                yield f"there is no resource {kind!r}"
        if call.names[:1] == ("secret",) and call.names[1] not in (OWN, *cluster.secret_keys):
            yield f"there is no Secret {call.names[1]!r}"
        if call.verb == "port-forward":
            service, port = call.names[0].partition("/")[2], int(call.names[1].rpartition(":")[2])
            if port not in cluster.services.get(service, frozenset()):
                yield f"Service {service!r} has no port {port}"
    elif call.verb not in ("logs", "exec", "top", "auth", "create", "apply", "drain", "rollout", "taint"):
        yield f"there is no verb {call.verb!r}"


def _of_kinds(names: Sequence[str]) -> Iterator[str]:
    """A command about Exchanges and Subscriptions together means all that a Broker holds, so Queues belong to it."""
    kinds = {_plural(name) for name in names}
    if {"exchanges", "subscriptions"} <= kinds and "queues" not in kinds:
        yield "it leaves out queues"


def _names_crd(name: str) -> bool:
    """Whether it is the name of a CRD of ours, or an annotation of ours, as `kubectl annotate` has it."""
    plural, dot, group = name.partition(".")
    return name == "penstock.dev/delete-protection-" or (
        dot + group == ".penstock.dev" and (ROOT / "crds" / f"{plural}.yaml").is_file()
    )


def _of_options(call: Kubectl, cluster: Cluster) -> Iterator[str]:
    container = call.options.get("-c")
    if container is not None and container not in [each["name"] for each in cluster.pod["containers"]]:
        yield f"the pod has no container {container!r}"
    output, awaited = call.options.get("-o", ""), call.options.get("--for", "")
    named = CONDITION.findall(output)
    if awaited.startswith("condition="):
        named.append(awaited.split("=")[1])
    known = JOB_CONDITIONS if call.names[:1] == ("job",) else cluster.conditions
    yield from (f"there is no condition {each!r}" for each in named if each not in known)
    for path in (output.removeprefix("jsonpath="), awaited.removeprefix("jsonpath=").partition("}")[0]):
        if path.startswith("{"):
            yield from _of_path(call, path, cluster)


def _of_path(call: Kubectl, path: str, cluster: Cluster) -> Iterator[str]:
    """What a JSON path names: a key of one of our Secrets, or a field of one of our kinds."""
    plural = _plural(call.names[0].partition("/")[0])
    if call.names[0] == "secret" and call.names[1] != OWN:
        key = path.removeprefix("{.data.").removesuffix("}").replace("\\.", ".")
        if key not in cluster.secret_keys.get(call.names[1], frozenset()):
            yield f"Secret {call.names[1]!r} has no key {key!r}"
    elif plural is not None and not _is_in_schema(plural, STEP.findall(FILTER.sub("", path))):
        yield f"{plural} have no {path}"


def _is_in_schema(plural: str, steps: Sequence[str]) -> bool:
    schema: dict[str, Any] = _crd(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for step in steps:
        schema = schema.get("items", schema)
        if step not in schema.get("properties", {}):
            return False
        schema = schema["properties"][step]
    return True


def _of_exec(call: Kubectl, cluster: Cluster) -> Iterator[str]:
    if call.names[0] != cluster.pod["hostname"]:
        return  # a pod of the application
    container = next(each for each in cluster.pod["containers"] if each["name"] == call.options["-c"])
    mounted = tuple(each["mountPath"] for each in container["volumeMounts"])
    for word in call.inner:
        if word.startswith("/") and not any(word == place or word.startswith(f"{place}/") for place in mounted):
            yield f"{word} is on no volume of container {container['name']!r}"
    if call.inner[0] == "penstock":
        # The files are the pod's.
        fault = penstock_fault([("/dev/null" if word.startswith("/") else word) for word in call.inner[1:]])
        if fault is not None:
            yield fault
    elif call.inner[0] not in ("df", "cat", "ls"):
        yield f"the image has no {call.inner[0]!r}"
