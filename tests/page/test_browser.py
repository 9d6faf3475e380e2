"""The page in a real browser: sign-in, attacks, live updates, accessibility, and a person's tasks by keyboard."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from mcp_server.app import open_memory
from mcp_server.context.push import for_prompt
from tests.answering import Handler, answering
from tests.conftest import KEYWORDS_ONLY
from tests.page.browsing import run_apart
from tests.page.demo import ASKER, CAKE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

SCREENS = {
    "Now": "/now",
    "Days": "/days",
    "What it knows": "/knows?view=decisions",
    "Find": "/find?q=hazelnut+allergy",
    "Topics": "/topics?try=please+review+the+pull+request",
    "State": "/state?checks=yes",
}
AXE = os.environ.get("CM_AXE", "")
"""The file axe.min.js of the npm package axe-core."""

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def push(workspace: Path, session: str, prompt: str) -> str:
    """Answers a prompt in this process, as a hook's server does, and returns what is pushed."""

    async def answer() -> str:
        async with open_memory(workspace, KEYWORDS_ONLY) as memory:
            return (await for_prompt(memory, session, prompt, ASKER)).text

    return run_apart(answer)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """The address of another site on this machine: same host, another port."""

    class Elsewhere(Handler):
        def do_GET(self) -> None:
            self.answer(b"<!doctype html><title>Elsewhere</title>", "text/html")

    with answering(Elsewhere) as url:
        yield url


def test_every_screen_works_without_a_word_on_the_console_and_fits_a_phone(page: Page, root: str) -> None:
    for title, path in SCREENS.items():
        page.set_viewport_size({"width": 1120, "height": 860})
        answer = page.goto(root + path)
        assert answer is not None
        assert answer.status == 200
        assert page.locator("nav.nav a[aria-current]").inner_text() == title
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") == 360, title


def test_a_second_use_of_the_address_opens_nothing(browser: Browser, address: str, root: str, page: Page) -> None:
    context = browser.new_context()
    other = context.new_page()
    other.goto(address)
    other.get_by_text("used before").wait_for()
    assert "#" not in other.url  # the code is not left in the history
    other.goto(f"{root}/knows")
    assert "/open" in other.url
    context.close()


def test_an_address_pasted_into_an_open_tab_is_noticed(browser: Browser, root: str, page: Page) -> None:
    context = browser.new_context()
    other = context.new_page()
    other.goto(f"{root}/open")
    other.evaluate("location.hash = '#wrong'")
    other.get_by_text("used before").wait_for()
    context.close()


def test_another_site_of_this_machine_can_neither_read_nor_change(
    signed_in: BrowserContext, elsewhere: str, root: str, page: Page
) -> None:
    other = signed_in.new_page()
    other.goto(elsewhere)
    ask = "async ([to, how]) => { try { return (await fetch(to, how)).status } catch (e) { return 'refused' } }"
    simple = {"method": "POST", "credentials": "include", "mode": "no-cors", "body": "for=2h"}
    assert other.evaluate(ask, [f"{root}/now", {"credentials": "include"}]) == "refused"
    assert other.evaluate(ask, [f"{root}/pause", simple]) in (0, "refused")
    with other.expect_navigation():
        other.evaluate(
            "(to) => { const form = document.createElement('form'); form.method = 'post'; form.action = to;"
            " document.body.append(form); form.submit() }",
            f"{root}/pause",
        )
    assert "only from this page itself" in other.content()
    other.goto(elsewhere)
    other.evaluate("(to) => { const f = document.createElement('iframe'); f.src = to; document.body.append(f) }", root)
    other.wait_for_timeout(200)
    assert all("context-manager" not in frame.content() for frame in other.frames[1:] if not frame.is_detached())
    other.close()
    page.goto(f"{root}/now")
    assert "Paused everywhere" not in page.content()


def test_hostile_stored_text_runs_nothing(page: Page, root: str, bakery: Path) -> None:
    hostile = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> hazelnut allergy"
    push(bakery, "hostile", hostile)
    page.goto(f"{root}/now")
    page.locator("a.push", has_text="onerror").first.click()
    page.wait_for_url(re.compile(r"/now/\w+"))
    assert "<script>" in page.locator("h1").inner_text()
    assert page.title().startswith("Why")
    assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0


def test_a_push_appears_on_the_open_page_by_itself(page: Page, root: str, bakery: Path) -> None:
    page.goto(f"{root}/now")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.id")
    assert focused.startswith("decision-")
    prompt = "Does the hazelnut rule hold for every order?"
    assert push(bakery, "live", prompt)
    page.locator("a.push", has_text=prompt).wait_for()
    assert page.evaluate("document.activeElement.id") == focused  # who moves by keyboard is not thrown out


