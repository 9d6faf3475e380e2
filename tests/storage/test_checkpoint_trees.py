"""The knowledge as it is, kept in git or as copies: every byte, nothing that may not be copied, nothing of the user's
touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_server.errors import Unavailable
from mcp_server.storage.checkpoint_files import LARGEST, CheckpointTrees
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.git.git import Git
from tests.gitting import git

FILES = {
    "knowledge/memory/MEMORY.md": b"# Memory\n",
    "knowledge/people/ana.md": b"# Ana\r\n\r\nline ends of another system\r\n",
    'knowledge/people/\xc4\x8desma i "voda".md'.encode("latin-1").decode(): b"\xff\xfe no text",
    "topics/harbour.md": b"",
    "anchors.yaml": b"anchors: []\n",
}
SECRET = b"The key is sk-ant-api03-" + b"Ab3dEf6hIj" * 9 + b"\n"


@pytest.fixture(params=["git", "copies"])
def trees(tmp_path: Path, request: pytest.FixtureRequest) -> CheckpointTrees:
    """The trees of a workspace that has a repository, or none."""
    root = tmp_path / "memory"
    root.mkdir()
    if request.param == "git":
        Git(root).init()
        (root / ".gitattributes").write_text("*.md text eol=lf\n")
    files = WorkspaceFiles(root)
    for path, data in FILES.items():
        files.write_bytes_atomic(path, data)
    return CheckpointTrees(files, Git(files.root))


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str, bytes], None]:
    return WorkspaceFiles(tmp_path / "memory").write_bytes_atomic


def test_every_byte_comes_back_whatever_became_of_the_files(
    trees: CheckpointTrees, put: Callable[[str, bytes], None], tmp_path: Path
) -> None:
    taken = trees.take("ckp_1", trees.contents())
    for path in FILES:
        (tmp_path / "memory" / path).unlink()
    put("knowledge/memory/MEMORY.md", b"another")
    assert trees.read(taken[0]) == FILES
    assert taken[1] == ()
    assert trees.read(taken[0], ["topics/harbour.md", "topics/none.md"]) == {"topics/harbour.md": b""}


def test_other_files_of_the_workspace_are_in_it_only_if_named(
    trees: CheckpointTrees, put: Callable[[str, bytes], None]
) -> None:
    put("archive/old.md", b"# Old\n")
    put("scratch/note.md", b"# Note\n")
    assert set(trees.names(trees.take("ckp_1", trees.contents())[0])) == set(FILES)
    with_old = trees.take("ckp_2", trees.contents(["archive/old.md", "archive/gone.md"]))
    assert set(trees.names(with_old[0])) == {*FILES, "archive/old.md"}


def test_what_may_not_be_copied_is_named_with_the_reason(
    trees: CheckpointTrees, put: Callable[[str, bytes], None]
) -> None:
    put("knowledge/key.md", SECRET)
    put("knowledge/large.md", b"x" * (LARGEST + 1))
    taken = trees.take("ckp_1", trees.contents())
    assert [path for path, _ in taken[1]] == ["knowledge/key.md", "knowledge/large.md"]
    assert "holds a secret" in taken[1][0][1]
    assert "5,000,001 bytes" in taken[1][1][1]
    assert trees.read(taken[0]) == FILES


def test_unchanged_files_are_kept_once(trees: CheckpointTrees, put: Callable[[str, bytes], None]) -> None:
    first = trees.take("ckp_1", trees.contents())
    put("knowledge/memory/MEMORY.md", b"changed")
    second = trees.take("ckp_2", trees.contents())
    before, after = trees.names(first[0]), trees.names(second[0])
    assert {path for path in FILES if before[path] != after[path]} == {"knowledge/memory/MEMORY.md"}


def test_what_was_let_go_of_is_not_there_any_more(trees: CheckpointTrees, tmp_path: Path) -> None:
    (tmp_path / "memory/knowledge/memory/MEMORY.md").write_bytes(b"of the first alone")
    first = trees.take("ckp_1", trees.contents())
    (tmp_path / "memory/knowledge/memory/MEMORY.md").write_bytes(b"of the second alone")
    second = trees.take("ckp_2", trees.contents())
    assert trees.sweep(frozenset({"ckp_2"})) == 1
    assert trees.sweep(frozenset({"ckp_2"})) == 0
    if first[0].startswith("git:"):
        git(tmp_path / "memory", "gc", "--quiet", "--prune=now")
    with pytest.raises(Unavailable, match=r"another machine|another one"):
        trees.read(first[0])
    assert trees.read(second[0])["knowledge/memory/MEMORY.md"] == b"of the second alone"
    assert not [
        path for path in (tmp_path / "memory/.local").rglob("*") if path.is_file() and b"first" in path.read_bytes()
    ]
    trees.remove("ckp_2")
    trees.remove("ckp_none")
    assert trees.sweep(frozenset()) == 0


def test_what_is_to_be_forgotten_leaves_a_tree_that_is_kept(trees: CheckpointTrees) -> None:
    taken = trees.take("ckp_1", trees.contents())

    def clean(path: str, data: bytes) -> bytes | None:
        return None if path == "anchors.yaml" else data.replace(b"Memory", b"[forgotten]")

    assert trees.clean("ckp_1", clean)
    assert not trees.clean("ckp_1", clean)
    assert not trees.clean("ckp_none", clean)
    left = trees.read(taken[0])
    assert "anchors.yaml" not in left
    assert left["knowledge/memory/MEMORY.md"] == b"# [forgotten]\n"
    assert left["topics/harbour.md"] == b""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with one file, without a repository."""
    root = tmp_path / "memory"
    (root / "knowledge").mkdir(parents=True)
    (root / "knowledge/a.md").write_text("one")
    return root


def test_git_sees_neither_index_nor_branch_change(root: Path) -> None:
    Git(root).init()
    git(root, "add", "knowledge/a.md")
    (root / "knowledge/a.md").write_text("two")
    before = git(root, "status", "--porcelain=v2", "--branch")
    trees = CheckpointTrees(WorkspaceFiles(root), Git(root))
    taken = trees.take("ckp_1", trees.contents())
    assert git(root, "status", "--porcelain=v2", "--branch") == before
    assert git(root, "cat-file", "-t", "refs/memory/checkpoints/ckp_1").strip() == "tree"
    assert taken[0] == "git:ckp_1"
    assert not list((root / ".git").glob("context-manager-*"))
    assert git(root, "fsck", "--strict").strip() == ""


def test_a_repository_that_refuses_is_no_reason_to_keep_nothing(root: Path) -> None:
    (root / ".git").mkdir()  # no repository at all
    trees = CheckpointTrees(WorkspaceFiles(root), Git(root))
    taken = trees.take("ckp_1", trees.contents())
    assert taken[0] == "copy:ckp_1"
    assert trees.read(taken[0]) == {"knowledge/a.md": b"one"}


def test_a_file_that_git_has_lost_is_named_and_never_read_as_empty(root: Path) -> None:
    Git(root).init()
    trees = CheckpointTrees(WorkspaceFiles(root), Git(root))
    tree, _ = trees.take("ckp_1", trees.contents())
    name = trees.names(tree)["knowledge/a.md"]
    (root / ".git/objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(Unavailable, match=r"lost knowledge/a\.md"):
        trees.read(tree)
