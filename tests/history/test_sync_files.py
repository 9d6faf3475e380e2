"""Files that two copies moved, made twice, or wrote with other line ends; copies that lack history or a checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcp_server.checkpoints.checkpoint import make
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import Unavailable
from mcp_server.history.sync import sync
from mcp_server.knowledge.anchor import anchor, anchors
from mcp_server.memory import Memory
from mcp_server.recovery.recover import recover
from mcp_server.status.status import status
from tests.conftest import Clock
from tests.gitting import git, write
from tests.history.two_copies import CORE, TESTS, copy, edit, same

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
HEAD = "---\ntype: journal\ndate: 2026-01-02\nsessions: [{}]\n---\n\n## 2026-01-02\n\n### Ops\n{}"


async def test_what_one_has_moved_and_the_other_changed_is_changed_where_it_is_now(two: tuple[Memory, Memory]) -> None:
    one, other = two
    old, new = "knowledge/journal/2026-01-02.md", "archive/journal/2026-01-02.md"
    write(one.disk.root, old, HEAD.format("s1", "".join(f"- line {number}\n" for number in range(20))))
    await sync(one)
    await sync(other)
    for mover, editor, line in ((one, other, "- from the other"), (other, one, "- from the first")):
        source, target = (old, new) if mover is one else (new, old)
        (mover.disk.root / target).parent.mkdir(parents=True, exist_ok=True)
        (mover.disk.root / source).rename(mover.disk.root / target)
        text = editor.files.read_text(source)
        write(editor.disk.root, source, text.replace("- line 7\n", f"- line 7\n{line}\n"))

        await sync(mover)
        done = await sync(editor)
        await sync(mover)

        assert same(one, other)
        assert done.contested == ()
        assert not editor.files.exists(source)
        assert f"- line 7\n{line}\n" in mover.files.read_text(target)


async def test_a_file_that_was_moved_to_where_the_other_made_one_loses_neither(two: tuple[Memory, Memory]) -> None:
    one, other = two
    write(one.disk.root, "knowledge/people/ana.md", "# Ana\n\n- likes tea\n- sails\n")
    await sync(one)
    await sync(other)
    git(one.disk.root, "mv", "knowledge/people/ana.md", "knowledge/people/ana-kovac.md")
    git(one.disk.root, "commit", "--quiet", "--message", "renamed by hand")
    write(other.disk.root, "knowledge/people/ana.md", "# Ana\n\n- likes tea\n- sails\n- bakes\n")
    write(other.disk.root, "knowledge/people/ana-kovac.md", "# Ana Kovač\n\n- lives in Split\n")

    await sync(one)
    await sync(other)
    await sync(one)

    assert same(one, other)
    texts = [path.read_text() for path in (one.disk.root / "knowledge/people").glob("ana*.md")]
    assert all(any(line in text for text in texts) for line in ("- likes tea", "- bakes", "- lives in Split"))


async def test_both_make_the_same_new_file(two: tuple[Memory, Memory]) -> None:
    one, other = two
    path = "knowledge/procedures/deploy.md"
    write(one.disk.root, path, "# Deploy\n\n- run the tests\n- tell Marko\n")
    write(other.disk.root, path, "# Deploy\n\n- run the tests\n- make a backup\n")

    await sync(one)
    await sync(other)
    await sync(one)

    assert same(one, other)
    lines = one.files.read_text(path).split("\n")
    assert sorted(line for line in lines if line) == ["# Deploy", "- make a backup", "- run the tests", "- tell Marko"]


@pytest.mark.parametrize("autocrlf", ["true", "input", "false"])
async def test_a_machine_with_other_line_ends_changes_no_line(two: tuple[Memory, Memory], autocrlf: str) -> None:
    one, other = two
    path, plain = "knowledge/people/ana.md", "knowledge/reference/list.txt"
    git(other.disk.root, "config", "core.autocrlf", autocrlf)
    git(other.disk.root, "config", "core.safecrlf", "true")
    write(one.disk.root, path, "# Ana\n\n- likes tea\n- sails\n")
    write(one.disk.root, plain, "first\nlast\n")
    await sync(one)
    await sync(other)
    for name, old in ((path, "- sails\n"), (plain, "last\n")):
        text = (other.disk.root / name).read_bytes().decode().replace("\r\n", "\n")
        edited = text.replace(old, f"{old}- bakes\n").replace("\n", "\r\n")
        (other.disk.root / name).write_bytes(edited.encode())
    edit(one, path, "- likes tea\n", "- likes tea\n- lives in Split\n")
    edit(one, plain, "first\n", "first\nsecond\n")

    await sync(one)
    done = await sync(other)
    await sync(one)

    assert done.left_out == ()
    assert done.contested == ()
    assert one.files.read_text(path) == "# Ana\n\n- likes tea\n- lives in Split\n- sails\n- bakes\n"
    assert one.files.read_text(plain).replace("\r", "").split() == ["first", "second", "last", "-", "bakes"]
    assert git(one.disk.root, "rev-parse", "HEAD^{tree}") == git(other.disk.root, "rev-parse", "HEAD^{tree}")
    assert git(other.disk.root, "status", "--porcelain") == ""


async def test_a_checkpoint_of_the_other_machine_brings_the_state_back_and_says_where_its_knowledge_is(
    two: tuple[Memory, Memory],
) -> None:
    one, other = two
    await observe(one, NewTurn("user", "Decision: the cache has two files", "s1"), TESTS)
    await anchor(one, "cache", True)
    kept = await make(one, "s1", "asked")
    await anchor(one, "cache", False)
    await end_session(one, "s1")
    await sync(one)
    await sync(other)

    done = await recover(other, kept.id, TESTS, apply=True)

    assert done.applied
    assert [anchor.item for anchor in anchors(other)] == ["cache"]
    assert "refs/memory" not in git(other.disk.root, "ls-remote", "origin")
    with pytest.raises(Unavailable, match="made on another machine"):
        await recover(other, kept.id, TESTS, apply=True, knowledge=True)


async def test_a_shallow_copy_syncs_both_ways_and_says_that_history_begins_late(
    two: tuple[Memory, Memory], tmp_path: Path, hub: Path, clock: Clock
) -> None:
    one, _ = two
    for number in range(3):
        write(one.disk.root, "knowledge/people/ana.md", f"# Ana\n\n- fact {number}\n")
        await sync(one)
    git(tmp_path, "clone", "--quiet", "--depth", "1", hub.as_uri(), "shallow")
    async with copy(tmp_path / "shallow", clock) as shallow:
        edit(shallow, "knowledge/people/ana.md", "fact 2", "fact 2\n- from the shallow one")
        edit(one, CORE, "Zurich", "Bern")
        await sync(one)
        await sync(shallow)
        await sync(one)

        assert same(one, shallow)
        assert "from the shallow one" in one.files.read_text("knowledge/people/ana.md")
        assert "Bern" in shallow.files.read_text(CORE)
        assert "fetch --unshallow" in (await status(shallow, "git")).views["git"]["history"]
        assert (await status(one, "git")).views["git"]["history"] == "whole"
