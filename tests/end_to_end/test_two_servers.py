"""Several processes on one workspace, and processes that are killed: nothing acknowledged is lost or twice."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from mcp_server.app import catch_up, open_memory
from tests.end_to_end.servers import (
    CALLS,
    DATABASE_TROUBLE,
    Served,
    command,
    eventually,
    facts,
    served,
    turns,
)
from tests.serving import PLAIN, text

pytestmark = pytest.mark.anyio

FEW_LINES = {"CONTEXT_MANAGER_LIFECYCLE__MEMORY_LINE_CAP": str(max(20, CALLS * 2 // 3))}
"""MEMORY.md overflows into the archive all the time."""

SEEDS = range(8 if CALLS >= 200 else 3)


@dataclass
class Said:
    """What was sent, and what of it was acknowledged: turns by their content, with session and number.

    `enough` is set by the answer number `until`.
    """

    sent: dict[str, dict[str, str]] = field(default_factory=dict)
    turns: dict[str, tuple[str, int]] = field(default_factory=dict)
    facts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    lost: int = 0
    answered: int = 0
    until: int = 0
    enough: anyio.Event = field(default_factory=anyio.Event)

    @property
    def acknowledged(self) -> int:
        return len(self.turns) + len(self.facts)

    async def observe(self, server: Served, content: str, session: str | None) -> None:
        assert session
        self.sent[content] = {"role": "user", "content": content, "session": session, "turn_id": content.split()[0]}
        answer = await self._ask(server, "observe", self.sent[content])
        if answer is not None:
            handle, number = answer.splitlines()[:2]
            self.turns[content] = (handle.removeprefix("session: "), int(number.split()[1]))

    async def remember(self, server: Served, content: str, session: str | None) -> None:
        arguments = {"content": content, "project": "global", **({"session": session} if session else {})}
        self.sent[content] = arguments
        if await self._ask(server, "remember", arguments) is not None:
            self.facts.add(content)

    async def again(self, server: Served) -> None:
        """Sends what was not acknowledged once more, as a client does that lost its connection."""
        for content, arguments in self.sent.items():
            if "turn_id" in arguments and content not in self.turns:
                await self.observe(server, content, arguments["session"])
            if "turn_id" not in arguments and content not in self.facts:
                await self.remember(server, content, arguments.get("session"))

    async def _ask(self, server: Served, tool: str, arguments: dict[str, str]) -> str | None:
        """The answer, or None if the server died before it came."""
        try:
            result = await server.client.call_tool(tool, arguments)
        except (MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self.lost += 1
            return None
        if result.is_error:
            self.errors.append(text(result))
            return None
        self.answered += 1
        if self.answered == self.until:
            self.enough.set()
        return text(result)


def start_calls(tasks: anyio.abc.TaskGroup, said: Said, server: Served, name: str, order: random.Random) -> None:
    """Both kinds of calls at once, to sessions of the server's own and to one that it shares with the other server."""
    # Facts of different numbers: what only differs in a word would become one entry.
    calls = [
        *(
            (said.observe, f"{name}-t{n} is a message about harbours", order.choice([name, "shared"]))
            for n in range(CALLS)
        ),
        *(
            (said.remember, f"{name}-f{n}{len(name)} is a fact about boats", order.choice([None, "shared"]))
            for n in range(CALLS)
        ),
    ]
    order.shuffle(calls)
    for call, content, session in calls:
        tasks.start_soon(call, server, content, session)


async def rebuild(root: Path, until: anyio.Event, printed: list[str]) -> int:
    """Rebuilds the index in a process of its own, again and again; returns how often."""
    rebuilt = 0
    while not until.is_set():
        ended = await command(root, "index", "rebuild", env=FEW_LINES)
        assert ended.returncode == 0, ended.stderr
        printed.append(ended.stderr)
        rebuilt += 1
    return rebuilt


def assert_nothing_lost_or_twice(root: Path, said: Said) -> None:
    """Acknowledged turns stand under their numbers, acknowledged facts in MEMORY.md or the archive; none twice."""
    stored = turns(root)
    for content, (session, number) in said.turns.items():
        assert (number, content) in stored[session]
    for session, spoken in stored.items():
        assert [number for number, _ in spoken] == list(range(1, len(spoken) + 1)), session
        assert len({content for _, content in spoken}) == len(spoken), session
    known = facts(root)
    assert said.facts <= known.keys()
    assert set(known.values()) <= {1}


