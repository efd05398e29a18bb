"""A page of the documentation for a platform team, done on a cluster: its commands and manifests as they are printed.

Only words in capitals that the page leaves open are replaced.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.page_commands import shown
from support.page_manifests import shown_blocks

__all__ = ["Page"]


@dataclass(slots=True)
class Page:
    """One page, and the shell in which it is followed."""

    file: Path
    environment: Mapping[str, str]
    folder: Path
    """Where files are written that commands name."""
    say: Callable[[str], None]
    instead: dict[str, str] = field(default_factory=dict[str, str])
    """What stands for a word that the page leaves open."""

    def does(self, *beginnings: str, section: str = "") -> str:
        """Run the one command that begins with each of these words; what the last one printed.

        Raises:
            AssertionError: one failed, or the page has not exactly one such command.
        """
        return [self._run(self._written(self.command(beginning, section))) for beginning in beginnings][-1]

    def applies(self, *words: str) -> None:
        """`kubectl apply` of the one manifest that has all these words.

        Raises:
            AssertionError: it failed, or the page has not exactly one such manifest.
        """
        self._run("kubectl apply -f -", stdin=self._written(self.manifest(*words)))

    def command(self, beginning: str, section: str = "") -> str:
        """The one command that begins with these words. Raises AssertionError if there is not exactly one."""
        commands = dict.fromkeys(it.command for it in shown(self._part(section)))
        found = [it for it in commands if it.startswith(beginning)]
        assert len(found) == 1, f"{self.file.name} has {len(found)} commands {beginning!r}"
        return found[0]

    def manifest(self, *words: str) -> str:
        """The one manifest that has all these words. Raises AssertionError if there is not exactly one."""
        found = [it for it in shown_blocks(self.file) if all(word in it for word in words)]
        assert len(found) == 1, f"{self.file.name} has {len(found)} manifests with {words}"
        return found[0]

    def _part(self, section: str) -> Path:
        """The page, or a file with the section of this title alone."""
        if not section:
            return self.file
        text = self.file.read_text(encoding="utf-8")
        part = re.search(rf"^(#+) {re.escape(section)}\n(.*?)(?=^\1 |\Z)", text, re.DOTALL | re.MULTILINE)
        assert part is not None, f"{self.file.name} has no section {section!r}"
        place = self.folder / self.file.name
        place.write_text(part[0], encoding="utf-8")
        return place

    def _written(self, text: str) -> str:
        for word, other in self.instead.items():
            text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", other, text)
        return text

    def _run(self, command: str, stdin: str = "") -> str:
        self.say(f"$ {command}")
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder, env=self.environment, input=stdin, capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = ran.stdout.strip()
        if said:
            self.say(said)
        assert ran.returncode == 0, f"$ {command}\n{ran.stdout}{ran.stderr}"
        return said
