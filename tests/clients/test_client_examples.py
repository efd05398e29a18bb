"""The examples that users copy, examples/clients/{python,node,go}, as processes against a broker: all must do the same.

Each client publishes, consumes what a resource declares, shares a durable subscription of its own with two receivers,
and ends it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess

from penstock_cli.up import declaring
from penstock_cli.up.manifests import read
from penstock_cli.up.topology import declared

pytestmark = pytest.mark.clients

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "clients"
SECONDS = 60
BUILD_SECONDS = 240
LANGUAGES = ("python", "node", "go")


@dataclass(frozen=True, slots=True)
class Client:
    """How one language's commands are started; `tells`: its library lets `unsubscribe` know what the broker answers."""

    prefix: tuple[str, ...]
    suffix: str
    folder: Path
    tells: bool

    def command(self, name: str, *arguments: str) -> list[str]:
        return [*self.prefix, name + self.suffix, *arguments]

    @contextmanager
    def start(self, name: str, *arguments: str) -> Generator[subprocess.Popen[str]]:
        """Start a command, its standard output a pipe; at the end it is killed, if it hasn't ended."""
        with subprocess.Popen(
            self.command(name, *arguments), cwd=self.folder, stdout=subprocess.PIPE, text=True
        ) as run:
            try:
                yield run
            finally:
                run.kill()

    def lines(self, name: str, *arguments: str) -> list[str]:
        """What a command prints until it ends."""
        with self.start(name, *arguments) as process:
            return finished(process)


def finished(process: subprocess.Popen[str]) -> list[str]:
    """The rest of a client's output, which has to end."""
    return process.communicate(timeout=SECONDS)[0].splitlines()


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line that a client prints; it has to end otherwise."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def program(name: str, packages: str) -> str:
    """Where a program is; fails with the line that installs it."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is needed: {packages}")
    return found


@pytest.fixture(scope="module", params=LANGUAGES)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """The examples of one language, with what they need installed outside the repository."""
    folder = tmp_path_factory.mktemp("client")
    if request.param == "python":
        return Client((sys.executable, "-u"), ".py", EXAMPLES / "python", tells=True)
    if request.param == "node":
        npm = program("npm", "apt-get install -y nodejs npm")
        shutil.copytree(EXAMPLES / "node", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
        subprocess.run([npm, "ci", "--silent"], cwd=folder, check=True, timeout=BUILD_SECONDS)
        return Client((program("node", "apt-get install -y nodejs"),), ".mjs", folder, tells=True)
    go = program("go", "Go 1.25 or newer, from go.dev/dl")
    binary = folder / "client"
    subprocess.run([go, "build", "-o", str(binary), "."], cwd=EXAMPLES / "go", check=True, timeout=BUILD_SECONDS)
    return Client((str(binary),), "", folder, tells=False)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker with the resources of examples/local, as `penstock up` declares them; it makes nothing by itself."""
    users: dict[str, object] = {"authentication": {"users": {"guest": "guest"}}}
    with BrokerProcess(tmp_path / "data", dev=False, settings=users, listen=["127.0.0.1:0"]) as process:
        path = Path(process.management.removeprefix("unix:"))
        await declaring.declare(path, declared(read(ROOT / "examples" / "local")), float(SECONDS))
        yield process


def url(broker: BrokerProcess) -> str:
    return broker.url.replace("amqp://", "amqp://guest:guest@")


def test_a_declared_subscription_is_shared_by_two_processes(client: Client, broker: BrokerProcess) -> None:
    """Each leaves after half of the messages; together they have all of them, each once."""
    assert client.lines("publish", url(broker), "20") == ["20 accepted"]
    with client.start("consume", url(broker), "10") as one, client.start("consume", url(broker), "10") as two:
        received = [line.removesuffix(" (again)") for line in finished(one) + finished(two)]
    assert sorted(received) == sorted(f"order {number}" for number in range(20))


def test_two_receivers_share_a_subscription_of_the_clients_own(client: Client, broker: BrokerProcess) -> None:
    """Both receive, nothing twice; what comes while nobody consumes waits, also through a kill -9 of the broker."""
    with client.start("share", url(broker), "mine", "20") as sharing:
        assert next_line(sharing) == "ready"
        assert client.lines("publish", url(broker), "20") == ["20 accepted"]
        received = [line.split(" ", 1) for line in finished(sharing)]
    assert {receiver for receiver, _ in received} == {"1", "2"}
    assert sorted(body for _, body in received) == sorted(f"order {number}" for number in range(20))

    assert client.lines("publish", url(broker), "3") == ["3 accepted"]
    broker.kill()
    broker.start()
    left = [line for line in client.lines("share", url(broker), "mine", "3") if line != "ready"]
    assert sorted(line.split(" ", 1)[1] for line in left) == ["order 0", "order 1", "order 2"]


def unsubscribe(client: Client, broker: BrokerProcess, name: str, refusal: str) -> None:
    """End a subscription, or be refused by an answer that has these words ("": not refused)."""
    answer = client.lines("unsubscribe", url(broker), name)
    assert len(answer) == 1
    if not client.tells:
        assert answer == ["closed"]
    elif refusal:
        assert answer[0].startswith("refused: ")
        assert refusal in answer[0]
    else:
        assert answer == ["ended"]


def test_unsubscribing_ends_it_with_its_backlog(client: Client, broker: BrokerProcess) -> None:
    with client.start("share", url(broker), "mine", "1") as sharing:
        assert next_line(sharing) == "ready"
        assert client.lines("publish", url(broker), "5") == ["5 accepted"]
        finished(sharing)
    unsubscribe(client, broker, "mine", "")
    unsubscribe(client, broker, "mine", "There is no durable subscription 'mine")
    with client.start("share", url(broker), "mine", "1") as sharing:
        assert next_line(sharing) == "ready"
        assert client.lines("publish", url(broker), "1") == ["1 accepted"]
        assert [line.split(" ", 1)[1] for line in finished(sharing)] == ["order 0"]  # the new one, none of the five


def test_nobody_unsubscribes_what_others_consume(client: Client, broker: BrokerProcess) -> None:
    """The refusal says why, and the consumers don't notice."""
    with client.start("share", url(broker), "mine", "1") as sharing:
        assert next_line(sharing) == "ready"
        unsubscribe(client, broker, "mine", "mine")
        assert client.lines("publish", url(broker), "1") == ["1 accepted"]
        assert [line.split(" ", 1)[1] for line in finished(sharing)] == ["order 0"]


def test_nobody_unsubscribes_what_a_resource_declares(client: Client, broker: BrokerProcess) -> None:
    unsubscribe(client, broker, "billing", "billing")
    assert client.lines("publish", url(broker), "1") == ["1 accepted"]
    assert client.lines("consume", url(broker), "1") == ["order 0"]


def test_the_python_examples_run_on_the_version_they_name() -> None:
    assert (EXAMPLES / "python" / "requirements.txt").read_text() == "python-qpid-proton==0.40.0\n"
    assert metadata.version("python-qpid-proton") == "0.40.0"
