"""Without a server, the hook command searches for a prompt itself; the server later knows what was sent."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from mcp_server.clients.adapters import ADAPTERS
from mcp_server.clients.hooks import command, listener, offline, protocol
from mcp_server.clients.hooks.events import handle, work
from mcp_server.clients.installers.entries import wanted
from mcp_server.clients.installers.plan import Launch
from mcp_server.context import briefs, windows
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.projects import project_of
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from tests.clients.hooks.asking import PATIENT, SESSION, Told, hook, listening, queued, responded, said
from tests.clients.hooks.boathouse import ASKED, FACT, FACTS, Open, log
from tests.clients.hooks.test_command import imported
from tests.clients.hooks.windows import pushed
from tests.conftest import project_folder
from tests.end_to_end.servers import READ_ONLY, eventually, mounting
from tests.serving import environment

pytestmark = pytest.mark.anyio

LINE = "The boathouse key was copied at the locksmith in Split."
IMPATIENT = {"CONTEXT_MANAGER_HOOK_SECONDS": "0.6"}


@pytest.fixture
async def on_disk(told: Memory, folder: Path) -> Memory:
    """The memory of the boathouse as a server leaves it on disk."""
    await briefs.know_folders(told, {str(folder): await project_of(told, Caller(folder=str(folder)))})
    await told.index.refresh()
    await briefs.refresh(told)
    return told


async def prompted(memory: Memory, folder: Path, prompt: str, session: str = SESSION, **environ: str) -> str:
    """Returns the text that the hook command adds to a prompt."""
    fields = {"prompt": prompt, "cwd": str(folder), "session_id": session}
    return pushed(await responded(memory.disk.root, "UserPromptSubmit", environ, **fields) or {})


async def test_a_prompt_gets_passages_with_its_words_and_the_user_sees_a_line(on_disk: Memory, folder: Path) -> None:
    output: Any = await responded(on_disk.disk.root, "UserPromptSubmit", prompt=ASKED, cwd=str(folder))
    assert FACT in pushed(output)
    assert output["systemMessage"].startswith("memory: 1 passage, about ")
    assert on_disk.tokens.count(pushed(output)) <= 200


async def test_a_prompt_about_something_else_gets_nothing(on_disk: Memory, folder: Path) -> None:
    about_something = ("write a haiku about autumn leaves", "what does a spare tire cost in Oslo?")
    for prompt in ("ok", "thanks", "/clear", "", "!ls key", *about_something):
        assert await prompted(on_disk, folder, prompt) == "", prompt


async def test_a_prompt_that_was_typed_before_gets_no_copy_of_itself(on_disk: Memory, folder: Path) -> None:
    asked = "write a haiku about the boathouse"
    await observe(on_disk, NewTurn("user", asked, "elsewhere"), Caller(folder=str(folder)))
    await sessions.end_session(on_disk, "elsewhere")
    await on_disk.index.refresh()
    assert asked not in await prompted(on_disk, folder, asked)


async def test_it_imports_only_fast_modules_of_the_standard_library(
    on_disk: Memory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(folder))
    loaded, printed = await run_sync(imported, on_disk.disk.root, "UserPromptSubmit", ASKED)
    assert FACT in pushed(json.loads(printed))
    slow = {"asyncio", "socket", "ssl", "typing", "pathlib", "dataclasses", "inspect", "logging", "subprocess", "numpy"}
    assert loaded & {"mcp", "pydantic", "anyio", *slow} == set()


async def test_neither_the_command_nor_a_later_server_repeats_a_text(
    on_disk: Memory, folder: Path, window: Open
) -> None:
    assert FACT in await prompted(on_disk, folder, ASKED)
    assert await prompted(on_disk, folder, ASKED) == "", "it reported what it printed"
    assert FACT not in await window(SESSION).prompt(ASKED)
    first = log(on_disk)[-1]
    assert FACT in first["text"]
    assert "no server was running" in first["why"]
    assert await listener.drain(on_disk, work) == 1
    assert await prompted(on_disk, folder, ASKED) == "", "the state knows it, too"
    assert FACT in await prompted(on_disk, folder, ASKED, "another-window")


async def test_lines_with_provenance_come_before_turns_and_project_lines_before_global_ones(
    on_disk: Memory, folder: Path
) -> None:
    (path,) = [stat.path for stat in on_disk.files.walk("raw/conversations/")]
    line = f"- 2026-02-01: {LINE} [src: {path}#1]\n"
    on_disk.files.write_atomic("knowledge/projects/boats/decisions.md", f"# Decisions\n\n{line}")
    on_disk.files.write_atomic("knowledge/reference/keys.md", f"# Keys\n\n{line.replace('Split', 'Zadar')}")
    await on_disk.index.refresh()
    text = await prompted(on_disk, folder, "the boathouse key")
    assert text.index("Split") < text.index("Zadar") < text.index("cellar door")
    assert "[src: " not in text
    assert on_disk.tokens.count(text) <= 200


async def test_a_replaced_line_stays_out(on_disk: Memory, folder: Path) -> None:
    (path,) = [stat.path for stat in on_disk.files.walk("raw/conversations/")]
    old = f"- 2026-02-01: We will paint the mooring buoy yellow. [src: {path}#1]\n"
    new = f"- 2026-02-03: We will no longer paint the mooring buoy yellow. [src: {path}#3]\n"
    on_disk.files.write_atomic("knowledge/projects/boats/decisions.md", f"# Decisions\n\n{old}")
    await on_disk.index.refresh()
    asked = "which color will the mooring buoy be painted?"
    assert "2026-02-01" in await prompted(on_disk, folder, asked, "before")
    on_disk.files.write_atomic("knowledge/projects/boats/decisions.md", f"# Decisions\n\n{old}{new}")
    await on_disk.index.refresh()
    assert "2026-02-01" not in await prompted(on_disk, folder, asked, "after")


async def test_another_projects_turns_stay_out(on_disk: Memory, folder: Path, tmp_path: Path) -> None:
    other = project_folder(tmp_path / "another place", "other")
    turn = NewTurn("user", "The harpoon hangs in the attic of the lighthouse.", "elsewhere")
    await observe(on_disk, turn, Caller(folder=str(other)))
    await sessions.end_session(on_disk, "elsewhere")
    await on_disk.index.refresh()
    assert await prompted(on_disk, folder, "where does the harpoon hang in the lighthouse?") == ""


async def test_five_new_facts_are_found_line_by_line(on_disk: Memory, folder: Path) -> None:
    for fact, _, _ in FACTS:
        await remember(on_disk, NewFact(fact, "fact"), Caller())
    await on_disk.index.refresh()
    for number, (fact, asked, _) in enumerate(FACTS):
        text = await prompted(on_disk, folder, asked, f"window-{number}")
        assert [known for known, _, _ in FACTS if known in text] == [fact]


async def test_a_pause_silences_it_too(on_disk: Memory, folder: Path) -> None:
    assert await prompted(on_disk, folder, ASKED, CONTEXT_MANAGER_PAUSE="1") == ""
    await windows.pause(on_disk)
    await briefs.refresh(on_disk)
    assert await prompted(on_disk, folder, ASKED) == ""
    await windows.resume(on_disk)
    await briefs.refresh(on_disk)
    assert FACT in await prompted(on_disk, folder, ASKED)


async def test_a_server_that_is_just_starting_is_not_waited_for_if_the_index_answers(
    on_disk: Memory, folder: Path
) -> None:
    protocol.mark_starting(str(on_disk.disk.local))
    with anyio.fail_after(25):  # it would wait for 30 s
        assert FACT in await prompted(on_disk, folder, ASKED)
    assert await prompted(on_disk, folder, "write a haiku about autumn leaves", **IMPATIENT) == ""


@pytest.mark.parametrize("prompt", [ASKED, "Where were we?"])
async def test_a_prompt_waits_for_a_starting_server_if_the_index_cannot_hold_what_it_is_about(
    on_disk: Memory, folder: Path, monkeypatch: pytest.MonkeyPatch, prompt: str
) -> None:
    monkeypatch.setattr(command, "STARTING_BUDGET", 30.0)
    protocol.mark_starting(str(on_disk.disk.local))
    if prompt == ASKED:  # about turns that are still in the queue
        fields = {"session_id": "earlier", "transcript_path": str(folder / "earlier.jsonl")}
        offline.enqueue(str(on_disk.disk.local), "SessionEnd", fields)
    answers: list[str] = []

    async def ask() -> None:
        said = {"prompt": prompt, "cwd": str(folder)}
        answers.append(pushed(await responded(on_disk.disk.root, "UserPromptSubmit", IMPATIENT, **said) or {}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.sleep(1.0)  # longer than the command waits otherwise
        tasks.start_soon(listener.listen, on_disk, Told())
        await eventually(lambda: answers)
        tasks.cancel_scope.cancel()
    assert answers == ["known at UserPromptSubmit"]


async def test_a_text_that_the_hook_did_not_wait_for_does_not_count_as_sent(on_disk: Memory, folder: Path) -> None:
    left = anyio.Event()

    async def slow(memory: Memory, event: str, given: Any) -> dict[str, object]:
        await left.wait()
        return await handle(memory, event, given)

    (on_disk.disk.local / "brief" / "index.json").unlink()  # so that the command has nothing to print itself
    async with listening(on_disk, slow):
        assert await prompted(on_disk, folder, ASKED, **IMPATIENT) == ""
        left.set()
        await eventually(lambda: log(on_disk) and "stopped waiting" in log(on_disk)[0]["why"])
        assert FACT in await prompted(on_disk, folder, ASKED)


@pytest.mark.parametrize("broken", ["index", "state", "pointer", "briefs"])
def test_broken_files_bring_nothing_in_and_the_prompt_goes_on(workspace: Path, broken: str) -> None:
    local = workspace / ".local"
    for folder in ("index", "brief"):
        (local / folder).mkdir(parents=True)
    (local / "brief" / "index.json").write_text("[" if broken == "briefs" else '{"": {"projects": []}}')
    (local / "index" / "memory-5-none.current").write_text("x" if broken == "pointer" else "1")
    (local / "index" / "memory-5-none-1.db").write_bytes(os.urandom(5000) if broken == "index" else b"")
    (local / "state.db").write_bytes(os.urandom(5000))
    done = hook(workspace, "UserPromptSubmit", given=said(prompt=ASKED))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


PLUGIN = """
const { ContextManager } = await import(process.env.PLUGIN)
const hooks = await ContextManager({ directory: process.env.FOLDER })
const parts = [{ id: "p", type: "text", text: process.env.PROMPT }]
await hooks["chat.message"]({ sessionID: "s" }, { parts })
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "s" } } })
console.log(JSON.stringify({ additionalContext: parts.slice(1).map((part) => part.text).join("\\n") }))
"""
"""Runs OpenCode's plugin with a prompt, and prints what the plugin added to the prompt."""


