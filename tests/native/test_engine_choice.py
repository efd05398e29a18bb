"""Which engine carries the messages: the compiled one, unless it was not built, or the environment says otherwise."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import penstock_native
from penstock_amqp.endpoint.proton.compiled_engine import CompiledEngine, engine_of
from penstock_amqp.endpoint.proton.connection import ProtonConnection
from penstock_amqp.endpoint.proton.engine import ProtonEngine

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "broker", "operator")
START_SECONDS = 300.0
"""Only a test that fails waits so long."""
PENSTOCK = "from penstock_cli.main import main; main()"
HINT = "penstock is installed without its compiled engine, and will be slower"
WARNING = "Messages are carried by the engine in Python, about three times as slow as the compiled one: "


def test_the_tests_run_with_the_engine_that_was_asked_for() -> None:
    """A build that fails would go unnoticed otherwise, since the engine in Python passes the same tests."""
    asked = os.environ.get("PENSTOCK_ENGINE", "compiled")
    assert penstock_native.absence == ("" if asked == "compiled" else "PENSTOCK_ENGINE is python")
    connection = ProtonConnection(max_frame=65_536, idle_timeout_ms=0, max_sessions=1)
    assert type(engine_of(connection)) is (CompiledEngine if asked == "compiled" else ProtonEngine)
    connection.let_go()()


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ("compiled", " True True True\n"),
        ("python", "PENSTOCK_ENGINE is python False False False\n"),
    ],
)
def test_the_environment_chooses(chosen: str, told: str) -> None:
    modules = ", ".join(f"n.{name} is not None" for name in ("proton", "messages", "aio"))
    code = f"import penstock_native as n; print(n.absence, {modules})"
    environment = {**os.environ, "PENSTOCK_ENGINE": chosen}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == told


def test_an_engine_that_does_not_exist_ends_the_process() -> None:
    environment = {**os.environ, "PENSTOCK_ENGINE": "rust"}
    command = [sys.executable, "-c", "import penstock_native"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "PENSTOCK_ENGINE is 'rust'; it can be `compiled` (the default) or `python`.\n"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """What an installation is made of, with a module that a former version left."""
    copy = tmp_path / "sources"
    copy.mkdir()
    for name in SOURCES:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(place, copy)
    left = f"messages{sysconfig.get_config_var('EXT_SUFFIX')}"
    (copy / "broker" / "penstock_native" / left).write_bytes(b"of an older version")
    return copy


def installed(sources: Path, environment: dict[str, str]) -> tuple[Path, str]:
    """Install without fetching anything; where, and what was said."""
    target = sources.with_name("installed")
    options: list[str | Path] = [
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
        "--target",
        target,
    ]
    command: list[str | Path] = [sys.executable, "-m", "pip", "install", "--verbose", *options, sources]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return target, done.stdout + done.stderr


def log_of_a_broker(packages: Path, data: Path) -> str:
    """Start a broker of these packages, and stop it when it is ready; what it logged."""
    ready, log = data.with_name("ready.json"), data.with_name("log")
    data.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    environment.pop("PENSTOCK_ENGINE", None)
    command: list[str | Path] = [sys.executable, "-c", PENSTOCK, "broker", "--data", data, "--ready-file", ready]
    with log.open("wb") as file:
        broker = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--dev"], env=environment, stdout=file, stderr=file
        )
    deadline = time.monotonic() + START_SECONDS
    while not ready.exists():
        assert broker.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)  # a condition of another process: there is nothing to wait on but the file
    broker.send_signal(signal.SIGTERM)
    assert broker.wait() == 0
    return log.read_text()


@pytest.mark.parametrize("lacking", ["a compiler that works", "a compiler"])
def test_without_a_compiler_it_is_installed_and_says_that_it_is_slower(
    sources: Path, tmp_path: Path, lacking: str
) -> None:
    is_there = lacking == "a compiler that works"
    environment = {**os.environ, **({"CC": "false"} if is_there else {"PATH": str(tmp_path)})}
    target, said = installed(sources, environment)
    assert HINT in said
    assert (target / "penstock_native" / "messages.pyi").exists()
    assert not list(target.rglob("*.so"))
    if is_there:  # the installations are the same
        log = log_of_a_broker(target, tmp_path / "data")
        assert log.count(WARNING + "it can't be loaded: ") == 1
        (line,) = (line for line in log.splitlines() if WARNING in line)
        assert "WARNING" in line


def test_with_a_compiler_all_modules_are_installed_and_used(sources: Path, tmp_path: Path) -> None:
    target, said = installed(sources, dict(os.environ))
    assert HINT not in said
    built = {path.name.partition(".")[0] for path in target.rglob("penstock_native/*.so")}
    assert built == {"proton", "messages", "aio"}
    assert WARNING not in log_of_a_broker(target, tmp_path / "data")
