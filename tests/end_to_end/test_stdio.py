"""Real server processes over stdio, driven by a real client, in both protocol eras."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp.server.subscriptions import ResourceUpdated

from tests.preloaded import python
from tests.serving import ROOT, call, environment, process, resource, say

pytestmark = pytest.mark.anyio


def transcripts(root: Path) -> list[str]:
    return [path.read_text() for path in sorted((root / "raw").rglob("*.md"))]


async def test_two_chats_interleaved_over_one_connection_stay_apart(tmp_path: Path) -> None:
    async with process(tmp_path, client="claude-ai") as client:
        boat = await say(client, "I keep a blue boat in Senj.", delivery="replace")
        cake = await say(client, "Which cake shall I bake?", delivery="replace")
        assert await say(client, "A fine harbour.", "agent", session=boat) == boat
        assert await say(client, "A plum cake.", "agent", session=cake) == cake
        assert await say(client, "And where do I moor it?", session=boat) == boat
        with_boat = await resource(client, f"context://compiled/{boat}")
        with_cake = await resource(client, f"context://compiled/{cake}")
    first, second = sorted(transcripts(tmp_path), key=lambda written: "cake" in written)
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
        cli = python("-c", "from mcp_server.cli.main import main; raise SystemExit(main())", "observe")
        done = await anyio.run_process(
            [*cli, "continue", "--session", "s", "--turn-id", "t1"],
            cwd=str(ROOT),
            env=environment(tmp_path),
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert b"already recorded" in done.stdout
    async with process(tmp_path) as client:
        assert "already recorded" in await call(client, "observe", **turn)
        assert "turn 2 recorded" in await call(client, "observe", **{**turn, "turn_id": "t2"})
    (transcript,) = transcripts(tmp_path)
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


async def heard(events: object, uri: str) -> None:
    with anyio.fail_after(60):
        async for event in events:  # type: ignore[attr-defined]
            if isinstance(event, ResourceUpdated) and event.uri == uri:
                return


async def settled(events: object) -> None:
    while True:
        with anyio.move_on_after(1.5):
            await anext(events)  # type: ignore[call-overload]
            continue
        return


def test_what_was_acknowledged_before_stdin_closed_is_on_disk_and_the_server_ends(tmp_path: Path) -> None:
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {**HANDSHAKE}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "observe", "arguments": SAID}},
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "mcp_server"],
        cwd=ROOT,
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for message in messages:
            server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
        assert [answer["id"] for answer in answers] == [1, 2]
        server.stdin.close()
        assert server.wait(timeout=60) == 0
        assert server.stdout.read() == ""
    (transcript,) = transcripts(tmp_path)
    assert "The launch is on Tuesday." in transcript


HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
SAID = {"role": "user", "content": "The launch is on Tuesday."}


async def test_a_folder_with_its_own_tools_package_does_not_get_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "here" / "tools").mkdir(parents=True)
    (tmp_path / "here" / "tools" / "__init__.py").write_text("raise RuntimeError('somebody else’s tools')\n")
    async with process(tmp_path / "workspace", cwd=tmp_path / "here", fresh=True) as client:
        assert len((await client.list_tools()).tools) == 10


def test_importing_the_rim_loads_nothing_heavy() -> None:
    heavy = [
        "numpy",
        "tiktoken",
        "git",
        "ruamel",
        "wordllama",
        "watchfiles",
        "sqlite_vec",
        "rank_bm25",
        "aiosqlite",
        "rich",
    ]
    code = "import sys, mcp.server.stdio; before = set(sys.modules); import mcp_server.serve.server, mcp_server.app; "
    done = subprocess.run(
        [sys.executable, "-c", code + "print(*sorted(set(sys.modules) - before))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not set(done.stdout.split()) & set(heavy)
