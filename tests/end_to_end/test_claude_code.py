"""The plugin in the real Claude Code: what is said is kept, and what is known comes by itself, or nothing happens.

What the model sees is read from the requests that it gets.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_server.clients.hooks import protocol
from tests.clients.hooks.boathouse import FACTS
from tests.end_to_end.claude import PLUGIN, Desk, patient, quick, usable_claude, variant
from tests.end_to_end.fake_anthropic import Answer, Asked, Calls, FakeAnthropic, Says
from tests.end_to_end.servers import served, turns
from tests.gitting import git

pytestmark = pytest.mark.anyio

FACT = "For your notes: the staging database of the harbour app is called walrus and listens on port 6543."
ABOUT_IT = "Which port does the staging database listen on?"
NOT_ABOUT_IT = "Explain what a monad is, in one paragraph."
FROM_HOOKS = "hook additional context:"
DECISION = "We'll use SQLite for the ledger, because it is one file."
LONG_ANSWER = f"I compared both.\n\nDecision: {DECISION}\n\n{'It is small. ' * 40}"
DECIDED = f"- {DECISION}"
OPEN = "TODO: call Ana about the winter berth"
STEP = "Ask the harbour master before you promise a place."
BERTHS = f"---\ntriggers:\n  - {{type: pattern, match: 'berth'}}\nactivation: auto\n---\n\n# Berths\n\n{STEP}\n"


def answer(asked: Asked) -> Answer:
    """The model: runs a command if it is asked to, proposes a store, and else agrees."""
    if "run it" in asked.prompt:
        return Calls("Bash", {"command": "echo ran", "description": "say so"})
    return Says(LONG_ANSWER if "Which store" in asked.prompt else "Fine.")


@pytest.fixture
def api() -> Iterator[FakeAnthropic]:
    with FakeAnthropic(answer) as running:
        yield running


@pytest.fixture
def desk(tmp_path: Path, api: FakeAnthropic, empty_memory: None) -> Desk:
    """Everything as it is shipped, but for the time that hooks may take, and the imports of the server."""
    home, project, memory = (tmp_path / name for name in ("home", "a project with spaces", "memory"))
    return Desk(usable_claude(), api, home, project, memory, plugin=variant(tmp_path / "patient", patient))


def from_hooks(asked: Asked) -> str:
    """What hooks brought into a request; empty for nothing."""
    return asked.injected if FROM_HOOKS in asked.injected else ""


def said_in(desk: Desk, session: str) -> list[str]:
    """First lines of the session's turns, as they stand in our transcripts."""
    return [line for _, line in turns(desk.workspace).get(session, [])]


def settled(desk: Desk) -> None:
    """What hooks left in the queue is worked off, as any command of ours does before it answers."""
    desk.our("search", "anything")
    assert waiting(desk) == []


def waiting(desk: Desk) -> list[str]:
    folder = desk.workspace / ".local" / protocol.QUEUE
    return sorted(place.name for place in folder.iterdir()) if folder.is_dir() else []


def test_a_fact_of_one_session_comes_into_the_next_one_that_asks_for_it_also_in_another_worktree(
    desk: Desk, tmp_path: Path
) -> None:
    worktree = tmp_path / "another place" / "a worktree"
    git(desk.project, "init", "--quiet")
    git(desk.project, "commit", "--quiet", "--allow-empty", "-m", "first")
    git(desk.project, "worktree", "add", "--quiet", "-b", "side", str(worktree))
    first = desk.ask(FACT)
    second = desk.ask(ABOUT_IT, folder=worktree)  # at once: the hooks of the first session may still be in the queue
    told, bearing = desk.api.asked  # one request each: no tool was called
    assert "mcp__plugin_memory_memory__search" in told.everything
    for tool in ("observe", "compile_context"):  # what the hooks do needs no tool
        assert f"mcp__plugin_memory_memory__{tool}" not in told.everything
    assert from_hooks(told) == ""
    assert "port 6543" in from_hooks(bearing)
    assert first.session != second.session
    settled(desk)
    assert said_in(desk, first.session) == [FACT, "Fine."]
    rows = json.loads(desk.our("session", "list", "--json"))
    assert [row["status"] for row in rows] == ["closed"] * 2


def test_without_a_server_a_prompt_gets_passages_from_the_index_and_a_later_server_knows_it(
    desk: Desk, tmp_path: Path
) -> None:
    for number, (fact, _, _) in enumerate(FACTS[:2]):
        desk.our("remember", fact, "--path", f"knowledge/reference/harbour-{number}.md")  # no part of a brief
    plugin = desk.plugin
    desk.plugin = variant(tmp_path / "broken", lambda servers, _: servers["memory"].update(command="false"))
    _, asked, key = FACTS[0]
    answered = desk.ask(asked)
    assert (answered.text, answered.stderr) == ("Fine.", "")
    assert key in from_hooks(desk.api.asked[-1])
    assert FACTS[1][2] not in desk.api.asked[-1].everything
    desk.plugin = plugin
    desk.ask(f"Once more: {asked}", "--resume", answered.session)
    assert desk.api.asked[-1].everything.count(key) == 1
    settled(desk)
    assert said_in(desk, answered.session) == [asked, "Fine.", f"Once more: {asked}", "Fine."]  # nothing is lost


