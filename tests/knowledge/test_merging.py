"""Derived lines join a file: nothing twice, nothing of somebody's own touched."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.knowledge.pages import merged
from mcp_server.text.destinations import Place, place_of
from mcp_server.text.entries import Line, Source, entries, is_derived, sources_of, without_sources

FIRST, SECOND = "raw/conversations/2023/05/08/1356-a.md", "raw/conversations/2023/06/08/1356-b.md"
HEAD = "# Ana\n"


def line(text: str, day: str = "2023-05-08", turn: int = 1, path: str = FIRST, kind: str = "about") -> Line:
    return Line(kind, text, day, turn, path, person="Ana", said=day)  # type: ignore[arg-type]


def placed(*lines: Line) -> list[tuple[Place, Line]]:
    return [(place_of(one), one) for one in lines]


def test_a_line_stands_in_its_section_with_its_day_and_its_source() -> None:
    body = merged(HEAD, placed(line("Ana keeps bees.", turn=7)))
    assert body == f"# Ana\n\n## About\n\n- 2023-05-08: Ana keeps bees. [src: 7](/{FIRST})\n"


def test_doing_it_again_changes_nothing() -> None:
    lines = placed(line("Ana keeps bees."), line("Ana sails.", kind="preference"))
    once = merged(HEAD, lines)
    assert merged(once, lines) == once


def test_reading_again_keeps_the_first_of_two_wordings_of_a_turn() -> None:
    """A turn gives two lines of different kinds, one of which contains the other."""
    lines = placed(line("Ana keeps eleven hives of bees in Oslo."), line("Ana keeps eleven hives.", kind="preference"))
    once = merged(HEAD, lines)
    assert "in Oslo" in once
    assert merged(once, lines, frozenset({FIRST})) == once


def test_a_rule_stands_beside_the_decision_that_quotes_it() -> None:
    rule = "No photos of children, ever."
    lines = [
        Line(kind, text, "2023-05-08", 3, FIRST, said="2023-05-08", project="atlas")  # type: ignore[arg-type]
        for kind, text in (("decision", f"Keep the child on the steps. {rule}"), ("rule", rule), ("fact", rule))
    ]
    once = merged("# atlas\n", placed(*lines))
    assert [(one.section, one.said) for one in entries(once)] == [
        ("Rules", rule),
        ("Key Decisions", f"Keep the child on the steps. {rule}"),
    ]
    assert merged(once, placed(*lines), frozenset({FIRST})) == once


def test_what_two_conversations_say_stands_there_once_with_both_sources_whichever_is_read_first() -> None:
    early, late = line("Ana keeps eleven hives of bees."), line("Ana keeps eleven bees hives.", "2023-06-08", 3, SECOND)
    forth = merged(merged(HEAD, placed(early)), placed(late))
    back = merged(merged(HEAD, placed(late)), placed(early))
    assert forth == back
    (entry,) = entries(forth)
    assert sources_of(entry.text) == (Source(FIRST, 1), Source(SECOND, 3))
    assert "2023-05-08: Ana keeps eleven hives of bees." in forth


def test_what_happened_on_two_days_happened_twice() -> None:
    ran = line("Ana ran the city marathon.", kind="event")
    body = merged(HEAD, placed(ran, replace(ran, day="2023-06-08", path=SECOND)))
    assert len(entries(body)) == 2


def test_what_a_person_wrote_is_said_already_and_keeps_its_bytes() -> None:
    own = "# Ana\n\n## About\n\n-   Ana keeps eleven hives of bees   \n- 2020-01-01: my own *line*\n"
    assert merged(own, placed(line("Ana keeps eleven hives of bees."))) == own


def test_a_closed_item_that_the_closing_turn_repeats_is_not_opened_again() -> None:
    item = "Map the eleven codes of the courier Bex."
    closed = f"{item} (done 2023-05-08) [src: 3](/{FIRST}) [src: 7](/{FIRST})"
    body = f"# atlas\n\n## Closed items\n\n- 2023-05-08: {closed}\n"
    first, repeated, again = (
        Line("open", item, "2023-05-08", turn, FIRST, said="2023-05-08", project="atlas") for turn in (3, 7, 9)
    )
    assert merged(body, placed(first, repeated), frozenset({FIRST})) == body
    assert "## Open items" in merged(body, placed(again))


def test_lines_stand_in_the_order_of_their_days_and_others_keep_their_places() -> None:
    body = merged(
        "# Ana\n\n## About\n- somebody's own line\n", placed(line("Ana sails boats.", "2023-06-01", 9, SECOND))
    )
    body = merged(body, placed(line("Ana keeps bees.", "2023-05-01")))
    rows = [entry.text[2:12] for entry in entries(body)]
    assert rows == ["somebody's", "2023-05-01", "2023-06-01"]


def test_sections_of_a_person_stand_in_one_order() -> None:
    body = merged(HEAD, placed(line("Ana ran home.", kind="event")))
    body = merged(body, placed(line("Ana keeps bees.")))
    assert body.index("## About") < body.index("## What happened")


def test_read_anew_what_only_the_earlier_reading_said_goes() -> None:
    old, other = line("Ana keeps bees.", turn=1), line("Ana likes figs.", "2023-06-08", 2, SECOND)
    body = merged(HEAD + "\n- by hand\n", placed(old, other))
    anew = merged(body, placed(line("Ana sails boats.", turn=4)), frozenset({FIRST}))
    assert "bees" not in anew
    assert all(word in anew for word in ("sails", "figs", "by hand"))
    assert merged(anew, placed(line("Ana sails boats.", turn=4)), frozenset({FIRST})) == anew


def test_read_anew_by_the_same_rules_nothing_changes() -> None:
    lines = placed(line("Ana keeps bees."), line("Ana ran home.", kind="event", turn=2))
    body = merged(HEAD, lines)
    assert merged(body, lines, frozenset({FIRST})) == body


TEXTS = st.lists(
    st.tuples(
        st.sampled_from(["Ana keeps bees", "Ana sails boats", "Ana sold 3 boats", "Ana met Bo"]), st.integers(1, 3)
    ),
    max_size=8,
)


@given(TEXTS, TEXTS)
def test_merging_is_idempotent_and_every_line_keeps_a_source(
    one: list[tuple[str, int]], two: list[tuple[str, int]]
) -> None:
    first = placed(*(line(text, f"2023-05-0{turn}", turn) for text, turn in one))
    second = placed(*(line(text, f"2023-06-0{turn}", turn, SECOND) for text, turn in two))
    body = merged(merged(HEAD + "\n- by hand\n", first), second)
    assert merged(merged(body, first), second) == body
    assert "\n- by hand\n" in body
    for entry in entries(body):
        assert "by hand" in entry.text or is_derived(entry.text)
        assert "[src" not in without_sources(entry.text)
