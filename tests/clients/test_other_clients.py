"""Clients besides Claude Code: their transcripts (shortened files of the real programs) and their hooks."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mcp_server.checkpoints.stored import resume
from mcp_server.clients.adapters import ADAPTERS
from mcp_server.clients.hooks import command, listener, offline, protocol
from mcp_server.clients.hooks.events import handle, work
from mcp_server.clients.importers.recording import capture, continued_session
from mcp_server.clients.importers.run import conversations_in, import_path
from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.model import Caller
from prompts import RESUME
from tests.clients.hooks.asking import queued, said
from tests.clients.hooks.windows import ClaudeWindow
from tests.clients.importers.claude_code_files import SESSION, everything
from tests.conftest import project_folder
from tests.end_to_end.servers import transcripts, turns

pytestmark = pytest.mark.anyio

FILES = Path(__file__).parent / "importers" / "transcripts"
PLACES = {
    "codex": ".codex/sessions/2026/11/23/rollout-2026-11-23T00-08-38-01a205bb-b7cd-7ee0-8a08-04f83d39578c.jsonl",
    "gemini": ".gemini/tmp/proj/chats/session-2026-11-23T00-10-4e9529f7.jsonl",
    "qwen": ".qwen/projects/-home-ana-proj/chats/9709b404-de75-4274-8136-1e16a7b7f49d.jsonl",
    "copilot": ".copilot/session-state/aeb3ab0e-955f-4565-9725-eb97f8ccf4b2/events.jsonl",
}
SESSIONS = {
    "codex": "01a205bb-b7cd-7ee0-8a08-04f83d39578c",
    "gemini": "4e9529f7-9a4b-49ff-b5dc-c10a3bef76f8",
    "qwen": "9709b404-de75-4274-8136-1e16a7b7f49d",
    "copilot": "aeb3ab0e-955f-4565-9725-eb97f8ccf4b2",
    "opencode": "ses_1",
}
EACH = pytest.mark.parametrize("client", PLACES)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    for adapter in ADAPTERS.values():
        for folder in filter(None, (adapter.folder, adapter.data)):
            monkeypatch.delenv(folder.variable or "NOTHING", raising=False)
    return tmp_path / "home"


def written(home: Path, client: str) -> Path:
    """The client's transcript in its place."""
    file = home / PLACES[client]
    file.parent.mkdir(parents=True)
    shutil.copy(FILES / f"{client}.jsonl", file)
    return file


def spoken(memory: Memory, session: str) -> list[str]:
    """The first lines of a session's turns, from the files."""
    return [line for _, line in turns(memory.disk.root)[session]]


def is_the_conversation(lines: list[str]) -> bool:
    """Whether a user asked to run a command, a tool ran it, and the model said so."""
    asked, tool, answer = lines
    ran = tool.startswith("> [tool:") and "ran" in tool
    return asked.endswith(("run it", "run it now")) and ran and answer == "Fine."


@EACH
async def test_a_transcript_is_imported_with_its_tools_and_a_second_time_nothing_is_new(
    memory: Memory, home: Path, client: str
) -> None:
    file = written(home, client)
    report = await import_path(memory, file)
    assert (report.format, report.new_sessions, report.new_turns) == (client, 1, 3)
    assert is_the_conversation(spoken(memory, SESSIONS[client]))
    row = await sessions.require(memory, SESSIONS[client])
    assert row.project == "name:proj"
    adapter = ADAPTERS[client]
    again = await import_path(memory, adapter.transcripts_folder({}, home))
    assert (again.format, again.new_turns) == (client, 0)


@EACH
async def test_a_transcript_that_grows_line_by_line_is_recorded_once(memory: Memory, home: Path, client: str) -> None:
    file = written(home, client)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"")
    for line in lines:
        with file.open("ab") as opened:
            opened.write(line)
        await capture(memory, file, adapter=ADAPTERS[client])
    await capture(memory, file, adapter=ADAPTERS[client], stopped=True)
    assert is_the_conversation(spoken(memory, SESSIONS[client]))


