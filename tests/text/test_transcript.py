"""Transcripts give back what was said, whatever it was, and survive being cut off anywhere."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import Invalid
from mcp_server.model import KnowledgeChange, ToolCall, TranscriptHead, Turn
from mcp_server.text.transcript import (
    parse,
    parse_tail,
    render_head,
    render_memory,
    render_turn,
    replace_head,
    unescape,
)

START = datetime(2026, 2, 16, 18, 45, 3, 120_000, tzinfo=UTC)
HEAD = TranscriptHead("ses_a1b2c3d4", START, "Autopoiesis restructuring", "autopoiesis", project="git:example.org/a/b")

NASTY = st.sampled_from(
    [
        *("## ", "> [", "<!--", "-->", "\\", "\\u{", "\\u{5c}u{", "\n", "\n\n", "\r", "\r\n", "\t", "\0", "\x1b[31m"),
        *("\x85", "\u2028", "\ud800", "\udc80", "\ufeff", "---\n", "# ", " → ", "→", " — ", "]", "č", "😀", "}"),
        *("> [tool:x] y → z", "## 18:45 — user", "## 18:45 — agent [memory]", '<!-- {"turn":1,"bytes":0} -->'),
        *("a", " "),
    ]
)
ANY_TEXT = st.one_of(
    st.lists(st.one_of(NASTY, st.text(max_size=5)), max_size=14).map("".join),
    st.text(st.characters(), max_size=60),  # surrogates included
)
# JSON cannot tell two halves of a surrogate pair from the character that they make.
JSON_TEXT = ANY_TEXT.map(lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))
MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
)
CALLS = st.builds(ToolCall, ANY_TEXT, ANY_TEXT, ANY_TEXT, st.lists(JSON_TEXT, max_size=2).map(tuple))
TURNS = st.builds(
    Turn,
    number=st.integers(1, 10**6),
    role=st.sampled_from(("user", "agent", "system")),
    content=ANY_TEXT,
    at=MOMENTS,
    turn_id=st.none() | JSON_TEXT,
    name=st.none() | ANY_TEXT,
    source=JSON_TEXT.filter(bool),
    important=st.booleans(),
    context_tokens=st.none() | st.integers(0, 10**7),
    tool_calls=st.lists(CALLS, max_size=3).map(tuple),
    attachments=st.lists(ANY_TEXT, max_size=2).map(tuple),
    redacted=st.lists(JSON_TEXT, max_size=2).map(tuple),
)
CHANGES = st.builds(KnowledgeChange, ANY_TEXT, ANY_TEXT, ANY_TEXT, MOMENTS)


def written(head: TranscriptHead, entries: Sequence[Turn | KnowledgeChange]) -> str:
    """A transcript as the store would write it, one append after the other."""
    text, previous, number = render_head(head), head.started, 0
    for entry in entries:
        if isinstance(entry, Turn):
            text += render_turn(entry, previous)
            number = entry.number
        else:
            text += render_memory(entry, previous, number)
        previous = entry.at
    return text


@given(st.lists(st.one_of(TURNS, CHANGES), max_size=5))
def test_any_message_whatever_is_read_back_as_it_was_said(entries: list[Turn | KnowledgeChange]) -> None:
    text = written(HEAD, entries)
    read = parse(text)
    assert [placed.turn for placed in read.turns] == [entry for entry in entries if isinstance(entry, Turn)]
    assert list(read.changes) == [entry for entry in entries if isinstance(entry, KnowledgeChange)]
    assert read.complete_bytes == len(text.encode())
    assert read.next_line == text.count("\n") + 1
    assert read.last_at == (entries[-1].at if entries else None)


@given(st.lists(st.one_of(TURNS, CHANGES), min_size=1, max_size=3), st.data())
def test_an_append_cut_at_any_byte_leaves_exactly_what_was_acknowledged(
    entries: list[Turn | KnowledgeChange], data: st.DataObject
) -> None:
    whole = written(HEAD, entries).encode()
    intact = written(HEAD, entries[:-1]).encode()
    cut = data.draw(st.integers(len(intact), len(whole) - 1))
    read = parse(whole[:cut].decode("utf-8", "surrogateescape"))
    assert read.complete_bytes == len(intact)
    assert [placed.turn for placed in read.turns] == [entry for entry in entries[:-1] if isinstance(entry, Turn)]


def test_an_append_cut_at_every_byte_leaves_exactly_what_was_acknowledged() -> None:
    said: list[Turn | KnowledgeChange] = [
        Turn(1, "user", "Šta je ## ovo?\n\n## 10:00 — user\nkraj\n", START),
        Turn(2, "agent", "dve\nlinije 😀\n\n", START + timedelta(days=1), name="Ana",
             tool_calls=(ToolCall("exec", "ls\nx", "a → b", ("č.md",)),)),
        KnowledgeChange("knowledge/x.md", "appended", "nešto", START + timedelta(days=1)),
        Turn(3, "user", "", START + timedelta(days=2)),
    ]  # fmt: skip
    for count in range(1, len(said) + 1):
        whole, intact = written(HEAD, said[:count]).encode(), written(HEAD, said[: count - 1]).encode()
        expected = [entry for entry in said[: count - 1] if isinstance(entry, Turn)]
        for cut in range(len(intact), len(whole)):
            read = parse(whole[:cut].decode("utf-8", "surrogateescape"))
            assert (cut, read.complete_bytes) == (cut, len(intact))
            assert [placed.turn for placed in read.turns] == expected


@pytest.mark.parametrize("zeros", [1, 7, 4096])
def test_zeros_that_a_power_cut_left_at_the_end_are_no_message(zeros: int) -> None:
    intact = written(HEAD, [Turn(1, "user", "one", START)]).encode()
    block = render_turn(Turn(2, "user", "two " * 20, START), START).encode()
    for kept in range(0, len(block), 9):
        read = parse((intact + block[:kept] + b"\0" * zeros).decode("utf-8", "surrogateescape"))
        assert read.complete_bytes == len(intact)
        assert [placed.turn.number for placed in read.turns] == [1]


@given(st.lists(st.one_of(TURNS, CHANGES), max_size=4), st.integers(0, 4))
def test_reading_on_from_any_block_gives_the_same_as_reading_all(
    entries: list[Turn | KnowledgeChange], known: int
) -> None:
    head_part, whole = written(HEAD, entries[:known]), written(HEAD, entries)
    before = parse(head_part)
    tail = parse_tail(whole[len(head_part) :], before.next_line, len(before.turns), before.last_at or START)
    read = parse(whole)
    assert before.turns + tail.turns == read.turns
    assert before.placed_changes + tail.placed_changes == read.placed_changes
    assert before.complete_bytes + tail.complete_bytes == read.complete_bytes
    assert tail.next_line == read.next_line


@given(st.lists(TURNS, max_size=4))
def test_lines_point_at_what_they_say(turns: list[Turn]) -> None:
    text = written(HEAD, list(turns))
    lines = text.split("\n")
    for placed in parse(text).turns:
        assert lines[placed.start - 1].startswith("## ")
        content = "\n".join(lines[placed.content_line - 1 : placed.end])
        assert unescape(content) == placed.turn.content


HEADS = st.builds(
    TranscriptHead,
    **dict.fromkeys(("session_id", "timezone"), JSON_TEXT.filter(bool)),
    started=MOMENTS,
    title=ANY_TEXT,
    slug=st.just(""),
    project=JSON_TEXT,
    kind=st.sampled_from(("main", "shared", "subagent")),
    delivery=st.sampled_from(("add", "replace")),
    ended=st.none() | MOMENTS,
    **dict.fromkeys(("model", "channel", "topic", "continues"), st.none() | JSON_TEXT),
    tags=st.lists(JSON_TEXT, max_size=3).map(tuple),
    **dict.fromkeys(("tokens_in", "tokens_out"), st.integers(0, 10**9)),
    knowledge_changes=st.lists(st.builds(KnowledgeChange, JSON_TEXT, JSON_TEXT, JSON_TEXT, MOMENTS), max_size=2).map(
        tuple
    ),
    extra=st.none()
    | st.dictionaries(
        st.sampled_from(("branch", "worktree", "x-y")),
        st.none() | st.booleans() | st.integers() | JSON_TEXT | st.lists(st.integers() | JSON_TEXT, max_size=2),
        min_size=1,
    ),
)


@given(HEADS)
def test_every_field_of_a_head_is_read_back(head: TranscriptHead) -> None:
    text = render_head(head)
    assert parse(text).head == head


@given(HEADS, HEADS, st.lists(TURNS, max_size=2))
def test_closing_moves_no_line_and_changes_no_byte_of_the_body(
    opened: TranscriptHead, closed: TranscriptHead, turns: list[Turn]
) -> None:
    closed = replace(closed, title=opened.title, extra=opened.extra)
    text = written(opened, list(turns))
    sealed = replace_head(text, closed)
    assert parse(sealed).head == closed
    assert parse(sealed).turns == parse(text).turns
    assert sealed.split("\n---\n", 1)[1] == text.split("\n---\n", 1)[1]


def test_the_file_reads_like_the_specification() -> None:
    text = written(
        HEAD,
        [
            Turn(1, "user", "Read all open issues.", START, turn_id="u-1"),
            Turn(2, "agent", "Here they are.", START + timedelta(minutes=1),
                 tool_calls=(ToolCall("exec", "gh issue list", "12 results", ("a.py",)),)),
            KnowledgeChange("knowledge/memory/MEMORY.md", "appended", "the plan", START + timedelta(minutes=2)),
            Turn(3, "user", "Morning!", START + timedelta(days=1), name="Ana"),
        ],
    )  # fmt: skip

    assert text.split("---\n", 2)[2] == (
        "\n# Autopoiesis restructuring\n"
        "\n## 18:45 — user\n"
        '<!-- {"turn":1,"turn_id":"u-1","at":"2026-02-16T18:45:03.120Z","source":"tool","bytes":22} -->\n'
        "Read all open issues.\n"
        "\n## 18:46 — agent\n"
        '<!-- {"turn":2,"at":"2026-02-16T18:46:03.120Z","source":"tool","tools":[["exec",["a.py"]]],"bytes":59} -->\n'
        "> [tool:exec] gh issue list → 12 results\n\nHere they are.\n"
        "\n## 18:47 — agent [memory]\n"
        '<!-- {"after":2,"at":"2026-02-16T18:47:03.120Z","bytes":63} -->\n'
        "> [knowledge:appended] knowledge/memory/MEMORY.md — the plan\n"
        "\n## 2026-02-17 18:45 — user (Ana)\n"
        '<!-- {"turn":3,"at":"2026-02-17T18:45:03.120Z","source":"tool","bytes":9} -->\n'
        "Morning!\n"
    )


def test_a_time_in_another_zone_is_written_in_utc() -> None:
    at = datetime(2026, 2, 17, 0, 30, tzinfo=timezone(timedelta(hours=2)))
    assert "\n## 22:30 — user\n" in render_turn(Turn(1, "user", "late", at), START)


def test_blocks_written_by_hand_are_turns_too() -> None:
    text = (
        "---\nsession_id: ses_1\nstarted: 2026-02-16T18:45:00Z\n---\n\n# By hand\n\n## 18:45 — user\nOne.\n\n"
        "## 18:46 — agent\n> [tool:exec] ls → 2 files\n\nTwo.\n\n## Not a turn\nstill two\n\n"
        "## 2026-02-17 00:01 — user\nThree.\n"
    )

    read = parse(text)

    assert [(placed.turn.number, placed.turn.content) for placed in read.turns] == [
        (1, "One."),
        (2, "Two.\n\n## Not a turn\nstill two"),
        (3, "Three."),
    ]
    assert read.turns[1].turn.tool_calls == (ToolCall("exec", "ls", "2 files"),)
    assert read.turns[2].turn.at == datetime(2026, 2, 17, 0, 1, tzinfo=UTC)
    assert read.complete_bytes == len(text.encode())


def test_a_line_added_by_hand_to_the_last_turn_is_kept_and_changed_line_ends_are_understood() -> None:
    text = written(HEAD, [Turn(1, "user", "one\ntwo", START), Turn(2, "agent", "three", START)])
    for changed, last in ((f"{text}and a half\n", "three\nand a half"), (text.replace("\n", "\r\n"), "three")):
        read = parse(changed)
        assert [placed.turn.content for placed in read.turns] == ["one\ntwo", last]
        assert read.complete_bytes == len(changed.encode())


@pytest.mark.parametrize(
    "bad", ["started: soon", "kind: other", "tokens_in: -1", "tags: x", "knowledge_changes: x", "session_id: null"]
)
def test_a_bad_field_is_named(bad: str) -> None:
    field = bad.partition(":")[0]
    text = re.sub(rf"^{field}:.*$", bad, render_head(HEAD), flags=re.MULTILINE)
    with pytest.raises(Invalid, match=rf"raw/x\.md: `{field}` must be"):
        parse(text, "raw/x.md")


def test_a_file_without_front_matter_says_so() -> None:
    with pytest.raises(Invalid, match=r"raw/x\.md: line 1"):
        parse("# No front matter\n\n## 10:00 — user\nhello\n", "raw/x.md")


@pytest.mark.parametrize(
    "meta", ['{"turn":1,"tools":5}', '{"turn":99999999999999999999}', '{"turn":-5}', '{"a":' + "[" * 100_000 + "}"]
)
def test_a_comment_line_that_somebody_spoilt_stops_nothing(meta: str) -> None:
    text = f"{render_head(HEAD)}\n## 18:45 — user\n<!-- {meta} -->\n> [tool:x] y\n"
    (placed,) = parse(text).turns
    assert placed.turn.number == 1


def test_a_message_of_megabytes_is_read_back_with_few_copies_of_it() -> None:
    said = Turn(1, "user", "harbour sail\n" * 300_000, START)
    text = render_head(HEAD) + render_turn(said, None)
    tracemalloc.start()
    read = parse(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read.turns[0].turn.content == said.content
    assert peak < 2.5 * len(text)
