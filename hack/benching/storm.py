"""Clients that connect over TLS, log in with SCRAM, open, close, and come again. The storm of `hack/bench reconnects`.

Runs as a process of its own: `python storm.py PORT CA USER PASSWORD CONNECTIONS AT_ONCE`. It prints JSON: connections,
seconds, and the slowest login in milliseconds. Passwords are salted once, as RFC 5802 advises clients to.
"""

import hashlib
import json
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Any

import scramp.core
from support.logins import ScramLogin
from support.raw_client import RawClient


def remember_salted_passwords() -> None:
    """The library hashes anew for each login; thousands of clients of one machine would be the only load then."""

    @lru_cache
    def salted(name: str, password: bytes, salt: bytes, rounds: int) -> bytes:
        return hashlib.pbkdf2_hmac(name, password, salt, rounds)

    def hi(hash_of: Callable[[], Any], password: bytes, salt: bytes, rounds: object) -> bytes:
        return salted(hash_of().name, password, salt, int(str(rounds)))

    scramp.core.hi = hi


def run(port: int, ca: str, user: str, password: str, connections: int, at_once: int) -> dict[str, float]:
    """What it took."""
    remember_salted_passwords()
    context = ssl.create_default_context(cafile=ca)
    numbers = count()
    slowest: list[float] = []

    def work() -> None:
        worst = 0.0
        while (number := next(numbers)) < connections:
            begun = time.monotonic()
            with RawClient(port, f"storm-{number}", login=ScramLogin(user, password), context=context) as client:
                worst = max(worst, time.monotonic() - begun)
                client.close()
        slowest.append(worst)

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(slowest) != at_once:
        raise SystemExit(f"{at_once - len(slowest)} of {at_once} clients were refused")
    return {"connections": connections, "seconds": time.monotonic() - begun, "slowest_ms": max(slowest) * 1000}


if __name__ == "__main__":
    port, ca, user, password, connections, at_once = sys.argv[1:]
    os.nice(10)  # such clients are other machines': they must not take the processor that the broker runs on
    print(json.dumps(run(int(port), ca, user, password, int(connections), int(at_once))))