@EACH
async def test_damaged_lines_are_left_out(memory: Memory, home: Path, client: str) -> None:
    file = written(home, client)
    odd: tuple[object, ...] = (None, 1, "text", [], {}, {"type": 1}, {"a": {"b": []}})
    kinds = [json.loads(line) for line in file.read_bytes().splitlines()]
    lines = [json.dumps(one | {key: other}) for one in kinds for key in one for other in odd]
    with file.open("a") as opened:
        opened.write("".join(f"{line}\n" for line in lines))
    await capture(memory, file, adapter=ADAPTERS[client], final=True)
    assert is_the_conversation(spoken(memory, SESSIONS[client])[:3])


async def test_text_that_hooks_added_is_not_recorded_as_the_users(memory: Memory, home: Path) -> None:
    file = written(home, "qwen")
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    added = "<qwen:user-prompt-submit-context>\nMemory compiled.\n</qwen:user-prompt-submit-context>"
    lines[0]["message"]["parts"].append({"text": added})
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    await import_path(memory, file)
    assert "Memory compiled" not in "".join(transcripts(memory.disk.root).values())


def database(home: Path) -> Path:
    """OpenCode's database with a session of three messages, and a subagent's session."""
    file = home / ".local/share/opencode/opencode.db"
    file.parent.mkdir(parents=True)
    with closing(sqlite3.connect(file)) as opened, opened:
        opened.executescript(
            "CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT, time_created INTEGER);"
            "CREATE TABLE message (id TEXT, session_id TEXT, data TEXT);"
            "CREATE TABLE part (id TEXT, message_id TEXT, data TEXT);"
        )
    return file


def add(file: Path, session: str, message: str, data: Mapping[str, Any], *parts: Mapping[str, Any]) -> None:
    data = {"time": {"created": 1795392634967, "completed": 1795392634999}, **data}
    with closing(sqlite3.connect(file)) as opened, opened:
        opened.execute("INSERT INTO message VALUES (?, ?, ?)", (message, session, json.dumps(data)))
        for number, part in enumerate(parts):
            opened.execute("INSERT INTO part VALUES (?, ?, ?)", (f"{message}-{number}", message, json.dumps(part)))


def opencode(home: Path) -> Path:
    file = database(home)
    with closing(sqlite3.connect(file)) as opened, opened:
        rows = [("ses_1", None, "/home/ana/proj", 1), ("ses_2", "ses_1", "/home/ana/proj", 2)]
        opened.executemany("INSERT INTO session VALUES (?, ?, ?, ?)", rows)
    state = {"status": "completed", "input": {"command": "echo ran"}, "output": "ran\n"}
    text: dict[str, Any] = {"type": "text", "text": "hi run it"}
    add(file, "ses_1", "msg_1", {"role": "user"}, text, {"type": "text", "synthetic": True, "text": "Memory compiled"})
    add(file, "ses_1", "msg_2", {"role": "assistant"}, {"type": "tool", "callID": "c", "tool": "bash", "state": state})
    add(file, "ses_2", "msg_3", {"role": "user"}, {"type": "text", "text": "Look at the boats."})
    return file


async def test_opencode_is_recorded_from_its_database_without_what_hooks_added(memory: Memory, home: Path) -> None:
    file = opencode(home)
    given = {"client": "opencode", "session_id": "ses_1", "cwd": "/home/ana/proj"}
    await handle(memory, "Stop", given)
    add(file, "ses_1", "msg_4", {"role": "assistant", "time": {"created": 1}}, {"type": "text", "text": "Fi"})
    await handle(memory, "Stop", given)
    assert len(spoken(memory, "ses_1")) == 2  # the last answer is not complete
    with closing(sqlite3.connect(file)) as opened, opened:
        opened.execute("DELETE FROM message WHERE id = 'msg_4'")
        opened.execute("DELETE FROM part WHERE message_id = 'msg_4'")
    add(file, "ses_1", "msg_4", {"role": "assistant"}, {"type": "text", "text": "Fine."})
    await handle(memory, "Stop", given)
    assert is_the_conversation(spoken(memory, "ses_1"))
    assert spoken(memory, "ses_1-agent-ses_2") == ["Look at the boats."]
    assert "Memory compiled" not in "".join(transcripts(memory.disk.root).values())
    assert conversations_in(file.parent, ADAPTERS["opencode"])[0] == 1
    report = await import_path(memory, file.parent)
    assert (report.format, report.new_turns) == ("opencode", 0)


