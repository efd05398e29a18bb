"""From a manifest to a resource: `parse` takes one object, from a cluster or a file; `load` takes the text of a YAML
file with any number of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, cast

from pydantic import Field, TypeAdapter, ValidationError

from penstock_api.resources.base import GROUP
from penstock_api.resources.broker import Broker
from penstock_api.resources.exchange import Exchange
from penstock_api.resources.queue import Queue
from penstock_api.resources.subscription import Subscription
from penstock_api.validation_messages import validation_messages
from penstock_api.yaml_documents import NotYaml, yaml_documents

__all__ = ["AnyResource", "Declaring", "Holding", "InvalidManifest", "load", "parse"]

Holding = Subscription | Queue
"""What holds messages for consumers, and so has depth and lag."""
Declaring = Exchange | Holding
"""What names a Broker and declares an entity on it."""
AnyResource = Broker | Declaring

_ADAPTER: Final[TypeAdapter[AnyResource]] = TypeAdapter(Annotated[AnyResource, Field(discriminator="kind")])
_MAP: Final = TypeAdapter(dict[str, object])


class InvalidManifest(ValueError):
    """A manifest that the API server would refuse as well; the text names each field and what to write."""


def parse(manifest: Mapping[str, object]) -> AnyResource:
    """The resource that a manifest describes.

    Raises:
        InvalidManifest: a field is missing, unknown, or breaks a rule.
    """
    try:
        return _ADAPTER.validate_python(manifest)
    except ValidationError as error:
        raise InvalidManifest(_explain(manifest, error)) from error


def load(text: str) -> Iterator[AnyResource]:
    """The resources of this group in a YAML file, in order; objects of other groups (Secrets, Deployments) are skipped.

    Raises:
        InvalidManifest: the text isn't YAML, or one of the resources is invalid.
    """
    try:
        documents = yaml_documents(text)
    except NotYaml as error:
        raise InvalidManifest(f"not YAML: {error}") from error
    for document in documents:
        if document is None:
            continue
        try:
            manifest = _MAP.validate_python(document)
        except ValidationError as error:
            raise InvalidManifest("a manifest is a map with `apiVersion`, `kind`, `metadata` and `spec`") from error
        if str(manifest.get("apiVersion", "")).startswith(f"{GROUP}/"):
            yield parse(manifest)


def _explain(manifest: Mapping[str, object], error: ValidationError) -> str:
    metadata = manifest.get("metadata")
    name = cast("Mapping[str, object]", metadata).get("name", "?") if isinstance(metadata, Mapping) else "?"
    kind = manifest.get("kind")
    return f"{kind or 'object'} {name}: " + "; ".join(validation_messages(error, leave_out=kind))
