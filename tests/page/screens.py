"""Draws the pictures of the page for the docs: python -m tests.page.screens docs/screens"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio

from mcp_server.app import open_memory
from tests.page.browsing import BROWSER, open_page, serving
from tests.page.demo import CAKE, fill

WIDTH, HEIGHT, TALL = 1120, 860, 1560
SCREENS = {
    "now": "/now",
    "days": "/days",
    "knows": "/knows?view=decisions",
    "find": "/find?q=hazelnut+allergy",
    "topics": "/topics?try=please+review+the+pull+request",
    "state": "/state?checks=yes",
}


def draw(folder: Path) -> None:
    """Writes one PNG for each screen into a folder, and of one decision a second one in the dark theme."""
    from playwright.sync_api import ViewportSize, sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place) / "bakery"
        anyio.run(_build, workspace)
        with serving(workspace) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=BROWSER)
            size = ViewportSize(width=WIDTH, height=HEIGHT)
            light = browser.new_context(viewport=size)
            page = light.new_page()
            open_page(page, address)
            root = page.url.removesuffix("/now")
            why = str(page.locator("a.push", has_text=CAKE[:30]).first.get_attribute("href"))
            for name, to in {**SCREENS, "why": why}.items():
                page.goto(root + to)
                page.set_viewport_size(ViewportSize(width=WIDTH, height=TALL if name == "why" else HEIGHT))
                page.screenshot(path=folder / f"{name}.png")
            dark = browser.new_context(viewport=size, color_scheme="dark", storage_state=light.storage_state())
            page = dark.new_page()
            page.goto(root + why)
            page.screenshot(path=folder / "why-dark.png")
            browser.close()


async def _build(workspace: Path) -> None:
    async with open_memory(workspace, {}) as memory:
        await fill(memory)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
