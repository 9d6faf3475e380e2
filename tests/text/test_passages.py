"""Cutting texts into passages: nothing is lost, lines are right, parts are short."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.model import GLOBAL, ToolCall, TranscriptHead, Turn
from mcp_server.text import transcript
from mcp_server.text.markdown import moment_of_field
from mcp_server.text.passages import (
    IMPORTED,
    PART,
    STRETCH,
    category_of,
    indexed_text,
    of_knowledge,
    of_turns,
    project_of,
    split,
)

AT = datetime(2026, 5, 8, 14, 30, tzinfo=UTC)
HEAD = TranscriptHead("s1", AT, "A title", "a-title", project="git:x/y")


def written(*turns: Turn) -> tuple[str, transcript.Transcript]:
    text, before = transcript.render_head(HEAD), HEAD.started
    for turn in turns:
        text += transcript.render_turn(turn, before)
        before = turn.at
    return text, transcript.parse(text)


@given(st.text(alphabet="ab \n.", max_size=4_000) | st.text(max_size=200))
def test_parts_hold_every_word_in_order_and_are_short(text: str) -> None:
    parts = list(split(text))
    assert "".join("".join(piece.split()) for _, _, piece in parts) == "".join(text.split())
    assert all(len(piece) <= PART * STRETCH for _, _, piece in parts)


@given(st.lists(st.text(alphabet="abc .", max_size=120), max_size=80))
def test_lines_of_parts_are_those_of_the_text(lines: list[str]) -> None:
    text = "\n".join(lines)
    for first, last, piece in split(text, first_line=10):
        assert piece in "\n".join(lines[first - 10 : last - 10 + 1])
        assert last - first == piece.count("\n")


def test_a_long_text_is_cut_at_paragraph_ends() -> None:
    paragraphs = [f"{name} " * 60 for name in ("alpha", "beta", "gamma", "delta")]
    parts = [piece for _, _, piece in split("\n\n".join(paragraphs))]
    assert [set(part.split()) for part in parts] == [{"alpha", "beta"}, {"gamma", "delta"}]


def test_a_turn_is_one_passage_and_its_lines_show_it() -> None:
    text, parsed = written(Turn(1, "user", "hello\nthere", AT, name="Ana"), Turn(2, "agent", "hi", AT))
    first, second = of_turns("raw/x.md", parsed.head, parsed.turns)
    known = (first.unit, first.turn, first.role, first.speaker, first.project)
    assert known == ("raw/x.md#1", 1, "user", "Ana", "git:x/y")
    lines = text.split("\n")
    assert lines[first.start - 1].startswith("## 14:30 — user (Ana)")
    assert lines[first.end - 1] == "there"
    assert lines[second.end - 1] == "hi"
    assert (first.ordinal, second.ordinal) == (0, 1)


def test_a_long_turn_has_parts_with_lines_of_their_own() -> None:
    content = "\n\n".join(f"paragraph{number} " * 50 for number in range(8))
    text, parsed = written(Turn(1, "user", content, AT, tool_calls=(ToolCall("grep", "for x", "found"),)))
    parts = of_turns("raw/x.md", parsed.head, parsed.turns)
    lines = text.split("\n")
    assert len(parts) > 4
    for part in parts[1:]:
        if part.text.startswith("paragraph"):
            assert part.text.split()[0] in lines[part.start - 1]
    assert "[grep] for x → found" in "\n".join(part.text for part in parts)


def test_the_index_reads_who_and_when() -> None:
    _, parsed = written(Turn(1, "user", "hello", AT + timedelta(days=30), name="Ana"), Turn(2, "agent", "hi", AT))
    first, second = of_turns("raw/x.md", parsed.head, parsed.turns)
    assert indexed_text(first) == "Ana, 7 June 2026: hello"
    assert indexed_text(second) == "8 May 2026: hi"


def test_a_section_is_a_passage_under_its_headings() -> None:
    body = "# Top\n\n## One\n\nfirst\n\n## Two\n\nsecond\n"
    one, two = of_knowledge("knowledge/reference/a.md", body, 5, {"updated": "2026-05-08", "title": "Top"})
    assert (one.title, one.start, one.end) == ("Top › One", 7, 9)
    assert (two.ordinal, two.at) == (1, datetime(2026, 5, 8, tzinfo=UTC))
    assert indexed_text(two).startswith("Top › Two: ## Two")


def test_a_description_is_found_with_the_first_section_and_an_empty_file_has_none() -> None:
    (only,) = of_knowledge("topics/email.md", "Body text", 4, {"name": "email", "description": "How we write mail"})
    assert "How we write mail" in only.text
    assert only.title == "email"
    assert of_knowledge("knowledge/reference/a.md", "", 1, {}) == ()


def test_the_path_gives_category_and_project() -> None:
    assert category_of("raw/conversations/x.md") == "conversation"
    assert category_of("knowledge/journal/2026-01-01.md") == "journal"
    assert category_of("knowledge/elsewhere/x.md") == "reference"
    assert category_of("other.md") == "reference"
    assert project_of("knowledge/projects/apollo/notes.md") == "slug:apollo"
    assert project_of("archive/projects/apollo/notes.md") == "slug:apollo"
    assert project_of("knowledge/projects/_active.md") == GLOBAL
    assert IMPORTED.match("knowledge/reference/rfcs/0001.md")
    assert not IMPORTED.match("knowledge/reference/0001.md")


def test_dates_in_front_matter_and_file_names_are_moments() -> None:
    assert moment_of_field("2026-05-08T10:00:00+02:00") == datetime(2026, 5, 8, 8, tzinfo=UTC)
    assert moment_of_field(AT.date()) == datetime(2026, 5, 8, tzinfo=UTC)
    assert moment_of_field("soon") is None
    assert moment_of_field(7) is None
    (day,) = of_knowledge("knowledge/journal/2026-05-08.md", "text", 1, {})
    assert day.at == datetime(2026, 5, 8, tzinfo=UTC)


SOURCE = "[src: raw/conversations/2023/05/08/1356-talk.md#3]"


def test_a_derived_line_is_a_passage_of_its_own_with_its_own_day() -> None:
    body = f"# Ana\n\n## About\n- 2023-05-07: Ana keeps bees. {SOURCE}\n- by hand\n- Ana sails. {SOURCE}\n"
    bees, sails, own = of_knowledge("knowledge/people/ana.md", body, 1, {})
    assert (bees.start, bees.end, bees.unit) == (4, 4, "knowledge/people/ana.md#4")
    assert bees.at is not None
    assert bees.at.date().isoformat() == "2023-05-07"
    assert indexed_text(bees) == "- 2023-05-07: Ana keeps bees."
    assert (sails.start, own.unit) == (6, "knowledge/people/ana.md#3")
    assert "by hand" in own.text
    assert "bees" not in own.text
    derived = f"- 2023-05-07: Ana keeps bees. {SOURCE}\n- Ana sails. {SOURCE}\n"
    found = of_knowledge("knowledge/people/ana.md", derived, 1, {})
    assert [passage.unit for passage in found] == ["knowledge/people/ana.md#1", "knowledge/people/ana.md#2"]


def test_what_a_template_asks_its_owner_is_no_passage_and_is_in_none() -> None:
    asks = "# User\n\n<!-- Who are you? -->\n\n## About\n\n<!-- Your name? -->\n\n## Tools\n\n<!-- Which? -->\n- vim\n"
    (only,) = of_knowledge("knowledge/identity/USER.md", asks, 1, {})
    assert (only.title, only.start, only.end) == ("User › Tools", 9, 12)
    assert "Which?" not in only.text
    assert of_knowledge("archive/memory/MEMORY.md", "# Archived memory\n", 1, {}) == ()
    (imported,) = of_knowledge("knowledge/reference/wiki/a.md", "# A\n\n<!-- kept as it came -->\n", 1, {})
    assert "kept as it came" in imported.text
