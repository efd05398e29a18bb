"""Who may connect to the broker of `penstock up`, as its manifest says: users, keys of tokens, permissions, limits.

What the operator mounts from Secrets and ConfigMaps comes from manifests of the same folder, and is written where the
broker reads it, for its owner's eyes only. What can't be had without TLS or a cluster is refused in words: a broker
that lets in whom its manifest keeps out would be worse than none. Source: docs/security.md.
"""

from __future__ import annotations

import base64
import binascii
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast

import yaml

from penstock_api.failing import Misuse
from penstock_api.resources import GROUP, Broker
from penstock_api.resources.security import Authentication, TokenIssuer, permission_settings
from penstock_cli.up.layout import Layout
from penstock_cli.up.manifests import SUFFIXES

__all__ = ["is_open", "security_settings"]

OWNER_ONLY: Final = 0o700


def is_open(broker: Broker) -> bool:
    """Whether anybody may do everything: then the broker runs in development mode, as on a first day."""
    return broker.spec.authentication == Authentication(anonymous=True) and broker.spec.permissions is None


def security_settings(broker: Broker, folder: Path, layout: Layout) -> tuple[dict[str, object], dict[str, object]]:
    """What the manifest means for the listener, and for the rest of the broker's configuration.

    `folder`: of the manifests. Writes the users' and the issuers' files. Raises `Misuse` if the manifest asks for what
    can't be had here.
    """
    spec = broker.spec
    limits = spec.limits.model_dump(mode="json", by_alias=True, exclude_none=True)
    settings: dict[str, object] = {"limits": limits} if limits else {}
    if spec.permissions is not None:
        settings["permissions"] = permission_settings(spec.permissions)
    if is_open(broker):
        return {}, settings
    given = spec.authentication
    if given.client_ca_secret_ref is not None:
        raise Misuse(
            f"Broker {broker.key} takes certificates of clients (spec.authentication.clientCaSecretRef), and `penstock "
            "up` serves no TLS.",
            "Leave it out for this folder, or run it on Kubernetes.",
        )
    authentication: dict[str, object] = {
        "anonymous": given.anonymous,
        "allowInsecurePlain": given.allow_insecure_plain,
        "groups": {group.name: list(group.users) for group in given.groups},
    }
    shutil.rmtree(layout.secrets, ignore_errors=True)  # who is not in the manifests any more is nobody
    layout.secrets.mkdir(mode=OWNER_ONLY)
    if given.users_secret_ref is not None:
        users = _content(broker, folder, "Secret", given.users_secret_ref.name)
        authentication["usersFolder"] = str(_write(layout.secrets / "users", users))
    tokens = [_issuer(broker, folder, layout, number, issuer) for number, issuer in enumerate(given.tokens)]
    if tokens:
        authentication["tokens"] = tokens
    mechanisms = given.mechanisms
    return {} if mechanisms is None else {"saslMechanisms": list(mechanisms)}, {
        **settings,
        "authentication": authentication,
    }


def _issuer(broker: Broker, folder: Path, layout: Layout, number: int, issuer: TokenIssuer) -> dict[str, object]:
    if issuer.keys_config_map_ref is None:
        raise Misuse(
            f"Broker {broker.key} takes tokens of the cluster (spec.authentication.tokens[{number}].issuer), and there "
            "is none here.",
            "Leave it out for this folder, or name an issuer with its keysConfigMapRef.",
        )
    keys = _content(broker, folder, "ConfigMap", issuer.keys_config_map_ref.name)
    if "keys" not in keys:
        raise Misuse(f"ConfigMap {issuer.keys_config_map_ref.name} has no key `keys`.", "Put the issuer's keys there.")
    written = _write(layout.secrets / f"issuer-{number}", {"keys": keys["keys"]})
    fields = issuer.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"keys_config_map_ref"})
    own = f"{GROUP}/{broker.metadata.namespace}/{broker.metadata.name}"
    return {**fields, "audiences": list(issuer.audiences) or [own], "keysFile": str(written / "keys")}


def _write(folder: Path, content: Mapping[str, bytes]) -> Path:
    folder.mkdir(mode=OWNER_ONLY)
    for name, data in content.items():
        if "/" in name or name.startswith("."):
            raise Misuse(f"{name!r} can't be the key of a Secret or ConfigMap.", "Use letters, digits, `-`, `_`, `.`.")
        (folder / name).write_bytes(data)
    return folder


def _content(broker: Broker, folder: Path, kind: str, name: str) -> Mapping[str, bytes]:
    """What a Secret or ConfigMap of the Broker's namespace holds, by the folder's manifests."""
    namespace = broker.metadata.namespace
    for manifest in _manifests(folder):
        metadata = manifest.get("metadata")
        about: Mapping[str, object] = cast("Mapping[str, object]", metadata) if isinstance(metadata, Mapping) else {}
        here = manifest.get("apiVersion") == "v1" and manifest.get("kind") == kind
        if here and about.get("name") == name and about.get("namespace", "default") == namespace:
            return _data(manifest, f"{kind} {namespace}/{name}")
    raise Misuse(
        f"Broker {broker.key} names the {kind} {name}, and no manifest in {folder} declares it in namespace "
        f"{namespace}.",
        f"Put the {kind} there, as `kubectl apply` takes it.",
    )


def _data(manifest: Mapping[str, object], title: str) -> Mapping[str, bytes]:
    """As Kubernetes has it: a Secret's `data` is base64, and `stringData` wins; a ConfigMap's `data` is text."""
    is_secret = manifest["kind"] == "Secret"
    encoded, text = ("data", "stringData") if is_secret else ("binaryData", "data")
    try:
        found = {key: base64.b64decode(value, validate=True) for key, value in _strings(manifest, encoded)}
    except binascii.Error as error:
        raise Misuse(f"{title}: {encoded} is not base64: {error}.", "Encode it, or use text.") from error
    return {**found, **{key: value.encode() for key, value in _strings(manifest, text)}}


def _strings(manifest: Mapping[str, object], key: str) -> Iterator[tuple[str, str]]:
    part = manifest.get(key)
    if isinstance(part, Mapping):
        yield from ((str(name), str(value)) for name, value in cast("Mapping[object, object]", part).items())


def _manifests(folder: Path) -> Iterator[Mapping[str, object]]:
    """All of them, whatever their kind; `manifests.read` has found that they are YAML."""
    for path in sorted(each for each in folder.rglob("*") if each.suffix in SUFFIXES and each.is_file()):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if isinstance(document, Mapping):
                yield cast("Mapping[str, object]", document)
