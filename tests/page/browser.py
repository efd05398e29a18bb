"""Debian's Chromium for a test, and what it complained about."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from playwright.async_api import Browser, Page, async_playwright

__all__ = ["Window", "browsing", "chromium"]

PATIENCE_MS: Final = 240_000
"""How long the browser waits for what has to come. Only a failing test waits so long, also on a busy machine."""


@dataclass
class Window:
    """A tab, and everything that should not have happened in it."""

    tab: Page
    complaints: list[str] = field(default_factory=list[str])
    """Messages in the console, errors of scripts, dialogs."""
    hosts: set[str] = field(default_factory=set[str])
    """From which anything was loaded."""

    async def rows(self) -> list[str]:
        """The names in the first column of the first table."""
        return await self.tab.locator("table").first.locator("tbody th").all_inner_texts()


@asynccontextmanager
async def chromium() -> AsyncGenerator[Browser, None]:
    """A running browser without windows."""
    program = shutil.which("chromium")
    assert program is not None, "Chromium is needed: apt-get install -y --no-install-recommends chromium"
    # The sandbox of Chromium does not work for root, as whom tests run in containers.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=arguments, timeout=PATIENCE_MS)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def browsing(
    browser: Browser, *, scripts: bool = True, scheme: Literal["dark", "light"] = "light", width: int = 1280
) -> AsyncGenerator[Window, None]:
    """A tab with cookies of its own. `scripts`: JavaScript is on; `scheme`: what the reader prefers."""
    context = await browser.new_context(
        java_script_enabled=scripts, color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    context.set_default_timeout(PATIENCE_MS)
    window = Window(await context.new_page())
    window.tab.on("console", lambda said: window.complaints.append(f"{said.type}: {said.text}"))
    window.tab.on("pageerror", lambda error: window.complaints.append(f"error: {error}"))
    window.tab.on("dialog", lambda dialog: window.complaints.append(f"dialog: {dialog.message}"))
    window.tab.on("request", lambda request: window.hosts.add(request.url.split("/")[2]))
    try:
        yield window
    finally:
        await context.close()