async def test_in_a_window_it_says_what_it_brings_in_and_clear_begins_a_session_of_its_own(desk: Desk) -> None:
    with desk.window() as window:
        window.wait_for((desk.workspace / ".local" / protocol.ADDRESS).exists, "the server to listen")
        window.type(FACT)
        window.wait_for_text("●Fine.")
        window.type("/clear")
        window.wait_for(lambda: len(desk.transcripts) == 2, "a new session")
        window.type(NOT_ABOUT_IT)
        window.wait_for(lambda: len(desk.api.asked) == 2, "the second request")
        window.wait_for_text("●Fine.")
        window.type(ABOUT_IT)
        window.wait_for(lambda: len(desk.api.asked) == 3, "the third request")
        window.wait_for_text("●Fine.")
        # The fact comes with the new session's brief if it was on a page by then, else with the prompt.
        assert "memory: brief" in window.text or "memory: 1 passage" in window.text
        window.type("ok, thanks")
        window.wait_for(lambda: len(desk.api.asked) == 4, "the fourth request")
        window.wait_for_text("●Fine.")
        window.leave()
    _, _, bearing, thanks = desk.api.asked
    assert "port 6543" in from_hooks(bearing)
    assert from_hooks(thanks).count(FROM_HOOKS) == from_hooks(bearing).count(FROM_HOOKS)  # nothing new with "thanks"
    settled(desk)
    first, second = (path.stem for path in sorted(desk.transcripts, key=lambda path: path.stat().st_mtime))
    assert said_in(desk, first) == [FACT, "Fine."]
    assert said_in(desk, second)[::2] == [NOT_ABOUT_IT, ABOUT_IT, "ok, thanks"]
    rows = json.loads(desk.our("session", "list", "--json"))
    assert [row["status"] for row in rows] == ["closed"] * 2


