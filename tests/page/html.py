"""What a browser would make of a page: its elements in order, for checks without a browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

__all__ = ["Element", "elements", "text_of"]

VOID = {"meta", "link", "input", "br", "path"}


@dataclass(slots=True)
class Element:
    """One element with the text in it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list["Element"])


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Element] = []
        self._open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the element."""
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.found.append(element)
        if self._open:
            self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        """Elements are closed in the order in which they were opened, or the page is malformed."""
        if tag in VOID:
            return
        assert self._open and self._open[-1].tag == tag, f"</{tag}> closes {[each.tag for each in self._open]}"
        self._open.pop()
        if tag in ("td", "th"):
            self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        """Text belongs to all elements around it."""
        for element in self._open:
            element.text += data


def elements(page: str) -> list[Element]:
    """All elements in their order. Fails if they are not closed properly."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.found


def text_of(page: str, tag: str) -> list[str]:
    """The text of each element of this name, white space collapsed."""
    return [" ".join(element.text.split()) for element in elements(page) if element.tag == tag]
