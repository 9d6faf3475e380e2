"""The sections of a page are the states of its items."""

from __future__ import annotations

from dataclasses import replace

from mcp_server.knowledge.pages import merged, reopened, settled
from mcp_server.text.destinations import place_of
from mcp_server.text.entries import Line, LineKind, Source, entry, sources_of
from mcp_server.understanding.cues import overtaken_lines

A, B = "raw/conversations/2026/11/02/0900-s-a.md", "raw/conversations/2026/11/04/0900-s-b.md"
OLD = "Vault with the AppRole login, one role per service."
NEW = "scratch the AppRole login for Vault, we switch to JWT login instead"
OTHER = "Invoices are stored as PDF."
TASK = "call Ana about the winter berth"


def line(kind: LineKind, text: str, path: str = A, turn: int = 27, changes: float = 0.0) -> Line:
    day = path[18:28].replace("/", "-")
    return Line(kind, text, day, turn, path, said=day, project="atlas", changes=changes)


FIRST = [line("decision", OLD), line("decision", OTHER, turn=30), line("open", TASK, turn=31)]
SECOND = [line("decision", NEW, B, 86, 0.9), line("report", "Ana signed the winter berth", B, 90, 0.5)]


def extracted(body: str, lines: list[Line], stale: frozenset[str] = frozenset()) -> str:
    placed = [(place_of(one), one) for one in lines if one.kind != "report"]
    return settled(merged(body, placed, stale), lines)


def section(body: str, title: str) -> list[str]:
    after = body.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [row for row in after.splitlines() if row.strip()]


def test_a_replaced_decision_moves_to_its_section_and_names_both_turns() -> None:
    body = extracted(extracted("# atlas\n", FIRST), SECOND)
    (replaced,) = section(body, "Replaced decisions")
    assert replaced == f"- 2026-11-02: {OLD} (replaced 2026-11-04) [src: 27](/{A}) [src: 86](/{B})"
    assert [sources_of(row)[0].turn for row in section(body, "Key Decisions")] == [30, 86]


def test_of_transcripts_that_one_session_begins_in_a_minute_the_one_with_the_later_turn_is_newer() -> None:
    first, second = (f"raw/conversations/2026/11/02/0900-a1de7d47-76a9-40ff-{name}.md" for name in ("vault", "scratch"))
    body = extracted("# atlas\n", [line("decision", OLD, first, 11), line("decision", NEW, second, 19, 0.9)])
    assert [sources_of(row)[0].turn for row in section(body, "Replaced decisions")] == [11]
    rows = "# atlas\n\n## Key Decisions\n\n{}\n{}\n".format(
        entry("2026-11-02", "Free shipping from 89 € instead of 79.", (Source(second, 19),)),
        entry("2026-11-02", "Flat shipping of 5,90 €, free above 79 €.", (Source(first, 11),)),
    )
    assert overtaken_lines(rows) == {5}


def test_a_closed_item_moves_to_its_section() -> None:
    body = extracted(extracted("# atlas\n", FIRST), SECOND)
    assert section(body, "Open items") == []
    assert section(body, "Closed items") == [f"- 2026-11-02: {TASK} (done 2026-11-04) [src: 31](/{A}) [src: 90](/{B})"]


def test_doing_it_again_changes_no_byte() -> None:
    body = extracted(extracted("# atlas\n", FIRST), SECOND)
    assert extracted(body, []) == body
    assert extracted(body, SECOND) == body
    assert extracted(body, [*FIRST, *SECOND], frozenset((A, B))) == body
    assert extracted("# atlas\n", [*FIRST, *SECOND]).split() == body.split(), "at once or one after the other"


