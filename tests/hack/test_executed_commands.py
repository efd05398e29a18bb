"""What the pages for a first look say can be done on this machine is done, command by command, against real brokers.

A command that is new on one of these pages is executed by this. If it can't be, it needs a line in `ELSEWHERE`.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from proton import Message
from support.broker_process import BrokerProcess
from support.certificates import Authority
from support.executed_commands import ROOT, Reader
from support.page_commands import Shown, inline, shown
from support.proton_client import connected, publish
from support.waiting import until

from penstock_cli.up.layout import free_endpoint

PAGES = (
    "README.md", "docs/how-to/demo.md", "docs/how-to/lag-page.md", "docs/how-to/queues.md", "docs/how-to/clients.md",
    "docs/how-to/migrate.md", "docs/reference/command-line.md",
)  # fmt: skip
COMMANDS = {page: [*shown(ROOT / page), *inline(ROOT / page)] for page in PAGES}

ELSEWHERE = {
    "kubectl ": "needs a cluster; tests/hack/test_page_commands.py checks the words",
    "helm ": "needs a cluster; tests/hack/test_shown_commands.py checks the words and the values",
    "hack/images push ": "needs a registry",
    "hack/demo": "takes minutes, and JDK and Maven; the stages demo and cluster run it",
    "hack/env": "makes the environment in which this test runs; tests/hack/test_env.py",
    "hack/test": "runs all tests, this one too",
    "artemis ": "Artemis is not where the tests run; a Penstock takes its place as the old broker",
    "penstock up --show-messages": "names an option and no folder; tests/cli/test_up_run.py runs it with one",
    "penstock broker --dev": "names an option and no folder; README.md has the whole command",
}
"""How commands begin that are not executed here, and why, or what does it."""


def is_elsewhere(each: Shown) -> bool:
    return each.command.startswith(tuple(ELSEWHERE))


def follow(page: str, reader: Reader) -> int:
    """Do what the page says; how many commands that were."""
    here = [each for each in COMMANDS[page] if not is_elsewhere(each)]
    for each in here:
        reader.does(each)
    reader.ends()
    return len(here)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "reader"


@pytest.fixture
def brokers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


UP = "penstock up examples/local"
QUICKLY = f"{UP} --listen 127.0.0.1:0 --no-lag --snapshot-seconds 1 --segment-seconds 1"
"""On a free port, and with a ledger that can be read after seconds, where it is a minute."""


def test_the_readme(folder: Path) -> None:
    instead = {UP: QUICKLY, "127.0.0.1:5672": free_endpoint("127.0.0.1", 0), "DIR": "broker-data"}
    with Reader(folder, instead) as reader:
        assert follow("README.md", reader) == 2


def test_the_page_on_lag(folder: Path) -> None:
    page = "docs/how-to/lag-page.md"
    observer = free_endpoint("127.0.0.1", 0)
    instead = {
        UP: QUICKLY,
        "127.0.0.1:18080": observer,
        "curl ": "curl --silent --fail --output lag.html ",
        ".../page/": f"http://{observer}/page/",
        "2026-05-01": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    with Reader(folder, instead, "TOKEN=$(cat penstock-data/observer.token)") as reader:
        # The observer has asked the broker, and has finished a segment of its ledger: a reader is slower than that.
        reader.before = {"penstock lag": lambda each: until(lambda: reader.succeeds(each), each.command)}
        assert follow(page, reader) == 4
    assert "<html" in (folder / "lag-report.html").read_text()
    assert "billing" in (folder / "lag.html").read_text()


def test_the_bridge(folder: Path, brokers: ExitStack, tmp_path: Path) -> None:
    users: dict[str, object] = {"authentication": {"users": {"guest": "guest"}}}
    old = brokers.enter_context(BrokerProcess(tmp_path / "old"))
    new = brokers.enter_context(BrokerProcess(tmp_path / "new", dev=False, settings=users))

    def fill(_each: Shown) -> None:
        with connected(old.url) as connection:
            sender = connection.create_sender("orders::billing")
            for _ in range(999):
                sender.link.send(Message("order 7", durable=True))
            publish(sender, ["order 7"])  # waits for its accept, which comes after those of the others

    instead = {
        "unix:/run/penstock/management.sock": new.management,
        "127.0.0.1:25672": old.addresses["amqp"],
        "127.0.0.1:35672": new.addresses["amqp"],
        "amqp://OLD:5672": old.url,
        "python3 bridge.py": f"python3 {ROOT}/examples/clients/python/bridge.py",
    }
    with Reader(folder, instead, before={"python3 bridge.py": fill, "penstock receive": fill}) as reader:
        assert follow("docs/how-to/migrate.md", reader) == 7


def test_the_command_line(folder: Path, brokers: ExitStack, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("127.0.0.1")
    (tmp_path / "password").write_text("a password\n")
    settings: dict[str, object] = {
        "management": {
            "address": "127.0.0.1:0",
            "tls": {"certificate": str(issued.certificate), "key": str(issued.key)},
            "user": "operator",
            "passwordFile": str(tmp_path / "password"),
        }
    }
    broker = brokers.enter_context(BrokerProcess(tmp_path / "data", settings=settings, management=False))
    with Reader(folder, {"127.0.0.1:5670": broker.management}, f'fpath=(none "{folder}")') as reader:
        (folder / "ca.crt").write_bytes(authority.ca.read_bytes())
        (folder / "password").write_bytes((tmp_path / "password").read_bytes())
        (folder / ".config" / "fish" / "completions").mkdir(parents=True)  # fish makes it when it is first started
        assert follow("docs/reference/command-line.md", reader) == 6
    for written in ("_penstock", ".config/fish/completions/penstock.fish"):
        assert "penstock" in (folder / written).read_text()


def test_the_other_pages_have_no_command_for_this_machine(folder: Path) -> None:
    """A new one is executed, and has to be counted here then."""
    with Reader(folder) as reader:
        assert [follow(page, reader) for page in PAGES if page.endswith(("demo.md", "queues.md", "clients.md"))] == [
            0, 0, 0,
        ]  # fmt: skip


def test_no_reason_is_out_of_date() -> None:
    every = [each.command for page in PAGES for each in COMMANDS[page]]
    assert [start for start in ELSEWHERE if not any(command.startswith(start) for command in every)] == []


@pytest.mark.parametrize(
    ("command", "output", "says"),
    [
        ("penstock queue-list --broker unix:nowhere", (), "No such command"),
        ("penstock status --broker unix:nowhere", (), "nowhere"),
        ("echo 999 moved", ("1000 moved",), "999 moved"),
        ("false | true", (), "false"),
    ],
)
def test_a_command_that_does_not_do_what_the_page_says_is_named(
    folder: Path, command: str, output: tuple[str, ...], says: str
) -> None:
    with Reader(folder) as reader, pytest.raises(AssertionError, match=says):
        reader.does(Shown("page.md", command, output))
