"""Bills of materials in CycloneDX 1.6: what the wheel was tested with, and what each image contains. Pure."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.markers import Marker

__all__ = ["Locked", "bill", "locked_packages"]

_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; (.*?))?(?: \\)?$")
_DEBIAN: Final = "debian-12"


@dataclass(frozen=True, slots=True)
class Locked:
    """A package of Python at a version."""

    name: str
    version: str


def locked_packages(lock: str, environment: Mapping[str, str]) -> list[Locked]:
    """The packages of a lock file for the machine that the environment of markers describes."""
    pins = (pin for line in lock.splitlines() if (pin := _PIN.match(line)) is not None)
    return [Locked(pin[1], pin[2]) for pin in pins if pin[3] is None or Marker(pin[3]).evaluate(dict(environment))]


def bill(
    name: str,
    version: str,
    commit: str,
    seconds: int,
    packages: Iterable[Locked],
    debian: Mapping[str, str] | None = None,
) -> str:
    """The document, the same for the same arguments. `debian`: name -> version of the packages of an image."""
    kind = ComponentType.APPLICATION if debian is None else ComponentType.CONTAINER
    subject = Component(
        name=name, version=version, type=kind, bom_ref=f"{name}@{version}",
        purl=PackageURL("pypi", None, "penstock", version) if debian is None else None,
    )  # fmt: skip
    parts = [_python(it) for it in packages]
    parts += [_debian(it, number) for it, number in (debian or {}).items()]
    document = Bom(
        components=parts, serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"penstock/{commit}/{name}/{version}")
    )
    document.metadata.component = subject
    document.metadata.timestamp = datetime.fromtimestamp(seconds, UTC)
    document.register_dependency(subject, parts)
    return JsonV1Dot6(document).output_as_string(indent=2) + "\n"


def _python(package: Locked) -> Component:
    purl = PackageURL("pypi", None, package.name.lower(), package.version)
    return Component(
        name=package.name, version=package.version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl)
    )


def _debian(name: str, version: str) -> Component:
    purl = PackageURL("deb", "debian", name, version, {"distro": _DEBIAN})
    return Component(name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl))
