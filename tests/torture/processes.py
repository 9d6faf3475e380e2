"""Several processes on one workspace are killed at a random moment."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from mcp.shared.exceptions import MCPError

from mcp_server.app import catch_up, open_memory
from tests.end_to_end.servers import CALLS, DATABASE_TROUBLE, Served, command, eventually, facts, served, turns
from tests.serving import PLAIN, text
from tests.storage.fingerprint import assert_as_rebuilt
from tests.torture.frame import Case, Trial

FEW_LINES = {"CONTEXT_MANAGER_LIFECYCLE__MEMORY_LINE_CAP": str(max(20, CALLS * 2 // 3))}
"""MEMORY.md overflows into the archive all the time."""


@dataclass
class Said:
    """What was sent, and which of it was acknowledged: turns by their content, with session and number.

    `enough` is set by the answer number `until`.
    """

    sent: dict[str, dict[str, str]] = field(default_factory=dict)
    turns: dict[str, tuple[str, int]] = field(default_factory=dict)
    facts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
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
        """Sends everything that was not acknowledged again, as a client does after it lost its connection."""
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
            return None
        if result.is_error:
            self.errors.append(text(result))
            return None
        self.answered += 1
        if self.answered == self.until:
            self.enough.set()
        return text(result)


def start_calls(
    tasks: anyio.abc.TaskGroup, said: Said, server: Served, name: str, order: random.Random, calls: int = CALLS
) -> None:
    """Starts `calls` calls of each kind at once, to the server's own session and to one that both servers share."""
    # Facts of different numbers: what only differs in a word would become one entry.
    starting = [
        *(
            (said.observe, f"{name}-t{n} is a message about harbours", order.choice([name, "shared"]))
            for n in range(calls)
        ),
        *(
            (said.remember, f"{name}-f{n}{len(name)} is a fact about boats", order.choice([None, "shared"]))
            for n in range(calls)
        ),
    ]
    order.shuffle(starting)
    for call, content, session in starting:
        tasks.start_soon(call, server, content, session)


async def rebuild(root: Path, until: anyio.Event, printed: list[str]) -> int:
    """Rebuilds the index in another process, again and again; returns how often."""
    rebuilt = 0
    while not until.is_set():
        ended = await command(root, "reset", "--index", "--apply", env=FEW_LINES)
        assert ended.returncode == 0, ended.stderr
        printed.append(ended.stderr)
        rebuilt += 1
    return rebuilt


def assert_nothing_lost_or_twice(root: Path, said: Said) -> None:
    """Asserts that acknowledged turns are under their numbers and facts in MEMORY.md or the archive, once."""
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
    """Asserts that the index, after the next start has caught up, equals a rebuilt one."""
    async with open_memory(root, PLAIN) as memory:
        assert memory.problems() == ()
        await catch_up(memory)
        await assert_as_rebuilt(memory.index)
        status = await memory.index.status()
        assert status.problems == ()
        assert status.state == "ready"


def leftovers(root: Path) -> list[Path]:
    """Returns the temporary files that killed writes left."""
    return [path for path in root.rglob(".cm-*") if ".local" not in path.parts]


async def killed_servers(trial: Trial) -> None:
    """Two servers write and a third process rebuilds the index; one server or all are killed, and the client repeats
    what was not acknowledged."""
    root, order, calls = trial.root, trial.chance, 6 if trial.short else 60
    said, over, both = Said(until=order.randrange(1, 3 * calls)), anyio.Event(), order.random() < 0.5
    async with served(root, env=FEW_LINES) as first, served(root, env=FEW_LINES) as second:
        scopes: list[anyio.CancelScope] = []

        async def third() -> None:
            while not over.is_set():
                with anyio.CancelScope() as scope:
                    scopes.append(scope)
                    await command(root, "reset", "--index", "--apply", env=FEW_LINES)

        async def kill() -> None:
            await said.enough.wait()
            first.kill()
            if both:
                second.kill()
            over.set()
            for scope in scopes:
                scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(third)
            start_calls(tasks, said, first, "first", order, calls)
            start_calls(tasks, said, second, "second", order, calls)
            tasks.start_soon(kill)
        assert said.errors == []
        for path in leftovers(root):
            os.utime(path, (0, 0))  # a living writer's file is new, or locked
        async with served(root, env=FEW_LINES) as next_start:
            await said.again(next_start)
            assert said.errors == []
            assert said.acknowledged == 4 * calls
            assert_nothing_lost_or_twice(root, said)
    if leftovers(root):
        async with served(root, env=FEW_LINES) as later:
            await later.call("status")
            await eventually(lambda: not leftovers(root))
    logs = [server.stderr() for server in (first, second, next_start)]
    assert not [log for log in logs if DATABASE_TROUBLE.search(log)], logs
    await assert_the_index_is_as_new(root)
    trial.tally.faults += 3 if both else 2
    trial.tally.load += said.acknowledged


CASES = (
    Case(
        "killed servers",
        "every acknowledged turn and fact is there after a kill of one or all of three processes, and what is sent "
        "again is there once",
        killed_servers,
    ),
)
