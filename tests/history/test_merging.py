"""Two versions become one: nothing of either is lost, and no marker is written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.history.three_way import merged
from mcp_server.text.markdown import marked_line

DAYS = ("2026-02-14", "2026-02-15")
MEMORY = "knowledge/memory/MEMORY.md"
JOURNAL = "knowledge/journal/2026-02-14.md"
LINES = st.lists(
    st.sampled_from(["", "# Top", "## Facts", "## Plans", "text", *(f"- entry {n}" for n in range(9))]), max_size=12
).map(lambda lines: "".join(f"{line}\n" for line in lines))
PATHS = st.sampled_from([MEMORY, JOURNAL, "anchors.yaml", "memory-config.yaml", "forgotten.jsonl", "notes.txt"])


@given(PATHS, LINES, LINES)
def test_what_only_one_side_changed_counts(path: str, base: str, changed: str) -> None:
    assert merged(path, base, changed, base, DAYS)[0] == changed
    assert merged(path, base, base, changed, DAYS)[0] == changed
    assert merged(path, base, changed, changed, DAYS)[0] == changed


@given(PATHS, LINES, LINES, LINES)
def test_every_line_that_either_side_added_is_there(path: str, base: str, ours: str, theirs: str) -> None:
    text = merged(path, base, ours, theirs, DAYS)[0]

    for line in {*ours.split("\n"), *theirs.split("\n")} - {*base.split("\n")}:
        assert line.removeprefix("- ") in text
    assert marked_line(text) is None


@given(LINES, LINES)
def test_two_files_that_have_nothing_in_common_are_both_kept(ours: str, theirs: str) -> None:
    text = merged(JOURNAL, None, ours, theirs, DAYS)[0]

    assert {line for line in (ours + theirs).split("\n") if line.strip()} <= set(text.split("\n"))


@given(LINES, LINES, LINES)
def test_a_line_that_both_sides_took_out_does_not_come_back(base: str, ours: str, theirs: str) -> None:
    gone = {line for line in base.split("\n") if line.strip()} - {*ours.split("\n"), *theirs.split("\n")}

    assert not gone & set(merged(JOURNAL, base, ours, theirs, DAYS)[0].split("\n"))


def test_a_fact_that_both_have_edited_stands_there_twice_each_with_its_day() -> None:
    base = "## Facts\n\n- 2026-01-02: Ana lives in Zurich [src: 3](/raw/conversations/a.md)\n- tea at four\n"

    found = merged(
        MEMORY,
        base,
        base.replace("Zurich", "Bern").replace("tea", "green tea"),
        base.replace("Zurich", "Basel").replace("tea", "black tea"),
        DAYS,
    )

    assert found[1] == 2
    assert found[0].split("\n")[2:6] == [
        "- 2026-01-02: Ana lives in Bern (as of 2026-02-14) [src: 3](/raw/conversations/a.md)",
        "- 2026-02-14: green tea at four",
        "- 2026-01-02: Ana lives in Basel (as of 2026-02-15) [src: 3](/raw/conversations/a.md)",
        "- 2026-02-15: black tea at four",
    ]


def test_a_copy_of_an_older_version_merges_without_repeating_its_lines() -> None:
    old = "## Facts\n\n- Ana lives in Zurich [src: raw/conversations/a.md#3]\n- tea at four\n"
    new = old.replace("[src: raw/conversations/a.md#3]", "[src: 3](/raw/conversations/a.md)")

    found = merged("knowledge/people/ana.md", old, new + "- ours\n", old.replace("tea", "green tea"), DAYS)

    assert found == (new.replace("- tea", "- ours\n- green tea"), 0)


def test_prose_that_both_have_edited_becomes_two_entries() -> None:
    found = merged("knowledge/people/ana.md", "Ana is a nurse.\n", "Ana is a doctor.\n", "Ana is a pilot.\n", DAYS)

    assert found[0] == "- 2026-02-14: Ana is a doctor.\n- 2026-02-15: Ana is a pilot.\n"


def test_what_both_added_to_a_journal_stands_under_its_own_heading() -> None:
    base = "## 2026-02-14\n\n### Ops\n- first\n"

    found = merged(
        JOURNAL, base, base + "- ours\n\n### Zoo\n- lions\n", base + "- theirs\n\n### People\n- Ana called\n", DAYS
    )

    assert found[1] == 0
    assert found[0] == (
        "## 2026-02-14\n\n### Ops\n- first\n- ours\n- theirs\n\n### Zoo\n- lions\n### People\n- Ana called\n"
    )


def test_front_matter_is_merged_field_by_field() -> None:
    def text(sessions: str, updated: str, name: str) -> str:
        return f"---\ntype: journal\nsessions: [{sessions}]\nupdated: {updated}\nname: {name}\n---\nbody\n"

    found = merged(JOURNAL, text("a", "1", "x"), text("a, b", "3", "y"), text("a, c", "2", "x") + "more\n", DAYS)

    assert found[0] == text("a, b, c", "3", "y") + "more\n"
    assert merged(JOURNAL, "body\n", "body\n" + "ours\n", text("a", "1", "z"), DAYS)[0].startswith("---\ntype")
    both = merged(JOURNAL, text("a", "1", "x"), text("a", "1", "y"), text("a", "1", "z"), DAYS)
    assert "name: z" in both[0]  # the later one


def test_a_setting_has_one_value_and_the_other_stands_beside_it() -> None:
    base = "server:\n  port: 1\n  host: a\n"

    found = merged("memory-config.yaml", base, base.replace("1", "2"), base.replace("1", "3") + "  token: x\n", DAYS)

    assert found[0] == "server:\n  port: 2\n# 2026-02-15, another copy: port: 3\n  host: a\n  token: x\n"


def test_an_item_anchored_on_both_machines_is_anchored_once() -> None:
    base = "anchors:\n"
    entry = "  - {{item: oven, at: 2026-02-{day}}}\n"

    found = merged(
        "anchors.yaml",
        base,
        base + entry.format(day=14),
        base + entry.format(day=15) + "  - {item: Ana}\n",
        DAYS,
    )

    assert found[0] == base + entry.format(day=14) + "  - {item: Ana}\n"


def test_line_ends_of_windows_stay() -> None:
    assert merged(JOURNAL, "a\r\n", "a\r\nb\r\n", "a\r\nc\r\n", DAYS)[0] == "a\r\nb\r\nc\r\n"