async def assert_the_index_is_as_new(root: Path) -> None:
    """The next start catches up; what it then has is what a rebuild makes of the files."""
    async with open_memory(root, PLAIN) as memory:
        assert memory.problems() == ()
        await catch_up(memory)
        followed = await memory.index.fingerprint()
        await memory.index.rebuild()
        assert await memory.index.fingerprint() == followed
        status = await memory.index.status()
        assert status.problems == ()
        assert status.state == "ready"


def leftovers(root: Path) -> list[Path]:
    """What a killed write leaves beside the file that it was to replace."""
    return [path for path in root.rglob(".cm-*") if ".local" not in path.parts]


async def gone(root: Path) -> bool:
    return not leftovers(root)


async def test_two_servers_and_a_rebuilding_third_process_lose_nothing_and_write_nothing_twice(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    said, over, printed = Said(), anyio.Event(), list[str]()
    rebuilt: list[int] = []
    async with served(root, env=FEW_LINES) as first, served(root, env=FEW_LINES) as second:

        async def third() -> None:
            rebuilt.append(await rebuild(root, over, printed))

        async with anyio.create_task_group() as rebuilding:
            rebuilding.start_soon(third)
            async with anyio.create_task_group() as tasks:
                start_calls(tasks, said, first, "first", random.Random(1))
                start_calls(tasks, said, second, "second", random.Random(2))
            over.set()
        assert said.errors == []
        assert said.acknowledged == 4 * CALLS
        assert_nothing_lost_or_twice(root, said)

        async def both_find_the_last() -> bool:
            return all([await found(server, name) for server in (first, second) for name in ("first", "second")])

        async def found(server: Served, name: str) -> bool:
            last = f"{name}-t{CALLS - 1}"
            hits = await server.hits(f'"{last}"')
            return [hit.get("turn_id") for hit in hits] == [last] and await server.finds(last)

        await eventually(both_find_the_last)
    logs = [first.stderr(), second.stderr(), *printed]
    assert rebuilt[0] >= 1
    assert not [log for log in logs if DATABASE_TROUBLE.search(log)]
    await assert_the_index_is_as_new(root)
    print(f"{said.acknowledged} calls acknowledged, {rebuilt[0]} rebuilds meanwhile, stderr: {''.join(logs)!r}")


@pytest.mark.parametrize("seed", SEEDS)
async def test_after_a_kill_everything_acknowledged_is_there_and_what_is_sent_again_is_there_once(
    tmp_path: Path, seed: int
) -> None:
    root = tmp_path / "memory"
    order = random.Random(seed)
    moment = order.randrange(1, 3 * CALLS)
    said, over = Said(until=moment), anyio.Event()
    both = seed % 2 == 0
    async with served(root, env=FEW_LINES) as first, served(root, env=FEW_LINES) as second:

        async def third() -> None:
            """Rebuilds too, and is killed in the middle with the servers."""
            while not over.is_set():
                with anyio.CancelScope() as scope:
                    scopes.append(scope)
                    await command(root, "index", "rebuild", env=FEW_LINES)

        async def kill() -> None:
            await said.enough.wait()
            first.kill()
            if both:
                second.kill()
            over.set()
            for scope in scopes:
                scope.cancel()

        scopes: list[anyio.CancelScope] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(third)
            start_calls(tasks, said, first, "first", order)
            start_calls(tasks, said, second, "second", order)
            tasks.start_soon(kill)
        assert said.errors == []
        assert said.lost > 0
        before = said.acknowledged
        assert before >= moment
        for path in leftovers(root):
            os.utime(path, (0, 0))  # an hour has gone by, so that nobody can be writing it still

        async with served(root, env=FEW_LINES) as next_start:
            await said.again(next_start)
            assert said.errors == []
            assert said.acknowledged == 4 * CALLS
            assert_nothing_lost_or_twice(root, said)
    if leftovers(root):
        async with served(root, env=FEW_LINES) as later:
            await later.call("status")
            await eventually(lambda: gone(root))
    logs = [server.stderr() for server in (first, second, next_start)]
    assert not [log for log in logs if DATABASE_TROUBLE.search(log)]
    await assert_the_index_is_as_new(root)
    who = "both" if both else "one"
    print(f"killed {who} after {before} of {4 * CALLS}, {said.lost} unanswered, stderr: {''.join(logs)!r}")
