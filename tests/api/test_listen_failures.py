"""Why nobody can listen somewhere, as the system itself says it, and what a person does then."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock_api.failure import CannotRun
from penstock_api.listen_failures import listen_failure
from penstock_broker.access import sockets


def told(address: str) -> tuple[str, str]:
    """Cause and cure."""
    with pytest.raises(CannotRun) as failure:
        sockets.close(sockets.bind(address))
    return failure.value.cause, failure.value.cure


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert told(address) == (
            f"The broker can't listen on {address}: Address already in use.",
            "End what listens there, or name another port.",
        )


def test_an_address_of_another_machine() -> None:
    """203.0.113.0/24 is for documentation (RFC 5737): no machine has it."""
    assert told("203.0.113.1:0") == (
        "The broker can't listen on 203.0.113.1:0: Cannot assign requested address.",
        "Name an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them.",
    )


def test_a_name_that_nobody_has() -> None:
    cause, cure = told("nosuch.invalid:0")
    assert cause.startswith("The broker can't listen on nosuch.invalid:0: ")
    assert cure == "Name an address of this machine, such as 127.0.0.1."


def test_paths_of_sockets(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert told(f"unix:{tmp_path}/file")[1] == "Name another path: a file that is no socket is there."
    assert told(f"unix:{tmp_path}/absent/m.sock")[1] == "Make the folder first."
    long = told(f"unix:{tmp_path}/{'m' * 200}")
    assert long[0].endswith(": AF_UNIX path too long.")
    assert long[1].startswith("Name another path, of at most 107 bytes, ")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "taken"))
        other.listen()
        assert told(f"unix:{tmp_path}/taken")[1] == "End what listens there, or name another path."


@pytest.mark.parametrize(
    ("is_path", "cure"),
    [
        (False, "Name a port from 1024 on: those below need a right that this process lacks."),
        (True, "Name a folder in which this user may write."),
    ],
)
def test_what_this_user_may_not_do(is_path: bool, cure: str) -> None:
    """Root may all of it, so it is made here."""
    assert listen_failure(PermissionError(13, "Permission denied"), is_path=is_path) == ("Permission denied", cure)
