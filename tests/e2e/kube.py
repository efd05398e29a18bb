"""kubectl and helm on one context, and waiting for what the API server says."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar, cast

from e2e.story import StoryError
from support.waiting import found

__all__ = ["ROOT", "Kube", "command", "own_cluster_environment", "pick", "wait_for"]

ROOT: Final = Path(__file__).resolve().parents[2]
LOOK_SECONDS: Final = 0.5
T = TypeVar("T")


def command(*words: str, env: Mapping[str, str] | None = None, stdin: str = "", check: bool = True) -> str:
    """Run a command and return its standard output.

    Raises:
        StoryError: it failed, with what it said.
    """
    ran = subprocess.run(words, cwd=ROOT, env=env, input=stdin, capture_output=True, text=True)
    if check and ran.returncode != 0:
        raise StoryError(f"{' '.join(words)} failed with code {ran.returncode}:\n{ran.stderr.strip()}")
    return ran.stdout


def own_cluster_environment() -> dict[str, str]:
    """The environment in which kubectl and helm reach the node of hack/cluster."""
    environment = dict(os.environ)
    for name, value in re.findall(r'^export (\w+)="?([^"\n]*)"?$', command("hack/cluster", "env"), re.MULTILINE):
        environment[name] = value.replace("$PATH", environment["PATH"])
    return environment


def wait_for(what: str, look: Callable[[], T | None], seconds: float) -> T:
    """What `look` finds, once it is neither None nor False; it asks no more often than an API server likes.

    Raises:
        TimeoutError: it found nothing within `seconds`.
    """

    def seen() -> T | None:
        answer = look()
        return None if answer is False else answer

    return found(seen, what, seconds, every=LOOK_SECONDS)


def pick(document: object, *path: str | int) -> object:
    """The value at a path of keys and indexes; None where the path ends early."""
    for step in path:
        if isinstance(document, dict):
            document = cast("dict[str | int, object]", document).get(step)
        elif isinstance(document, list) and isinstance(step, int) and step < len(cast("list[object]", document)):
            document = cast("list[object]", document)[step]
        else:
            return None
    return document


@dataclass(frozen=True, slots=True)
class Kube:
    """One namespace of one cluster."""

    namespace: str
    environment: Mapping[str, str]
    context: str | None = None
    """kubectl context; None: the environment's."""
    _context: Sequence[str] = field(init=False, default=())

    def __post_init__(self) -> None:
        """Choose the context once."""
        if self.context is not None:
            object.__setattr__(self, "_context", ("--context", self.context))

    def kubectl(self, *words: str, stdin: str = "", check: bool = True) -> str:
        """Run kubectl in the namespace."""
        full = ("kubectl", *self._context, "--namespace", self.namespace, *words)
        return command(*full, env=self.environment, stdin=stdin, check=check)

    def helm(self, *words: str, check: bool = True) -> str:
        """Run helm; the namespace is part of the words."""
        context = ("--kube-context", self.context) if self.context is not None else ()
        return command("helm", *context, *words, env=self.environment, check=check)

    def get(self, *words: str) -> object:
        """An object or a list as JSON; None if there is none."""
        text = self.kubectl("get", *words, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def secret(self, name: str, key: str) -> str | None:
        """One value of a Secret, decoded."""
        value = pick(self.get("secret", name), "data", key)
        return None if value is None else base64.b64decode(str(value)).decode()

    def is_true(self, kind: str, name: str, condition: str) -> bool:
        """Whether a condition is True and speaks of the newest generation."""
        found = self.get(kind, name)
        conditions = cast("list[dict[str, object]]", pick(found, "status", "conditions") or [])
        return any(one.get("type") == condition and one.get("status") == "True" for one in conditions)
