"""Draws the pictures of the page for the docs.

python -m tests.page.screens docs/screens                       # of a demo memory
python -m tests.page.screens docs/screens/beam BEAM_FOLDER...   # of imported conversations, with their questions
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from urllib.parse import quote_plus

import anyio
from PIL import Image

from benchmarks.datasets import conversations, import_conversation
from mcp_server.app import catch_up, open_memory
from mcp_server.context.push import for_prompt
from mcp_server.knowledge.extract import extract
from tests.page.browsing import BROWSER, open_page, serving
from tests.page.demo import ASKER, CAKE, fill

WIDTH, HEIGHT, TALL = 1120, 860, 1560
COLORS = 128
"""Colors of a picture. The page has few: this halves the files, and no difference can be seen."""

QUESTIONS = 2
"""Questions of each imported conversation that are asked as prompts."""


def screens(asked: str) -> Mapping[str, str]:
    """Returns the address of each screen."""
    return {
        "now": "/now",
        "days": "/days",
        "knows": "/knows?view=decisions",
        "find": f"/find?q={quote_plus(asked)}",
        "topics": "/topics?try=please+review+the+pull+request",
        "state": "/state?checks=yes",
    }


def draw(folder: Path, imported: Sequence[Path]) -> None:
    """Writes one PNG for each screen into a folder, and of a prompt of the demo two more, the second one dark."""
    from playwright.sync_api import Page, ViewportSize, sync_playwright

    folder.mkdir(parents=True, exist_ok=True)

    def save(page: Page, name: str) -> None:
        picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
        few = picture.quantize(COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(folder / f"{name}.png", optimize=True)

    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place) / ("memory" if imported else "bakery")
        asked = anyio.run(_build, workspace, imported)
        with serving(workspace) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=BROWSER)
            size = ViewportSize(width=WIDTH, height=HEIGHT)
            light = browser.new_context(viewport=size)
            page = light.new_page()
            open_page(page, address)
            root = page.url.removesuffix("/now")
            why = str(
                page.locator(
                    "a.push", has_text=CAKE[:30] if not imported else re.compile(r"\d tokens")
                ).first.get_attribute("href")
            )
            for name, to in {**screens(asked), "why": why}.items():
                page.goto(root + to)
                page.set_viewport_size(ViewportSize(width=WIDTH, height=TALL if name == "why" else HEIGHT))
                save(page, name)
            if not imported:
                dark = browser.new_context(viewport=size, color_scheme="dark", storage_state=light.storage_state())
                page = dark.new_page()
                page.goto(root + why)
                save(page, "why-dark")
            browser.close()


async def _build(workspace: Path, imported: Sequence[Path]) -> str:
    """Fills a new memory, and returns what the picture of the search looks for."""
    async with open_memory(workspace, {}) as memory:
        if not imported:
            await fill(memory)
            return "hazelnut allergy"
        found = [conversation for path in imported for conversation in conversations(path)]
        for conversation in found:
            await import_conversation(memory, conversation)
        await extract(memory)
        await catch_up(memory)
        prompts = [question.text for conversation in found for question in conversation.questions[:QUESTIONS]]
        for prompt in prompts:
            await for_prompt(memory, "window-1", prompt, ASKER)
        return prompts[-1]


if __name__ == "__main__":
    draw(Path(sys.argv[1]), [Path(one) for one in sys.argv[2:]])
