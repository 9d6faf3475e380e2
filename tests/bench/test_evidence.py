"""What counts as evidence inside a context."""

from __future__ import annotations

from mcp_server.bench.evidence import DerivedLine, KnownTurn, inside, units_of
from mcp_server.context.receipt import Considered, Receipt

TURN = KnownTurn("t1", "raw/a.md#1", "Ana: I only take window seats on trains.")
LINE = {"knowledge/people/user.md#7": DerivedLine("- Only takes window seats.", frozenset({TURN.unit}))}


def receipt(*considered: Considered) -> Receipt:
    return Receipt("", 1000, 10, "add", "", "", (), 0, considered, {}, None, {})


def test_a_turn_counts_with_its_words_its_part_or_a_line_that_was_derived_from_it() -> None:
    found = Considered("raw/a.md:3-3", "knowledge", "raw/a.md", True, "relevant", unit=TURN.unit)
    line = Considered(
        "knowledge/people/user.md:7-7", "knowledge", "", True, "relevant", unit="knowledge/people/user.md#7"
    )
    always = "## Preferences\n- Only takes  window seats.\n"
    assert inside([TURN], f"history\n{TURN.shown}\n", units_of(receipt())) == {"t1"}
    assert inside([TURN], "window seats …", units_of(receipt(found))) == {"t1"}
    assert inside([TURN], "", units_of(receipt(line)), LINE) == {"t1"}
    assert inside([TURN], always, units_of(receipt()), LINE) == {"t1"}


def test_what_is_not_in_the_context_does_not_count() -> None:
    out = Considered("raw/a.md:3-3", "knowledge", "raw/a.md", False, "no room", unit=TURN.unit)
    assert inside([TURN], "- Only takes aisle seats.", units_of(receipt(out)), LINE) == frozenset()
    assert inside([TURN], "- Only takes window seats.", units_of(receipt(out))) == frozenset()
