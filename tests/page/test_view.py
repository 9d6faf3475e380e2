"""The view of the MCP App in a real browser: a sandboxed frame, and a minimal host that speaks its protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client
from mcp.types import TextResourceContents

from tests.page.test_browser import AXE, RULES
from tests.serving import connected, say

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame, Page

VIEW = "ui://context-manager/view.html"
HOST_POLICY = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'"
HOST = """<!doctype html><title>host</title><iframe sandbox="allow-scripts" width="600" height="600"></iframe><script>
  const frame = document.querySelector("iframe");
  const seen = [];
  const send = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
  addEventListener("message", async ({ source, data }) => {
    if (source !== frame.contentWindow) return;
    seen.push(data);
    if (data.method === "ui/initialize")
      send({ id: data.id, result: { protocolVersion: "2026-01-26", hostInfo: { name: "host", version: "1" },
        hostCapabilities: { serverTools: {} }, hostContext: { theme: "light" } } });
    else if (data.method === "ui/notifications/initialized") {
      send({ method: "ui/notifications/tool-input", params: { arguments: {} } });
      send({ method: "ui/notifications/tool-result", params: window.result });
    } else if (data.method === "tools/call") send({ id: data.id, result: await callTool(data.params) });
    else if (data.id !== undefined) send({ id: data.id, result: {} });
  });
</script>"""


@contextmanager
def host(browser: Browser, root: Path) -> Iterator[tuple[Page, BlockingPortal, Client]]:
    """A page that is the host of views, the thread of its MCP client, and the client."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(connected(root, views=True)) as client:
        page = browser.new_page()
        page.expose_function("callTool", lambda params: call(portal, client, params["name"], params["arguments"]))
        page.set_content(HOST)
        yield page, portal, client
        page.close()


def call(portal: BlockingPortal, client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a tool as JSON."""
    result = portal.call(client.call_tool, tool, arguments)
    return dict(result.model_dump(mode="json", by_alias=True, exclude_none=True))


def render(page: Page, portal: BlockingPortal, client: Client, result: dict[str, Any]) -> Frame:
    """Renders the view of a result as a host does, and returns its frame."""
    (document,) = portal.call(client.read_resource, VIEW).contents
    assert isinstance(document, TextResourceContents)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{HOST_POLICY}">'
    html = document.text.replace("<head>", f"<head>{policy}")
    page.evaluate("([html, result]) => { window.result = result; frame.srcdoc = html }", [html, result])
    page.wait_for_function("seen.some((one) => one.method === 'ui/notifications/initialized')")
    return page.frames[1]


def methods(page: Page) -> list[str]:
    """The methods of the messages that came from the view."""
    return [str(one) for one in page.evaluate("seen.map((one) => one.method)")]


def test_the_view_shows_a_receipt_and_a_click_approves_a_change(browser: Browser, tmp_path: Path) -> None:
    with host(browser, tmp_path) as (page, portal, client):
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        portal.call(lambda: say(client, "The blue boat is kept in Senj.", session="s", delivery="replace"))
        compiled = call(portal, client, "compile_context", {"message": "Where is the boat?", "session": "s"})
        frame = render(page, portal, client, compiled)
        frame.get_by_role("img", name="Tokens by source").wait_for()
        assert "The blue boat is kept in Senj." in frame.locator("main").inner_text()
        assert methods(page)[0] == "ui/initialize"
        light = frame.evaluate("getComputedStyle(document.body).backgroundColor")
        page.evaluate("send({ method: 'ui/notifications/host-context-changed', params: { theme: 'dark' } })")
        frame.wait_for_function("(light) => getComputedStyle(document.body).backgroundColor !== light", arg=light)

        identity = {"content": "Call me Vesna.", "kind": "identity", "project": "global"}
        frame = render(page, portal, client, call(portal, client, "remember", identity))
        frame.get_by_role("button", name="Approve").click()
        frame.get_by_text("The user approved the change").wait_for()
        page.wait_for_function("seen.some((one) => one.method === 'ui/update-model-context')")
        assert said == []
    assert "Call me Vesna." in (tmp_path / "knowledge/identity/USER.md").read_text("utf-8")


def test_html_that_came_into_a_result_runs_nothing_in_the_view(browser: Browser, tmp_path: Path) -> None:
    with host(browser, tmp_path) as (page, portal, client):
        hostile = "<p>came</p><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
        frame = render(page, portal, client, {"content": [], "_meta": {"context-manager/html": hostile}})
        frame.get_by_text("came").wait_for()
        page.wait_for_timeout(200)
        assert frame.evaluate("document.title") == "context-manager"
        assert "tools/call" not in methods(page)


@pytest.mark.skipif(not AXE, reason="needs axe-core (npm), named by CM_AXE")
def test_no_rule_of_accessibility_is_broken_in_the_view(browser: Browser, tmp_path: Path) -> None:
    with host(browser, tmp_path) as (page, portal, client):
        portal.call(lambda: say(client, "The blue boat is kept in Senj.", session="s", delivery="replace"))
        identity = {"content": "Call me Vesna.", "kind": "identity", "project": "global"}
        for tool, arguments in (("compile_context", {"message": "boat", "session": "s"}), ("remember", identity)):
            frame = render(page, portal, client, call(portal, client, tool, arguments))
            frame.locator("main > *").first.wait_for()
            frame.evaluate(Path(AXE).read_text("utf-8"))
            for theme in ("light", "dark"):
                page.evaluate(
                    "(to) => send({ method: 'ui/notifications/host-context-changed', params: { theme: to } })", theme
                )
                page.wait_for_timeout(100)
                found = frame.evaluate("(tags) => axe.run({runOnly: tags}).then((all) => all.violations)", RULES)
                assert [(tool, theme, one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found] == []