async def test_copilot_names_its_transcript_only_at_the_end_of_an_answer_and_it_is_found_before(
    memory: Memory, home: Path
) -> None:
    written(home, "copilot")
    given = {"client": "copilot", "session_id": SESSIONS["copilot"], "cwd": "/home/ana/proj"}
    await handle(memory, "UserPromptSubmit", {**given, "prompt": "and now?"})
    assert len(spoken(memory, SESSIONS["copilot"])) == 3
    await handle(memory, "UserPromptSubmit", {**given, "session_id": "../../..", "prompt": "and now?"})
    assert list(turns(memory.disk.root)) == [SESSIONS["copilot"]]


async def test_gemini_answers_and_prompts_are_recorded_from_hooks_if_there_is_no_transcript(
    memory: Memory, home: Path
) -> None:
    given = {"client": "gemini", "session_id": "s", "cwd": "/home/ana/proj", "transcript_path": "/none"}
    added = "<hook_context>\nMemory compiled.\n</hook_context>\n"
    await handle(memory, "UserPromptSubmit", {**given, "prompt": f"{added}\nWhere is the key?"})
    await handle(memory, "Stop", {**given, "prompt_response": "In the drawer."})
    assert spoken(memory, "s") == ["Where is the key?", "In the drawer."]


async def tell_codex(memory: Memory, folder: Path, *facts: str) -> None:
    """A session of Codex in a folder, in which a user tells these facts."""
    told = {"client": "codex", "session_id": "a", "cwd": str(folder)}
    for number, fact in enumerate(facts):
        await handle(memory, "UserPromptSubmit", {**told, "prompt": fact})
        await handle(memory, "Stop", {**told, "last_assistant_message": f"Noted {number}."})
    await handle(memory, "SessionEnd", told)


async def test_a_fact_told_in_one_client_comes_into_the_others(memory: Memory, home: Path, tmp_path: Path) -> None:
    folder = project_folder(tmp_path / "boats", "boats")
    await tell_codex(memory, folder, "The key of the boat house hangs behind the cellar door.", "We paint in June.")
    for client in ADAPTERS:
        asked = {"client": client, "session_id": f"in {client}", "cwd": str(folder)}
        output = await handle(
            memory, "UserPromptSubmit", {**asked, "prompt": "Where does the key of the boat house hang?"}
        )
        where: Any = output if client in offline.FLAT else output["hookSpecificOutput"]
        assert "behind the cellar door" in where["additionalContext"], client
        assert set(output) <= {"additionalContext"} or set(output) == {"hookSpecificOutput", "systemMessage"}


async def test_claude_codes_hook_that_copilot_runs_neither_records_nor_injects(memory: Memory) -> None:
    root = memory.disk.root
    fields = {"transcript_path": "/home/ana/.copilot/session-state/s/events.jsonl"}
    environ = {"COPILOT_CLI": "1"}
    for given in ({}, fields):
        for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
            assert command.respond(event, said(prompt="the boats", **given), str(root), environ) == ""
    assert queued(memory.disk.local) == []
    own = command.respond("Stop", said(**fields), str(root), environ, client="copilot")
    assert (own, len(queued(memory.disk.local))) == ("", 1)
    claude = {"transcript_path": "/home/ana/.claude/projects/x/s.jsonl"}  # Claude Code in Copilot's shell
    command.respond("SessionEnd", said(**claude), str(root), environ)
    assert len(queued(memory.disk.local)) == 2


@pytest.mark.parametrize("is_meta", [True, False], ids=["a prompt that the client marks", "a prompt as typed"])
async def test_a_conversation_begun_in_codex_and_resumed_elsewhere_is_one_session(
    memory: Memory, home: Path, is_meta: bool
) -> None:
    session = SESSIONS["codex"]
    await import_path(memory, written(home, "codex"))
    elsewhere = ClaudeWindow(memory, home / ".claude/projects", home, "11111111-2222-3333-4444-555555555555")
    await elsewhere.prompt("Do the boats float?", "They float.")
    resumed = await resume(memory, session, Caller())
    elsewhere.write("user", RESUME.format(session=session, earlier="", compiled=resumed.compiled.text), isMeta=is_meta)
    elsewhere.write("assistant", "We ran it.")
    await elsewhere.hook("Stop")
    await elsewhere.prompt("Then paint the boats blue.", "Painted.")
    await elsewhere.hook("SessionEnd")
    apart, together = spoken(memory, elsewhere.session), spoken(memory, session)
    assert apart == ["Do the boats float?", "They float."]
    assert is_the_conversation(together[:3])
    assert together[3:] == ["We ran it.", "Then paint the boats blue.", "Painted."]
    assert (await sessions.require(memory, session)).status == "closed"
    assert (await import_path(memory, elsewhere.transcript, anew=True)).new_turns == 0
    assert (await resume(memory, session, Caller())).checkpoint.turn == 6


