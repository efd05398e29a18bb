"""Only one module imports the Kubernetes client, only one kopf, only one AMQP, only one cryptography."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import penstock_operator

FOLDER = Path(penstock_operator.__file__).parent


@pytest.mark.parametrize(
    ("package", "only"),
    [
        ("kubernetes", {"api_server_http"}),
        ("kopf", {"kopf_run"}),
        ("penstock_amqp", {"management_amqp"}),
        ("cryptography", {"certificates"}),
    ],
)
def test_only_one_module_imports(package: str, only: set[str]) -> None:
    assert {path.stem for path in FOLDER.rglob("*.py") if package in imported(path)} == only


def imported(path: Path) -> set[str]:
    """The top-level packages that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import():
                found |= {alias.name.split(".")[0] for alias in node.names}
            case ast.ImportFrom(module=str(module)):
                found.add(module.split(".")[0])
            case _:
                continue
    return found
