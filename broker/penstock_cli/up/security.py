"""Who may connect to the broker of `penstock up`, as its manifest says: users, keys of tokens, permissions, limits.

What the operator would mount from Secrets and ConfigMaps is taken from manifests in the same folder, and written to
files that only their owner can read. A setting that needs a cluster is refused with an error: a broker that let in
clients which its manifest excludes would be worse than none. Source: docs/reference/security.md.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock_api.failure import Misuse
from penstock_api.resources import GROUP, Broker
from penstock_api.resources.security import AuthenticationSpec
from penstock_api.settings.permissions import permission_settings
from penstock_api.settings.token_issuers import TokenIssuerSpec
from penstock_cli.up.layout import Layout
from penstock_cli.up.manifest_secrets import OWNER_ONLY, content, write

__all__ = ["is_open", "security_settings"]


def is_open(broker: Broker) -> bool:
    """Whether every client may do everything; then the broker runs in development mode."""
    return broker.spec.authentication == AuthenticationSpec(anonymous=True) and broker.spec.permissions is None


def security_settings(broker: Broker, folder: Path, layout: Layout) -> tuple[dict[str, object], dict[str, object]]:
    """What the manifest means for the listener, and for the rest of the broker's configuration.

    `folder` holds the manifests. Writes the users' and the issuers' files. Raises `Misuse` if the manifest asks for
    something that needs a cluster.
    """
    spec = broker.spec
    limits = spec.limits.model_dump(mode="json", by_alias=True, exclude_none=True)
    settings: dict[str, object] = {"limits": limits} if limits else {}
    if spec.permissions is not None:
        settings["permissions"] = permission_settings(spec.permissions)
    if is_open(broker):
        return {}, settings
    given = spec.authentication
    authentication: dict[str, object] = {
        "anonymous": given.anonymous,
        "allowInsecurePlain": given.allow_insecure_plain,
        "groups": {group.name: list(group.users) for group in given.groups},
    }
    shutil.rmtree(layout.secrets, ignore_errors=True)  # removes users who are no longer in the manifests
    layout.secrets.mkdir(mode=OWNER_ONLY)
    if given.users_secret_ref is not None:
        users = content(broker, folder, "Secret", given.users_secret_ref.name)
        authentication["usersFolder"] = str(write(layout.secrets / "users", users))
    tokens = [_issuer(broker, folder, layout, number, issuer) for number, issuer in enumerate(given.tokens)]
    if tokens:
        authentication["tokens"] = tokens
    if given.client_ca_secret_ref is not None:
        part = given.certificate_user
        authentication["certificateUser"] = part[0].lower() + part[1:]
    # EXTERNAL needs the certificate that a client sends in TLS.
    mechanisms = None if given.mechanisms is None else [name for name in given.mechanisms if name != "EXTERNAL"]
    return {} if mechanisms is None else {"saslMechanisms": mechanisms}, {
        **settings,
        "authentication": authentication,
    }


def _issuer(broker: Broker, folder: Path, layout: Layout, number: int, issuer: TokenIssuerSpec) -> dict[str, object]:
    if issuer.keys_config_map_ref is None:
        raise Misuse(
            f"Broker {broker.key} accepts tokens of the cluster (spec.authentication.tokens[{number}].issuer), but "
            "here is no cluster.",
            "Leave it out for this folder, or name an issuer with its keysConfigMapRef.",
        )
    keys = content(broker, folder, "ConfigMap", issuer.keys_config_map_ref.name)
    if "keys" not in keys:
        raise Misuse(f"ConfigMap {issuer.keys_config_map_ref.name} has no key `keys`.", "Put the issuer's keys there.")
    written = write(layout.secrets / f"issuer-{number}", {"keys": keys["keys"]})
    fields = issuer.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"keys_config_map_ref"})
    own = f"{GROUP}/{broker.metadata.namespace}/{broker.metadata.name}"
    return {**fields, "audiences": list(issuer.audiences) or [own], "keysFile": str(written / "keys")}
