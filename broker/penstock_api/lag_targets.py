"""The Brokers of one run of the lag job: where their observers are, and which files have the tokens and certificates.

The operator writes the document beside these files, and `penstock lag --brokers FILE` reads it. Keys that this release
does not know are ignored, because later releases may add some. Pure. Source: docs/reference/lag-job.md, "Many Brokers
in one run".
"""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

__all__ = ["DEFAULT_STALE_SECONDS", "DEFAULT_WINDOW_SECONDS", "VERSION", "LagTarget", "LagTargets"]

VERSION: Final = 1
DEFAULT_WINDOW_SECONDS: Final = 300
DEFAULT_STALE_SECONDS: Final = 180
LONGEST_WINDOW_SECONDS: Final = 7 * 86_400


def _is_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("an observer is an http:// or https:// URL")
    return text


Name = Annotated[str, Field(min_length=1, max_length=253)]
ObserverUrl = Annotated[str, Field(max_length=2048), AfterValidator(_is_url)]
FilePath = Annotated[str, Field(min_length=1, max_length=4096)]


class TargetModel(BaseModel):
    """camelCase in the file, unknown keys ignored (later releases only add keys with a default), immutable."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class LagTarget(TargetModel):
    """One Broker, and how its observers are reached."""

    namespace: Name
    broker: Name
    observers: Annotated[tuple[ObserverUrl, ...], Field(min_length=1, max_length=1000)]
    """Base URLs in the order of the pods' ordinals, one for each expected broker. The first one stores the result."""
    token_file: FilePath
    """With the bearer token of these observers. Paths are relative to the folder of the document."""
    ca_file: FilePath | None = None
    """Certificates (PEM) that must have signed those of the observers; None: those of the system."""
    window_seconds: Annotated[int, Field(ge=1, le=LONGEST_WINDOW_SECONDS)] = DEFAULT_WINDOW_SECONDS
    stale_seconds: Annotated[int, Field(ge=1)] = DEFAULT_STALE_SECONDS
    """A broker whose last row is older than this at the end of the window is missing."""


class LagTargets(TargetModel):
    """The document: every Broker once."""

    version: int
    brokers: tuple[LagTarget, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.version != VERSION:
            raise ValueError(f"version {self.version} is not known here; this release reads version {VERSION}")
        names = [(target.namespace, target.broker) for target in self.brokers]
        seen: set[tuple[str, str]] = set()
        for name in names:
            if name in seen:
                raise ValueError(f"{'/'.join(name)} is listed twice")
            seen.add(name)
        return self

    def to_json(self) -> str:
        """The document as JSON, always the same for the same Brokers: keys in model order, absent optionals left out, a
        final newline.
        """
        return self.model_dump_json(by_alias=True, exclude_none=True) + "\n"