async def test_a_program_that_runs_the_hooks_of_two_clients_is_recorded_and_told_once(
    memory: Memory, home: Path, tmp_path: Path
) -> None:
    folder = project_folder(tmp_path / "boats", "boats")
    await tell_codex(memory, folder, "The key of the boat house hangs behind the cellar door.")
    fields = {"session_id": "in-vscode", "cwd": str(folder), "transcript_path": str(tmp_path / "chat.json")}
    (tmp_path / "chat.json").write_text("{}")
    texts = ""
    for question in ("Where does the key of the boat house hang?", "Continue.", "Continue."):
        for event, more in (
            ("SessionStart", {"source": "new"}),
            ("UserPromptSubmit", {"prompt": question}),
            ("Stop", {"last_assistant_message": "Done."}),
        ):
            for client in ("claude-code", "copilot"):
                texts += json.dumps(await handle(memory, event, {**fields, **more, "client": client}))
    assert texts.count("behind the cellar door") == 1
    assert spoken(memory, "in-vscode") == [
        "Where does the key of the boat house hang?",
        "Done.",
        *(["Continue.", "Done."] * 2),
    ]


@pytest.mark.parametrize("client", protocol.CLIENT_FOLDERS)
async def test_a_client_with_a_folder_of_its_own_is_recorded_by_a_server_that_does_not_know_the_variable(
    memory: Memory, home: Path, tmp_path: Path, client: str
) -> None:
    adapter = ADAPTERS[client]
    folder, elsewhere = adapter.data or adapter.folder, tmp_path / "elsewhere"
    assert folder.variable == protocol.CLIENT_FOLDERS[client]
    if client == "opencode":
        file = opencode(home)
    elif client == "claude-code":
        file = everything().write(home / ".claude" / "projects")
    else:
        file = written(home, client)
    moved = folder.of({folder.variable: str(elsewhere)}, home)
    moved.parent.mkdir(parents=True, exist_ok=True)
    (home / folder.default).rename(moved)
    fields = {"session_id": SESSIONS.get(client, SESSION), "cwd": str(tmp_path)}
    fields["transcript_path"] = str(moved / file.relative_to(home / folder.default))
    given = json.dumps(fields).encode()
    command.respond("Stop", given, str(memory.disk.root), {folder.variable: str(elsewhere)}, client=client)
    assert await listener.drain(memory, work) == 1
    assert len(spoken(memory, fields["session_id"])) >= 2


async def test_a_conversation_that_is_resumed_in_opencode_stays_one_session(memory: Memory, home: Path) -> None:
    await import_path(memory, written(home, "codex"))
    file = opencode(home)
    given = {"client": "opencode", "session_id": "ses_1", "cwd": "/home/ana/proj"}
    resumed = await resume(memory, SESSIONS["codex"], Caller())
    prompt = RESUME.format(session=SESSIONS["codex"], earlier="", compiled=resumed.compiled.text)
    add(file, "ses_1", "msg_4", {"role": "user"}, {"type": "text", "text": prompt})
    add(file, "ses_1", "msg_5", {"role": "assistant"}, {"type": "text", "text": "We ran it."})
    await handle(memory, "Stop", given)
    add(file, "ses_1", "msg_6", {"role": "user"}, {"type": "text", "text": "Paint the boats."})
    add(file, "ses_1", "msg_7", {"role": "assistant"}, {"type": "text", "text": "Painted."})
    await handle(memory, "Stop", given)
    assert len(spoken(memory, "ses_1")) == 2
    assert await continued_session(memory, ADAPTERS["opencode"], file, "ses_1") == SESSIONS["codex"]
    assert spoken(memory, SESSIONS["codex"])[3:] == ["We ran it.", "Paint the boats.", "Painted."]
    assert (await import_path(memory, file.parent, anew=True)).new_turns == 0
