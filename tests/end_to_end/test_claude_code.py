"""The plugin in the real Claude Code: what is said is kept, and what is known comes by itself, or nothing happens.

What the model sees is read from the requests that it gets.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_server.clients.hooks import wire
from tests.clients.hooks.boathouse import FACTS
from tests.end_to_end.claude import PLUGIN, ROOT, Desk, patient, usable_claude, variant
from tests.end_to_end.fake_anthropic import Answer, Asked, Calls, FakeAnthropic, Says
from tests.end_to_end.servers import served, turns

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
    """Everything as it is shipped, but for the time that hooks may take: these machines are noisy."""
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
    folder = desk.workspace / ".local" / wire.QUEUE
    return sorted(place.name for place in folder.iterdir()) if folder.is_dir() else []


def test_a_fact_of_one_session_comes_into_the_next_one_that_asks_for_it(desk: Desk) -> None:
    first = desk.ask(FACT)
    settled(desk)
    second = desk.ask(ABOUT_IT)
    third = desk.ask(NOT_ABOUT_IT)
    told, bearing, _ = desk.api.asked  # one request each: no tool was called
    assert "mcp__plugin_context-manager_memory__search" in told.everything
    for tool in ("observe", "compile_context"):  # what the hooks do needs no tool
        assert f"mcp__plugin_context-manager_memory__{tool}" not in told.everything
    assert from_hooks(told) == ""
    assert "port 6543" in from_hooks(bearing)
    assert len({first.session, second.session, third.session}) == 3

    shown = json.loads(desk.our("last", "--json"))["last"]
    assert shown["text"] in bearing.injected  # the exact bytes
    settled(desk)
    assert said_in(desk, first.session) == [FACT, "Fine."]
    rows = json.loads(desk.our("session", "list", "--json"))
    assert [row["status"] for row in rows] == ["closed"] * 3


async def test_new_facts_are_in_the_first_three_prompts_of_new_windows_that_ask_for_them(desk: Desk) -> None:
    desk.ask(NOT_ABOUT_IT)  # a brief is kept ready in which no fact stands
    async with served(desk.workspace, env=desk.env) as before:
        for fact, _, _ in FACTS:
            await before.call("remember", content=fact, kind="fact")
    for _, asked, key in FACTS[:2]:
        with desk.window() as window:
            window.wait_for_text("shift+tab to cycle")  # it takes what is typed
            for prompt in (asked, f"Once more: {asked}", f"Sorry, {asked}"):
                number = len(desk.api.asked) + 1
                window.type(prompt)
                window.wait_for(lambda least=number: len(desk.api.asked) >= least, prompt)
                assert key in from_hooks(desk.api.asked[-1])
                window.wait_for_text("●Fine.")


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


def test_however_long_a_session_was_what_was_told_in_it_is_only_where_a_prompt_bears_on_it(desk: Desk) -> None:
    session = desk.ask(FACT).session
    for thing in ("colours", "trees", "rivers"):
        desk.ask(f"Name three {thing}.", "--resume", session)
    settled(desk)
    desk.ask("Where did we leave off?")
    going_on = desk.api.asked[-1]
    assert "three rivers" in from_hooks(going_on)
    assert "6543" not in going_on.everything  # that was before the last three exchanges
    desk.ask(ABOUT_IT)
    assert "port 6543" in from_hooks(desk.api.asked[-1])
    assert "rivers" not in desk.api.asked[-1].everything


async def test_in_a_window_it_says_what_it_brings_in_and_clear_begins_a_session_of_its_own(desk: Desk) -> None:
    with desk.window() as window:
        window.wait_for((desk.workspace / ".local" / wire.ADDRESS).exists, "the server to listen")
        window.type(FACT)
        window.wait_for_text("●Fine.")
        window.type("/clear")
        window.wait_for(lambda: len(desk.transcripts) == 2, "a new session")
        window.type(NOT_ABOUT_IT)
        window.wait_for(lambda: len(desk.api.asked) == 2, "the second request")
        window.wait_for_text("●Fine.")
        window.type(ABOUT_IT)
        window.wait_for(lambda: len(desk.api.asked) == 3, "the third request")
        window.wait_for_text("memory: 1 passage")
        window.type("ok, thanks")
        window.wait_for(lambda: len(desk.api.asked) == 4, "the fourth request")
        window.wait_for_text("●Fine.")
        window.leave()
    _, other, bearing, thanks = desk.api.asked
    assert "6543" not in other.everything
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


def test_without_our_commands_the_plugin_is_silent(desk: Desk) -> None:
    desk.path = without_our_commands(desk)
    answered = desk.ask(ABOUT_IT)
    assert (answered.text, answered.stderr) == ("Fine.", "")
    assert from_hooks(desk.api.asked[-1]) == ""
    assert json.loads(desk.our("session", "list", "--json")) == []


def test_without_our_commands_a_window_shows_nothing_of_the_hooks(desk: Desk) -> None:
    desk.path = without_our_commands(desk)
    with desk.window() as window:
        window.wait_for_text("shift+tab to cycle")  # it takes what is typed
        window.type(ABOUT_IT)
        window.wait_for_text("●Fine.")
        shown = window.text
        window.leave()
    assert "not found" not in shown
    assert "hookerror" not in "".join(shown.lower().split())
    assert from_hooks(desk.api.asked[-1]) == ""


def test_a_workspace_that_cannot_be_there_brings_nothing_in_and_the_answer_comes(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    desk.workspace = tmp_path / "a file" / "memory"
    answered = desk.ask(ABOUT_IT)
    assert (answered.text, answered.stderr) == ("Fine.", "")
    assert from_hooks(desk.api.asked[-1]) == ""


async def test_with_a_server_that_stalls_the_answer_comes(desk: Desk) -> None:
    desk.ask(FACT)
    settled(desk)
    desk.settings, desk.plugin = {"CONTEXT_MANAGER_HOOK_SECONDS": "1.5"}, PLUGIN
    async with served(desk.workspace, env=desk.env) as other_window:
        await other_window.call("status")
        await _listening(desk, other_window.pid)
        os.kill(other_window.pid, signal.SIGSTOP)  # it accepts what comes and says nothing, much longer than 5 s
        try:
            answered = desk.ask(ABOUT_IT)
        finally:
            os.kill(other_window.pid, signal.SIGCONT)
        assert (answered.text, answered.stderr) == ("Fine.", "")
    settled(desk)
    assert said_in(desk, answered.session) == [ABOUT_IT, "Fine."]


async def _listening(desk: Desk, pid: int) -> None:
    from tests.end_to_end.servers import eventually

    async def listens() -> bool:
        try:
            return wire.read_address((desk.workspace / ".local" / wire.ADDRESS).read_bytes())[1] == pid
        except (OSError, ValueError):
            return False

    await eventually(listens)


async def test_another_windows_server_answers_for_one_whose_own_is_not_the_maintainer(desk: Desk) -> None:
    desk.ask(FACT)
    async with served(desk.workspace, env=desk.env) as other_window:
        await other_window.call("status")
        await _listening(desk, other_window.pid)
        answered = desk.ask(ABOUT_IT)
        assert "port 6543" in from_hooks(desk.api.asked[-1])
        again = desk.ask(ABOUT_IT, "--resume", answered.session)
        assert desk.api.asked[-1].everything.count("port 6543") == 1  # it is in the window already
    settled(desk)
    assert again.session == answered.session
    assert said_in(desk, answered.session) == [ABOUT_IT, "Fine."] * 2


def test_live_capture_and_then_a_full_import_of_the_same_transcripts_adds_nothing(desk: Desk) -> None:
    first = desk.ask("Please run it for me.", "--allowedTools", "Bash").session
    desk.ask("And what came of that?", "--resume", first)
    desk.ask("/compact", "--resume", first)
    desk.ask("What did we do last?", "--resume", first)
    desk.ask(FACT)
    settled(desk)
    held = turns(desk.workspace)
    counted = json.loads(desk.our("import", str(desk.home / ".claude" / "projects"), "--json"))
    assert (counted["new_turns"], counted["new_sessions"]) == (0, 0)
    assert turns(desk.workspace) == held
    spoken = said_in(desk, first)
    assert [line for line in spoken if line.endswith("?") or line.startswith("Please")] == [
        "Please run it for me.",
        "And what came of that?",
        "What did we do last?",
    ]
    assert any("ompact" in line for line in spoken)  # the boundary is there, the summary and the command are not
    assert not any("/compact" in line or FROM_HOOKS in line or "<system-reminder>" in line for line in spoken)
    whole = "".join(path.read_text() for path in (desk.workspace / "raw").rglob("*.md"))
    assert "> [tool:Bash]" in whole


def test_compact_writes_a_checkpoint_and_the_next_request_carries_it(desk: Desk, api: FakeAnthropic) -> None:
    with desk.window("--allowedTools", "Bash") as window:
        window.wait_for((desk.workspace / ".local" / wire.ADDRESS).exists, "the server to listen")
        for number, said in enumerate(("Which store shall the ledger have?", "yes, do it", OPEN, "now run it"), 1):
            window.type(said)
            window.wait_for(lambda least=number: len(api.asked) >= least, said)
            window.wait_for_text("Itissmall." if number == 1 else "●Fine.")
        window.type("/compact")
        window.wait_for_text("Compacted")
        before = len(api.asked)
        window.type("Where were we?")
        window.wait_for(lambda: len(api.asked) > before, "the request after the compaction")
        window.leave()
    (written,) = [path for path in (desk.workspace / "checkpoints").rglob("*.md") if "reason: hook" in path.read_text()]
    told = from_hooks(api.asked[before])
    for text in (written.read_text(), told):
        assert DECIDED in text
        assert OPEN.removeprefix("TODO: ") in text
        assert re.search(r"Bash \|? ?say so (→|\|) ran", text), "the last tool call"
    assert written.stem in told
    assert DECIDED not in from_hooks(api.asked[before - 1])


def test_a_compacted_session_that_is_resumed_carries_its_checkpoint(desk: Desk, api: FakeAnthropic) -> None:
    session = desk.ask("Which store shall the ledger have?").session
    for prompt in ("yes, do it", "/compact", "Where were we?"):
        desk.ask(prompt, "--resume", session)
    assert DECIDED in from_hooks(api.asked[-1])
    settled(desk)
    listed = json.loads(desk.our("checkpoint", "list", "--session", session, "--json"))
    assert {"hook", "compaction"} & {one["reason"] for one in listed}


async def test_a_topic_stands_in_the_request_of_the_prompt_that_its_watcher_matches_once_a_window(desk: Desk) -> None:
    (desk.workspace / "topics" / "berths.md").write_text(BERTHS)
    with desk.window() as window:
        window.wait_for((desk.workspace / ".local" / wire.ADDRESS).exists, "the server to listen")
        for number, prompt in enumerate((NOT_ABOUT_IT, "What does a berth cost?", "And in winter, a berth?"), 1):
            window.type(prompt)
            window.wait_for(lambda least=number: len(desk.api.asked) >= least, prompt)
            if number == 2:
                window.wait_for_text("memory: topic berths")
            window.wait_for_text("●Fine.")
        before, with_it, again = desk.api.asked
        window.type("/compact")
        window.wait_for_text("Compacted")
        number = len(desk.api.asked) + 1
        window.type("Is a berth heated?")
        window.wait_for(lambda: len(desk.api.asked) >= number, "the request after the compaction")
        window.wait_for_text("●Fine.")
        window.leave()
    compacted = desk.api.asked[-1]
    assert STEP not in before.everything
    assert STEP in from_hooks(with_it)
    assert again.everything.count(STEP) == 1  # it is in the window already
    assert from_hooks(compacted).count(STEP) == 1  # that is another window
    shown = json.loads(desk.our("last", "--json"))["last"]
    assert "topic berths" in shown["line"]
    assert shown["text"] in compacted.injected  # the exact bytes
    desk.ask("Where does one berth a boat?")
    assert STEP in from_hooks(desk.api.asked[-1])


def test_the_other_way_round_too(desk: Desk) -> None:
    plugin, desk.plugin = desk.plugin, desk.home  # no plugin at all
    first = desk.ask(FACT).session
    counted = json.loads(desk.our("import", str(desk.home / ".claude" / "projects"), "--json"))
    assert counted["new_turns"] == 2
    desk.plugin = plugin
    desk.ask(NOT_ABOUT_IT, "--resume", first)
    settled(desk)
    assert said_in(desk, first) == [FACT, "Fine.", NOT_ABOUT_IT, "Fine."]


def test_hooks_that_are_lost_for_three_turns_lose_nothing_once_one_comes_through(desk: Desk) -> None:
    session = desk.ask("Turn 0").session
    plugin, desk.plugin = desk.plugin, desk.home
    for number in range(1, 4):
        desk.ask(f"Turn {number}", "--resume", session)
    desk.plugin = plugin
    desk.ask("Turn 4", "--resume", session)
    settled(desk)
    assert said_in(desk, session)[::2] == [f"Turn {number}" for number in range(5)]
    assert said_in(desk, session)[1::2] == ["Fine."] * 5


def test_a_worktree_of_a_project_is_the_same_project(desk: Desk, tmp_path: Path) -> None:
    worktree = tmp_path / "another place" / "a worktree"
    identity = ("-c", "user.name=A", "-c", "user.email=a@b")
    for command in (
        ("init", "--quiet"),
        (*identity, "commit", "--quiet", "--allow-empty", "-m", "first"),
        ("worktree", "add", "--quiet", "-b", "side", str(worktree)),
    ):
        subprocess.run(["git", *command], cwd=desk.project, check=True, capture_output=True)
    desk.ask(FACT)
    desk.ask(ABOUT_IT, folder=worktree)
    assert "port 6543" in from_hooks(desk.api.asked[-1])
    other = tmp_path / "another place" / "another project"
    other.mkdir()
    (other / ".context-manager").write_text("name: another\n")
    desk.ask(ABOUT_IT, folder=other)
    assert "6543" not in desk.api.asked[-1].everything


def test_the_tool_hook_serves_the_events_that_a_client_can_give_to_a_tool(desk: Desk, tmp_path: Path) -> None:
    fields = ("session_id", "transcript_path", "cwd", "prompt", "source", "trigger", "last_assistant_message")

    def with_tools(servers: dict[str, Any], hooks: dict[str, Any]) -> None:
        for event in ("UserPromptSubmit", "PostToolUse", "Stop", "PreCompact", "PostCompact"):
            given = {"event": event, **{name: f"${{{name}}}" for name in fields}}
            call = {"type": "mcp_tool", "server": "plugin:context-manager:memory", "tool": "hook", "input": given}
            hooks[event] = [{"hooks": [{**call, "timeout": 20}]}]

    desk.plugin = variant(tmp_path / "tools", with_tools)
    session = desk.ask(FACT).session
    answered = desk.ask(ABOUT_IT)
    assert "port 6543" in from_hooks(desk.api.asked[-1])
    assert answered.stderr == ""
    settled(desk)
    assert said_in(desk, session) == [FACT, "Fine."]


def test_the_plugin_is_valid(desk: Desk) -> None:
    done = subprocess.run(
        [str(desk.claude), "plugin", "validate", str(ROOT / "plugin")], env=desk.env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Validation passed" in done.stdout
