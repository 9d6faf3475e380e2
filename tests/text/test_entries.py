"""Entries of a knowledge file, and the file and section that each kind of fact goes to."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_server.errors import Invalid, NotFound
from mcp_server.text import entries
from mcp_server.text.destinations import place_for

BODY = """# Core Memory

## Key Decisions
<!-- one a line -->
- 2026-02-10: PRs for everything
- 2026-02-14: Files, not SQLite
  because people read them

## Lessons Learned
- undated wisdom

## Facts
"""


def test_an_entry_goes_to_the_end_of_its_section_which_may_be_empty_or_missing() -> None:
    body = entries.appended(BODY, "Key Decisions", "- new")
    assert "because people read them\n- new\n\n## Lessons" in body
    assert entries.appended(BODY, "facts", "- a").endswith("## Facts\n\n- a\n")
    assert entries.appended("# T\n", "Facts", "- a") == "# T\n\n## Facts\n\n- a\n"


def test_entries_know_their_section_lines_and_date() -> None:
    found = entries.entries(BODY)
    assert [(e.section, e.start, e.end, e.date) for e in found] == [
        ("Key Decisions", 5, 5, "2026-02-10"),
        ("Key Decisions", 6, 7, "2026-02-14"),
        ("Lessons Learned", 10, 10, ""),
    ]


def test_the_same_words_are_the_same_entry_whatever_date_case_and_accents() -> None:
    same = entries.same_entry(BODY, "files, not SQLITE   because péople read them.")
    assert same is not None
    assert same.start == 6


def test_the_oldest_dated_entries_leave_first_and_undated_ones_stay() -> None:
    body, leaving = entries.without_oldest(BODY, 1)
    assert [entry.date for entry in leaving] == ["2026-02-10"]
    assert "PRs" not in body
    body, leaving = entries.without_oldest(BODY, 99)
    assert len(leaving) == 2
    assert "undated wisdom" in body


def test_further_lines_are_indented_and_never_become_headings() -> None:
    assert entries.written("a\n## b\n```", "2026-01-01") == "- 2026-01-01: a\n  \\## b\n  \\```"
    assert entries.written("- 2025-05-05: dated already", "2026-01-01") == "- 2025-05-05: dated already"


def test_a_section_is_replaced_whole() -> None:
    body = entries.section_replaced(BODY, "Key Decisions", "- only this")
    assert "PRs" not in body
    assert "## Key Decisions\n\n- only this\n\n## Lessons" in body
    with pytest.raises(NotFound, match="there are: Core Memory, Key Decisions"):
        entries.section_replaced(BODY, "Nope", "x")


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])).filter(lambda text: text.strip() != ""))
@example("<!---->")
@example("a comment is written <!-- so -->")
def test_what_was_appended_is_found_again(content: str) -> None:
    body = entries.appended(BODY, "Facts", entries.written(content, "2026-03-01"))
    assert entries.same_entry(body, content) is not None
    assert all(entry in body for entry in ("PRs for everything", "undated wisdom"))


def test_comments_that_never_end_cost_no_time_and_hide_nothing() -> None:
    begun = time.process_time()
    body = "<!--\n- a template's\n-->\n- first\n" + "<!-- open\n" * 20_000 + "- last\n"
    assert [entry.text for entry in entries.entries(body)] == ["- first", "- last"]
    assert time.process_time() - begun < 5


def test_what_looks_like_a_comment_in_an_entry_hides_no_other() -> None:
    body = entries.appended(BODY, "Facts", entries.written("HTML comments begin with <!-- as in\n<!-- this", None))
    body = entries.appended(body, "Facts", entries.written("the oven is hot", None)) + "\n<!-- a template's -->\n"
    assert entries.same_entry(body, "The oven is hot") is not None
    assert entries.same_entry(body, "HTML comments begin with <!-- as in\n<!-- this") is not None


DAY = "2026-02-16"


@pytest.mark.parametrize(
    ("kind", "content", "project", "path", "section"),
    [
        ("fact", "The sky is blue", None, "knowledge/memory/MEMORY.md", "Facts"),
        ("fact", "The sky is blue", "atlas", "knowledge/projects/atlas/context.md", "Facts"),
        ("lesson", "Test with real data", "atlas", "knowledge/projects/atlas/notes.md", "Lessons Learned"),
        ("lesson", "Test with real data", None, "knowledge/memory/MEMORY.md", "Lessons Learned"),
        ("decision", "Use SQLite", "atlas", "knowledge/projects/atlas/context.md", "Key Decisions"),
        ("decision", "Use SQLite", None, "knowledge/reference/general.md", "Key Decisions"),
        ("rule", "Commit in English", "atlas", "knowledge/projects/atlas/context.md", "Rules"),
        ("rule", "Commit in English", None, "knowledge/reference/general.md", "Rules"),
        ("project", "The API is frozen", "atlas", "knowledge/projects/atlas/notes.md", "Notes"),
        ("journal", "Finished the index", "atlas", f"knowledge/journal/{DAY}.md", "[[atlas/context|atlas]]"),
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
def test_a_kind_chooses_file_and_section_unless_one_is_named(
    kind: str, content: str, project: str | None, path: str, section: str
) -> None:
    place = place_for(kind, content, project, DAY, None)
    assert (place.path, place.section) == (path, section)
    assert place_for(kind, content, project, DAY, "Tools").section == "Tools"


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
