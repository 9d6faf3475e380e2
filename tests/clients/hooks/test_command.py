"""The hook command: quick, never in the way, and nothing is lost when no server listens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from mcp_server.app import open_memory
from mcp_server.clients.hooks import command, listener, offline, protocol
from mcp_server.clients.hooks.offline import LONGEST_TEXT
from mcp_server.memory import Memory
from tests.clients.hooks.asking import SESSION, Told, hook, injecting, listening, queued, responded, said
from tests.end_to_end.servers import eventually
from tests.preloaded import COMMAND
from tests.running import printed
from tests.serving import PLAIN

pytestmark = pytest.mark.anyio


def imported(workspace: Path, event: str, prompt: str = "what do we know of the boats") -> tuple[set[str], bytes]:
    """The packages that the command loads for an event beyond those of a Python that does nothing (a system's hooks,
    coverage), and what it prints."""

    def run(code: str) -> tuple[set[str], bytes]:
        done = subprocess.run(
            [sys.executable, "-IXimporttime", "-c", code],
            input=said(prompt=prompt),
            capture_output=True,
            env={**os.environ, "CONTEXT_MANAGER_HOME": str(workspace)},
            check=True,
        )
        lines = done.stderr.decode().splitlines()
        assert [line for line in lines if not line.startswith("import time:")] == []
        return {line.rpartition("|")[2].strip().split(".")[0] for line in lines[1:]}, done.stdout

    start = f"import sys; sys.path[:0] = {sys.path!r}; sys.argv = ['', 'hook', {event!r}]; "
    loaded, printed = run(f"{start}from mcp_server.cli.start import main; main()")
    return loaded - run("pass")[0], printed


async def test_a_prompt_that_a_server_answers_is_passed_on_unread(memory: Memory) -> None:
    async with listening(memory, Told()):
        loaded, printed = await anyio.to_thread.run_sync(imported, memory.disk.root, "UserPromptSubmit")
    assert json.loads(printed) == injecting("UserPromptSubmit", "known at UserPromptSubmit")
    assert loaded & {"json", "re", "enum", "functools", "collections"} == set()


def test_it_imports_nothing_heavy(workspace: Path) -> None:
    workspace.mkdir()
    loaded, _ = imported(workspace, "Stop")
    assert loaded - set(sys.stdlib_module_names) == {"mcp_server"}
    slow = {
        "asyncio",
        "socket",
        "ssl",
        "typing",
        "pathlib",
        "dataclasses",
        "inspect",
        "logging",
        "subprocess",
        "tempfile",
    }
    assert loaded & slow == set()
    assert queued(workspace / ".local") == [f"{SESSION}-Stop.json"]


async def test_the_answer_of_a_listening_server_is_printed(memory: Memory) -> None:
    told = Told()
    root = memory.disk.root
    async with listening(memory, told):
        printed = await responded(root, "UserPromptSubmit", {"CLAUDE_PROJECT_DIR": "/a b"}, prompt="hm", cwd="/a b/c")
    assert printed == injecting("UserPromptSubmit", "known at UserPromptSubmit")
    assert told.events == [
        ("UserPromptSubmit", {"session_id": SESSION, "prompt": "hm", "cwd": "/a b/c", "project_dir": "/a b"})
    ]


async def test_as_a_process_it_does_the_same_whatever_stands_before_its_name(memory: Memory, tmp_path: Path) -> None:
    root = memory.disk.root
    async with listening(memory, Told()):
        by_home = await anyio.to_thread.run_sync(lambda: hook(root, "Stop", given=said()))
        by_option = await anyio.run_process(
            [sys.executable, "-c", COMMAND, "--workspace", str(root), "hook", "SessionStart"],
            input=said(),
            env={**os.environ, "CONTEXT_MANAGER_HOME": str(tmp_path / "other")},
        )
        unnamed = await anyio.to_thread.run_sync(lambda: hook(root, given=said(hook_event_name="PreCompact")))
    assert json.loads(by_home.stdout) == injecting("Stop", "known at Stop")
    assert json.loads(by_option.stdout) == injecting("SessionStart", "known at SessionStart")
    assert json.loads(unnamed.stdout) == injecting("PreCompact", "known at PreCompact")


def test_garbage_and_a_missing_workspace_are_met_with_silence(workspace: Path) -> None:
    for event in ("UserPromptSubmit", "SessionStart", "Stop", "SomethingNew"):
        for given in (b"no json", b"", b"[1]", b'"\xff"', b'{"session_id": 7, "prompt": ["x"]}', b"[" * 9000):
            assert command.respond(event, given, str(workspace), {}) == ""
    done = hook(workspace, "Stop", given=b"no json")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not workspace.exists()


async def test_the_first_session_of_all_may_end_before_its_workspace_is_made(workspace: Path) -> None:
    assert await responded(workspace / "deep", "SessionEnd", transcript_path="/t.jsonl") is None
    assert queued(workspace / "deep" / ".local") == [f"{SESSION}-SessionEnd.json"]
    assert workspace.stat().st_mode & 0o077 == 0
    told = Told()
    async with open_memory(workspace / "deep", PLAIN) as memory:
        assert await listener.drain(memory, told) == 1
        assert memory.problems() == ()
    assert told.names == ["SessionEnd"]


async def test_without_a_server_the_work_is_queued_and_prompts_get_nothing(workspace: Path) -> None:
    workspace.mkdir()
    for event in ("UserPromptSubmit", "PostToolUse", "Stop", "Stop", "PreCompact", "PostCompact", "SessionEnd"):
        assert await responded(workspace, event, transcript_path="/t.jsonl", prompt="secret words", reason="x") is None
    names = queued(workspace / ".local")
    assert names == [f"{SESSION}-{event}.json" for event in ("PostCompact", "PreCompact", "SessionEnd", "Stop")]
    folder = workspace / ".local" / protocol.QUEUE
    kept = json.loads((folder / f"{SESSION}-SessionEnd.json").read_text())
    assert kept["given"] == {"session_id": SESSION, "transcript_path": "/t.jsonl", "reason": "x"}
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / names[0]).stat().st_mode & 0o077 == 0


async def test_who_asks_why_nothing_comes_is_told_on_stderr(workspace: Path, memory: Memory) -> None:
    debug = {"CONTEXT_MANAGER_HOOK_DEBUG": "1"}
    for root, why in ((workspace / "nowhere", b"no memory in"), (memory.disk.root, b"no server is running")):
        done = await anyio.to_thread.run_sync(partial(hook, root, "UserPromptSubmit", given=said(), env=debug))
        assert (done.returncode, done.stdout) == (0, b"")
        assert why in done.stderr
        assert done.stderr.count(b"\n") == 1


async def test_a_session_end_that_the_server_handles_is_not_queued_even_if_the_server_takes_it_from_there(
    memory: Memory,
) -> None:
    async def drains(event: str) -> dict[str, object]:
        assert await listener.drain(memory, Told()) == 1
        return {}

    for told in (Told(), Told(drains)):
        async with listening(memory, told):
            await responded(memory.disk.root, "SessionEnd", reason="other")
        assert queued(memory.disk.local) == []


async def test_a_server_that_stalls_is_left_and_the_work_is_queued(memory: Memory) -> None:
    asked = anyio.Event()

    async def stalls(event: str) -> dict[str, object]:
        asked.set()
        await anyio.sleep_forever()
        return {}

    briefs = memory.disk.local / "brief"
    briefs.mkdir()
    (briefs / "index.json").write_text("{}")
    (briefs / "global.md").write_text("something that is kept ready")
    hasty = {"CONTEXT_MANAGER_HOOK_SECONDS": "0.5"}
    async with listening(memory, Told(stalls)):
        assert await responded(memory.disk.root, "Stop", hasty) is None
        assert asked.is_set()
        assert await responded(memory.disk.root, "SessionStart", hasty, session_id="another") is not None
    report, stop = queued(memory.disk.local)[::-1]
    assert (report[:21], stop) == ("another-SessionStart-", f"{SESSION}-Stop.json")


async def test_a_stale_address_and_a_strangers_are_no_server(workspace: Path) -> None:
    run = workspace / ".local" / "run"
    run.mkdir(parents=True)
    for address in (
        "",
        "\n\n",
        "t\n1\nunix",
        "t\nx\nunix /x",
        "t\n1\nunix /nowhere/x.sock",
        "t\n1\nport 1",
        "t\n1\nport x",
    ):
        (run / "hooks").write_text(address)
        assert await responded(workspace, "UserPromptSubmit", prompt="x") is None


async def test_a_prompt_waits_for_a_server_that_is_just_starting(memory: Memory) -> None:
    protocol.mark_starting(str(memory.disk.local))
    address = memory.disk.local / protocol.ADDRESS
    answers: list[object] = []
    asked = anyio.Event()

    async def prompt() -> None:
        answers.append(await responded(memory.disk.root, "UserPromptSubmit", prompt="x"))

    async def turn_away(client: SocketStream) -> None:
        await client.aclose()
        asked.set()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as nobody, anyio.create_task_group() as tasks:
        tasks.start_soon(nobody.serve, turn_away)
        address.write_bytes(protocol.address("", 1, f"port {nobody.extra(SocketAttribute.local_port)}"))
        tasks.start_soon(prompt)
        with anyio.fail_after(60):
            await asked.wait()
            tasks.start_soon(listener.listen, memory, Told())
            await eventually(lambda: answers)
        tasks.cancel_scope.cancel()
    assert answers == [injecting("UserPromptSubmit", "known at UserPromptSubmit")]
    assert list((memory.disk.local / "run").glob("starting-*")) == []


def test_a_server_that_died_while_starting_is_not_waited_for(workspace: Path) -> None:
    local = workspace / ".local"
    (local / "run").mkdir(parents=True)
    died = subprocess.Popen([sys.executable, "-c", ""])
    died.wait()
    (local / "run" / f"starting-{died.pid}").touch()
    assert not protocol.is_starting(str(local))
    (local / "run" / f"starting-{os.getpid()}").touch()
    assert protocol.is_starting(str(local))
    os.utime(local / "run" / f"starting-{os.getpid()}", (1, 1))
    assert not protocol.is_starting(str(local))


def test_a_server_says_that_it_starts_before_it_loads_what_takes_long(workspace: Path) -> None:
    (workspace / ".local").mkdir(parents=True)
    (workspace / "memory-config.yaml").touch()
    program = """
