"""Files: what is written is read, and what cannot be says why."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import ContextManagerError, Invalid, Refused, Unavailable
from mcp_server.storage.files import is_untouched_template, templates
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.folders import create
from mcp_server.topics.front_matter import check


@given(text=st.text())
def test_what_is_written_is_read(files: WorkspaceFiles, text: str) -> None:
    files.write_atomic("knowledge/a/b.md", text.replace("\0", ""))

    assert files.read_text("knowledge/a/b.md") == text.replace("\0", "")


def test_what_is_no_text_says_so(files: WorkspaceFiles) -> None:
    files.write_bytes_atomic("a.bin", b"a\0b")
    files.write_bytes_atomic("b.md", b"one\ntwo \xff")

    with pytest.raises(Invalid, match="binary"):
        files.read_text("a.bin")
    with pytest.raises(Invalid, match=r"b\.md: line 2: not UTF-8"):
        files.read_text("b.md")
    with pytest.raises(Invalid, match="surrogate"):
        files.write_atomic("c.md", "\ud800")


def test_leftovers_are_removed_where_local_lies_elsewhere_too(tmp_path: Path) -> None:
    files = WorkspaceFiles(tmp_path / "workspace", tmp_path / "local")
    left = [folder / f".cm-{'0' * 16}.tmp" for folder in (files.root, files.local)]
    for file in left:
        file.parent.mkdir()
        file.touch()
        os.utime(file, (0, 0))
    files.remove_leftovers()
    assert not any(file.exists() for file in left)


def test_the_contents_of_a_folder_are_what_its_files_hold_one_by_one(tmp_path: Path) -> None:
    files = WorkspaceFiles(tmp_path / "workspace", tmp_path / "local")
    for path in ("x/b.jsonl", "x/a/deep.jsonl", "x/.cm-hidden.tmp", "y/c.jsonl"):
        files.write_atomic(f".local/{path}", f"in {path}")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "local" / "x" / "link.jsonl").symlink_to(tmp_path / "secret")

    found = dict(files.contents(".local/x"))
    assert found == {path: files.read_bytes(path) for path in (".local/x/a/deep.jsonl", ".local/x/b.jsonl")}
    assert dict(files.contents(".local/nothing/")) == {}
    with pytest.raises(Refused):
        dict(files.contents("../secret"))


WAYS_OUT = [
    "", " ", "..", "../x", "a/../../x", "knowledge/..", "/etc/passwd", "~/x", "a\0b", "a\\b", "C:/x", "c:x", "nul",
    "a/CON.md",
    "lpt1.txt/x", "a./x", "x ", ".git/config", "knowledge/.GIT/hooks/x", "a\nb", "\x1b", "half\ud800", "a" * 300,
]  # fmt: skip


@pytest.mark.parametrize("path", WAYS_OUT)
def test_a_path_that_leaves_or_could_leave_is_refused_everywhere(files: WorkspaceFiles, path: str) -> None:
    calls = (files.resolve, files.relative, files.exists, files.stat, files.read_text, files.remove, files.make_folder)
    for call in calls:
        with pytest.raises(Refused):
            call(path)
    with pytest.raises(Refused):
        files.write_atomic(path, "x")
    with pytest.raises(Refused):
        files.append_durable(path, b"x", 0)
    with pytest.raises(Refused):
        files.move("a.md", path)


@given(path=st.text(st.characters(), max_size=30) | st.text(alphabet="./a\\~:\0 ", max_size=15))
def test_no_path_ever_leaves(files: WorkspaceFiles, path: str) -> None:
    with contextlib.suppress(Refused):
        assert files.resolve(path).is_relative_to(files.root)


def test_symbolic_links_may_lead_inside_but_not_out(files: WorkspaceFiles, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.md").write_text("secret")
    files.write_atomic("knowledge/real.md", "real")
    (files.root / "out").symlink_to(tmp_path / "outside")
    (files.root / "out.md").symlink_to(tmp_path / "outside" / "secret.md")
    (files.root / "in.md").symlink_to("knowledge/real.md")
    (files.root / "loop").symlink_to("loop")
    (files.root / ".git").mkdir()
    (files.root / "to-git").symlink_to(".git")

    for path in ("out/secret.md", "out.md", "out/new.md", "to-git/config"):
        with pytest.raises(Refused):
            files.read_text(path)
        with pytest.raises(Refused):
            files.write_atomic(path, "x")
    with pytest.raises(ContextManagerError):
        files.read_text("loop")
    assert files.read_text("in.md") == "real"
    assert files.relative("in.md") == "knowledge/real.md"
    assert [found.path for found in files.walk()] == ["knowledge/real.md"]


def test_local_files_may_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    files = WorkspaceFiles(tmp_path / "memory", tmp_path / "elsewhere")

    files.write_atomic(".local/brief/x.md", "brief")

    assert (tmp_path / "elsewhere" / "brief" / "x.md").read_text() == "brief"
    assert files.relative("./.local//brief/x.md") == ".local/brief/x.md"
    with pytest.raises(Refused):
        files.resolve(".local/../x")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
def test_names_that_no_path_may_have_are_left_out_and_listed(files: WorkspaceFiles) -> None:
    for folder in ("k", "k/odd:folder", "k/fine"):
        (files.root / folder).mkdir()
    for name in (
        "a:b.md",
        "new\nline.md",
        "nul.md",
        "dot.",
        "plain.md",
        ".hidden:x",
        "odd:folder/in.md",
        "fine/c\\d.md",
    ):
        (files.root / "k" / name).write_text("x")
    (files.root / os.fsdecode(b"bad\xff.md")).write_text("x")

    assert [found.path for found in files.walk()] == ["k/plain.md"]
    assert files.read_text("k/plain.md") == "x"
    odd = ["a:b.md", "dot.", "new\nline.md", "nul.md", "odd:folder", "fine/c\\d.md"]
    assert list(files.unusable("k")) == [f"k/{name}" for name in odd]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_a_pipe_or_a_device_is_refused_and_nobody_waits_for_it(files: WorkspaceFiles) -> None:
    os.mkfifo(files.root / "pipe.md")
    (files.root / "zero.md").symlink_to("/dev/zero")
    with pytest.raises(Refused, match="pipe or a device"):
        files.read_text("pipe.md")
    with pytest.raises(Unavailable, match="not a plain file"):
        files.write_atomic("pipe.md", "x", "what was there")
    with pytest.raises(Refused, match="leads out"):
        files.read_text("zero.md")
    assert list(files.walk()) == []


SETTINGS = {"memory-config.yaml": "# settings\n"}


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_making_it_twice_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "memory"

    assert create(root, SETTINGS) is True
    before = snapshot(root)
    assert create(root, SETTINGS) is False

    assert snapshot(root) == before
    assert root.stat().st_mode & 0o777 == 0o700
    assert (root / ".gitignore").read_text().startswith("# This machine's own")
    assert "raw/** -text" in (root / ".gitattributes").read_text()
    assert (root / "raw/conversations").is_dir()


def test_what_is_there_already_is_kept_and_what_was_deleted_stays_deleted(tmp_path: Path) -> None:
    (tmp_path / "knowledge" / "identity").mkdir(parents=True)
    (tmp_path / "knowledge/identity/USER.md").write_text("I am Ana.\n")

    create(tmp_path, SETTINGS)
    (tmp_path / "knowledge/identity/TOOLS.md").unlink()
    create(tmp_path, SETTINGS)

    assert (tmp_path / "knowledge/identity/USER.md").read_text() == "I am Ana.\n"
    assert not (tmp_path / "knowledge/identity/TOOLS.md").exists()


def test_a_start_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    create(tmp_path, SETTINGS)
    for path in ("memory-config.yaml", "knowledge/identity/SOUL.md"):
        (tmp_path / path).unlink()

    assert create(tmp_path, SETTINGS) is True

    assert (tmp_path / "knowledge/identity/SOUL.md").exists()


@pytest.mark.parametrize("path", sorted(templates()))
def test_a_template_is_untouched_until_somebody_writes_in_it(path: str) -> None:
    text = templates()[path]

    assert is_untouched_template(path, text)
    assert is_untouched_template(path, text.replace("\n", "\r\n"))
    assert not is_untouched_template(path, text + "My name is Ana.\n")
    assert not is_untouched_template("other.md", text)


@pytest.mark.parametrize("path", sorted(path for path in templates() if path.endswith(".md")))
def test_every_template_has_front_matter_that_passes(path: str) -> None:
    checked = check(templates()[path], path)

    assert checked.fields["type"]
    assert checked.warnings == ()
    if path.endswith("MEMORY.md"):
        assert checked.fields["line_count"] == templates()[path].count("\n")