def test_of_two_wordings_of_a_message_the_one_that_says_more_is_kept_also_when_it_is_closed_and_read_again() -> None:
    more = f"The marina wants to know who comes. I'll {TASK}."
    lines = [line("open", "The marina wants to know who comes.", turn=31), line("open", more, turn=31)]
    body = extracted("# atlas\n", lines)
    assert section(body, "Open items") == [f"- 2026-11-02: {more} [src: 31](/{A})"]
    closed = extracted(body, SECOND)
    (row,) = section(closed, "Closed items")
    assert row == f"- 2026-11-02: {more} (done 2026-11-04) [src: 31](/{A}) [src: 90](/{B})"
    assert extracted(closed, [*lines, *SECOND], frozenset((A, B))) == closed


def test_outside_any_project_only_a_conversation_about_the_same_subject_settles_an_item() -> None:
    talks = [f"raw/conversations/2026/11/0{n}/0900-s-{n}-talk.md" for n in range(1, 5)]
    old = line("decision", "The boat is kept in the north dock for the whole winter.", talks[0])
    others = [line("fact", "Snow is kept whole all winter.", talks[2])]
    others += [line("fact", "Kept bees need a whole winter of rest.", talks[3])]
    new = line("decision", "Scratch that, honey is kept for the whole winter in jars instead.", talks[1], 9, 0.95)
    same = line(
        "decision", "Scratch that, no boat of ours is kept for the whole winter in jars instead.", talks[1], 9, 0.95
    )

    def after(decision: Line, of_one_subject: bool) -> list[str]:
        lines = [old, *others, decision]
        body = merged("# General\n", [(place_of(replace(one, project=None)), one) for one in lines])
        return section(settled(body, lines, of_one_subject=of_one_subject), "Replaced decisions")

    assert len(after(new, True)) >= 1, "in a project, everything is about the project"
    assert after(new, False) == []
    assert len(after(same, False)) == 1


def test_items_move_back_when_their_settling_turn_is_gone() -> None:
    before = extracted("# atlas\n", FIRST)
    body = extracted(extracted(before, SECOND), [], frozenset((B,)))
    assert section(body, "Key Decisions") == section(before, "Key Decisions")
    assert section(body, "Open items") == section(before, "Open items")
    assert section(body, "Replaced decisions") == section(body, "Closed items") == []


def test_items_move_back_when_their_settling_turn_is_forgotten_and_go_with_their_own_turn() -> None:
    body = extracted(extracted("# atlas\n", FIRST), SECOND)
    back = reopened(body, lambda source: source.path == B)
    assert [sources_of(row)[0].turn for row in section(back, "Key Decisions")] == [27, 30, 86]
    assert section(back, "Replaced decisions") == []
    assert reopened(body, lambda source: source.path == A) == body, "the line itself is for `forget` to take out"
    gone = extracted(body, [], frozenset((A,)))
    assert OLD not in gone
    assert TASK not in gone


def test_a_decision_that_is_made_again_is_in_force_again() -> None:
    body = extracted(extracted("# atlas\n", FIRST), SECOND)
    again = line("decision", OLD, "raw/conversations/2026/11/09/0900-s-c.md", 3, 0.9)
    body = extracted(body, [again])
    assert entry("2026-11-09", OLD, (again.source,)) in section(body, "Key Decisions")
    assert [NEW in row or OLD in row for row in section(body, "Replaced decisions")] == [True, True]


def test_lines_that_a_person_wrote_or_moved_stay() -> None:
    own = "- by hand, no mark"
    continued = f"- 2026-11-02: {OLD} [src: 27](/{A})\n  and my own remark on it"
    moved = f"- 2026-11-02: {OTHER} [src: 30](/{A})"
    body = f"# atlas\n\nSome prose.\n\n## Key Decisions\n{own}\n{continued}\n\n## Replaced decisions\n{moved}\n"
    for lines, stale in ((SECOND, frozenset[str]()), ([*FIRST, *SECOND], frozenset((A, B)))):
        after = extracted(body, lines, stale)
        for kept in ("Some prose.", own, continued, moved):
            assert kept in after
        assert moved in section(after, "Replaced decisions")