def without_our_commands(desk: Desk) -> str:
    """The PATH of somebody who has the plugin alone."""
    assert shutil.which("context-manager", path=desk.env["PATH"])
    folders = desk.env["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not (Path(folder) / "context-manager").exists())


def test_without_our_commands_a_window_shows_nothing_of_the_hooks(desk: Desk) -> None:
    desk.path, desk.plugin = without_our_commands(desk), PLUGIN
    with desk.window() as window:
        window.wait_for_text("shift+tab to cycle")  # it takes what is typed
        window.type(ABOUT_IT)
        window.wait_for_text("●Fine.")
        shown = window.text
        window.leave()
    assert "not found" not in shown
    assert "hookerror" not in "".join(shown.lower().split())
    assert from_hooks(desk.api.asked[-1]) == ""
    assert json.loads(desk.our("session", "list", "--json")) == []


def test_a_workspace_that_cannot_be_there_brings_nothing_in_and_the_answer_comes(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    desk.workspace = tmp_path / "a file" / "memory"
    answered = desk.ask(ABOUT_IT)
    assert (answered.text, answered.stderr) == ("Fine.", "")
    assert from_hooks(desk.api.asked[-1]) == ""


async def _listening(desk: Desk, pid: int) -> None:
    from tests.end_to_end.servers import eventually

    def listens() -> bool:
        try:
            return protocol.read_address((desk.workspace / ".local" / protocol.ADDRESS).read_bytes())[1] == pid
        except (OSError, ValueError):
            return False

    await eventually(listens)


async def test_another_windows_server_answers_and_if_it_stalls_the_answer_comes_without_it(
    desk: Desk, tmp_path: Path
) -> None:
    async with served(desk.workspace, env=desk.env) as other_window:
        await other_window.call("remember", content=FACT)
        await _listening(desk, other_window.pid)
        session = desk.ask(ABOUT_IT).session
        assert "port 6543" in from_hooks(desk.api.asked[-1])
        desk.settings, desk.plugin = {"CONTEXT_MANAGER_HOOK_SECONDS": "1.5"}, variant(tmp_path / "shipped hooks", quick)
        os.kill(other_window.pid, signal.SIGSTOP)  # it accepts connections and answers nothing
        try:
            answered = desk.ask("Thanks.", "--resume", session)
        finally:
            os.kill(other_window.pid, signal.SIGCONT)
        assert (answered.text, answered.stderr) == ("Fine.", "")
    settled(desk)
    assert said_in(desk, session) == [ABOUT_IT, "Fine.", "Thanks.", "Fine."]


def test_what_no_hook_saw_is_imported_once_or_captured_and_a_compaction_carries_its_checkpoint_over(
    desk: Desk, api: FakeAnthropic
) -> None:
    plugin, desk.plugin = desk.plugin, desk.home  # no plugin at all
    projects = str(desk.home / ".claude" / "projects")
    session = desk.ask("Please run it for me.", "--allowedTools", "Bash").session
    assert json.loads(desk.our("import", projects, "--json"))["new_turns"] == 3
    desk.ask("Which store shall the ledger have?", "--resume", session)
    desk.plugin = plugin
    for prompt in ("/compact", "Where were we?"):
        settled(desk)  # each server lives only for one prompt
        desk.ask(prompt, "--resume", session)
    assert DECIDED in from_hooks(api.asked[-1])
    settled(desk)
    assert json.loads(desk.our("checkpoint", "list", "--session", session, "--json"))
    held = turns(desk.workspace)
    counted = json.loads(desk.our("import", projects, "--json"))
    assert (counted["new_turns"], counted["new_sessions"]) == (0, 0)
    assert turns(desk.workspace) == held
    spoken = said_in(desk, session)
    assert [line for line in spoken if line.endswith("?") or line.startswith("Please")] == [
        "Please run it for me.",
        "Which store shall the ledger have?",
        "Where were we?",
    ]
    assert any("ompact" in line for line in spoken)  # the boundary is there, the summary and the command are not
    assert not any("/compact" in line or FROM_HOOKS in line or "<system-reminder>" in line for line in spoken)
    whole = "".join(path.read_text() for path in (desk.workspace / "raw").rglob("*.md"))
    assert "> [tool:Bash]" in whole


async def test_a_window_gets_a_topic_once_and_after_a_compaction_its_checkpoint_and_the_topic_again(
    desk: Desk, api: FakeAnthropic
) -> None:
    (desk.workspace / "topics" / "berths.md").write_text(BERTHS)
    with desk.window("--allowedTools", "Bash") as window:
        window.wait_for((desk.workspace / ".local" / protocol.ADDRESS).exists, "the server to listen")

        def ask(prompt: str, *shown: str) -> Asked:
            """Types a prompt and returns the first request with it."""
            number = len(api.asked)
            window.type(prompt)
            window.wait_for(lambda: len(api.asked) > number, prompt)
            for text in shown:
                window.wait_for_text(text)
            return api.asked[number]

        before = ask("Which store shall the ledger have?", "It is small.")
        ask("yes, do it", "●Fine.")
        with_it = ask(OPEN, "memory: topic berths", "●Fine.")
        ask("now run it", "●Fine.")
        ask("What does a berth cost?", "●Fine.")
        again = ask("And in winter, a berth?", "●Fine.")
        ask("/compact", "Compacted")
        compacted = ask("Where were we? Is a berth heated?", "●Fine.")
        window.leave()
    assert STEP not in before.everything
    assert STEP in from_hooks(with_it)
    assert again.everything.count(STEP) == 1  # it is in the window already
    assert DECIDED not in from_hooks(again)
    (written,) = [path for path in (desk.workspace / "checkpoints").rglob("*.md") if "reason: hook" in path.read_text()]
    told = from_hooks(compacted)
    for text in (written.read_text(), told):
        assert DECIDED in text
        assert OPEN.removeprefix("TODO: ") in text
        assert re.search(r"Bash \|? ?say so (→|\|) ran", text), "the last tool call"
    assert written.stem in told
    assert told.count(STEP) == 1  # that is another window
    shown = json.loads(desk.our("last", "--json"))["last"]
    assert "topic berths" in shown["line"]
    assert shown["text"] in compacted.injected  # the exact bytes


def test_the_tool_hook_serves_the_events_that_a_client_can_give_to_a_tool(desk: Desk, tmp_path: Path) -> None:
    fields = ("session_id", "transcript_path", "cwd", "prompt", "source", "trigger", "last_assistant_message")

    def with_tools(servers: dict[str, Any], hooks: dict[str, Any]) -> None:
        quick(servers, hooks)
        for event in ("UserPromptSubmit", "PostToolUse", "Stop", "PreCompact", "PostCompact"):
            given = {"event": event, **{name: f"${{{name}}}" for name in fields}}
            call = {"type": "mcp_tool", "server": "plugin:memory:memory", "tool": "hook", "input": given}
            hooks[event] = [{"hooks": [{**call, "timeout": 20}]}]

    desk.our("observe", FACT)
    desk.plugin = variant(tmp_path / "tools", with_tools)
    answered = desk.ask(ABOUT_IT)
    assert "port 6543" in from_hooks(desk.api.asked[-1])
    assert answered.stderr == ""
    settled(desk)
    assert said_in(desk, answered.session) == [ABOUT_IT, "Fine."]
