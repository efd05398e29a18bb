"""The C under the sanitizers for addresses and undefined behaviour: its tests, and what unknown clients say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.running import fuzz_sanitized
from fuzz.sanitized import ROOT, environment
from fuzz.targets import SEEDS

pytestmark = pytest.mark.fuzz

SEED = 20_261_123
MUTATIONS = {"conversation": 600, "fields": 20_000}
TESTS = (
    "native/test_loops.py",
    "native/test_message_fields.py",
    "broker/log/test_linux_aio.py",
    "native/test_arguments.py",
    "native/test_engines_agree.py",
    "native/test_pipelined_frames.py",
    "native/test_links_of_ended_sessions.py",
    "amqp/endpoint",
)
SOURCES = ROOT / "broker" / "penstock_native"


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment(tmp_path_factory.mktemp("sanitized"))


def run(environment: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python with the sanitizers."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, errors="replace")


def test_the_tests_of_the_c_pass(sanitized: dict[str, str]) -> None:
    where = "import penstock_native; print(penstock_native.proton.__file__)"
    assert run(sanitized, "-c", where).stdout.startswith(sanitized["PYTHONPATH"].split(":")[0])
    done = run(sanitized, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(ROOT / "tests" / name for name in TESTS))
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert " skipped" not in done.stdout


@pytest.mark.parametrize("target", MUTATIONS)
def test_whatever_a_client_says_no_address_is_wrong(target: str, sanitized: dict[str, str], tmp_path: Path) -> None:
    corpus = tmp_path / target
    corpus.mkdir()
    for number, data in enumerate(SEEDS[target]):
        (corpus / str(number)).write_bytes(data)
    finding = fuzz_sanitized(target, tmp_path, seed=SEED, runs=MUTATIONS[target], environment=sanitized)
    assert not finding, finding


@pytest.mark.parametrize(
    ("file", "right", "wrong", "call", "found"),
    [
        (
            "messages.c",
            "PyBytes_FromStringAndSize(NULL, PUT_HEAD)",
            "PyBytes_FromStringAndSize(NULL, PUT_HEAD - 8)",
            "put_records([b'a'], [], 5, 1, 2, 3)",
            "heap-buffer-overflow",
        ),
        (
            "backlog.c",
            "beyond || arrival > LLONG_MAX - ttl ||",
            "beyond ||",
            "plain_entries([(1, 2, 2**63 - 1, bytes(2), 0)], 0, b'', 1, False, 8, 1, 2, [])",
            "signed integer overflow",
        ),
        (
            "fields.c",
            "width <= (uint64_t)left ?",
            "true ?",
            "properties_field(bytes.fromhex('005373c0020171'), 0, 0, (int,) * 256)",
            "heap-buffer-overflow",
        ),
    ],
)
def test_a_planted_mistake_is_found(
    sanitized: dict[str, str], tmp_path: Path, file: str, right: str, wrong: str, call: str, found: str
) -> None:
    sources, built = tmp_path / "sources", tmp_path / "built"
    shutil.copytree(sanitized["PYTHONPATH"].split(os.pathsep)[0], built)
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    text = (sources / file).read_text()
    assert text.count(right) == 1
    (sources / file).write_text(text.replace(right, wrong))
    code = f"import penstock_native; penstock_native.messages.{call}"
    done = run(environment(built, sources, ["messages"]), "-c", code)
    assert done.returncode != 0
    assert found in done.stderr
