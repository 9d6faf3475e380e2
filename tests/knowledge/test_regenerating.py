"""Derived lines go and come; everybody's own lines stay as they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.knowledge.pages import holds_nothing, stripped, without_emptied, without_empty
from mcp_server.knowledge.reconstruct import delta
from mcp_server.knowledge.writing import FLUSHED
from mcp_server.text.entries import derived, is_derived, without

SRC = "[src: raw/conversations/2026/02/16/1845-s-a.md#3]"
BODY = f"""# Ana

Her own page.

## Plans
- 2026-02-16: Ana moves to Zagreb. {SRC}

## Likes and dislikes
- Likes tea (I know that)
- 2026-02-16: Ana likes coffee. {SRC}
"""


def test_only_lines_with_provenance_are_taken_out() -> None:
    found = stripped(BODY)
    assert (found.removed, found.emptied) == (2, frozenset({"Plans"}))
    assert found.body == BODY.replace(f"- 2026-02-16: Ana moves to Zagreb. {SRC}\n", "").replace(
        f"- 2026-02-16: Ana likes coffee. {SRC}\n", ""
    )


def test_lines_of_the_journal_that_earlier_versions_wrote_stay() -> None:
    body = f"### Work\n- Decision: SQLite. {SRC}\n- 2026-02-16: Lesson: test first. {SRC}\n- We chose tea. {SRC}\n"
    assert stripped(body, FLUSHED).removed == 1


def test_a_heading_goes_only_if_it_was_emptied_and_stayed_so() -> None:
    found = stripped(BODY)
    assert "## Plans" not in without_empty(found.body, found.emptied)
    refilled = found.body.replace("## Plans\n", f"## Plans\n- 2026-03-01: Ana moves to Split. {SRC}\n")
    assert without_empty(refilled, found.emptied) == refilled
    assert "## Empty since ever" in without_empty("## Empty since ever\n\n## Plans\n", {"Plans"})


def test_the_programs_empty_headings_leave_a_page_and_those_with_text_of_a_person_stay() -> None:
    before = (
        f"# Atlas\n\n## Ideas\n\n## Facts\n\n- The oven is old. {SRC}\n\n## Ours\n\n- Rye. {SRC}\n\n"
        f"## Notes\n\nSee the wall.\n\n- Water. {SRC}\n\n## Open items\n\n### Of Ana\n\nAsk her.\n\n"
        f"## Rules\n\n- Salt last. {SRC}\n"
    )
    after = without(before, derived(before))
    assert without_emptied(before, after) == (
        "# Atlas\n\n## Ideas\n\n## Notes\n\nSee the wall.\n\n## Open items\n\n### Of Ana\n\nAsk her.\n"
    )
    assert without_emptied(f"# Atlas\n\n- Rye. {SRC}\n", "# Atlas\n") == "# Atlas\n"


def test_a_file_of_headings_alone_holds_nothing() -> None:
    assert holds_nothing("# Ana\n\n## Plans\n")
    assert not holds_nothing(stripped(BODY).body)


def test_two_versions_are_compared_by_what_their_lines_say() -> None:
    other = BODY.replace("#3]\n\n##", "#9]\n\n##").replace("Ana likes coffee", "Ana likes cocoa")
    found = delta({"a.md": BODY}, {"a.md": other})
    assert (found.second_lines, found.common) == (2, 1)
    assert [(one.only_first, one.only_second) for one in found.files] == [(1, 1)]
    assert found.own_lost == ()
    since = delta({"a.md": BODY}, {}, {"a.md": "Her own page.\n"})
    assert (since.own_lost, since.own_since) == (("a.md: Her own page.",), 1)
    assert delta({"a.md": BODY}, {}).own_lost == ("a.md: Her own page.", "a.md: - Likes tea (I know that)")


LINES = st.lists(st.sampled_from(["- own", f"- ours {SRC}", "## Head", "", "text", f"- 2026-01-01: x {SRC}", "  more"]))


@given(LINES)
def test_no_line_of_anybody_is_ever_lost(lines: list[str]) -> None:
    body = "\n".join(lines)
    after = stripped(body).body
    own = [line for line in lines if line and not is_derived(line) and not line.startswith("  ")]
    assert [line for line in after.split("\n") if line in own] == own
    assert stripped(after).body == after
