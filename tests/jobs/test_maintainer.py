"""One process maintains; files that anybody changes are found; what breaks is mended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.jobs import maintainer
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.search.query import plain_query
from mcp_server.search.search import SearchRequest, search
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.values import Change
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.end_to_end.servers import eventually
from tests.gitting import write
from tests.searching import candidates_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]
CALLER = Caller(source="test")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rhythm, quicker."""
    monkeypatch.setattr(maintainer, "TAKE_OVER_SECONDS", 0.05)
    monkeypatch.setattr(maintainer, "NOTICE_SECONDS", 0.02)
    monkeypatch.setattr(maintainer, "HEALTH_SECONDS", 0.05)


@asynccontextmanager
async def maintaining(memory: Memory) -> AsyncIterator[anyio.abc.TaskGroup]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(maintainer.run, memory)
        yield tasks
        tasks.cancel_scope.cancel()


async def finds(memory: Memory, word: str) -> bool:
    found = await candidates_of(memory.index, plain_query(word))
    return found.used == "keyword" and any(word in one.passage.text for one in found.found)


@pytest.fixture
async def other(memory: Memory, workspace: Path, clock: Clock, new_id: Callable[[], str]) -> AsyncIterator[Memory]:
    """A second process that has opened the same memory."""
    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock, new_id=new_id) as opened:
        yield opened


async def test_what_was_there_and_what_anybody_writes_is_found(memory: Memory) -> None:
    write(memory.disk.root, "knowledge/reference/a.md", "walrus")
    async with maintaining(memory):
        await eventually(lambda: finds(memory, "walrus"))
        write(memory.disk.root, "knowledge/reference/deep/b.md", "penguin")
        await eventually(lambda: finds(memory, "penguin"))
        (memory.disk.root / "knowledge/reference/deep").rename(memory.disk.root / "knowledge/reference/other")
        (memory.disk.root / "knowledge/reference/a.md").unlink()

        async def moved() -> bool:
            found = await candidates_of(memory.index, plain_query("penguin"))
            there = {one.candidate.path for one in found.found} == {"knowledge/reference/other/b.md"}
            return there and not await finds(memory, "walrus")

        await eventually(moved)


@pytest.mark.parametrize("by_another", [False, True])
async def test_what_was_just_written_down_is_in_the_next_search_and_the_next_context(
    memory: Memory, other: Memory, by_another: bool
) -> None:
    """Whoever maintains: the process that writes, or another one."""
    write(memory.disk.root, "knowledge/reference/a.md", "walrus")
    async with maintaining(other if by_another else memory):
        await eventually(lambda: finds(memory, "walrus"))
        write(memory.disk.root, "knowledge/reference/b.md", "penguin")
        await eventually(lambda: finds(memory, "penguin"))  # the files are watched from now on
        async with maintaining(memory) if by_another else nullcontext():
            for number, animal in enumerate(["otter", "badger", "heron", "stoat", "marten"]):
                said = f"The {animal} has burrow {number}."
                await remember(memory, NewFact(said, "procedure", path="knowledge/procedures/zoo.md"), CALLER)
                found = await search(memory, SearchRequest(f"where is the burrow of the {animal}?", limit=1))
                assert said in found.hits[0].passage.text
                await observe(memory, NewTurn("user", f"the {animal}, please", session="chat"), CALLER)
                asking = CompileRequest(message=f"which burrow has the {animal}?")
                at_once = await compile_context(memory, asking, CALLER)
                assert said in at_once.text
                later = await compile_context(other, asking, CALLER)
                assert later.text == at_once.text


@pytest.mark.parametrize("target", ["vault", "."])
async def test_a_link_keeps_nothing_from_being_found_and_no_search_waits_for_what_is_behind_it(
    memory: Memory, tmp_path: Path, target: str
) -> None:
    """It leads to a folder beside the workspace, or around to the workspace itself."""
    (tmp_path / target).mkdir(exist_ok=True)
    (memory.disk.root / "knowledge" / "linked").symlink_to(tmp_path / target)
    async with maintaining(memory):
        for animal in ("walrus", "penguin", "heron"):  # the last one comes by the watcher for sure
            (tmp_path / target / f"{animal}.md").write_text("not ours", encoding="utf-8")
            write(memory.disk.root, f"knowledge/reference/{animal}.md", animal)
            await eventually(lambda animal=animal: finds(memory, animal))  # type: ignore[misc]
    assert [path for path in memory.changes.fresh if "linked" in path] == []


