"""YAML that a person has written, read as strictly as `kubectl apply` reads it, with one exception for all that can be
wrong with the text.

PyYAML keeps the last of two values with one key, so that half of a file may be without effect, and raises exceptions of
four kinds. Pure.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

__all__ = ["NOT_YAML", "NotYaml", "StrictLoader", "yaml_document", "yaml_documents"]

NOT_YAML: Final = (yaml.YAMLError, ValueError, RecursionError)
"""What a loader raises: also for a date or number that is none, and for lists in lists in lists."""


class NotYaml(ValueError):
    """The text is not YAML, or a map in it has a key twice; says where."""


class StrictLoader(yaml.SafeLoader):
    """Refuses a map that has a key twice."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        """The node of a map. Raises `MarkedYAMLError` for a key that is there twice."""
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(
                    "in a map", node.start_mark, f"the key {key.value!r} is there twice", key.start_mark
                )
            seen.add((key.tag, key.value))
        return node


def yaml_document(text: str) -> object:
    """The one document of the text; None if it is empty. Raises `NotYaml`."""
    try:
        return yaml.load(text, StrictLoader)
    except NOT_YAML as error:
        raise NotYaml(_told(error)) from error


def yaml_documents(text: str) -> list[object]:
    """All documents of the text. Raises `NotYaml`."""
    try:
        return list(yaml.load_all(text, StrictLoader))
    except NOT_YAML as error:
        raise NotYaml(_told(error)) from error


def _told(error: Exception) -> str:
    return "lists or maps lie too deep in each other" if isinstance(error, RecursionError) else str(error)