import os, sys
from mcp_server.__main__ import main
from mcp_server.clients.hooks import protocol

def imported(event, arguments):
    if event == "import" and arguments[0] in ("anyio", "mcp", "pydantic"):
        print(arguments[0], protocol.is_starting(sys.argv[2] + "/.local"), flush=True)
        os._exit(0)

sys.addaudithook(imported)
main()
"""
    command = [sys.executable, "-c", program, "--workspace", str(workspace)]
    assert printed(command).split()[1:] == ["True"]


async def test_a_session_start_without_a_server_prints_the_brief_that_is_ready(workspace: Path, tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "a project", tmp_path / "elsewhere"
    (project / "deep").mkdir(parents=True)
    elsewhere.mkdir()
    briefs = workspace / ".local" / "brief"
    briefs.mkdir(parents=True)
    (briefs / "index.json").write_text(json.dumps({os.path.realpath(project): {"brief": "boats.md", "projects": []}}))
    (briefs / "boats.md").write_text("The boats are in harbour.\n")
    (briefs / "global.md").write_text("Nothing in particular: naïve ✓\n")
    ours = await responded(workspace, "SessionStart", cwd=str(project / "deep"), source="startup")
    other = await responded(workspace, "SessionStart", cwd=str(elsewhere))
    assert ours["hookSpecificOutput"]["additionalContext"] == "The boats are in harbour.\n"
    assert other["hookSpecificOutput"]["additionalContext"] == "Nothing in particular: naïve ✓\n"
    reported = [entry["given"]["printed"] for entry in offline.reports(str(workspace / ".local"), SESSION)]
    assert reported == ["The boats are in harbour.\n", "Nothing in particular: naïve ✓\n"]
    (briefs / "global.md").write_text("far too long " * 1000)
    assert await responded(workspace, "SessionStart", cwd=str(elsewhere)) is None


async def test_the_variable_that_pauses_brings_nothing_in_and_still_records(memory: Memory) -> None:
    paused = {protocol.PAUSE_VARIABLE: "1"}
    told = Told()
    briefs = memory.disk.local / "brief"
    briefs.mkdir()
    (briefs / "index.json").write_text("{}")
    (briefs / "global.md").write_text("something")
    assert await responded(memory.disk.root, "SessionStart", paused) is None
    async with listening(memory, told):
        assert await responded(memory.disk.root, "UserPromptSubmit", paused, prompt="x") is None
        assert await responded(memory.disk.root, "SessionStart", {protocol.PAUSE_VARIABLE: "0"}) is not None
    assert told.events[0][1]["paused"] is True
    assert "paused" not in told.events[1][1]


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("  local_dir: null   # Folder for index", ".local"),
        ('  local_dir: "/quoted dir"', "/quoted dir"),
        ("  local_dir: beside # relative", "beside"),
        ("", ".local"),
    ],
)
def test_a_local_folder_that_was_moved_is_found(workspace: Path, line: str, folder: str) -> None:
    (workspace / ".local").mkdir(parents=True)
    (workspace / ".local" / "settings.yaml").write_text(f"workspace:\n{line}\n")
    (workspace / "memory-config.yaml").write_text("workspace:\n  local_dir: /elsewhere\n")
    assert command.local_folder(str(workspace), {}) == os.path.join(workspace, folder)  # noqa: PTH118
    assert command.local_folder(str(workspace), {"CONTEXT_MANAGER_WORKSPACE__LOCAL_DIR": "/x"}) == "/x"


async def test_it_looks_where_the_memory_itself_keeps_its_local_files(workspace: Path, tmp_path: Path) -> None:
    async with open_memory(workspace, PLAIN) as memory:
        assert command.local_folder(str(workspace), {}) == str(memory.disk.local)
    config = workspace / ".local" / "settings.yaml"
    config.write_text(config.read_text().replace("local_dir: null", f"local_dir: {tmp_path / 'moved away'}"))
    async with open_memory(workspace, PLAIN) as memory:
        assert command.local_folder(str(workspace), {}) == str(memory.disk.local) == str(tmp_path / "moved away")


async def test_what_is_said_arrives_as_it_was_said(memory: Memory) -> None:
    told = Told()
    surroundings = {
        "CLAUDE_PROJECT_DIR": "/with\nan end of line/and bytes \udcff",
        protocol.WINDOW_VARIABLE: "/näh/w.sock",
    }
    odd = ("two\nlines\r\n", "nul \0 and \0\0\0\0\0\0 more", "half a pair \ud83d", "naïve ✓ 🦉", '"}\n{"', " ")
    async with listening(memory, told):
        for prompt in odd:
            await responded(memory.disk.root, "UserPromptSubmit", surroundings, prompt=prompt, extra=["not", "ours"])
    seen = {"session_id": SESSION, "project_dir": surroundings["CLAUDE_PROJECT_DIR"], "window": "/näh/w.sock"}
    assert told.events == [("UserPromptSubmit", {**seen, "prompt": prompt}) for prompt in odd]


async def test_an_answer_that_breaks_off_is_none(memory: Memory) -> None:
    answers = [b'{"hookSpecificOutput": {"hookEventN', b"HTTP/1.1 400 Bad Request\r\n", b"\xff{}\n", b""]

    async def break_off(client: SocketStream) -> None:
        async with client:
            await client.send(answers.pop())

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as strange, anyio.create_task_group() as tasks:
        tasks.start_soon(strange.serve, break_off)
        place = memory.disk.local / protocol.ADDRESS
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(protocol.address("", 1, f"port {strange.extra(SocketAttribute.local_port)}"))
        while answers:
            assert await responded(memory.disk.root, "UserPromptSubmit", prompt="x") is None
        tasks.cancel_scope.cancel()


async def test_long_texts_are_cut_and_a_tools_response_stays_at_home(memory: Memory) -> None:
    told = Told()
    async with listening(memory, told):
        done = await anyio.to_thread.run_sync(
            lambda: hook(
                memory.disk.root,
                "PostToolUse",
                given=said(prompt="é" * 1_000_000, tool_name="Bash", tool_response={"stdout": "x" * 1_000_000}),
            )
        )
    assert json.loads(done.stdout)
    ((_, given),) = told.events
    assert given["prompt"] == "é" * LONGEST_TEXT
    assert given["tool_name"] == "Bash"
    assert "tool_response" not in given


def test_it_is_in_the_help_and_its_own_help_is_clicks(workspace: Path) -> None:
    done = hook(workspace, "--help", given=b"")
    assert b"SessionStart" in done.stdout


def test_a_prompt_waits_no_longer_for_a_starting_server_than_for_any_other(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = workspace / ".local" / "run"
    run.mkdir(parents=True)
    (run / f"starting-{os.getpid()}").touch()
    clock = SimpleNamespace(now=0.0)
    passing = SimpleNamespace(
        monotonic=lambda: clock.now, sleep=lambda seconds: setattr(clock, "now", clock.now + seconds)
    )
    monkeypatch.setattr(command, "time", passing)
    assert command.respond("UserPromptSubmit", b"{}", str(workspace), {}) == ""
    assert command.BUDGET <= clock.now < command.BUDGET + 0.1
