"""A part of the workspace is missing or broken: the server says what is wrong, loses nothing and goes on serving."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest

from tests.end_to_end.servers import (
    DATABASE_TROUBLE,
    READ_ONLY,
    SMALL,
    Served,
    assert_clear,
    command,
    done,
    eventually,
    facts,
    failed,
    files_below,
    mounting,
    served,
    transcripts,
    turns,
)
from tests.serving import text

pytestmark = pytest.mark.anyio

GARBAGE = random.Random(7).randbytes(200_000)
MEGABYTES = 2


async def test_a_workspace_that_was_moved_away_is_not_made_anew_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    root, away = tmp_path / "memory", tmp_path / "elsewhere"
    async with served(root) as server:
        await server.call("observe", role="user", content="The blue boat lies in Senj.", session="s")
        root.rename(away)
        (root / ".local" / "queue").mkdir(parents=True)  # as the hook command makes it
        for tool, given in {
            "observe": {"role": "user", "content": "And the red one in Rab.", "session": "s"},
            "remember": {"content": "The red boat lies in Rab."},
            "search": {"query": "boat"},
            "status": {},
        }.items():
            assert "is gone: it was moved or deleted" in await server.refused(tool, **given)
        assert files_below(root) == {}
        shutil.rmtree(root)
        away.rename(root)
        await server.call("observe", role="user", content="And the red one in Rab.", session="s")
        await eventually(lambda: server.finds("red one"))
        root.rename(away)
        assert server.stderr().count("looking for changes failed") <= 2
    assert not root.exists()
    assert turns(away) == {"s": [(1, "The blue boat lies in Senj."), (2, "And the red one in Rab.")]}


BROKEN = {
    "memory-config.yaml": "search:\n  embedder: [unclosed\n",
    "knowledge/reference/boats.md": "---\ntitle: [unclosed\n---\n# Boats\n\nThe blue boat lies in Senj.\n",
    "knowledge/projects/_map.yaml": "keys: {name:one: [unclosed\n",
}


async def test_broken_yaml_in_three_files_is_named_and_stops_nothing(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    await done(root, "init")
    await done(root, "observe", "We sail on Friday.", "--session", "before", "--project", "one")
    whole = {path: (root / path).read_text() for path in BROKEN if (root / path).exists()}
    for path, broken in BROKEN.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(broken)
    async with served(root) as server:
        await server.call("observe", role="user", content="And on Sunday?", session="s", project="one")
        await server.call("remember", content="Ana sails too.", project="global")
        await server.call("remember", content="Ana pays for the boat.", session="s")
        assert "Senj" in str(await server.hits("blue boat"))
        assert "Friday" in str(await server.hits("when do we sail"))
        await server.call("compile_context", message="When do we sail?", session="s")
        await eventually(lambda: all_named(server))
        assert_clear(await server.problems())
        doctor = (await command(root, "doctor")).stdout
        assert all(path.rpartition("/")[2] in doctor.replace("\n", "") for path in BROKEN), doctor
        assert "_map.yaml" in await failed(root, "project", "list")
        assert "_map.yaml" in await failed(root, "project", "rename", "one", "two", "--apply")
        assert {path: (root / path).read_text() for path in BROKEN} == BROKEN
        for path in BROKEN:
            (root / path).write_text(whole.get(path, "# Boats\n\nThe blue boat lies in Rijeka.\n"))
        await eventually(lambda: mended(server))
        assert "one" in await done(root, "project", "list")
    async with served(root) as server:
        await server.call("status")
        assert await server.problems() == ""
    assert turns(root) == {"before": [(1, "We sail on Friday.")], "s": [(1, "And on Sunday?")]}


async def all_named(server: Served) -> bool:
    problems = await server.problems()
    return all(path in problems for path in BROKEN)


async def mended(server: Served) -> bool:
    problems = await server.problems()
    return "boats.md" not in problems and "_map.yaml" not in problems


async def test_settings_that_break_under_a_running_server_change_nothing_until_the_next_start(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        await server.call("observe", role="user", content="Hello.", session="s")
        (root / "memory-config.yaml").write_bytes(GARBAGE)
        await server.call("observe", role="agent", content="Good day.", session="s")
        assert "memory-config.yaml" in await done(root, "status", "settings")
        shutil.rmtree(root / "knowledge")
        await server.call("remember", content="Ana sails too.", project="global")
    assert [said for _, said in turns(root)["s"]] == ["Hello.", "Good day."]
    assert facts(root) == {"Ana sails too.": 1}


async def test_a_message_of_megabytes_is_kept_whole_and_found_in_passages(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    words = ["harbour", "sail", "mast", "rope", "wind", "wave", "anchor", "deck", "keel", "rudder", "gull", "pier"]
    chance = random.Random(3)
    lines = [" ".join(chance.choices(words, k=100)) for _ in range(MEGABYTES * 1_000_000 // 560)]
    lines[len(lines) // 2] += " The xylophonist plays at noon."
    lines[-1] += " The quetzal sleeps."
    content = "\n\n".join(lines)
    assert len(content) > MEGABYTES * 1_000_000 * 0.95
    async with served(root) as server:
        await server.call("observe", role="user", content="A small one first.", session="s")
        quiet = server.peak_megabytes()
        await server.call("observe", role="user", content=content, session="s")
        (written,) = transcripts(root).values()
        assert content in written
        await server.call("observe", role="agent", content="That was long.", session="s")
        for word in ("xylophonist", "quetzal"):
            await eventually(lambda word=word: server.finds(word))  # type: ignore[misc]
            (hit, *_) = await server.hits(word)
            assert hit["turn"] == 2
            assert word in hit["snippet"]
            assert len(hit["snippet"]) < 5_000
            assert hit["end"] - hit["start"] < 100
            inside = await server.call("read", path=hit["path"], start=hit["start"], end=hit["end"], max_tokens=5000)
            assert word in inside
        asked = "When does the xylophonist play?"  # by the CLI: this session has it in its window already
        assert "xylophonist" in await done(root, "compile", asked, "--budget", "1024")
        grown = server.peak_megabytes() - quiet
        print(f"a message of {len(content) / 1e6:.0f} MB took {grown:.0f} MB at most, {quiet:.0f} MB before")
        # What holds the message at once: the line that arrives and what is made of it, the transcript while it is read
        # back (bytes, text, content), and the index, which takes it in meanwhile. A busy machine does more of it at the
        # same time. NumPy, the embedder and the network that reads sentences are loaded meanwhile: 120 MB.
        assert grown < 120 + 30 * MEGABYTES
    assert [number for number, _ in turns(root)["s"]] == [1, 2, 3]


async def test_nul_bytes_are_kept_where_they_were_said_and_refused_where_they_name_something(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        await server.call("observe", role="user", content="The \0blue\0 boat.", session="s")
        calls = [{"name": "a\0b", "summary": "\0"}]
        await server.call("observe", role="user", content="With a tool.", session="calls", tool_calls=calls)
        await server.call("search", query="blue\0 boat")
        await server.call("compile_context", message="The blue\0 boat")
        for named in ({"session": "s\0"}, {"turn_id": "\0"}, {"name": "A\0na"}):
            await server.refused("observe", role="user", content="No.", **{"session": "s", **named})
        for tool in ("compile_context", "status"):
            await server.refused(tool, session="s\0")
        await server.refused("read", path="knowledge/\0.md")
        await server.refused("remember", content="Ana sails.", path="knowledge/\0.md")
        (root / "knowledge" / "reference" / "nothing.md").write_bytes(b"# Boats\0\n\nThe green boat.\n")
        await eventually(lambda: named_in_problems(server, "nothing.md"))
        await server.refused("read", path="knowledge/reference/nothing.md")
        memory = root / "knowledge" / "memory" / "MEMORY.md"
        memory.write_bytes(before := memory.read_bytes() + b"\0")
        assert "MEMORY.md" in await server.refused("remember", content="Ana sails.", project="global")
        assert memory.read_bytes() == before
        await done(root, "observe", "--session", "s", said="Piped \0 in.")
        shown = await done(root, "session", "show", "s")
        assert "Piped" in shown
    assert turns(root)["s"] == [(1, r"The \u{0}blue\u{0} boat."), (2, r"Piped \u{0} in.")]
    assert r"> [tool:a\u{0}b] \u{0}" in "".join(transcripts(root).values())


async def named_in_problems(server: Served, name: str) -> bool:
    return name in await server.problems()


async def test_without_git_all_but_history_works(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    (tmp_path / "empty").mkdir()
    nothing = {"PATH": str(tmp_path / "empty"), "GIT_PYTHON_GIT_EXECUTABLE": ""}
    async with served(root, env=nothing) as server:
        await server.call("observe", role="user", content="The blue boat lies in Senj.", session="s")
        await server.call("remember", content="Ana sails too.", project="global")
        await eventually(lambda: server.finds("blue boat"))
        await server.call("compile_context", message="Where is the boat?")
        assert "git" in await server.refused("read", path="knowledge/memory/MEMORY.md", at="2026-01-01")
        assert "git" in await server.problems()
    assert "git" in await done(root, "session", "end", "s", env=nothing)
    doctor = await command(root, "doctor", env=nothing)
    assert "install git" in doctor.stdout
    assert_clear(doctor.stdout)
    async with served(root) as server:  # git is there now: what waited is committed
        await eventually(lambda: committed(root))
        await server.call("status")
    assert facts(root) == {"Ana sails too.": 1}


async def committed(root: Path) -> bool:
    (path,) = transcripts(root)
    return (await command(root, "read", path, "--at", "HEAD")).returncode == 0


async def test_arguments_of_the_wrong_type_are_named_and_the_next_call_is_served(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    wrong: list[tuple[str, dict[str, object], str]] = [
        ("observe", {"role": 5, "content": "x"}, "role"),
        ("observe", {"role": "user", "content": {"a": 1}}, "content"),
        ("observe", {"role": "user", "content": None}, "content"),
        ("observe", {"role": "user"}, "content"),
        ("observe", {"role": "user", "content": "x", "session": ["s"]}, "session"),
        ("observe", {"role": "user", "content": "x", "at": "yesterday"}, "at"),
        ("observe", {"role": "user", "content": "x", "at": 1e300}, "at"),
        ("observe", {"role": "user", "content": "x", "chunks": "all"}, "chunks"),
        ("observe", {"role": "user", "content": "x", "tool_calls": [{"summary": "no name"}]}, "tool_calls"),
        ("observe", {"role": "user", "content": "x", "context_tokens": -1}, "context_tokens"),
        ("observe", {"role": "user", "content": "x", "important": "perhaps"}, "important"),
        ("observe", {"role": "user", "content": "x", "sesion": "s"}, "session"),
        ("search", {"query": 5.5}, "query"),
        ("search", {"query": "x", "limit": "many"}, "limit"),
        ("search", {"query": "x", "limit": 10**30}, "limit"),
        ("search", {"query": "x", "since": "soon"}, "since"),
        ("read", {"path": ["a"]}, "path"),
        ("read", {"path": "knowledge/memory/MEMORY.md", "start": 5, "end": 2}, "5 to 2"),
        ("read", {"path": "knowledge/memory/MEMORY.md", "max_tokens": 1e12}, "max_tokens"),
        ("remember", {"content": ""}, "content"),
        ("remember", {"content": "x", "kind": "secret"}, "kind"),
        ("compile_context", {"budget": "large"}, "budget"),
        ("compile_context", {"format": "pdf"}, "format"),
        ("status", {"view": 1}, "view"),
    ]
    async with served(root) as server:
        for tool, arguments, named in wrong:
            assert named in await server.refused(tool, **arguments), (tool, arguments)
        assert await server.call("status")
        assert server.stderr() == ""
    assert transcripts(root) == {}


async def test_an_extractor_of_another_package_that_fails_keeps_nobody_from_their_knowledge(tmp_path: Path) -> None:
    package = tmp_path / "packages"
    (package / "theirs-1.0.dist-info").mkdir(parents=True)
    (package / "theirs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (package / "theirs-1.0.dist-info" / "entry_points.txt").write_text(
        "[context_manager.extractors]\ntheirs = theirs:FAILS\nbroken = theirs:NOTHING\n"
    )
    (package / "theirs.py").write_text(
        "from mcp_server.knowledge.extractors import Extractor\n"
        "FAILS = Extractor('theirs', 1, lambda turns, context: 1 / 0)\n"
    )
    root, env = tmp_path / "memory", {"PYTHONPATH": str(package)}
    await done(root, "observe", "I adopted two kittens yesterday.", "--session", "s1", env=env)
    await done(root, "session", "end", "s1", env=env)
    assert "1 conversations read by" in (said := await done(root, "reconstruct", "create", "a", env=env)), said
    assert "theirs" in said
    await done(root, "extract", "--apply", env=env)
    assert "kittens" in (root / "knowledge" / "people" / "user.md").read_text()


FULL = f'{SMALL}; cp -R "$2/." "$1"; cat /dev/zero > "$1/filler" 2> /dev/null || true'
REFUSED = "read-only"


async def a_memory(root: Path) -> None:
    """A workspace with something in it, and no process that has it open."""
    await done(root, "observe", "The blue boat lies in Senj.", "--session", "s")
    await done(root, "remember", "Ana sails too.")
    await done(root, "reset", "--index", "--apply")


async def test_a_read_only_workspace_is_served_and_says_what_it_cannot_do(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    await a_memory(root)
    before = files_below(root)
    prefix = mounting(READ_ONLY, root)
    async with served(root, prefix=prefix) as server:
        assert [hit.get("session") for hit in await server.hits("blue boat")] == ["s"]
        assert "Ana" in await server.call("read", path="knowledge/memory/MEMORY.md")
        assert "Senj" in await server.call("compile_context", message="Where does the blue boat lie?")
        assert "Ana" in await server.call("compile_context", session="s")
        assert "cannot be written" in await server.problems()
        for _ in range(2):
            assert REFUSED in await server.refused("observe", role="agent", content="A fine harbour.", session="s")
            assert REFUSED in await server.refused("observe", role="user", content="Something else.")
            assert REFUSED in await server.refused("remember", content="Ivo sails too.", project="global")
            assert REFUSED in await server.refused("remember", content="Ivo sails too.", session="s")
        assert [hit.get("session") for hit in await server.hits("blue boat")] == ["s"]
        assert "Traceback" not in server.stderr()
    assert REFUSED in await failed(root, "observe", "No.", prefix=prefix)
    assert REFUSED in await failed(root, "session", "end", "s", prefix=prefix)
    assert "Senj" in await done(root, "search", "blue boat", prefix=prefix)
    assert_clear((await command(root, "doctor", prefix=prefix)).stdout)
    assert files_below(root) == before
    async with served(root) as server:
        assert "turn 2 recorded" in await server.call("observe", role="agent", content="A fine harbour.", session="s")


async def test_a_folder_that_cannot_hold_a_workspace_is_named_and_tried_again(tmp_path: Path) -> None:
    root = tmp_path / "disk" / "memory"
    root.parent.mkdir()
    async with served(root, prefix=mounting(READ_ONLY, root.parent), beside=tmp_path / "processes") as server:
        for _ in range(2):
            assert REFUSED in await server.refused("observe", role="user", content="Hello.")
            assert REFUSED in await server.refused("status")
        assert len((await server.client.list_tools()).tools) == 10
    assert not root.exists()


async def fill(server: Served, disk: Path) -> Path:
    """Leaves not one block free on the server's disk; returns the file that took them."""
    filler = server.inside(disk) / "filler"
    size = 1 << 20
    with filler.open("ab", buffering=0) as stream:
        while size:
            try:
                stream.write(b"\0" * size)
            except OSError:
                size //= 2
    return filler


