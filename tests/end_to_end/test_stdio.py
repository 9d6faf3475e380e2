"""Real server processes over stdio, driven by a real client, in both protocol eras."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.end_to_end.servers import CALLS, facts, transcripts, turns
from tests.preloaded import context_manager, python
from tests.running import printed
from tests.serving import ROOT, call, environment, heard, process, resource, say

pytestmark = pytest.mark.anyio


async def test_two_chats_interleaved_over_one_connection_stay_apart(tmp_path: Path) -> None:
    async with process(tmp_path, client="claude-ai") as client:
        boat = await say(client, "I keep a blue boat in Senj.", delivery="replace")
        cake = await say(client, "Which cake shall I bake?", delivery="replace")
        assert await say(client, "A fine harbour.", "agent", session=boat) == boat
        assert await say(client, "A plum cake.", "agent", session=cake) == cake
        assert await say(client, "And where do I moor it?", session=boat) == boat
        with_boat = await resource(client, f"context://compiled/{boat}")
        with_cake = await resource(client, f"context://compiled/{cake}")
    first, second = sorted(transcripts(tmp_path).values(), key=lambda written: "cake" in written)
    assert "boat" in first
    assert "cake" not in first
    assert "cake" in second
    assert "boat" not in second
    assert "moor" in with_boat
    assert "moor" not in with_cake


async def test_the_same_turn_by_tool_by_cli_and_after_a_restart_is_stored_once(tmp_path: Path) -> None:
    turn = {"role": "user", "content": "continue", "session": "s", "turn_id": "t1"}
    async with process(tmp_path) as client:
        assert "recorded" in await call(client, "observe", **turn)
        done = await anyio.run_process(
            context_manager("observe", "continue", "--session", "s", "--turn-id", "t1"),
            cwd=str(ROOT),
            env=environment(tmp_path),
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert b"already recorded" in done.stdout
    async with process(tmp_path) as client:
        assert "already recorded" in await call(client, "observe", **turn)
        assert "turn 2 recorded" in await call(client, "observe", **{**turn, "turn_id": "t2"})
    (transcript,) = transcripts(tmp_path).values()
    assert transcript.count("\ncontinue\n") == 2


async def test_a_modern_client_hears_of_an_edit_by_hand_and_of_another_process(tmp_path: Path) -> None:
    uri = "context://compiled/s"
    async with process(tmp_path) as client:
        await say(client, "Hello", session="s")
        async with client.listen(resource_subscriptions=[uri]) as events:
            await settled(events)
            (tmp_path / "knowledge" / "memory" / "MEMORY.md").write_text("# Memory\n\n- The boat is blue.\n")
            await heard(events, uri)
            await settled(events)
            async with process(tmp_path) as other:
                await say(other, "I keep a blue boat in Senj.", session="t")
                await heard(events, uri)


async def settled(events: object) -> None:
    while True:
        with anyio.move_on_after(1.5):
            await anext(events)  # type: ignore[call-overload]
            continue
        return


HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


async def test_a_folder_with_its_own_tools_package_does_not_get_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "here" / "tools").mkdir(parents=True)
    (tmp_path / "here" / "tools" / "__init__.py").write_text("raise RuntimeError('somebody else’s tools')\n")
    async with process(tmp_path / "workspace", cwd=tmp_path / "here", fresh=True) as client:
        assert len((await client.list_tools()).tools) == 10


def test_importing_the_rim_loads_nothing_heavy_and_all_of_a_server_neither_the_page_nor_postgresql(
    tmp_path: Path,
) -> None:
    heavy = {
        *("aiosqlite", "git", "numpy", "rank_bm25", "rich", "ruamel", "sqlite_vec", "tiktoken", "watchfiles"),
        "wordllama",
    }
    code = """
import sys, mcp.server.stdio
before = set(sys.modules)
import mcp_server.serve.server, mcp_server.app
print(*set(sys.modules) - before)
import anyio, mcp_server.serve as serve
serve._load()
async def open_it():
    async with mcp_server.app.open_memory(sys.argv[1], {}):
        print(*sys.modules)
anyio.run(open_it)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "memory")]
    of_rim, of_server = (line.split() for line in printed(command, cwd=ROOT).splitlines())
    assert not {*of_rim} & heavy
    assert "mcp_server.context.compile" in of_server
    left_out = ("mcp_server.page", "jinja2", "markupsafe", "psycopg")
    assert not [name for name in of_server if name.startswith(left_out)]


