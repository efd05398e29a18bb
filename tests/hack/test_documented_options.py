"""Options and exit codes: what the pages name is there, and what is there a page names.

`test_page_commands` checks commands in ```console blocks, but for those of `penstock lag`, which has its own parsers.
Here are these, the commands in other blocks, and options that stand alone in a sentence.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
from support.kubectl_commands import penstock_fault, words
from support.page_commands import Shown, shown

from penstock_api.failure import Misuse
from penstock_cli.lag.audit import audit
from penstock_cli.lag.audit_report import audit_report
from penstock_cli.lag.report import report
from penstock_cli.lag.watch import watch
from penstock_cli.main import EXIT_CODES, penstock
from penstock_lag.arguments import parse

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    each
    for each in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "helm").rglob("*.md")))
    if "decisions" not in each.parts
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^penstock (?:.*\\\n)*.*$", re.MULTILINE)
SPAN = re.compile(r"`(--[a-z][^`]*)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
FOREIGN = {
    "--api-versions": "helm template",
    "--audience": "kubectl create token",
    "--no-hooks": "helm uninstall",
    "--protocol": "artemis",
    "--reset-then-reuse-values": "helm upgrade",
    "--reset-values": "helm upgrade",
    "--reuse-values": "helm upgrade",
    "--shared": "examples/clients/python/bridge.py",
}
"""Options of other programs that stand alone in a sentence, and whose they are."""


def verbs(command: click.Command) -> Iterator[click.Command]:
    """Each that does something."""
    if not isinstance(command, click.Group):
        yield command
        return
    for each in command.commands.values():
        yield from verbs(each)


def options() -> set[str]:
    """Those of `penstock`, also in the parsers of `lag`."""
    every = [each for verb in (penstock, audit, audit_report, report, watch) for each in verbs(verb)]
    of_click = {name for verb in every for each in verb.params for name in (*each.opts, *each.secondary_opts)}
    of_lag = set(OPTION.findall((ROOT / "broker/penstock_lag/arguments.py").read_text(encoding="utf-8")))
    return {name for name in of_click if name.startswith("--")} | of_lag | {"--help", "--version"}


def options_of_hack() -> set[str]:
    """As the commands of hack/ name them."""
    found = set[str]()
    for path in [each for each in (ROOT / "hack").rglob("*") if each.is_file()]:
        try:
            found |= set(OPTION.findall(path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return found


def test_options_that_stand_in_a_sentence_are_there() -> None:
    known = options() | options_of_hack() | set(FOREIGN)
    wrong = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        for span in SPAN.findall(page.read_text(encoding="utf-8"))
        for name in OPTION.findall(span)
        if name not in known
    ]
    assert wrong == []


def test_every_option_is_on_a_page() -> None:
    """docs/reference/options.md has most of them; those of `penstock lag` stand on the pages about lag."""
    named = {name for page in PAGES for name in OPTION.findall(page.read_text(encoding="utf-8"))}
    assert options() - named == set()


def test_the_page_of_options_is_what_the_command_says() -> None:
    done = subprocess.run([sys.executable, ROOT / "hack" / "options", "--check"], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def lag_fault(arguments: Sequence[str]) -> str | None:
    """Why `penstock lag` would not take these arguments; None if it would. Files of the reader are not looked for."""
    rest = list(arguments)
    try:
        if rest[:1] == ["report"]:
            _parse(report, rest[1:])
        elif rest[:2] == ["audit", "report"]:
            _parse(audit_report, rest[2:])
        elif rest[:1] == ["audit"]:
            _parse(audit.commands[rest[1]], rest[2:])
        elif "--watch" in rest:
            _parse(watch, [word for word in rest if word != "--watch"])
        else:
            parse(rest)
    except click.ClickException as error:
        return error.format_message()
    except Misuse as misuse:
        return misuse.cause
    except SystemExit:
        return "the job's own parser does not take it"
    return None


def _parse(verb: click.Command, rest: list[str]) -> None:
    verb.make_parser(click.Context(verb)).parse_args(rest)


def in_plain_blocks(page: Path) -> list[Shown]:
    """The commands that no `$ ` stands before."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    plain = [text for language, text in blocks if not language]
    return [Shown(page.name, command, ()) for text in plain for command in COMMAND.findall(text)]


CALLS = [
    *(each for page in PAGES for each in shown(page) if re.match(r"(\.venv/bin/)?penstock lag ", each.command)),
    *(each for page in PAGES for each in in_plain_blocks(page)),
]


@pytest.mark.parametrize("each", CALLS, ids=lambda each: f"{each.page}: {each.command.splitlines()[0]}")
def test_a_command_has_the_options_that_a_page_gives_it(each: Shown, tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    _, *arguments = words(each.command)
    if arguments[:1] == ["lag"]:
        assert lag_fault(arguments[1:]) is None
        return
    existing = [str(tmp_path / "token") if re.search(r"token$|\.crt$|\.key$", word) else word for word in arguments]
    assert penstock_fault(existing) is None


def test_pages_have_such_commands() -> None:
    assert len(CALLS) >= 10


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("report --observers http://a", "No such option '--observers'"),
        ("--watch --every 5", "No such option '--every'"),
        ("audit start billing --minutes 5", "No such option '--minutes'"),
        ("--observer http://a --namespace shop", "it is not said which Broker is meant."),
        ("--observers-of main", "the job's own parser does not take it"),
    ],
)
def test_a_command_that_could_not_work_is_named(command: str, says: str) -> None:
    assert says in str(lag_fault(command.split()))


def test_every_exit_code_is_on_the_page_and_in_the_help() -> None:
    """As the classes of failures say them."""
    sources = [*(ROOT / "broker").rglob("*.py"), *(ROOT / "operator").rglob("*.py")]
    said = {
        code
        for source in sources
        for code in re.findall(r"exit_code: ClassVar\[int\] = (\d+)", source.read_text(encoding="utf-8"))
    }
    page = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    assert re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == sorted(said | {"0"}) == ["0", "1", "2", "3", "4"]
    assert re.findall(r"(?:: |; )(\d) ", EXIT_CODES) == ["0", "1", "2", "3", "4"]
