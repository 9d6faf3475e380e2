"""`observe` stores a message and answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.app import open_memory
from mcp_server.context.compiler import compile_inputs
from mcp_server.context.inputs import CompileInputs
from mcp_server.conversations.observe import ContextChunk, NewTurn, observe
from mcp_server.conversations.sessions import close_idle, end_session, ready, session_turns, show_session
from mcp_server.errors import Conflict, Invalid
from mcp_server.memory import Memory
from mcp_server.model import Caller, SourceFile, ToolCall
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.postgres.locks import TeamLocks
from mcp_server.text.prose import is_injected, is_real_user
from tests.checkpoints.injected import ALL, INJECTED, NOW
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.holding import holding

pytestmark = [pytest.mark.anyio, pytest.mark.both_engines]

ASKS = Caller(explicit_sessions=True)


async def said(memory: Memory, content: str, session: str = "s", role: str = "user", **more: object) -> int:
    observed = await observe(memory, replace(NewTurn(role, content, session), **more), ASKS)  # type: ignore[arg-type]
    return observed.turn if observed.recorded else -observed.turn


@pytest.mark.folder_only
async def test_a_turn_is_in_its_transcript_when_it_is_acknowledged(memory: Memory, workspace: Path) -> None:
    observed = await observe(memory, NewTurn("user", "Fix the login page\nplease", at=None), ASKS)
    assert observed.markdown.splitlines()[0] == "session: ses_0001"
    (transcript,) = workspace.glob("raw/conversations/2026/02/16/*.md")
    assert transcript.name == "1845-ses_0001-fix-the-login-page.md"
    assert "# Fix the login page\n\n## 18:45 — user\n<!-- {" in transcript.read_text("utf-8")
    assert transcript.stat().st_mode & 0o777 == 0o600


async def test_a_retry_is_stored_once_and_two_honest_continues_twice(memory: Memory) -> None:
    assert await said(memory, "continue") == 1
    assert await said(memory, "continue") == -1
    assert await said(memory, "done", role="assistant") == 2
    assert await said(memory, "continue") == 3
    assert [turn.content for turn in await session_turns(memory, "s")] == ["continue", "done", "continue"]


async def test_the_same_words_at_a_later_time_or_with_another_id_are_another_turn(memory: Memory) -> None:
    first = datetime(2026, 1, 1, 9, tzinfo=UTC)
    assert await said(memory, "the meter shows 4711", at=first) == 1
    assert await said(memory, "the meter shows 4711", at=first) == -1
    assert await said(memory, "the meter shows 4711", at=first + timedelta(days=31)) == 2
    assert await said(memory, "hi", turn_id="a") == 3
    assert await said(memory, "hello", role="agent") == 4
    assert await said(memory, "hi", turn_id="a") == -3
    assert await said(memory, "hi", turn_id="b") == 5


@pytest.mark.folder_only
async def test_a_restart_and_a_lost_state_forget_nothing(
    memory: Memory, workspace: Path, clock: Clock, new_id: Callable[[], str]
) -> None:
    await said(memory, "hi", turn_id="a")
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (workspace / ".local" / name).unlink(missing_ok=True)
    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock, new_id=new_id) as again:
        assert await said(again, "hi", turn_id="a") == -1
        assert await said(again, "more") == 2


async def test_a_turn_that_a_crash_cut_off_from_the_state_is_recorded_from_the_transcript(memory: Memory) -> None:
    await said(memory, "one")
    row = await memory.state.session("s")
    assert row is not None
    await said(memory, "two", role="agent", turn_id="x")
    await memory.state.save_session(row)  # as if the process had died right after the append
    assert await said(memory, "two", role="agent", turn_id="x") == -2
    assert await said(memory, "three") == 3


async def test_secrets_are_gone_before_anything_is_written(memory: Memory, place: Path | str) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    files = (f"https://ana:{key}@example.org/x",)
    call = ToolCall(f"curl {key}", f"curl -H 'Authorization: Bearer {key}'", "ok", files)
    chunk = ContextChunk("file", f"/home/{key}.py", tags=(key,), topics=(key,))
    turn = NewTurn("user", f"my token is {key}", "s", tool_calls=(call,), chunks=(chunk,), name=f"bot {key}")
    observed = await observe(memory, replace(turn, project=key, model=key, channel=key), ASKS)
    assert "github-token" in observed.redacted
    assert "redacted before writing" in observed.markdown
    assert holding(place, "ghp_") == []


async def test_what_is_said_after_the_end_continues_the_session(memory: Memory) -> None:
    await said(memory, "one")
    ended = await end_session(memory, "s")
    assert (await end_session(memory, "s")).note == "nothing has changed since it was closed"
    assert await said(memory, "one") == -1
    assert await said(memory, "two", role="agent") == 2
    shown = await show_session(memory, "s")
    assert [turn.number for turn in shown.turns] == [1, 2]
    assert shown.paths[0] == ended.path
    assert memory.transcripts.read(shown.paths[1]).head.continues == ended.path


@pytest.mark.folder_only
async def test_an_ended_conversation_is_sealed_and_committed(memory: Memory, workspace: Path) -> None:
    await said(memory, "one two three")
    await said(memory, "four", role="agent")
    ended = await end_session(memory, "s")
    assert ended.committed
    head = memory.transcripts.read(ended.path).head
    assert head.ended is not None
    assert (head.tokens_in, head.tokens_out) == (3, 1)
    assert (workspace / ended.path).stat().st_mode & 0o222 == 0
    assert memory.git.show(ended.path, "HEAD") == memory.files.read_text(ended.path)


async def test_a_silent_session_is_closed_after_six_hours_or_by_its_next_turn(memory: Memory, clock: Clock) -> None:
    await said(memory, "one")
    clock.forward(hours=5)
    assert await close_idle(memory) == []
    clock.forward(hours=2)
    assert await close_idle(memory) == ["s"]
    assert await said(memory, "two", role="agent") == 2
    clock.forward(hours=7)
    assert await said(memory, "three") == 3
    assert len((await show_session(memory, "s")).paths) == 3


async def test_kind_and_delivery_are_fixed_by_the_first_call_that_names_them(memory: Memory) -> None:
    await said(memory, "one")
    await said(memory, "two", role="agent", delivery="replace", kind="subagent")
    (path,) = (await show_session(memory, "s")).paths
    head = memory.transcripts.read(path).head
    assert (head.delivery, head.kind) == ("replace", "subagent")
    with pytest.raises(Conflict, match="has delivery 'replace' already"):
        await said(memory, "three", delivery="add")
    assert await said(memory, "three", delivery="replace") == 3


MALFORMED = (
    (NewTurn("robot", "x"), "role 'robot' is not one of user, agent"),
    (NewTurn("user", "x", session="a\0b"), "session must be"),
    (NewTurn("user", "x", turn_id=" "), "turn_id must be"),
    (NewTurn("user", "x", session="ghp_" + "a1B2" * 10), r"^session contains a secret \(github-token\) and would"),
    (NewTurn("user", "x", turn_id="ghp_" + "a1B2" * 10), r"^turn_id contains a secret \(github-token\) and would"),
    (NewTurn("user", "x", name="n" * 300), "name must be"),
    (NewTurn("user", "x", kind="boss"), "kind 'boss' is not one of main"),
    (NewTurn("user", "x", delivery="push"), "delivery 'push' is not one of add"),
    (NewTurn("user", "x", at=datetime.fromisoformat("0001-01-01T00:00:00+05:00")), r"^at "),
)
FAR_EAST, FAR_WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))
OUT_OF_RANGE: tuple[dict[str, Any], ...] = (
    {"context_tokens": 2**63},
    {"context_tokens": -1},
    {"chunks": (ContextChunk("file", "a.py", 2**63),)},
    {"chunks": (ContextChunk("file", "a.py", -5),)},
    {"chunks": (ContextChunk("file", "a.py", mtime=datetime(1, 1, 1, tzinfo=FAR_EAST)),)},
    {"chunks": (ContextChunk("file", "a.py", mtime=datetime(9999, 12, 31, 23, tzinfo=FAR_WEST)),)},
    {"chunks": (ContextChunk("file", "a\ud800.py"),)},
    {"chunks": (ContextChunk("file", "a.py", tags=("\ud800",)),)},
    {"project": "\ud800"},
    {"project": "a\0b"},
)


async def test_a_malformed_turn_says_what_is_wrong_and_nothing_is_written(memory: Memory) -> None:
    given = [
        (NewTurn("user", "x", session="s", **fields), r"context_tokens|chunks\.0|project") for fields in OUT_OF_RANGE
    ]
    for turn, says in (*MALFORMED, *given):
        with pytest.raises(Invalid, match=says):
            await observe(memory, turn, ASKS)
        assert list(memory.files.walk("raw")) == [], turn
        assert await memory.state.sessions() == [], turn


async def test_an_unnamed_turn_continues_the_connections_session_where_the_rule_says_so(memory: Memory) -> None:
    connection = Caller(explicit_sessions=False, session=None)
    first = await observe(memory, NewTurn("user", "one"), connection)
    again = await observe(memory, NewTurn("agent", "two"), replace(connection, session=first.session))
    assert again.session == first.session
    explicit = await observe(memory, NewTurn("user", "three"), replace(ASKS, session=first.session))
    assert explicit.session != first.session


async def test_what_else_entered_the_context_is_kept(memory: Memory) -> None:
    await said(memory, "one", chunks=(ContextChunk("file", "src/a.py", 1200, ("python",)),))
    kept = [chunk for chunk in await memory.live.of("s") if chunk.kind == "file"]
    assert [(chunk.name, chunk.tokens, chunk.tags) for chunk in kept] == [("src/a.py", 1200, ("python",))]


async def test_a_broken_transcript_does_not_stop_the_others_from_being_read_back(memory: Memory) -> None:
    await said(memory, "one", "good")
    memory.files.write_atomic("raw/conversations/2026/02/16/1800-bad-x.md", "no front matter at all")
    await memory.state.empty(())
    await ready(memory)
    assert [row.session for row in await memory.state.sessions()] == ["good"]
    assert await said(memory, "one", "good") == -1


async def test_an_odd_session_id_gets_a_safe_file_name_and_stays_itself(memory: Memory) -> None:
    await said(memory, "one", "../../etc/passwd ☂")
    (path,) = (await show_session(memory, "../../etc/passwd ☂")).paths
    assert path.startswith("raw/conversations/2026/02/16/1845-etc-passwd-")
    assert await said(memory, "two", "../../etc/passwd ☂", role="agent") == 2


async def test_a_broken_transcript_does_not_keep_the_others_open(memory: Memory, clock: Clock) -> None:
    for session in ("a", "b", "c"):
        await said(memory, "one", session=session)
    paths = {row.session: row.path for row in await memory.state.sessions()}
    memory.files.write_atomic(paths["a"], "---\nsession_id: [\n---\n")
    memory.files.remove(paths["b"])
    clock.forward(hours=7)
    with pytest.raises(Invalid):
        await close_idle(memory)
    assert {row.session: row.status for row in await memory.state.sessions()}["c"] == "closed"


async def test_who_speaks_while_silent_sessions_are_closed_is_not_shut_out(memory: Memory, clock: Clock) -> None:
    await said(memory, "one")
    clock.forward(hours=7)
    closed: list[str] = []
    begin = anyio.Event()

    async def close() -> None:
        await begin.wait()
        closed.extend(await close_idle(memory))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close)
        async with memory.locks.transcript("s"):
            begin.set()
            with anyio.fail_after(60):
                assert isinstance(memory.locks, Locks | TeamLocks)
                while not any(lock.statistics().tasks_waiting for lock in memory.locks._inside.values()):  # noqa: ASYNC110
                    await anyio.sleep(0.001)  # it has seen that the session is silent, and wants the lock
            row = await memory.state.session("s")
            assert row is not None
            await memory.state.save_session(replace(row, last_arrival=clock()))
    assert closed == []


@pytest.mark.parametrize(
    "text",
    [
        "Hello, can you help me with the oven?",
        "The checkpoint is wrong, why?",
        "What does `system-reminder` mean?",
        "memory: how does it work?",
        "Context at a glance, please",
        "My context: I bake bread",
        "I said: this summary covers nothing",
        "API Error: 500, what now?",
        "<div>my html</div>",
        "PreToolUse hook doesn't fire for Bash.",
        "Stop hook is broken: fix it",
    ],
)
def test_a_persons_own_words_pass(text: str) -> None:
    assert is_real_user("user", text)
    assert not is_real_user("agent", text)
    assert not is_real_user("system", text)


@pytest.mark.parametrize("text", ALL, ids=lambda text: str(text)[:30])
def test_what_a_program_injected_does_not(text: str) -> None:
    assert is_injected(text)
    assert not is_real_user("user", text)


@pytest.mark.parametrize("text", ["", " \n", "\ufeff\u200b", "\x00"])
def test_nothing_visible_is_nothing_said(text: str) -> None:
    assert not is_real_user("user", text)


@given(st.integers(128, 4_000), st.text(max_size=200))
def test_a_compiled_context_is_never_taken_for_a_persons_words(budget: int, memory: str) -> None:
    files = (SourceFile("knowledge/memory/MEMORY.md", f"# Memory\n\n- likes tea\n{memory}"),)
    inputs = CompileInputs("hello", budget, NOW, "2026-03-01", files=files)
    assert is_injected(compile_inputs(inputs, lambda text: len(text) // 4).text)


@given(INJECTED)
def test_injected_messages_are_distinguished_from_those_of_a_person(text: str) -> None:
    assert is_injected(text)