class Raw:
    """A server process at the other end of two pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._in, self.out = process, process.stdin, process.stdout

    def send(self, *lines: bytes) -> None:
        self._in.write(b"".join(line + b"\n" for line in lines))
        self._in.flush()

    def ask(self, number: int, tool: str, **arguments: Any) -> bytes:
        """The line of a call."""
        message = {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        return json.dumps(message).encode()

    def answer(self, number: int) -> dict[str, Any]:
        """The answer to a call; what comes before it is skipped."""
        for line in self.out:
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == number:
                return message
        raise AssertionError("the server has gone")

    def leave(self) -> int:
        """Closes stdin and waits for the end."""
        self._in.close()
        return self.process.wait(timeout=60)


@contextmanager
def raw(root: Path) -> Iterator[Raw]:
    log = root.parent / "stderr.log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            python("-m", "mcp_server"),
            cwd=root.parent,
            env=environment(root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        ) as process,
    ):
        server = Raw(process)
        try:
            server.send(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HANDSHAKE}).encode())
            server.answer(0)
            server.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
            yield server
        finally:
            process.kill()
    assert "Traceback" not in log.read_text(), log.read_text()


def test_the_end_of_stdin_in_the_middle_of_calls_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    with raw(root) as server:
        server.send(
            *(
                server.ask(n, "observe", role="user", content=f"t{n} said", session="s", turn_id=f"t{n}")
                for n in range(1, CALLS)
            ),
            *(server.ask(1000 + n, "remember", content=f"f{n} holds.", project="global") for n in range(1, CALLS)),
        )
        first = server.answer(1)
        assert not first["result"].get("isError"), first
        assert server.leave() == 0, "the server ends"
        answered = {1} | {json.loads(line)["id"] for line in server.out if "result" in json.loads(line)}
    stored, known = turns(root)["s"], facts(root)
    contents = [content for _, content in stored]
    assert [number for number, _ in stored] == list(range(1, len(stored) + 1))
    assert len(set(contents)) == len(contents)
    assert {f"t{n} said" for n in answered if n < 1000} <= set(contents)
    assert {f"f{n - 1000} holds." for n in answered if n >= 1000} <= known.keys()
    assert set(known.values()) <= {1}
    with raw(root) as server:  # a client that comes back sends all of it again
        for n in range(1, CALLS):
            server.send(server.ask(n, "observe", role="user", content=f"t{n} said", session="s", turn_id=f"t{n}"))
            assert not server.answer(n)["result"].get("isError")
        assert server.leave() == 0
    assert sorted(content for _, content in turns(root)["s"]) == sorted(f"t{n} said" for n in range(1, CALLS))


def test_nonsense_between_calls_is_answered_or_ignored_and_the_next_call_is_served(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    nonsense = [
        b"not json at all",
        b"{}",
        b"[]",
        b"null",
        b'{"jsonrpc": "2.0", "id": 1}',
        b'{"jsonrpc": "2.0", "id": 2, "method": "tools/call"}',
        b'{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "no_such_tool", "arguments": {}}}',
        b'{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "observe", "arguments": [1]}}',
        b'{"jsonrpc": "2.0", "id": 5, "method": "no/such/method"}',
        b"\xff\xfe\x00 bytes",
        b"\0\0\0",
        b"",
        b'{"jsonrpc": "2.0", "id": 6, "method": ' + b"[" * 5000,
    ]
    with raw(root) as server:
        for number, line in enumerate(nonsense, start=100):
            server.send(line, server.ask(number, "observe", role="user", content=f"after {number}", session="s"))
            assert not server.answer(number)["result"].get("isError")
        assert server.leave() == 0
    assert [content for _, content in turns(root)["s"]] == [f"after {n}" for n in range(100, 100 + len(nonsense))]


def test_a_message_with_half_a_character_is_recorded_with_a_sign_in_its_place(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    call = {"name": "observe", "arguments": {"role": "user", "content": "a \ud800 b \udfff", "session": "s"}}
    with raw(root) as server:
        server.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode())
        answer = server.answer(1)
        server.send(server.ask(2, "observe", role="user", content="next", session="s"))
        assert not server.answer(2)["result"].get("isError")
        assert server.leave() == 0
    assert not answer["result"].get("isError")
    assert [content for _, content in turns(root)["s"]] == ["a \ufffd b \ufffd", "next"]
