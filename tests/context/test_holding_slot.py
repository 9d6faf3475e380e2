"""The slot "what holds": rules, decisions, open items and facts of the project's page, in the compiled text."""

from __future__ import annotations

from typing import Any

from mcp_server.context.compiler import Compiled, compile_inputs
from mcp_server.context.inputs import CompilerSettings
from mcp_server.model import SourceFile
from mcp_server.text.derived_lines import STATE
from tests.context.states import inputs, tokens

PAGE = "knowledge/projects/tea/context.md"


def page(**sections: list[str]) -> SourceFile:
    rows: list[str] = ["# tea"]
    for title, lines in sections.items():
        rows += ["", f"## {title.replace('_', ' ')}"]
        rows += [f"- 2026-05-02: {line} [src: raw/conversations/2026/05/02/a.md#{at}]" for at, line in enumerate(lines)]
    return SourceFile(PAGE, "\n".join(rows))


def compiled(source: SourceFile, **more: Any) -> Compiled:
    return compile_inputs(inputs(files=(source,), **more), tokens().count)


def order_of(source: SourceFile, *words: str) -> tuple[str, ...]:
    """The `path:line` of the lines with these words."""
    rows = source.text.split("\n")
    return tuple(f"{PAGE}:{place}" for word in words for place, row in enumerate(rows, 1) if word in row)


def test_without_a_message_facts_get_what_the_other_kinds_leave() -> None:
    rules, decisions, opened = ["Never boil the water."], ["Sencha it is."], ["Buy cups."]
    source = page(Rules=rules, Key_Decisions=decisions, Open_items=opened, Facts=["The kitchen has 12 m2."])
    text = compiled(source).text
    assert "Rules:\n- Never boil the water.\nDecided:\n- Sencha it is.\nOpen:\n- Buy cups.\nFacts:\n- The" in text
    many = [f"Pot number {number} is for guests." for number in range(90)]
    text = compiled(page(Rules=rules, Key_Decisions=many, Facts=["The kitchen has 12 m2."]), budget=600).text
    assert "Never boil" in text
    assert "Facts:" not in text


def test_long_rules_come_before_many_short_decisions() -> None:
    rules = [f"Rule {number}: never boil the water, {'and warm the pot, ' * 6}please." for number in range(3)]
    many = [f"Pot number {number} is for guests." for number in range(90)]
    text = compiled(page(Rules=rules, Key_Decisions=many), budget=600).text
    assert all(f"Rule {number}" in text for number in range(3))
    assert "Pot number 89 " in text


def test_with_a_message_the_lines_that_search_ranks_first_get_the_room() -> None:
    decisions = [f"Pot number {number} is for guests who come on weekday number {number}." for number in range(90)]
    source = page(Rules=["Never boil the water."], Key_Decisions=decisions, Facts=["The kitchen has 12 m2."])
    wanted = order_of(source, "12 m2", "number 4 ", "number 71 ")
    result = compiled(source, page_order=wanted, budget=600)
    for part in ("Never boil", "Pot number 4 ", "Pot number 71 ", "Facts:\n- The kitchen has 12 m2."):
        assert part in result.text
    left_out = [one for one in result.receipt.considered if one.slot == "what holds" and not one.included]
    assert len(left_out) > 50
    assert {one.reason for one in left_out} == {"no room within its share"}


def test_without_a_message_the_newest_lines_get_the_room() -> None:
    source = page(Key_Decisions=[f"Pot number {number} is for guests." for number in range(90)])
    text = compiled(source, budget=600).text
    assert "Pot number 89 " in text
    assert "Pot number 1 " not in text


def test_without_a_message_short_lines_come_before_long_ones() -> None:
    long = [f"Pot number {number} is for guests who stay until {'very ' * 20}late." for number in range(30)]
    text = compiled(page(Key_Decisions=["Sencha it is.", *long]), budget=600).text
    assert "Sencha it is." in text
    assert "Pot number 29 " in text
    assert "Pot number 1 " not in text


def test_no_room_is_kept_free_for_the_state_of_a_project_which_repeats_its_lines() -> None:
    many = [f"Pot number {number} is for guests." for number in range(90)]
    source = page(Key_Decisions=many)
    state = f"{STATE}Last decision: {many[-1]} [src: raw/conversations/2026/05/02/a.md#89]"
    with_state = SourceFile(PAGE, source.text.replace("# tea\n", f"# tea\n\n{state}\n"))
    settings = CompilerSettings(memory_share=0.4, holding_share=1.0)
    counts = [compiled(one, budget=600, settings=settings).text.count("Pot number") for one in (source, with_state)]
    assert counts[1] >= counts[0] > 20