def as_client(client: str, root: Path, folder: Path, tmp_path: Path) -> list[list[str]]:
    """Returns the commands that a client starts, as installed: with a prompt, and when the answer is complete."""
    adapter = ADAPTERS[client]
    bin_folder = Path(sys.executable).parent
    launch = Launch((str(bin_folder / "context-manager-mcp"),), (str(bin_folder / "context-manager"),), root)
    if adapter.plugin:
        node = shutil.which("node")
        if node is None:
            pytest.skip("needs node on PATH")
        (tmp_path / "plugin.mjs").write_text(adapter.plugin(*launch.hook("EVENT", client=client)))
        return [[node, "--input-type=module", "-e", PLUGIN]]
    hooks = wanted(adapter, partial(launch.hook, client=client))
    named = {ours: hooks[event]["command"] for event, (ours, _) in adapter.events.items()}
    return [["sh", "-c", named[event]] for event in ("UserPromptSubmit", "Stop")]


@pytest.mark.parametrize(
    ("client", "trouble"),
    [
        *((client, "dead") for client in ADAPTERS),
        *(("codex", trouble) for trouble in ("hanging", "read-only", "paused")),
    ],
)
async def test_a_prompt_goes_on_without_a_server_that_answers(
    on_disk: Memory, folder: Path, tmp_path: Path, client: str, trouble: str
) -> None:
    root = on_disk.disk.root
    environ = {**PATIENT, "PLUGIN": str(tmp_path / "plugin.mjs"), "FOLDER": str(folder), "PROMPT": ASKED}
    prefix = mounting(READ_ONLY, root) if trouble == "read-only" else []
    if trouble == "paused":
        environ["CONTEXT_MANAGER_PAUSE"] = "1"
    async with AsyncExitStack() as stack:
        if trouble == "dead":
            (on_disk.disk.local / "run").mkdir()
            place = on_disk.disk.local / protocol.ADDRESS
            place.write_bytes(protocol.address("token", 1, f"unix {tmp_path / 'gone.sock'}"))
        elif trouble == "hanging":
            environ |= IMPATIENT

            async def hangs(event: str) -> dict[str, object]:
                await anyio.sleep_forever()
                return {}

            await stack.enter_async_context(listening(on_disk, Told(hangs)))
        printed = []
        for command in as_client(client, root, folder, tmp_path):
            given = said(prompt=ASKED, cwd=str(folder), hook_event_name="UserPromptSubmit")
            env = {**environment(root), **environ}
            done = await anyio.run_process([*prefix, *command], input=given, env=env, check=False)
            assert (done.returncode, done.stderr) == (0, b"")
            printed.append(json.loads(done.stdout or b"{}"))
    where = printed[0] if client in offline.FLAT else printed[0].get("hookSpecificOutput", {})
    assert (FACT in where.get("additionalContext", "")) == (trouble != "paused")
    assert printed[1:] in ([], [{}])
    kept = {name.partition("-Stop")[2] for name in queued(on_disk.disk.local) if "Stop" in name}
    assert kept == (set() if trouble == "read-only" else {".json"})
