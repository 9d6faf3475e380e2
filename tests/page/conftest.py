"""A filled memory, a real server of its page, and a real browser, shared by the tests of one file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcp_server.app import open_memory
from tests.conftest import KEYWORDS_ONLY
from tests.page.browsing import BROWSER, open_page, run_apart, serving
from tests.page.demo import fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with something on every screen."""
    made = tmp_path_factory.mktemp("page") / "bakery"

    async def make() -> None:
        async with open_memory(made, KEYWORDS_ONLY) as memory:
            await fill(memory)

    run_apart(make)
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not BROWSER:
        pytest.skip("needs chromium-headless-shell (Debian's package of this name)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(bakery: Path, browser: Browser) -> Iterator[str]:
    """The one-time address of a page that is served until the end of the file's tests."""
    with serving(bakery, **KEYWORDS_ONLY) as opened:
        yield opened


@pytest.fixture(scope="module")
def signed_in(browser: Browser, address: str) -> Iterator[BrowserContext]:
    """A browser with the cookie of the page. What the page's console says fails the test of that moment."""
    context = browser.new_context(viewport={"width": 1120, "height": 860})
    context.set_default_timeout(float(os.environ.get("CM_BROWSER_TIMEOUT", "20000")))
    page = context.new_page()
    open_page(page, address)
    page.close()
    yield context
    context.close()


@pytest.fixture
def page(signed_in: BrowserContext) -> Iterator[Page]:
    opened = signed_in.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened
    opened.close()
    assert said == []


@pytest.fixture
def root(address: str) -> str:
    return address.partition("/open")[0]