@pytest.mark.skipif(not AXE, reason="needs axe-core (npm), named by CM_AXE")
def test_no_rule_of_accessibility_is_broken_in_either_theme(page: Page, root: str) -> None:
    page.goto(f"{root}/now")
    one = page.locator("a.push", has_text=CAKE[:30]).first.get_attribute("href")
    page.goto(f"{root}/knows?view=decisions")
    edit, forget = (
        page.locator(f'a[href^="{start}"]').first.get_attribute("href") for start in ("/knows/edit", "/forget")
    )
    page.goto(f"{root}/days")
    back = page.locator('a[href^="/days/checkpoint"]').first.get_attribute("href")
    source = Path(AXE).read_text("utf-8")
    for path in (*SCREENS.values(), one, edit, forget, back):
        page.goto(f"{root}{path}")
        if path == forget:
            page.locator("table").wait_for()  # the copies come after the page
        page.evaluate(source)
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            found = page.evaluate("(tags) => axe.run({runOnly: tags}).then((all) => all.violations)", RULES)
            assert [(path, theme, one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found] == []


def test_axe_finds_what_is_wrong_on_a_bad_page(page: Page) -> None:
    if not AXE:
        pytest.skip("needs axe-core (npm), named by CM_AXE")
    page.set_content(
        "<html><body><img src='data:,'><p style='color:#eee;background:#fff'>faint</p><input></body></html>"
    )
    page.evaluate(Path(AXE).read_text("utf-8"))
    found = page.evaluate("axe.run().then((all) => all.violations.map((one) => one.id))")
    assert {"image-alt", "color-contrast", "label", "html-has-lang"} <= set(found)


# ---------------------------------------------------------------- tasks by keyboard


def tab_to(page: Page, text: str) -> None:
    """Presses Tab until the element with this text or label has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        said = page.evaluate(
            "document.activeElement.innerText || document.activeElement.getAttribute('aria-label') || ''"
        )
        if str(said).strip().startswith(text):
            return
    raise AssertionError(f"{text!r} cannot be reached by Tab on {page.url}")


def move_to(page: Page, text: str) -> None:
    """Presses j until the row with this text has the focus."""
    for _ in range(40):
        page.keyboard.press("j")
        if text in page.evaluate("document.activeElement.innerText"):
            return
    raise AssertionError(f"{text!r} cannot be reached by j on {page.url}")


def open_facts(page: Page, root: str) -> None:
    """Opens the facts from another screen."""
    page.goto(f"{root}/now")
    page.keyboard.press("3")
    page.wait_for_url("**/knows")
    tab_to(page, "Facts")
    page.keyboard.press("Enter")
    page.wait_for_url("**/knows?view=facts")


def test_find_by_keyboard_why_a_passage_stayed_out(page: Page, root: str) -> None:
    page.goto(f"{root}/state")
    page.keyboard.press("1")
    page.wait_for_url("**/now")
    move_to(page, CAKE[:30])
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/now/\w+"))
    out = page.locator("#out")
    assert re.match(r"Out: \d+", out.inner_text())
    reasons = page.locator("#out ~ ul .score").all_inner_texts()
    assert any("no room left" in one or "hardly needed" in one or "no longer so" in one for one in reasons)


def test_correct_a_fact_by_keyboard(page: Page, root: str, bakery: Path) -> None:
    open_facts(page, root)
    tab_to(page, "Edit")
    page.keyboard.press("Enter")
    page.wait_for_url("**/knows/edit**")
    page.wait_for_function("document.activeElement.name == 'text'")  # `autofocus` comes after the page
    page.keyboard.press("Control+A")
    page.keyboard.type("Ratar raised T-500 to 0.63 euros a kilo.")
    tab_to(page, "Correct it")
    page.keyboard.press("Enter")
    page.wait_for_url("**/knows?**")
    assert "Corrected." in page.get_by_role("status").inner_text()
    pages = [path.read_text("utf-8") for path in (bakery / "knowledge").rglob("*.md")]
    assert any("Ratar raised T-500 to 0.63" in text for text in pages)


def test_forget_a_line_by_keyboard(page: Page, root: str, bakery: Path) -> None:
    open_facts(page, root)
    page.keyboard.press("/")
    page.keyboard.type("cousin with a forklift")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=cousin+with+a+forklift")
    tab_to(page, "Forget")
    page.keyboard.press("Enter")
    page.wait_for_url("**/forget**")
    assert "knowledge/reference/general.md" in page.locator("table").inner_text()
    tab_to(page, "Delete all of it")
    page.keyboard.press("Enter")
    page.wait_for_url("**/knows?**")
    assert "Forgotten" in page.get_by_role("status").inner_text()
    assert "cousin with a forklift" not in (bakery / "knowledge/reference/general.md").read_text("utf-8")


def test_go_back_to_a_checkpoint_by_keyboard(page: Page, root: str) -> None:
    page.goto(f"{root}/now")
    page.keyboard.press("2")
    page.wait_for_url("**/days")
    move_to(page, "before the payment work")
    page.keyboard.press("Enter")
    page.wait_for_url("**/days/checkpoint/**")
    assert "Going back would change" in page.locator("main").inner_text()
    tab_to(page, "Go back")
    page.keyboard.press("Enter")
    page.get_by_role("status").wait_for()
    assert "Went back." in page.get_by_role("status").inner_text()


def test_approve_an_identity_change_by_keyboard(page: Page, root: str, bakery: Path) -> None:
    page.goto(f"{root}/now")
    page.keyboard.press("3")
    page.wait_for_url("**/knows")
    tab_to(page, "Approve")
    page.keyboard.press("Enter")
    page.get_by_role("status").wait_for()
    assert "Approved" in page.get_by_role("status").inner_text()
    assert "Answer in Serbian" in (bakery / "knowledge/identity/USER.md").read_text("utf-8")
