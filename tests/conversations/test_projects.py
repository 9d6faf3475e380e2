"""One repository is one project; people may rename and merge; transcripts keep their keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.projects import (
    argument_key,
    known_as,
    list_projects,
    merge_projects,
    project_of,
    rename_project,
)
from mcp_server.errors import Conflict, Invalid, NotFound
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller, origin_key, slug_of, slugify, unused
from mcp_server.topics.front_matter import check
from tests.editors import saves_first
from tests.gitting import git

pytestmark = pytest.mark.anyio


def repository(folder: Path, origin: str | None = None) -> Path:
    folder.mkdir()
    git(folder, "init")
    git(folder, "commit", "--allow-empty", "-m", f"first of {folder.name}")
    if origin:
        git(folder, "remote", "add", "origin", origin)
    return folder


def at(folder: Path | None) -> Caller:
    return Caller(folder=str(folder) if folder else None)


async def test_two_worktrees_and_a_symlink_are_one_project(memory: Memory, tmp_path: Path) -> None:
    main = repository(tmp_path / "engine")
    git(main, "worktree", "add", str(tmp_path / "other"), "-b", "other")
    (tmp_path / "link").symlink_to(main)
    (main / "deep").mkdir()
    folders = [main, tmp_path / "other", tmp_path / "link", main / "deep"]
    projects = {await project_of(memory, at(folder)) for folder in folders}
    assert len(projects) == 1
    assert projects.pop().key.startswith("root:")


async def test_two_clones_of_one_origin_are_one_project(memory: Memory, tmp_path: Path) -> None:
    one = repository(tmp_path / "a", "git@example.com:ada/engine.git")
    two = repository(tmp_path / "b", "https://example.com/ada/engine")
    assert (
        (await project_of(memory, at(one))).key
        == (await project_of(memory, at(two))).key
        == "git:example.com/ada/engine"
    )


async def test_an_origin_added_later_keeps_the_slug(memory: Memory, tmp_path: Path) -> None:
    folder = repository(tmp_path / "engine")
    before = await observe(memory, NewTurn("user", "hi"), at(folder))
    slug = (await project_of(memory, at(folder))).slug
    git(folder, "remote", "add", "origin", "git@example.com:ada/engine.git")
    memory.folders._git_keys.clear()  # as a new process would begin
    after = await project_of(memory, at(folder))
    assert after.key == "git:example.com/ada/engine"
    assert after.slug == slug
    row = await memory.state.session(before.session)
    assert row is not None
    assert row.project in after.keys


@pytest.mark.parametrize("line", ["Difference Engine", "name: Difference Engine"])
async def test_a_marker_file_names_the_project_of_all_that_lies_below(
    memory: Memory, tmp_path: Path, line: str
) -> None:
    folder = repository(tmp_path / "engine", "git@example.com:ada/engine.git")
    (folder / ".context-manager").write_text(f"{line}\n", "utf-8")
    (folder / "src").mkdir()
    assert (await project_of(memory, at(folder / "src"))).key == "name:Difference Engine"


async def test_a_plain_folder_keeps_a_random_id(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.folders.temporary = tmp_path / "tmp"
    (tmp_path / "notes").mkdir()
    first = await project_of(memory, at(tmp_path / "notes"))
    assert first.key.startswith("dir:")
    assert await project_of(memory, at(tmp_path / "notes")) == first


async def test_a_project_is_called_as_its_folder_where_its_key_says_nothing(memory: Memory, tmp_path: Path) -> None:
    memory.folders.temporary = tmp_path / "tmp"
    main = repository(tmp_path / "Winter Berth")
    git(main, "worktree", "add", str(tmp_path / "other"), "-b", "other")
    (tmp_path / "notes").mkdir()
    assert (await project_of(memory, at(tmp_path / "other"))).slug == "winter-berth"
    assert (await project_of(memory, at(tmp_path / "notes"))).slug == "notes"
    heard = await observe(memory, NewTurn("user", "hi"), at(main))
    row = await memory.state.session(heard.session)
    assert row is not None
    assert (await project_of(memory, Caller(), row.project)).slug == "winter-berth"
    assert [one.slug for one in await list_projects(memory)] == ["winter-berth"]


async def test_home_root_and_temporary_folders_are_no_projects(memory: Memory, tmp_path: Path) -> None:
    memory.folders.home = repository(tmp_path / "home")
    (tmp_path / "home" / "below").mkdir()
    for folder in (tmp_path / "home", tmp_path / "home" / "below", Path("/"), tmp_path, tmp_path / "missing", None):
        assert (await project_of(memory, at(folder))).key == "", folder


async def test_renaming_moves_the_folder_and_keeps_the_keys(memory: Memory) -> None:
    observed = await observe(memory, NewTurn("user", "hi", project="atlas"), at(None))
    memory.files.write_atomic("knowledge/projects/atlas/notes.md", "# Atlas\n")
    assert await rename_project(memory, "atlas", "Big Map") == "big-map"
    project = await project_of(memory, at(None), "big-map")
    assert project.slug == "big-map"
    row = await memory.state.session(observed.session)
    assert row is not None
    assert row.project == "name:atlas"
    assert row.project in project.keys
    assert memory.files.exists("knowledge/projects/big-map/notes.md")
    (listed,) = await list_projects(memory)
    assert (listed.slug, listed.sessions) == ("big-map", 1)


async def test_a_page_that_somebody_saves_while_a_project_is_renamed_keeps_their_text(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await observe(memory, NewTurn("user", "hi", project="atlas"), at(None))
    note = "knowledge/reference/notes.md"
    memory.files.write_atomic(note, "See [[atlas/context]].\n")
    saves_first(monkeypatch, memory.files, note, lambda text: f"{text}One more line.\n", times=9)
    assert await rename_project(memory, "atlas", "map") == "map"
    assert memory.files.read_text(note) == "See [[atlas/context]].\nOne more line.\nOne more line.\n"
    assert [one.slug for one in await list_projects(memory)] == ["map"]


async def test_after_renaming_the_page_has_the_new_name_and_no_link_leads_nowhere(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "hi", project="atlas"), at(None))
    page, journal = "knowledge/projects/atlas/context.md", "knowledge/journal/2026-02-16.md"
    memory.files.write_atomic(page, "---\ntype: project_context\nproject: atlas\n---\n\n# atlas\n\nSee # atlas.\n")
    memory.files.write_atomic(journal, "## [[atlas/context|atlas]]\n\n- Learned: tar. [[atlas/notes]] [[atlas-2/x]]\n")
    await rename_project(memory, "atlas", "big map")
    renamed = "---\ntype: project_context\nproject: big-map\n---\n\n# big-map\n\nSee # atlas.\n"
    assert memory.files.read_text("knowledge/projects/big-map/context.md") == renamed
    linked = "## [[big-map/context|big-map]]\n\n- Learned: tar. [[big-map/notes]] [[atlas-2/x]]\n"
    assert memory.files.read_text(journal) == linked
    assert not (memory.disk.root / "knowledge/projects/atlas").exists()


async def test_merging_loses_no_file(memory: Memory) -> None:
    for name in ("a", "b"):
        await observe(memory, NewTurn("user", f"hi {name}", project=name), at(None))
        memory.files.write_atomic(f"knowledge/projects/{name}/notes.md", f"# Notes of {name}\n")
        page = f"---\ntype: project_context\nproject: {name}\n---\n\n# {name}\n\n## Notes\n\n- of {name}\n"
        memory.files.write_atomic(f"knowledge/projects/{name}/context.md", page)
    memory.files.write_atomic("knowledge/projects/a/more.md", "# More\n")
    await merge_projects(memory, "a", "b")
    joined = memory.files.read_text("knowledge/projects/b/notes.md")
    assert "Notes of a" in joined
    assert "Notes of b" in joined
    assert memory.files.read_text("knowledge/projects/b/context.md") == (
        "---\ntype: project_context\nproject: b\n---\n\n# b\n\n## Notes\n\n- of b\n\n## From a\n\n## Notes\n\n- of a\n"
    )
    assert memory.files.read_text("knowledge/projects/b/more.md") == "# More\n"
    assert (await project_of(memory, at(None), "a")).slug == "b"


async def test_wrong_names_say_what_there_is(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "hi", project="atlas"), at(None))
    await observe(memory, NewTurn("user", "hi", project="other"), at(None))
    with pytest.raises(NotFound, match="did you mean 'atlas'"):
        await rename_project(memory, "atlass", "x")
    with pytest.raises(Conflict, match="project merge atlas other"):
        await rename_project(memory, "atlas", "other")
    with pytest.raises(Invalid, match="itself"):
        await merge_projects(memory, "atlas", "atlas")
    with pytest.raises(Invalid, match="no letter or digit"):
        await rename_project(memory, "atlas", "☂")


async def test_a_broken_map_stops_no_capture(memory: Memory) -> None:
    memory.files.write_atomic("knowledge/projects/_map.yaml", "keys: [not, a, mapping")
    assert (await observe(memory, NewTurn("user", "hi", project="atlas"), at(None))).recorded
    assert memory.files.read_text("knowledge/projects/_map.yaml") == "keys: [not, a, mapping"
    with pytest.raises(Invalid, match=r"_map\.yaml"):
        await list_projects(memory)


async def test_a_slug_that_looks_like_a_number_stays_a_name(memory: Memory) -> None:
    """A project without an origin is called by the beginning of its first commit, and that may be all digits."""
    names = ("123456789012", "64e512345678", "null", "true", "0x1f", "2026-01-01", "1_000")
    slugs = []
    for name in names:
        await observe(memory, NewTurn("user", "hi", project=name), at(None))
        slugs.append((await project_of(memory, at(None), name)).slug)
    listed = {project.slug: project.sessions for project in await list_projects(memory)}
    assert listed == dict.fromkeys(slugs, 1)
    assert len(listed) == len(names)


async def test_names_stand_in_front_matter_as_text(memory: Memory) -> None:
    for name in ("123456", "True", 'Ana "#1" Kovač'):
        done = await remember(memory, NewFact(f"{name}: likes tea", "person", project=name), at(None))
        assert check(memory.files.read_text(done.path), done.path).fields["name"] == name
        done = await remember(memory, NewFact("Use SQLite", "decision", project="64e512345678"), at(None))
        assert check(memory.files.read_text(done.path), done.path).fields["project"] == "64e512345678"


@pytest.mark.parametrize(
    "url",
    [
        "git@github.com:Ada/Engine.git",
        "https://github.com/Ada/Engine",
        "https://token@GitHub.com/Ada/Engine.git/",
        "https://ada:p@ss:word@github.com/Ada/Engine.git",
        "ssh://git@github.com:22/Ada/Engine.git",
        "git://github.com/Ada/Engine.git",
    ],
)
def test_every_way_to_write_a_remote_gives_one_key(url: str) -> None:
    assert origin_key(url) == "git:github.com/Ada/Engine"


@pytest.mark.parametrize(
    "url", ["/srv/git/engine.git", "../engine", "file:///srv/engine.git", "C:\\work\\engine", "", "https://"]
)
def test_a_remote_that_is_a_folder_names_no_project(url: str) -> None:
    assert origin_key(url) is None


async def test_an_argument_is_a_key_or_a_name(memory: Memory) -> None:
    assert (await project_of(memory, at(None), "atlas")).key == "name:atlas"
    assert (await project_of(memory, at(None), "global")).key == ""
    assert argument_key("git:github.com/a/b") == "git:github.com/a/b"
    assert argument_key(" atlas ") == "name:atlas"
    assert argument_key("global") == argument_key("") == ""


def test_a_slug_is_the_last_part_of_the_key_with_a_number_if_it_is_taken() -> None:
    assert slug_of("git:github.com/Ada/Analytical Engine") == "analytical-engine"
    assert slug_of("root:0123456789abcdef0123") == "0123456789ab"
    assert slug_of("name:Čačak ☂") == "cacak"
    assert slug_of("name:☂") == "project"
    assert unused("engine", frozenset({"engine", "engine-2"})) == "engine-3"


def test_an_origin_added_later_joins_what_the_root_commit_named() -> None:
    assert known_as(("git:h/new", "root:abc"), {"root:abc": "engine"}) == "engine"
    assert known_as(("git:h/new",), {}) is None


@given(st.text())
def test_a_slug_is_a_file_name(text: str) -> None:
    slug = slugify(text)
    assert slug == "" or (slug.isascii() and slug == slugify(slug) and len(slug) <= 48)


@given(st.text())
def test_no_remote_makes_it_fail(url: str) -> None:
    key = origin_key(url)
    assert key is None or key.startswith("git:")