async def test_listeners_hear_which_file_changed_and_that_the_index_did(memory: Memory) -> None:
    kinds: set[Change] = set()
    async with maintaining(memory) as tasks, memory.changes.listen() as heard:

        async def write_again_and_again() -> None:  # the watcher tells of what changes once it watches
            for number in range(1_000):
                write(memory.disk.root, "knowledge/reference/a.md", f"walrus {number}")
                await anyio.sleep(0.05)

        tasks.start_soon(write_again_and_again)
        with anyio.fail_after(60):
            async for change in heard:
                kinds.add(change)
                if {Change("file", "knowledge/reference/a.md"), Change("index")} <= kinds:
                    break


async def test_another_process_takes_over_and_others_notice(memory: Memory, other: Memory) -> None:
    async with maintaining(other):
        async with maintaining(memory), other.changes.listen() as heard:
            write(memory.disk.root, "knowledge/reference/a.md", "walrus")
            await eventually(lambda: finds(other, "walrus"))
            with anyio.fail_after(60):
                async for change in heard:
                    if change.kind == "index":
                        break
        write(
            memory.disk.root, "knowledge/reference/b.md", "penguin"
        )  # the process that maintained the index has ended
        await eventually(lambda: finds(other, "penguin"))


async def test_a_deleted_or_damaged_index_is_built_again(memory: Memory) -> None:
    write(memory.disk.root, "knowledge/reference/a.md", "walrus")
    folder = memory.disk.local / "index"
    async with maintaining(memory):
        await eventually(lambda: finds(memory, "walrus"))
        for place in folder.iterdir():
            place.unlink()
        await eventually(lambda: finds(memory, "walrus"))
        (live,) = (place for place in folder.iterdir() if place.suffix == ".db")
        live.write_bytes(b"garbage" * 10_000)
        await eventually(lambda: finds(memory, "walrus"))


async def test_a_rebuild_by_somebody_else_is_followed(memory: Memory, other: Memory) -> None:
    write(memory.disk.root, "knowledge/reference/a.md", "walrus")
    async with maintaining(memory):
        await eventually(lambda: finds(memory, "walrus"))
        before = (await memory.index.data_version())[0]
        await other.index.rebuild()
        write(memory.disk.root, "knowledge/reference/b.md", "penguin")
        await eventually(lambda: finds(memory, "penguin"))
        assert (await memory.index.data_version())[0] != before


async def test_a_failure_in_the_background_is_logged_and_not_the_end(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    async def failing(*given: object) -> None:
        calls.append(1)
        raise ValueError("a bug")

    monkeypatch.setattr(maintainer, "_work", failing)
    async with maintaining(memory):
        await eventually(lambda: len(calls) > 1)
    assert "a bug" in caplog.text


@dataclass
class Lease:
    lost: bool = False

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def release(self, *, forget: bool = False) -> None:
        pass


class OneLease(Locks):
    """Locks that give the maintainer's lease away once."""

    leases: list[Lease]

    def try_maintainer(self) -> Lease | None:  # type: ignore[override]
        return self.leases.pop() if self.leases else None


async def test_a_maintainer_stops_its_work_when_another_process_has_taken_over(memory: Memory) -> None:
    lease, ended = Lease(), anyio.Event()
    locks = OneLease(memory.disk.local)
    locks.leases = [lease]

    async def duty(memory: Memory) -> None:
        try:
            lease.lost = True
            await anyio.sleep_forever()
        finally:
            ended.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(maintainer.run, replace(memory, locks=locks), [duty])
            await ended.wait()
            tasks.cancel_scope.cancel()
