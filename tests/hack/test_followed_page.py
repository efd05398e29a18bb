"""What hack/soak/volumes follows: commands and manifests of pages, found as they are printed. Needs no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import growing_volume, restored_cluster
from support.followed_page import Page

TEXT = """# A page

## One

```console
$ echo NAME ANOTHER-NAME
```

## Two

```console
$ echo two
$ echo "$SPOKEN"
$ false
```

   ```yaml
   kind: Claim
   ```
"""


@pytest.fixture
def page(tmp_path: Path) -> Page:
    file = tmp_path / "page.md"
    file.write_text(TEXT)
    folder = tmp_path / "work"
    folder.mkdir()
    return Page(file, {"PATH": "/usr/bin:/bin", "SPOKEN": "three"}, folder, lambda _: None, {"NAME": "main"})


def test_a_word_that_the_page_leaves_open_is_replaced_and_a_longer_one_is_not(page: Page) -> None:
    assert page.does("echo NAME") == "main ANOTHER-NAME"


def test_commands_run_in_their_order_in_the_environment_of_the_page(page: Page) -> None:
    assert page.does("echo two", 'echo "$S', section="Two") == "three"


@pytest.mark.parametrize(("beginning", "section"), [("echo", ""), ("echo two", "One"), ("kubectl", "")])
def test_a_beginning_of_no_command_or_of_several_is_an_error(page: Page, beginning: str, section: str) -> None:
    with pytest.raises(AssertionError, match="commands"):
        page.command(beginning, section)


def test_a_command_that_fails_is_an_error(page: Page) -> None:
    with pytest.raises(AssertionError, match="false"):
        page.does("false")


def test_a_manifest_is_found_by_its_words(page: Page) -> None:
    assert page.manifest("kind: Claim") == "kind: Claim\n"
    with pytest.raises(AssertionError, match="manifests"):
        page.manifest("kind: Pod")


def test_the_pages_have_what_the_run_on_the_node_takes_from_them(tmp_path: Path) -> None:
    growing = Page(growing_volume.PAGE, {}, tmp_path, lambda _: None)
    for beginning in growing_volume.COMMANDS:
        assert growing.command(beginning)
    restoring = Page(restored_cluster.PAGE, {}, tmp_path, lambda _: None)
    for section, beginnings in restored_cluster.COMMANDS.items():
        for beginning in beginnings:
            assert restoring.command(beginning, section)
    for words in restored_cluster.MANIFESTS:
        assert restoring.manifest(*words)
