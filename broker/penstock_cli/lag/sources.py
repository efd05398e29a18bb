"""The observers of one Broker that a command asks: their addresses, the token, and what they answer."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click
from pydantic import ValidationError

from penstock_api.failure import Misuse
from penstock_api.lag_result import LagResult
from penstock_api.observer_api import LIVE_LAG, SEGMENTS, SegmentInfo, SegmentList
from penstock_lag.observer_client import Observer, ObserverError
from penstock_lag.settings import TOKEN_VARIABLE, read_token

__all__ = ["Sources", "live_lag", "of_another", "on_observers", "on_observers_if_given", "segment", "segments"]


@dataclass(frozen=True, slots=True)
class Sources:
    """Observers in the order of the pods' ordinals."""

    observers: tuple[Observer, ...]


def on_observers(verb: Callable[..., int]) -> Callable[..., int]:
    """Add the options that name observers to a verb, which gets them as its first argument, `Sources`.

    The verb raises Misuse if they can't be used.
    """
    return _with_observers(verb, required=True)


def on_observers_if_given(verb: Callable[..., int]) -> Callable[..., int]:
    """The same for a verb that can do without: then `Sources` has none, and no token is read."""
    return _with_observers(verb, required=False)


def _with_observers(verb: Callable[..., int], *, required: bool) -> Callable[..., int]:
    @click.option(
        "--observer",
        required=required,
        multiple=True,
        metavar="URL[,URL...]",
        help="Base URL of each observer of the Broker, in the order of the pods' ordinals.",
    )
    @click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help=f"File with the bearer token of the observers. Default: the token in {TOKEN_VARIABLE}.",
    )
    @click.option(
        "--ca-file",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="CA certificates (PEM) that must have signed those of the observers. Default: the system's.",
    )
    @wraps(verb)
    def with_sources(*, observer: tuple[str, ...], token_file: Path | None, ca_file: Path | None, **rest: Any) -> int:
        urls = [url.strip() for given in observer for url in given.split(",") if url.strip()]
        for url in urls:
            if not _is_address(url):
                raise Misuse(f"{url!r} is not an address of an observer.", "It must begin with http:// or https://.")
        if required and not urls:
            raise Misuse("--observer names no observer.", "Give the base URL of each observer.")
        token = read_token(token_file) if urls else ""
        if ca_file is not None:
            try:
                ssl.create_default_context(cafile=str(ca_file))
            except OSError as error:
                why = "" if isinstance(error, ssl.SSLError) else f": {error.strerror}"
                raise Misuse(f"{ca_file} holds no certificates that can be read{why}.", "Give a PEM file.") from error
        return verb(Sources(tuple(Observer(url, token, ca_file) for url in urls)), **rest)

    return with_sources


def _is_address(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:  # such as half an IPv6 address
        return False


def live_lag(observer: Observer) -> LagResult:
    """How its subscriptions stand now. Raises ObserverError."""
    try:
        return LagResult.model_validate_json(observer.get(LIVE_LAG))
    except ValidationError as error:
        raise _not_understood(observer) from error


def of_another(observer: Observer, answer: LagResult | SegmentList, first: LagResult | SegmentList) -> str | None:
    """Why an answer is left out (no full stop): it is of another Broker than the first one, whose queues may have the
    same names. None if it is not.
    """
    if (answer.namespace, answer.broker) == (first.namespace, first.broker):
        return None
    ours, theirs = f"{first.namespace}/{first.broker}", f"{answer.namespace}/{answer.broker}"
    return f"{observer.url} is left out, because it is an observer of {theirs}, and this is about {ours}"


def segments(observer: Observer) -> SegmentList:
    """The finished segments of its ledger. Raises ObserverError."""
    try:
        return SegmentList.model_validate_json(observer.get(SEGMENTS))
    except ValidationError as error:
        raise _not_understood(observer) from error


def segment(observer: Observer, info: SegmentInfo) -> bytes:
    """The file of a segment. Raises ObserverError."""
    return observer.get(f"{SEGMENTS}/{quote(info.name, safe='')}")


def _not_understood(observer: Observer) -> ObserverError:
    return ObserverError(f"the answer of {observer.url} was not understood; is it of another release?")
