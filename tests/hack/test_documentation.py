"""Links and paths in pages, comments and messages lead to files that exist, and examples can be read."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
"""A relative link of Markdown: file and anchor, of which one may be empty."""
PAGE = re.compile(r"(?<![\w./-])docs/[\w./-]+\.md")
"""A page of the documentation, as code, resources, charts and messages name it."""
DECISIONS = re.compile(r"docs/decisions\s+((?:\d{3}(?:,\s+|\s+and\s+|\s+to\s+)?)+)")
"""Several decision pages, by their numbers."""
PATH = re.compile(
    r"`((?:broker|crds|docs|examples|hack|helm|operator|requirements|tests)/[\w.-]+(?:/[\w.-]+)*)(?:[ :][^`]*)?`"
)
"""A path of the repository in a page's running text, with arguments behind a command."""
BLOCK = re.compile(r"^```(?:ya?ml|json)\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""What a page shows as YAML or JSON, which is a kind of YAML."""


@functools.cache
def tracked() -> tuple[Path, ...]:
    """All files of the repository, those not committed yet included."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    )
    return tuple(ROOT / name for name in listed.stdout.decode().splitlines() if (ROOT / name).is_file())


def texts(*suffixes: str) -> Iterator[tuple[Path, str]]:
    """The files that are text, and what they hold."""
    for path in tracked():
        if not suffixes or path.suffix in suffixes:
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them, and those that the page sets itself."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    of_headings = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return of_headings | set(re.findall(r'<a id="([^"]+)"></a>', text))


def test_links_of_all_pages_lead_to_files_and_headings() -> None:
    wrong: list[str] = []
    for page, text in texts(".md"):
        for target, anchor in LINK.findall(text):
            found = (page.parent / target).resolve() if target else page
            if not found.exists():
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
            elif anchor and found.suffix == ".md" and anchor not in anchors(found):
                wrong.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert wrong == []


def test_pages_that_are_named_anywhere_are_there() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts()
        for name in PAGE.findall(text)
        if not (ROOT / name).is_file()
    ]
    assert wrong == []


def test_decisions_that_are_named_by_number_are_there() -> None:
    there = {page.name[:3] for page in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    wrong = [
        f"{path.relative_to(ROOT)}: {number}"
        for path, text in texts()
        for numbers in DECISIONS.findall(text)
        for number in re.findall(r"\d{3}", numbers)
        if number not in there
    ]
    assert wrong == []


def test_paths_in_pages_are_there() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: {name}"
        for page, text in texts(".md")
        for name in PATH.findall(text)
        if page.name != "CHANGELOG.md" and not (ROOT / name).exists()
    ]
    assert wrong == []


def test_every_page_is_on_the_list_of_its_shelf() -> None:
    listed = {
        (page.parent / target).resolve()
        for page in (ROOT / "docs" / "README.md", ROOT / "docs" / "decisions" / "README.md")
        for target, _ in LINK.findall(page.read_text(encoding="utf-8"))
    }
    pages = {path for path, _ in texts(".md") if ROOT / "docs" in path.parents and path.name != "README.md"}
    assert pages <= listed


def test_yaml_and_json_in_pages_can_be_read() -> None:
    wrong: list[str] = []
    for page, text in texts(".md"):
        for block in BLOCK.findall(text):
            try:
                list(yaml.safe_load_all(block))
            except yaml.YAMLError as error:
                wrong.append(f"{page.relative_to(ROOT)}: {error}")
    assert wrong == []
