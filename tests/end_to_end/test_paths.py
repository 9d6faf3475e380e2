"""Paths that lead out of the workspace, in every argument: nothing outside is read or written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import PromptReference, ResourceTemplateReference

from mcp_server.cli.main import main
from tests.end_to_end.servers import assert_clear, files_below, served
from tests.serving import environment, text

pytestmark = pytest.mark.anyio

SECRET = "what only the outside knows"
LEAVING = [
    "../outside.md",
    "knowledge/../../outside.md",
    "knowledge/./..//../outside.md",
    "..",
    "../../../../../../../../etc/passwd",
    "/etc/passwd",
    "~/.ssh/id_rsa",
    "knowledge\\..\\..\\outside.md",
    "C:\\outside.md",
    "knowledge/link.md",
    "knowledge/folder/outside.md",
    ".git/config",
    ".git/hooks/post-commit.md",
    "knowledge/.git/x.md",
    "%2e%2e/outside.md",
    "memory://../outside.md",
]
NAMES = ["../outside.md", "/etc/passwd", "~/.ssh/id_rsa", "knowledge\\..\\..\\outside.md", ".git/config", "%2e%2e/x.md"]
"""Such paths as names of sessions, projects, people and the like, one of each kind."""


def prepared(tmp_path: Path, new_workspace: Path) -> Path:
    """A workspace with a secret beside it, and links that lead there."""
    root = tmp_path / "around" / "memory"
    shutil.copytree(new_workspace, root)
    (root.parent / "outside.md").write_text(f"# Outside\n\n- {SECRET}\n")
    (root / "knowledge" / "link.md").symlink_to(root.parent / "outside.md")
    (root / "knowledge" / "folder").symlink_to(root.parent)
    return root


def outside(root: Path) -> dict[str, bytes]:
    """Everything around the workspace."""
    mine = (f"{root.name}/", f"{root.name}-processes/")
    return {path: data for path, data in files_below(root.parent).items() if not path.startswith(mine)}


def everything(name: str) -> dict[str, object]:
    """Returns all optional fields of a message, each with this value."""
    return {
        **{"name": name, "model": name, "channel": name},
        "tool_calls": [{"name": name, "files": [name]}],
        "chunks": [{"type": "file", "id": name}],
    }


async def test_no_argument_of_a_tool_leads_out(tmp_path: Path, new_workspace: Path) -> None:
    root = prepared(tmp_path, new_workspace)
    before = outside(root)
    answers: list[str] = []
    async with served(root) as server:
        await server.call("observe", role="user", content="Hello.", session="s")
        for path in LEAVING:
            answers.append(await server.refused("read", path=path))
            answers.append(await server.refused("read", path=path, at="HEAD"))
            for action in ("append", "create", "replace", "edit"):
                changed = {"path": path, "action": action, "section": "Outside", "old_text": SECRET}
                answers.append(await server.refused("remember", content="Mine now.", **changed))
        for name in NAMES:
            for tool, arguments in (
                ("observe", {"role": "user", "content": f"By {name}.", "session": name, "project": name}),
                ("observe", {"role": "user", "content": name, "session": "t", "turn_id": name, **everything(name)}),
                ("remember", {"content": f"{name} is a person.", "kind": "person"}),
                ("remember", {"content": f"{name}: do it.", "kind": "procedure"}),
                ("remember", {"content": f"{name}: done.", "kind": "project", "session": name}),
                ("remember", {"content": f"{name}: heard.", "section": name, "project": "global"}),
                ("read", {"path": "knowledge/memory/MEMORY.md", "at": name}),
                ("search", {"query": name, "session": name, "since": name}),
                ("search", {"query": f'"{name}" category:{name}'}),
                ("compile_context", {"session": name, "message": name}),
                ("status", {"session": name}),
            ):
                result = await server.client.call_tool(tool, arguments)
                answers.append(text(result))
                if result.is_error:
                    assert_clear(text(result))
        assert await server.call("status")
        assert "Traceback" not in server.stderr()
    assert outside(root) == before
    assert not [answer for answer in answers if SECRET in answer or "root:x:" in answer]


async def test_no_uri_leads_out(tmp_path: Path, new_workspace: Path) -> None:
    root = prepared(tmp_path, new_workspace)
    before = outside(root)
    async with served(root) as server:
        await server.call("observe", role="user", content="Hello.", session="s")
        for path in LEAVING:
            for uri in (f"memory://{path}", f"context://compiled/{path}", f"context://receipt/{path}"):
                with pytest.raises(MCPError) as refusal:
                    await server.client.read_resource(uri)
                assert_clear(str(refusal.value.error.message))
            for reference in (
                ResourceTemplateReference(type="ref/resource", uri="memory://{+path}"),
                ResourceTemplateReference(type="ref/resource", uri="context://compiled/{session}"),
            ):
                name = "path" if "path" in reference.uri else "session"
                assert (await server.client.complete(reference, {"name": name, "value": path})).completion.values == []
        prompt = PromptReference(type="ref/prompt", name="reflect")
        await server.client.complete(prompt, {"name": "session", "value": "../"})
        assert "Traceback" not in server.stderr()
    assert outside(root) == before


def test_no_argument_of_a_command_leads_out(
    tmp_path: Path, new_workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = prepared(tmp_path, new_workspace)
    for name, value in environment(root).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(root.parent)

    def said(*arguments: str, codes: tuple[int, ...] = (1,)) -> str:
        """Returns what a command printed, and checks that a failure has a clear message."""
        capfd.readouterr()
        code = main(list(arguments))
        printed = capfd.readouterr()
        assert code in codes, (arguments, printed.err)
        if code:
            assert_clear(printed.err)
        return printed.out + printed.err

    before = outside(root)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("# A note\n\nThe blue boat.\n")
    said("observe", "Hello.", "--session", "s", "--project", "boats", codes=(0,))
    for path in ("../outside.md", "knowledge/folder/outside.md"):
        assert SECRET not in said("read", path)
        assert SECRET not in said("read", path, "--at", "HEAD")
        assert SECRET not in said("remember", "Mine now.", "--path", path)
    name = "../../outside"
    for arguments in (
        ["observe", "One.", "--session", name, "--project", name, "--turn-id", name, "--name", name, "--channel", name],
        ["remember", f"{name} is a person.", "--kind", "person", "--session", name],
        ["session", "show", name],
        ["session", "end", name],
        ["project", "rename", "boats", name, "--apply"],
        ["project", "merge", name, name, "--apply"],
        ["import", str(notes), "--format", "markdown", "--name", name],
        ["import", str(notes), "--format", "markdown", "--project", name],
        ["compile", "Where is the boat?", "--session", name, "--project", name],
        ["search", "boat", "--session", name, "--project", name],
        ["status", "sessions", "--session", name],
    ):
        assert SECRET not in said(*arguments, codes=(0, 1, 2))
    assert outside(root) == before