async def test_on_a_full_disk_what_is_there_is_served_and_room_is_used_again(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    root.mkdir()
    said: list[str] = []
    known: list[str] = []
    async with served(root, prefix=mounting(SMALL, root)) as server:
        await server.call("remember", content="Ana sails too.", project="global")
        for number in range(3):
            await server.call("observe", role="user", content=f"number {number}", session="s", turn_id=f"t{number}")
            said.append(f"number {number}")
        await eventually(lambda: server.finds("number"))
        filler = await fill(server, root)
        before = (server.inside(root) / "knowledge" / "memory" / "MEMORY.md").read_bytes()
        refusals: list[str] = []

        async def one(number: int) -> None:
            arguments = {"role": "user", "content": f"number {number} " + "x" * 9000, "session": "s"}
            refusals.append(await server.refused("observe", **arguments, turn_id=f"t{number}"))
            refusals.append(await server.refused("remember", content=f"fact {number} " + "y" * 9000, project="global"))

        async with anyio.create_task_group() as tasks:
            for number in range(3, 9):
                tasks.start_soon(one, number)
        assert {("disk is full" in refusal) for refusal in refusals} == {True}, refusals
        assert turns(server.inside(root)) == {"s": [(n + 1, content) for n, content in enumerate(said)]}
        assert (server.inside(root) / "knowledge" / "memory" / "MEMORY.md").read_bytes() == before
        assert await server.hits("number")
        assert "Ana" in await server.call("read", path="knowledge/memory/MEMORY.md")
        assert "Ana" in await server.call("compile_context", message="Who sails?")
        await server.call("status")
        filler.unlink()
        for number in range(3, 9):
            said.append(f"number {number} " + "x" * 9000)
            await server.call("observe", role="user", content=said[-1], session="s", turn_id=f"t{number}")
            known.append(f"fact {number} " + "y" * 9000)
            await server.call("remember", content=known[-1], project="global")
        assert turns(server.inside(root)) == {"s": [(n + 1, content) for n, content in enumerate(said)]}
        assert facts(server.inside(root)) == dict.fromkeys(["Ana sails too.", *known], 1)
        assert await server.hits("number")
        assert not [path for path in files_below(server.inside(root)) if path.endswith(".tmp")]
        assert "Traceback" not in server.stderr()


async def test_a_start_on_a_full_disk_serves_what_is_there(tmp_path: Path) -> None:
    root, kept = tmp_path / "memory", tmp_path / "kept"
    await a_memory(root)
    shutil.copytree(root, kept)
    async with served(root, prefix=mounting(FULL, root, kept)) as server:
        assert [hit.get("session") for hit in await server.hits("blue boat")] == ["s"]
        assert "Ana" in await server.call("read", path="knowledge/memory/MEMORY.md")
        assert "Ana" in await server.call("compile_context", message="Who sails?")
        await server.refused("observe", role="agent", content="A fine harbour. " * 1000, session="s")
        assert turns(server.inside(root)) == {"s": [(1, "The blue boat lies in Senj.")]}
        assert await server.problems()
        (server.inside(root) / "filler").unlink()
        assert "turn 2 recorded" in await server.call("observe", role="agent", content="A fine harbour.", session="s")
        assert "Traceback" not in server.stderr()


async def test_an_index_deleted_under_a_running_server_is_read_around_and_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server, served(root) as other:
        await server.call("observe", role="user", content="The blue boat lies in Senj.", session="s")
        await eventually(lambda: server.finds("blue boat"))
        for _ in range(3):
            shutil.rmtree(root / ".local" / "index")
            for one in (server, other):
                assert [hit.get("session") for hit in await one.hits("blue boat")] == ["s"]
            await server.call("compile_context", message="Where is the blue boat?")
            await eventually(lambda: server.finds("blue boat"))
            await eventually(lambda: other.finds("blue boat"))
        await other.call("observe", role="agent", content="A fine harbour.", session="s")
        await eventually(lambda: server.finds("harbour"))
    assert turns(root) == {"s": [(1, "The blue boat lies in Senj."), (2, "A fine harbour.")]}


async def test_garbage_in_the_index_is_read_around_and_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        await server.call("observe", role="user", content="The blue boat lies in Senj.", session="s")
        await eventually(lambda: server.finds("blue boat"))
        spoil_index(root)
        assert [hit.get("session") for hit in await server.hits("blue boat")] == ["s"]
        await server.call("compile_context", message="Where is the blue boat?")
        await server.call("observe", role="agent", content="A fine harbour.", session="s")
        await eventually(lambda: server.finds("harbour"))
        assert await server.problems() == ""
    spoil_index(root)
    (root / ".local" / "index" / "memory-x.current").write_bytes(GARBAGE)
    async with served(root) as server:
        (hit,) = await server.hits("blue boat")  # the turn, or the line about it on a page
        assert "The blue boat lies in Senj." in str(hit)
        await eventually(lambda: server.finds("harbour"))
        assert await server.problems() == ""


def spoil_index(root: Path) -> None:
    """Writes garbage over every database of the index and its write-ahead log."""
    spoil((root / ".local" / "index").glob("*.db*"))


def spoil(databases: Iterable[Path]) -> None:
    """Writes garbage over the given files of SQLite databases.

    The `-shm` files are left alone. A running server maps them into its memory, and the operating system kills
    any process that reads a mapped file at the moment when it is cut to nothing.
    """
    for path in databases:
        if not path.name.endswith("-shm"):
            path.write_bytes(GARBAGE)


async def test_a_state_of_garbage_is_moved_aside_and_read_back_from_the_transcripts(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    turn = {"role": "user", "content": "continue", "session": "s"}
    async with served(root) as server:
        await server.call("observe", **turn, turn_id="t1")
        await server.call("observe", role="agent", content="Done.", session="s")
    state = root / ".local" / "state.db"
    for beside in state.parent.glob("state.db-*"):
        beside.unlink()
    state.write_bytes(GARBAGE)
    async with served(root) as first, served(root) as second, anyio.create_task_group() as tasks:
        for server in (first, second):  # both find it broken at once
            tasks.start_soon(once_more, server, turn)
    async with served(root) as server:
        assert "turn 3 recorded" in await server.call("observe", **turn, turn_id="t2")
        logs = server.stderr()
    assert [said for _, said in turns(root)["s"]] == ["continue", "Done.", "continue"]
    (aside,) = root.glob(".local/state.db.damaged-*")
    assert aside.read_bytes() == GARBAGE
    assert not DATABASE_TROUBLE.search(logs)


async def once_more(server: Served, turn: dict[str, str]) -> None:
    answer = await server.call("observe", **turn, turn_id="t1")
    assert "turn 1 was already recorded" in answer


async def test_a_state_that_turns_to_garbage_under_a_running_server_is_replaced(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server, served(root) as other:
        await server.call("observe", role="user", content="one", session="s", turn_id="t1")
        await server.call("observe", role="user", content="first", session="r", turn_id="t1")
        spoil(root.glob(".local/state.db*"))
        assert "Core Memory" in await server.call("read", path="knowledge/memory/MEMORY.md")
        for one, number in ((server, 2), (other, 3), (server, 4), (other, 5)):
            turn = {"role": "user", "content": f"number {number}", "session": "s", "turn_id": f"t{number}"}
            result = await one.client.call_tool("observe", turn)
            if result.is_error:  # whoever finds it says so once
                assert "Repeat the call" in text(result)
                await one.call("observe", **turn)
        assert "turn 1 was already" in await other.call(
            "observe", role="user", content="first", session="r", turn_id="t1"
        )
        assert "damaged" in await server.problems() + await other.problems()
    assert turns(root) == {"s": [(1, "one"), *((n, f"number {n}") for n in (2, 3, 4, 5))], "r": [(1, "first")]}


async def test_the_keys_come_back_after_the_machines_own_folder_was_deleted(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    said = [
        ("user", "continue"),
        ("agent", "Done."),
        ("user", "continue"),
        ("agent", "Again."),
        ("user", "To the harbour."),
    ]
    async with served(root) as server:
        for number, (role, content) in enumerate(said, start=1):
            identity = {"turn_id": f"t{number}"} if number < 4 else {}
            await server.call("observe", role=role, content=content, session="s", **identity)
    shutil.rmtree(root / ".local")
    async with served(root) as server:
        for _ in range(2):
            for number in (1, 2, 3):
                again = {"role": said[number - 1][0], "content": said[number - 1][1], "turn_id": f"t{number}"}
                assert f"turn {number} was already" in await server.call("observe", session="s", **again)
            assert "turn 5 was already" in await server.call(
                "observe", role="user", content="To the harbour.", session="s"
            )
            shutil.rmtree(root / ".local", ignore_errors=True)  # again, under the server, which also takes files away
        assert "turn 6 recorded" in await server.call("observe", role="user", content="continue", session="s")
        await eventually(lambda: server.finds("harbour"))
    assert [content for _, content in turns(root)["s"]] == [content for _, content in [*said, ("user", "continue")]]
