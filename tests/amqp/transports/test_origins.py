"""Origins of pages in browsers: how they are written, and which may open a WebSocket."""

from __future__ import annotations

import pytest

from penstock_amqp.transports.origins import is_allowed, normal_origin


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("https://shop.example", "https://shop.example"),
        ("HTTPS://Shop.Example", "https://shop.example"),
        ("https://shop.example:443", "https://shop.example"),
        ("http://shop.example:80", "http://shop.example"),
        ("http://shop.example:443", "http://shop.example:443"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("moz-extension://0a1b", "moz-extension://0a1b"),
        ("https://shop.example/", None),
        ("https://shop.example?x", None),
        ("https://me@shop.example", None),
        ("https://", None),
        ("shop.example", None),
        ("https://shop.example:x", None),
        ("https://[::1", None),
        (" https://shop.example", None),
        ("", None),
    ],
)
def test_an_origin_has_one_form(text: str, normal: str | None) -> None:
    assert normal_origin(text) == normal


@pytest.mark.parametrize(
    ("origin", "hosts", "allowed", "expected"),
    [
        ("https://shop.example", ["shop.example:5443"], None, True),
        ("http://SHOP.example:3000", ["shop.example"], None, True),
        ("http://[::1]:3000", ["[::1]:5443"], None, True),
        ("https://evil.example", ["shop.example"], None, False),
        ("https://shop.example.evil.example", ["shop.example"], None, False),
        ("https://shop.example", [], None, False),
        ("https://shop.example", ["shop.example", "shop.example"], None, False),
        ("https://shop.example", ["[::1"], None, False),
        ("null", ["null"], None, False),
        ("garbage", ["garbage"], None, False),
        ("https://shop.example:443", ["broker"], ["https://shop.example"], True),
        ("https://shop.example:8443", ["broker"], ["https://shop.example"], False),
        ("http://shop.example", ["broker"], ["https://shop.example"], False),
        ("https://broker", ["broker"], ["https://shop.example"], False),
        ("https://broker", ["broker"], [], False),
        ("https://anybody.example", ["broker"], ["*"], True),
        ("null", ["broker"], ["null"], True),
        ("null", ["broker"], ["https://shop.example"], False),
        ("garbage", ["broker"], ["*"], False),
    ],
)
def test_pages_of_the_same_host_or_of_named_origins_are_let_in(
    origin: str, hosts: list[str], allowed: list[str] | None, expected: bool
) -> None:
    assert is_allowed(origin, hosts, allowed) is expected
