"""Hands this machine's pip settings to an image build as secrets: they reach pip, but no layer and no file of ours."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator
from pathlib import Path

CA_INSIDE = "/run/secrets/ca.crt"
SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")


def _config_files() -> Iterator[Path]:
    """pip's files, the weakest first."""
    yield Path("/etc/pip.conf")
    yield Path.home() / ".pip" / "pip.conf"
    yield Path(os.environ.get("XDG_CONFIG_HOME", Path.home() / ".config")) / "pip" / "pip.conf"
    if named := os.environ.get("PIP_CONFIG_FILE"):
        yield Path(named)


def settings() -> dict[str, str]:
    """Setting -> value, as pip itself would find it: files first, then PIP_* in the environment."""
    found: dict[str, str] = {}
    for file in _config_files():
        parser = configparser.RawConfigParser()
        parser.read(file)
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update(parser.items(section))
    for name, value in os.environ.items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE":
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return found


def build_arguments(folder: Path) -> list[str]:
    """Writes the secrets into `folder`. Returns the builder's arguments for them and for local wheel folders."""
    found = settings()
    certificates = Path(found.pop("cert", "") or os.environ.get("SSL_CERT_FILE", "") or SYSTEM_CA)
    arguments: list[str] = []
    if certificates.is_file():
        found["cert"] = CA_INSIDE
        arguments.append(f"--secret=id=ca.crt,src={certificates}")
    for place in found.get("find-links", "").split():
        if place.startswith("/") and Path(place).is_dir():
            arguments.append(f"--volume={place}:{place}:ro")
    lines = [f"{name} = {value.strip().replace(chr(10), chr(10) + '    ')}" for name, value in found.items()]
    file = folder / "pip.conf"
    file.write_text("\n".join(["[global]", *lines, ""]))
    file.chmod(0o600)
    arguments.append(f"--secret=id=pip.conf,src={file}")
    return arguments
