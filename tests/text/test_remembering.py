"""Each kind of thing has its place."""

from __future__ import annotations

import pytest

from mcp_server.errors import Invalid
from mcp_server.text.destinations import place_for

DAY = "2026-02-16"


@pytest.mark.parametrize(
    ("kind", "content", "project", "path", "section"),
    [
        ("fact", "The sky is blue", "atlas", "knowledge/memory/MEMORY.md", "Facts"),
        ("lesson", "Test with real data", None, "knowledge/memory/MEMORY.md", "Lessons Learned"),
        ("decision", "Use SQLite", "atlas", "knowledge/projects/atlas/context.md", "Key Decisions"),
        ("decision", "Use SQLite", None, "knowledge/reference/general.md", "Key Decisions"),
        ("rule", "Commit in English", "atlas", "knowledge/projects/atlas/context.md", "Rules"),
        ("rule", "Commit in English", None, "knowledge/reference/general.md", "Rules"),
        ("project", "The API is frozen", "atlas", "knowledge/projects/atlas/notes.md", "Notes"),
        ("journal", "Finished the index", "atlas", f"knowledge/journal/{DAY}.md", "atlas"),
        ("journal", "Finished the index", None, f"knowledge/journal/{DAY}.md", "General"),
        ("person", "Ana Kovač: prefers mornings", None, "knowledge/people/ana-kovac.md", "Notes"),
        ("person", "Željko's birthday is in May", None, "knowledge/people/zeljko.md", "Notes"),
        ("procedure", "Release checklist: bump, tag, push", None, "knowledge/procedures/release-checklist.md", "Steps"),
        (
            "procedure",
            "How we deploy on Fridays, if ever",
            None,
            "knowledge/procedures/how-we-deploy-on-fridays-if.md",
            "Steps",
        ),
    ],
)
def test_a_kind_chooses_file_and_section(kind: str, content: str, project: str | None, path: str, section: str) -> None:
    place = place_for(kind, content, project, DAY, None)
    assert (place.path, place.section) == (path, section)


def test_a_section_that_is_named_is_used() -> None:
    assert place_for("fact", "x", None, DAY, "Tools").section == "Tools"


@pytest.mark.parametrize(
    ("kind", "content", "says"),
    [
        ("person", "prefers mornings", "begin with the name"),
        ("project", "The API is frozen", "needs a project"),
        ("procedure", "☂☂☂", "needs a title"),
    ],
)
def test_what_has_no_place_says_what_is_missing(kind: str, content: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        place_for(kind, content, None, DAY, None)
