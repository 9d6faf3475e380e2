"""What no well-behaved client sends: nonsense between the calls, half a character, the end amid everything."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end.servers import CALLS, facts, turns
from tests.preloaded import python
from tests.serving import environment

HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


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
        assert server.leave() == 0
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
