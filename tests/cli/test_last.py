"""`last` shows and explains the last push; `pause` and `resume` work from the command line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.clients.hooks.events import handle
from mcp_server.context import push
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.model import Caller
from tests.clients.hooks.asking import hook
from tests.conftest import KEYWORDS_ONLY, Run, project_folder
from tests.preloaded import context_manager

FACT = "The spare boathouse key hangs behind the cellar door, next to the fuse box."
OTHER = "Marta sharpened the bread knife of the galley in April."

pytestmark = pytest.mark.usefixtures("empty_memory", "fast_notes")


@pytest.fixture
def pushed(workspace: Path, tmp_path: Path) -> Callable[..., None]:
    """Hooks of a session, one after the other, on a memory that knows where the key is."""
    project_folder(tmp_path, "boats")

    async def hooks(*prompts: str) -> None:
        async with open_memory(workspace, KEYWORDS_ONLY) as memory:
            caller = Caller(folder=str(tmp_path))
            if await memory.state.session("earlier") is None:
                await observe(memory, NewTurn("user", FACT, "earlier"), caller)
                await sessions.end_session(memory, "earlier")
                await observe(memory, NewTurn("user", OTHER, "another"), caller)
                await sessions.end_session(memory, "another")
            await memory.index.refresh()
            for prompt in prompts:
                given = {"session_id": "now", "cwd": str(tmp_path), "prompt": prompt}
                await handle(memory, "UserPromptSubmit", given)

    return lambda *prompts: anyio.run(hooks, *prompts)


def test_last_shows_the_exact_text_and_why(run: Run, pushed: Callable[..., None]) -> None:
    pushed("where is the spare boathouse key?", "ok", "bake a cake with plums")
    shown = run("last")
    assert FACT in shown
    assert "a prompt · session now" in shown
    assert "estimate" in shown
    assert FACT[:40] in shown.partition("the exact text:")[0]
    assert "one passage is relevant to the prompt" in shown
    assert "since then nothing was added: 2 times" in shown
    assert "the prompt names no subject" in shown
    found = json.loads(run("last", "--json"))
    assert found["last"]["text"] in shown
    assert found["last"]["sha256"]
    assert [record["prompt"] for record in found["since"]] == ["bake a cake with plums", "ok"]
    assert json.loads(run("last", "--session", "now", "--json")) == found
    assert "in session 'other'" in run("last", "--session", "other")
    assert "last pushed" in run("status", "hooks")


def test_last_lists_what_the_session_got_before(run: Run, pushed: Callable[..., None]) -> None:
    pushed("where is the spare boathouse key?", "who sharpened the bread knife of the galley?")
    shown = run("last")
    assert "added earlier in this session: 1 time" in shown
    assert "where is the spare boathouse key?" in shown
    (earlier,) = json.loads(run("last", "--json"))["earlier"]
    assert earlier["prompt"] == "where is the spare boathouse key?"


def test_last_shows_what_a_hook_added_while_no_server_was_running(run: Run, workspace: Path) -> None:
    given = json.dumps({"session_id": "now", "cwd": str(workspace)}).encode()
    run("remember", "Always grams, never cups.", "--kind", "rule", "--project", "global")
    printed = json.loads(hook(workspace, "SessionStart", given=given).stdout)["hookSpecificOutput"]["additionalContext"]
    assert "Always grams" in printed
    assert json.loads(run("last", "--json"))["last"]["text"] == printed
    assert "a window begins: the brief" in run("last")
    assert "no server was running yet" in run("last")


def test_before_any_hook_it_says_so(run: Run, pushed: Callable[..., None]) -> None:
    assert "the memory has received no prompt" in run("last")
    assert json.loads(run("last", "--json"))["last"] is None
    pushed("ok")
    assert "nothing was added: 1 time" in run("last")
    assert "last pushed: never" in run("status", "hooks")


def test_pause_and_resume(run: Run, pushed: Callable[..., None]) -> None:
    assert "paused everywhere until" in run("pause", "--for", "1d2h30m")
    assert "paused everywhere until" in run("status", "hooks")
    pushed("where is the spare boathouse key?")
    assert "paused everywhere" in run("last")
    assert "no longer paused everywhere" in run("pause", "--end")
    assert "nothing was paused" in run("pause", "--end")
    pushed("where is the spare boathouse key?")
    assert FACT in run("last")


def test_pausing_one_project(run: Run, pushed: Callable[..., None]) -> None:
    pushed()
    assert json.loads(run("pause", "--here", "--json"))["name"] == "boats"
    assert "paused in boats" in run("pause", "--project", "boats")
    assert "paused in boats" in run("status", "hooks")
    assert "no project 'boots'" in run("pause", "--project", "boots", code=1)
    run("pause")
    assert "still paused everywhere" in run("pause", "--end", "--here")
    assert json.loads(run("pause", "--end", "--json"))["left"] == []


def test_here_needs_a_project(run: Run) -> None:
    assert "belongs to no project" in run("pause", "--here", code=1)


@pytest.mark.parametrize("wrong", ["soon", "0m", "2", "h"])
def test_a_time_that_is_none_is_refused(run: Run, wrong: str) -> None:
    assert "write 30m, 2h or 1d" in run("pause", "--for", wrong, code=2)


def test_the_variable_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXT_MANAGER_PAUSE", "1")
    assert "CONTEXT_MANAGER_PAUSE is set" in run("pause", "--end")
    assert "switched off" in run("status", "hooks")


def test_watching_shows_each_decision_when_it_is_made(
    run: Run, pushed: Callable[..., None], workspace: Path, tmp_path: Path
) -> None:
    pushed("bake a cake with plums")
    watching = subprocess.Popen(
        context_manager("--workspace", str(workspace), "last", "--watch", "--json", "--session", "now"),
        env={**os.environ, **KEYWORDS_ONLY},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert "Waiting for prompts" in watching.stderr.readline()
        pushed("where is the spare boathouse key?", "ok")
        first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
        assert (first["prompt"], second["prompt"]) == ("where is the spare boathouse key?", "ok")
        assert FACT in first["text"]
    finally:
        watching.terminate()
        watching.communicate()


def test_a_text_that_was_not_shown_is_not_the_last_one(run: Run, pushed: Callable[..., None], workspace: Path) -> None:
    pushed("where is the spare boathouse key?")
    shown = run("last")

    async def late() -> None:
        async with open_memory(workspace, KEYWORDS_ONLY) as memory:
            await push.take_back(memory, "now", "UserPromptSubmit", shown, Caller())

    assert FACT in shown
    anyio.run(late)
    assert "Nothing was added to a prompt yet" in run("last")
    assert "the hook had stopped waiting" in run("last")
    assert "never" in run("status", "hooks")
