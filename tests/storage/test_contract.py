"""What both implementations of the ports of storage promise: files and SQLite, and PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from mcp_server.conversations.source_keys import content_sha, keys_of
from mcp_server.errors import Conflict, Invalid, NotFound, Refused
from mcp_server.model import TranscriptHead, Turn
from mcp_server.relevance.chunks import LiveChunk, Standing
from mcp_server.search.query import parse_query
from mcp_server.storage.transcripts import Transcripts
from mcp_server.storage.values import Change, Filters, LiveSetCounts, Reading, SessionRow
from tests.searching import candidates_of, values_of
from tests.storage.engines import Opened, Ports
from tests.storage.fingerprint import assert_as_rebuilt

pytestmark = pytest.mark.anyio
AT = datetime(2026, 2, 16, 18, 45, 3, 120_000, tzinfo=UTC)
ROW = SessionRow("s", "raw/s.md", "open", "name:atlas", None, "replace", "Title", AT, AT, 2, None, 512)


# ---------------------------------------------------------------- files


async def test_a_file_comes_back_as_it_was_written(ports: Ports) -> None:
    ports.files.write_atomic("knowledge/people/anna.md", "Anna\n")
    assert ports.files.read_text("knowledge/./people//anna.md") == "Anna\n"
    assert ports.files.read_bytes("knowledge/people/anna.md", 1, 2) == b"nn"
    assert ports.files.stat("knowledge/people/anna.md").size == 5
    assert ports.files.exists("knowledge/people")
    assert ports.files.is_folder("knowledge/people")
    assert not ports.files.is_folder("knowledge/people/anna.md")
    assert ports.files.text_or_none("knowledge/people/bert.md") is None


async def test_an_empty_file_exists(ports: Ports) -> None:
    ports.files.write_atomic("knowledge/empty.md", "")
    assert ports.files.read_text("knowledge/empty.md") == ""
    assert [found.path for found in ports.files.walk("knowledge")] == ["knowledge/empty.md"]


async def test_a_write_is_refused_if_the_file_is_not_what_the_caller_saw(ports: Ports) -> None:
    ports.files.write_atomic("a.md", "one", new=True)
    with pytest.raises(Conflict):
        ports.files.write_atomic("a.md", "two", new=True)
    with pytest.raises(Conflict):
        ports.files.write_atomic("a.md", "two", expected="zero")
    with pytest.raises(Conflict):
        ports.files.write_atomic("b.md", "two", expected="zero")
    ports.files.write_atomic("a.md", "two", expected="one")
    assert ports.files.read_text("a.md") == "two"


async def test_a_missing_file_is_named_with_the_nearest_one(ports: Ports) -> None:
    ports.files.write_atomic("knowledge/people/anna.md", "Anna\n")
    for call in (ports.files.read_text, ports.files.stat, ports.files.remove):
        with pytest.raises(NotFound, match=r"did you mean 'knowledge/people/anna\.md'"):
            call("knowledge/people/ana.md")
    with pytest.raises(NotFound, match=r"did you mean 'knowledge/people/anna\.md'"):
        ports.files.stat("änna.md")
    ports.files.write_atomic("archive/people/anna.md", "Anna, last year\n")
    with pytest.raises(NotFound, match=r"did you mean 'knowledge/people/anna\.md'"):
        ports.files.stat("anna.md")
    with pytest.raises(Invalid, match="folder"):
        ports.files.read_text("knowledge/people")


async def test_a_path_that_some_system_refuses_is_refused(ports: Ports) -> None:
    for path in ("../a.md", "/etc/passwd", "a/.git/config", "con", "a\0b", "", "a\\b.md"):
        with pytest.raises(Refused):
            ports.files.write_atomic(path, "x")
        with pytest.raises(Refused):
            ports.files.read_text(path)


async def test_a_file_cannot_lie_below_a_file(ports: Ports) -> None:
    ports.files.write_atomic("a/b.md", "x")
    with pytest.raises(Invalid, match="a part of this path is a file"):
        ports.files.write_atomic("a/b.md/c.md", "x")
    with pytest.raises(Invalid):
        ports.files.write_atomic("a", "x")


async def test_the_version_of_a_file_changes_with_each_write(ports: Ports) -> None:
    seen = [ports.files.version("a.md")]
    for text in ("one", "two", "two"):
        ports.files.write_atomic("a.md", text)
        seen.append(ports.files.version("a.md"))
    ports.files.remove("a.md")
    assert ports.files.version("a.md") is None
    assert len(set(seen)) == 4


async def test_walking_lists_files_folder_by_folder_without_hidden_ones(ports: Ports) -> None:
    for path in ("k/b.md", "k/a/z.md", "k/a.md", "k/a/.hidden/x.md", "k/.y.md", "other/x.md", ".local/state/x.json"):
        ports.files.write_atomic(path, path)
    assert [found.path for found in ports.files.walk("k/")] == ["k/a/z.md", "k/a.md", "k/b.md"]
    assert [found.path for found in ports.files.walk()] == ["k/a/z.md", "k/a.md", "k/b.md", "other/x.md"]
    assert [found.path for found in ports.files.walk(".local/state")] == [".local/state/x.json"]
    assert list(ports.files.walk("missing")) == []
    assert dict(ports.files.contents("k")) == {path: path.encode() for path in ("k/a/z.md", "k/a.md", "k/b.md")}
    assert sorted(ports.files.names("k", "a")) == ["k/a.md"]
    assert sorted(ports.files.names("k", "")) == ["k/a.md", "k/a/z.md", "k/b.md"]


async def test_an_append_replaces_what_follows_its_offset(ports: Ports) -> None:
    ports.files.write_bytes_atomic("raw/conversations/x.md", b"head\n")
    assert ports.files.append_durable("raw/conversations/x.md", b"one\n", 5) == 9
    assert ports.files.append_durable("raw/conversations/x.md", b"two\n", 9) == 13
    assert ports.files.append_durable("raw/conversations/x.md", b"three\n", 7) == 13
    assert ports.files.read_bytes("raw/conversations/x.md") == b"head\nonthree\n"
    assert ports.files.read_bytes("raw/conversations/x.md", 6, 4) == b"nthr"
    assert ports.files.stat("raw/conversations/x.md").size == 13
    with pytest.raises(Conflict):
        ports.files.append_durable("raw/conversations/x.md", b"four\n", 20)
    with pytest.raises(NotFound):
        ports.files.append_durable("raw/conversations/y.md", b"four\n", 0)


async def test_a_sealed_file_says_so(ports: Ports) -> None:
    ports.files.write_bytes_atomic("raw/x.md", b"x", sealed=True)
    assert ports.files.stat("raw/x.md").sealed
    assert [found.sealed for found in ports.files.walk("raw")] == [True]


async def test_files_and_folders_are_moved_and_deleted(ports: Ports) -> None:
    ports.files.write_all_atomic("a", {"one.md": b"1", "two.md": b"2", "three.md": b"3"})
    ports.files.move("a", "b/c")
    assert not ports.files.exists("a")
    ports.files.move("b/c/one.md", "one.md")
    with pytest.raises(Conflict):
        ports.files.move("b/c/two.md", "one.md")
    with pytest.raises(NotFound):
        ports.files.move("nothing.md", "else.md")
    ports.files.remove_all("b/c", ["two.md", "missing.md"])
    assert [found.path for found in ports.files.walk()] == ["b/c/three.md", "one.md"]
    ports.files.remove_folder("b")
    ports.files.remove_folder("b")
    ports.files.erase("one.md")
    ports.files.erase("one.md")
    assert list(ports.files.walk()) == []


async def test_a_log_begins_anew_when_it_is_full(ports: Ports) -> None:
    for number in range(5):
        ports.files.append_log(".local/logs/x.jsonl", b"%d234567\n" % number, 20)
    kept = ports.files.read_bytes(".local/logs/x.1.jsonl") + ports.files.read_bytes(".local/logs/x.jsonl")
    assert kept.splitlines() == [b"%d234567" % number for number in range(5)]


async def test_categories_are_counted(ports: Ports) -> None:
    for path in ("knowledge/people/anna.md", "topics/email.md", "raw/conversations/2026/x.md", "archive/y.md"):
        ports.files.write_atomic(path, "x")
    assert ports.files.count() == {"person": 1, "topic": 1, "conversation": 1, "archive": 1}


async def test_a_transcript_is_read_as_it_was_written(ports: Ports) -> None:
    transcripts = Transcripts(ports.files)
    head = TranscriptHead("ses_1", AT, "Title", "title", "name:atlas")
    turns = [Turn(number, "user", f"Turn {number}\n\nwith ünïcode 🙂", AT) for number in range(1, 6)]
    path, size = transcripts.create(head, turns[0])
    last = AT
    for turn in turns[1:]:
        size = transcripts.append(path, turn, size, last)
    assert [placed.turn.content for placed in transcripts.read(path).turns] == [turn.content for turn in turns]
    assert transcripts.find("ses_1") == [path]
    assert list(transcripts.all()) == [path]


# ---------------------------------------------------------------- locks


@pytest.mark.parametrize("name", ["transcript", "files", "git"])
async def test_a_lock_excludes_tasks_and_processes(opened: Opened, name: str) -> None:
    async with opened() as one, opened() as two:
        inside = 0

        async def work(ports: Ports) -> None:
            nonlocal inside
            lock = ports.locks.transcript("s") if name == "transcript" else getattr(ports.locks, name)()
            async with lock:
                inside += 1
                assert inside == 1
                await anyio.sleep(0.01)
                inside -= 1

        async with anyio.create_task_group() as tasks:
            for ports in (one, two, one, two):
                tasks.start_soon(work, ports)


async def test_transcripts_of_different_sessions_are_locked_apart(opened: Opened) -> None:
    async with opened() as one, opened() as two, one.locks.transcript("a"):
        with anyio.fail_after(20):
            async with two.locks.transcript("b"):
                pass


async def test_locks_are_taken_in_one_order(ports: Ports) -> None:
    async with ports.locks.transcript("s"), ports.locks.files(), ports.locks.git():
        pass
    async with ports.locks.git():
        with pytest.raises(RuntimeError, match="the order is transcript, files, git"):
            async with ports.locks.files():
                pass
    async with ports.locks.transcript("s"):
        with pytest.raises(RuntimeError):
            async with ports.locks.transcript("t"):
                pass
        async with ports.locks.git():
            pass


async def test_a_lock_is_free_after_a_failure_in_it(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        with suppress(KeyError):
            async with one.locks.transcript("s"):
                raise KeyError("s")
        with anyio.fail_after(20):
            async with two.locks.transcript("s"):
                pass


async def test_one_process_maintains_at_a_time(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        held = await run_sync(one.locks.try_maintainer)
        assert held is not None
        assert await run_sync(two.locks.try_maintainer) is None
        held.release()
        held.release()
        again = await run_sync(two.locks.try_maintainer)
        assert again is not None
        again.release()


async def test_a_name_is_shared_or_taken_alone(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        first, second = one.locks.share("x"), two.locks.share("x")
        assert first is not None
        assert second is not None
        assert two.locks.try_exclusive("x") is None
        first.release()
        second.release()
        alone = two.locks.try_exclusive("x")
        assert alone is not None
        assert one.locks.share("x") is None
        alone.release(forget=True)
        again = one.locks.try_exclusive("x")
        assert again is not None
        again.release()


# ---------------------------------------------------------------- state


async def test_sessions_and_their_keys_come_back(opened: Opened) -> None:
    keys = keys_of([Turn(1, "user", "hi", AT, "a"), Turn(2, "agent", "yes", AT), Turn(3, "user", "hi", AT)])
    async with opened() as one:
        await one.state.save_session(ROW, keys[:2])
        await one.state.save_session(replace(ROW, session="t", status="closed", opened=AT - timedelta(days=1)))
    async with opened() as two:
        await two.state.save_session(replace(ROW, turns=3), keys[2:])
        assert await two.state.session("s") == replace(ROW, turns=3)
        assert await two.state.session("u") is None
        assert [row.session for row in await two.state.sessions()] == ["t", "s"]
        assert [row.session for row in await two.state.sessions(open_only=True)] == ["s"]
        assert await two.state.keys("s") == keys
        assert await two.state.last_number("s") == 3
        assert await two.state.count_turns("s", "user") == 2
        recorded = await two.state.recorded("s", "user", content_sha("hi"), "a")
        assert (recorded.same_id, recorded.last, recorded.nth) == (keys[0], keys[2], 2)
        await two.state.name_turns("s", [(2, "b"), (1, "c")])
        await two.state.name_turns("s", [(2, "d")])
        assert [key.turn_id for key in await two.state.keys("s")] == ["a", "b", None]
        await two.state.forget_keys("s")
        assert await two.state.keys("s") == []


async def test_arriving_turns_are_compared_with_recorded_ones(ports: Ports) -> None:
    keys = keys_of([Turn(1, "user", "hi", AT, "a"), Turn(2, "user", "hi", AT), Turn(3, "agent", "no", AT)])
    await ports.state.save_session(ROW, keys)
    await ports.state.save_session(replace(ROW, session="t"), keys_of([Turn(1, "user", "x", AT, "elsewhere")]))
    arriving = [("user", content_sha("hi"), "a"), ("user", content_sha("x"), "elsewhere")]
    for anywhere in (False, True):
        known = await ports.state.known("s", arriving, anywhere=anywhere)  # type: ignore[arg-type]
        assert known.ids == frozenset({"a"})
        assert known.elsewhere == (frozenset({"elsewhere"}) if anywhere else frozenset())
        assert known.nameless == {("user", content_sha("hi")): (2,)}
        assert known.counts == {("user", content_sha("hi")): 2}


async def test_values_are_stored_by_namespace_and_key(ports: Ports) -> None:
    state = ports.state
    await state.put("n", "a", {"x": [1, None, "ü\0\ud83d"]})
    await state.put("n", "b", 2)
    await state.put("m", "a", False)
    assert await state.get("n", "a") == {"x": [1, None, "ü\0\ud83d"]}
    assert await state.get_all([("n", "b"), ("n", "missing"), ("m", "a")]) == [2, None, False]
    assert await state.entries("m") == {"a": False}
    assert sorted(await state.keys_of("n")) == ["a", "b"]
    await state.remove("n", "a", "missing")
    assert await state.entries("n") == {"b": 2}
    for number in range(5):
        await state.add("list", "k", number, 3)
    assert await state.get("list", "k") == [2, 3, 4]
    assert await state.session_entry("n", "b", "m") == (2, 0, ("", ""), True)


async def test_changes_of_values_by_several_processes_add_up(opened: Opened) -> None:
    def plus(stored: Mapping[tuple[str, str], Any]) -> tuple[int, Mapping[tuple[str, str], Any]]:
        value = stored.get(("n", "k"), 0) + 1
        return value, {("n", "k"): value, ("n", "gone"): None}

    async with opened() as one, opened() as two:

        async def count(ports: Ports) -> None:
            for _ in range(10):
                await ports.state.change_entries([("n", "k"), ("n", "gone")], plus)

        async with anyio.create_task_group() as tasks:
            for ports in (one, two, one, two):
                tasks.start_soon(count, ports)
        assert await one.state.entries("n") == {"k": 40}


async def test_references_and_ids_of_folders_are_kept(ports: Ports) -> None:
    state = ports.state
    assert await state.access_since() is None
    for minute in range(3):
        await state.log_access("a.md", "read", AT + timedelta(minutes=minute))
    await state.log_access("a.md", "read", AT)
    assert await state.references(["a.md", "b.md"]) == {"a.md": 4}
    assert await state.last_accesses(["a.md", "b.md"]) == {"a.md": AT + timedelta(minutes=2)}
    assert await state.access_since() == AT
    assert await state.name_directory("/home/x", "one") == "one"
    assert await state.name_directory("/home/x", "two") == "one"
    assert await state.directory_ids() == {"/home/x": "one"}


# ---------------------------------------------------------------- live sets


def chunk(number: int, **changes: Any) -> LiveChunk:
    return replace(LiveChunk(id=f"c{number}", kind="message", turn=number, part=0, tokens=10, added=AT), **changes)


async def test_a_live_set_comes_back_in_order(ports: Ports) -> None:
    chunks = [chunk(2, tags=("x", "ž")), chunk(1, form="cold"), chunk(3, kind="file", name="a\nb", mtime=AT)]
    await ports.live.put("s", chunks)
    assert await ports.live.of("s") == [chunks[1], chunks[0], chunks[2]]
    assert await ports.live.of_kinds("s", ["message"]) == [chunks[0]]
    assert await ports.live.tokens("s") == 20
    assert await ports.live.whole(None) == frozenset({"c2", "c3"})
    assert await ports.live.cold_turns([("s", 1), ("s", 2)]) == {("s", 1): "c1"}
    assert await ports.live.any_of("s")
    assert not await ports.live.any_of("t")
    assert await ports.live.knows("c1")
    assert await ports.live.shortened_chunks("t") is None
    await ports.live.put("t", [chunk(4, form="summary", shown="in short")])
    assert await ports.live.shortened_chunks("s") == [Standing("c1", "message", 1, 0, "cold")]
    assert await ports.live.shortened_chunks("t") == [Standing("c4", "message", 4, 0, "summary", "in short")]
    assert await ports.live.sessions() == ["s", "t"]
    assert await ports.live.whole("s") == frozenset({"c2", "c3"})
    assert await ports.live.whole("t") == frozenset()
    assert await ports.live.cold_turns([]) == {}
    await ports.live.clear("s")
    assert await ports.live.of("s") == []


async def test_a_turn_is_added_only_to_a_set_that_holds_the_turn_before(ports: Ports) -> None:
    keep, later, latest = timedelta(minutes=5), AT + timedelta(minutes=4), AT + timedelta(minutes=13)
    first, second, third = Reading(AT, 10, 500), Reading(later, 20), Reading(latest, 20)
    assert await ports.live.add("s", 2, [chunk(2)], AT, None, keep) is None
    assert await ports.live.shortened_chunks("s") is None
    assert await ports.live.add("s", 1, [chunk(1)], AT, 500, keep, {("n", "k"): 1}) == LiveSetCounts(first, (), 1, 0, 0)
    assert await ports.live.add("s", 2, [chunk(2)], later, None, keep) == LiveSetCounts(second, (first,), 2, 0, 0)
    assert await ports.live.readings("s") == [first, second]
    assert await ports.live.add("s", 4, [chunk(4)], later, None, keep, {("n", "k"): 2}) is None
    assert await ports.state.get("n", "k") == 2
    await ports.live.add("s", 3, [chunk(3, form="cold")], latest, None, keep)
    assert await ports.live.readings("s") == [second, third], "older readings are not kept"
    assert await ports.live.counts("s") == LiveSetCounts(third, (second,), 2, 1, 1)
    await ports.live.clear("s")
    assert await ports.live.readings("s") == []


async def test_the_state_of_a_session_is_replaced_as_a_whole(ports: Ports) -> None:
    await ports.live.put("s", [chunk(1), chunk(2)])
    await ports.state.put("n", "a", 1)
    before = await ports.live.read_state("s", [("n", "a"), ("n", "b")])
    assert before.entries == {"n": {"a": 1}}
    assert before.chunks == [chunk(1), chunk(2)]
    await ports.live.replace_state("s", [("n", "a"), ("n", "b")], {"n": {"b": 2}}, [chunk(3)])
    after = await ports.live.read_state("s", [("n", "a"), ("n", "b")])
    assert (after.entries, after.chunks) == ({"n": {"b": 2}}, [chunk(3)])


# ---------------------------------------------------------------- changes and index


async def test_a_listener_gets_the_changes_that_are_published(ports: Ports) -> None:
    async with ports.changes.listen() as changes:
        ports.changes.publish(Change("file", "a.md"))
        with anyio.fail_after(20):
            assert await changes.receive() == Change("file", "a.md")


async def test_a_search_finds_what_was_written_changed_and_deleted(ports: Ports) -> None:
    index = ports.index(None)
    ports.files.write_atomic("knowledge/a.md", "# A\n\nThe harbour crane lifts containers.\n")
    ports.files.write_atomic("knowledge/b.md", "# B\n\nThe office moved to Berlin.\n")
    await index.refresh()

    async def found(text: str, filters: Filters | None = None) -> list[str]:
        candidates = await candidates_of(index, parse_query(text, AT), filters)
        return sorted(candidate.path for candidate in values_of(candidates) if candidate.matched)

    assert await found("lifting containers") == ["knowledge/a.md"]
    ports.files.write_atomic("knowledge/a.md", "# A\n\nThe tower crane was sold in Hamburg.\n")
    await index.apply(["knowledge/a.md"])
    assert await found("containers") == []
    assert await found('"tower crane"') == ["knowledge/a.md"]
    assert await found('crane -"was sold"') == []
    ports.files.remove("knowledge/a.md")
    await index.apply(["knowledge"])
    assert await found("crane") == []
    assert await found("Berlin", Filters(category="journal")) == []
    await assert_as_rebuilt(index)
    compared, differing = await index.compare_sample(10)
    assert (compared, differing) == (1, ())
