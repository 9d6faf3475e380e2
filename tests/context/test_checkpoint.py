"""The slot that says where a conversation stood when its window was emptied."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mcp_server.context.compiler import Compiled, compile_inputs
from mcp_server.context.inputs import CompileInputs, LeftOff, Recognized
from mcp_server.context.slots.checkpoint import EXCHANGES, is_news
from mcp_server.model import COMPACTION, SourceFile, ToolCall, Turn
from mcp_server.text.prose import is_injected

AT = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)
STOOD = LeftOff(
    id="ckp_4f0c",
    path="checkpoints/ses_1/ckp_4f0c.md",
    at="2026-02-16 18:45",
    turn=40,
    thread="Began with: How shall we store the ledger?\nLast asked: And the backups?",
    decisions=("Use SQLite for the ledger", "Keep backups for thirty days"),
    open_items=("call Ana about the winter berth",),
    last_tool_call=ToolCall("Bash", "pytest -q", "3 passed"),
    files=("src/ledger.py",),
    next_step="order the paint",
)


def compiled(stood: LeftOff | None, budget: int = 2_000, **others: object) -> Compiled:
    inputs = CompileInputs("and now?", budget, AT, "2026-02-16", checkpoint=stood)
    return compile_inputs(replace(inputs, **others), lambda text: -(-len(text) // 4))  # type: ignore[arg-type]


def test_a_context_says_where_the_conversation_stood_and_where_that_is_from() -> None:
    text = compiled(STOOD).text
    for said in (
        "2026-02-16 18:45 UTC, after turn 40 · read checkpoints/ses_1/ckp_4f0c.md",
        "Began with: How shall we store the ledger?\nLast asked: And the backups?",
        "Last tool call: Bash pytest -q → 3 passed",
        "Decisions:\n- Use SQLite for the ledger\n- Keep backups for thirty days",
        "Next step: order the paint",
        "Open items:\n- call Ana about the winter berth",
        "Files touched: src/ledger.py",
    ):
        assert said in text
    assert is_injected(text), "when it comes back as a message, nothing is captured from it"


def test_without_a_checkpoint_nothing_is_said() -> None:
    assert "checkpoint" not in compiled(None).text


def test_where_not_all_fit_the_newest_are_shown_and_counted() -> None:
    many = replace(STOOD, decisions=tuple(f"Use file number {n} for the ledger of that year" for n in range(60)))
    receipt = compiled(many, 800)
    assert "- Use file number 59 for" in receipt.text
    assert "- Use file number 0 for" not in receipt.text
    assert " of 60):" in receipt.text
    accounts = {one.id: one for one in receipt.receipt.considered if one.slot == "checkpoint"}
    assert not accounts["ckp_4f0c:decisions"].whole
    assert accounts["ckp_4f0c:open-items"].whole
    assert accounts["ckp_4f0c:last-tool-call"].included


def test_it_leaves_memory_its_share_and_memory_leaves_it_its_own() -> None:
    memory = SourceFile("knowledge/memory/MEMORY.md", "\n".join(f"- fact number {n}" for n in range(2_000)))
    both = compiled(STOOD, 1_200, files=(memory,)).receipt
    tokens = {slot.name: slot.tokens for slot in both.slots}
    assert tokens["checkpoint"] == {s.name: s.tokens for s in compiled(STOOD, 1_200).receipt.slots}["checkpoint"]
    assert tokens["memory"] > 200


def test_all_decisions_rules_and_open_items_are_in_it_each_by_a_clause_if_need_be() -> None:
    many: dict[str, Any] = {
        name: tuple(f"We take {name} number {number}, because of {'its long reason ' * 8}" for number in range(count))
        for name, count in (("decisions", 25), ("rules", 7), ("open_items", 8))
    }
    done = compiled(replace(STOOD, **many), 1_200)
    for name, texts in many.items():
        for number in range(len(texts)):
            assert f"take {name} number {number}" in done.text


def test_doubted_items_make_room_before_the_others_are_shortened_far() -> None:
    sure = tuple(
        f"Shelf number {number} gets oak. Someone said that in winter the air is dry. Pine is what most people take."
        for number in range(20)
    )
    chatter = tuple(f"Let's have number {number} of many nice days together and go out" for number in range(20))
    doubted = tuple(Recognized(text, 0.3) for text in ("what a day", *chatter))
    stood = replace(STOOD, decisions=(*chatter, *sure), open_items=("call Ana", "what a day"), recognized=doubted)
    full = compiled(stood, 1_000).text
    assert all(f"Shelf number {number} gets oak" in full for number in range(20))
    assert " of 40):" in full
    assert "number 0 of many nice days" not in full
    assert "call Ana" in full
    assert all(text in compiled(stood, 4_000).text for text in ("what a day", *chatter)), (
        "with room nothing is left out"
    )


def test_a_shortened_item_keeps_what_the_user_said_and_what_was_proposed() -> None:
    rows = "part | noise | price NAU7802 | 50 nV | 1.60 HX711 | 90 nV | 0.80"
    proposal = f"{rows} Both are in stock in Vienna and ship within a week. I'd take the NAU7802."
    long = f"{proposal} (amended: but the one in DIP)"
    no = "No firmware over the air. (refused: A new image is sent in fragments over the radio.)"
    shelves = (f"Shelf {n} gets oak, {'and more wood ' * 6}" for n in range(12))
    core = Recognized(long, core="I'd take the NAU7802.")
    text = compiled(replace(STOOD, decisions=(*shelves, long, no), recognized=(core,)), 400).text
    assert "take NAU7802. (amended: but one DIP)" in text
    assert "- No firmware over" in text
    assert "1.60 HX711" not in text


def test_a_refused_proposal_is_never_shown_without_the_refusal() -> None:
    refused = "nein. (refused: I'd move the whole ledger to MongoDB with 3 shards and `mongod.conf` in git.)"
    many = replace(STOOD, decisions=(refused, *(f"Shelf {n} gets oak, {'and more wood ' * 6}" for n in range(20))))
    for budget in range(300, 1_000, 50):
        text = compiled(many, budget).text
        assert "MongoDB" not in text or "nein. (refused: " in text


def test_with_room_left_sentences_that_may_state_a_decision_follow() -> None:
    stood = replace(
        STOOD, possible=("The berth goes to Ana.",), recognized=(Recognized("The berth goes to Ana.", 0.2),)
    )
    assert "Perhaps:\n- The berth goes to Ana." in compiled(stood).text
    many = replace(stood, decisions=tuple(f"Use file number {n} for the ledger of that year" for n in range(60)))
    assert "Ana." not in compiled(many, 800).text


def test_the_page_does_not_repeat_an_item_of_the_checkpoint() -> None:
    lines = ("Use SQLite for the ledger.", "Ship on Fridays.")
    rows = "\n".join(f"- 2026-02-16: {line} [src: raw/conversations/2026/02/16/a.md#1]" for line in lines)
    page = SourceFile("knowledge/projects/bakery/context.md", f"# Bakery\n\n## Key Decisions\n\n{rows}\n")
    done = compiled(replace(STOOD, decisions=("Use SQLite for the ledger",)), 2_400, files=(page,))
    assert done.text.count("Use SQLite for the ledger") == 1
    assert "Ship on Fridays" in done.text


def test_the_page_does_not_repeat_the_short_form_of_an_item() -> None:
    text, short = "I propose: JSON is slow here. Use SQLite for the ledger.", "I propose: Use SQLite for the ledger."
    row = f"- 2026-02-16: {short} [src: raw/conversations/2026/02/16/a.md#1]"
    page = SourceFile("knowledge/projects/bakery/context.md", f"# Bakery\n\n## Key Decisions\n\n{row}\n")
    stood = replace(STOOD, decisions=(text,), recognized=(Recognized(text, short=short),))
    assert compiled(stood, 2_400, files=(page,)).text.count("Use SQLite for the ledger") == 1


def test_what_stood_before_is_news_for_some_exchanges() -> None:
    turns = [Turn(1, "user", "hello", AT), Turn(2, "system", "compacted", AT, name=COMPACTION)]
    for number in range(EXCHANGES):
        turns.append(Turn(3 + number, "user", "and?", AT))
        assert is_news(turns, emptied=2)
    assert not is_news([*turns, Turn(99, "user", "and?", AT)], emptied=2)
