"""Decisions: the gate and the four tiers of S3 "Issue 1"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.core.checkpoints.decisions import explicit, extract
from mcp_server.core.checkpoints.gate import accepts, first_verb
from mcp_server.core.checkpoints.prose import clipped, entry, prose

GOOD = [
    "Use atomicWriteFile for checkpoint re-write to bypass dedup",
    "Merge strategy: LLM decisions + preserved heuristics via set-diff",
]
BAD = ["You're right, I overcomplicated it", "- I need to send him a plan", "Ohoho. Claude Code Remote Control"]


@pytest.mark.parametrize(
    "text",
    [
        *GOOD,
        "Simplified enrichment merge to use lowercase set-diff",
        "**SQLite for the index**",
        "- keep the old format",
        "Backups: every night at two",
        "Postgres instead of SQLite",
        "The fix is a longer timeout",
        "Plan A is the better option",
    ],
)
def test_the_gate_lets_decisions_through(text: str) -> None:
    assert accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        *BAD,
        "",
        "- ",
        "**",
        "Haha, use that",
        "Hmm use SQLite",
        "Okay, use SQLite",
        "Well, we use it",
        "Okay so we add it",
        "Sure, I'll add it",
        "Yeah use it",
        "ok use it",
        "Ah use it",
        "Oh we use it",
        "You’re right, use SQLite",
        "Should we use SQLite?",
        "**Use SQLite?**",
        "The weather is nice",
    ],
)
def test_the_gate_refuses_talk_questions_and_what_has_no_structure(text: str) -> None:
    assert not accepts(text)


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("**Use Redis**\n\nDecision: keep SQLite for now", "Decision: keep SQLite for now"),
        ("I'll use Redis.\nGoing with SQLite, it is one file.", "Going with SQLite, it is one file."),
        ("**Decision**: keep SQLite for now", "Decision: keep SQLite for now"),
        ("### Approach: two queues, one writer", "Approach: two queues, one writer"),
        ("Chose Postgres for the ledger", "Chose Postgres for the ledger"),
        ("Choosing Postgres for the ledger", "Choosing Postgres for the ledger"),
        ("- Plan: add an index, then measure", "Plan: add an index, then measure"),
        ("Decided to drop the cache", "Decided to drop the cache"),
    ],
)
def test_tier_1_an_explicit_marker_wins(answer: str, decision: str) -> None:
    assert extract(answer) == explicit(answer) == decision


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("**Use Redis**\nI'll use SQLite for the index.", "I'll use SQLite for the index."),
        ("That is slow. We’ll cache it, so that we can read on.", "We’ll cache it, so that we can read on."),
        ("Let's keep the old format.", "Let's keep the old format."),
        ("I'm going to replace the parser.", "I'm going to replace the parser."),
        ("We will now move the key into the settings.", "We will now move the key into the settings."),
        ("I will stick with Postgres.", "I will stick with Postgres."),
        ("The fix is a longer timeout.", "The fix is a longer timeout."),
        ("The plan is to split the file.", "The plan is to split the file."),
        ("Given the deadline, we'll skip the migration.", "Given the deadline, we'll skip the migration."),
        ("For one writer, SQLite is the better choice.", "For one writer, SQLite is the better choice."),
        ("`card-deck` is gone. Instead, you should use rows.", "Instead, you should use rows."),
        ("Instead of calling the API, use the proxy.", "Instead of calling the API, use the proxy."),
    ],
)
def test_tier_2_an_intent_an_answer_or_a_verdict(answer: str, decision: str) -> None:
    assert extract(answer) == decision


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("- **Storage**: use one SQLite file\n- use a queue", "Storage: use one SQLite file"),
        ("- use a queue\n**Switch the index to FTS5**", "Switch the index to FTS5"),
        ("1. **Keep the old format**", "Keep the old format"),
    ],
)
def test_tier_3_a_bold_line_with_a_verb(answer: str, decision: str) -> None:
    assert extract(answer) == decision


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("Notes:\n\n- the weather\n- use a queue for uploads\n- add an index", "use a queue for uploads"),
        ("1. the oven of the new bakery will use gas\n2. keep the old mixer", "keep the old mixer"),
        ("* the oven of the new bakery will use gas", "the oven of the new bakery will use gas"),
        ("2) remove the flag", "remove the flag"),
    ],
)
def test_tier_4_a_bullet_with_a_verb_the_earlier_the_better(answer: str, decision: str) -> None:
    assert extract(answer) == decision


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "You're right, I overcomplicated it. That was far too much.",
        "Ohoho. Claude Code Remote Control is out, have you seen it?",
        *BAD,
        "```\nDecision: keep SQLite\n- use a queue\n```",
        "~~~sql\nUse Redis\n```\n- use a queue\n~~~",
        "```python\n- use a queue (never closed)",
        "> ```\n> - use a queue\n> ```",
        "Decision: ",
        "Decision: yes",
        "Choosing 2 fruits from a basket of 5:",
        "Decision: should we keep it?",
        "Let's go through the code.",
        "I'll use the following:",
        "**Use the following:**",
        "- [ ] use a queue",
        "- [x] use a queue",
        "- **Cache**: stores the answers, to use them again",
        "We could use a queue. I might use Redis. If it is slow, we will use a cache.",
        "Sure! Let's use a queue.",
        "- `use` and `add` are verbs",
        "A plain sentence that says to use a queue.",
    ],
)
def test_none_rather_than_noise(answer: str) -> None:
    assert extract(answer) is None


TEACHING = "Here's how to do it, step by step.\n\n{}\n\nFeel free to ask!"


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("- Use a queue for uploads", None),
        ("1. **Caching**: Use a cache", None),
        ("Let's use a queue.", None),
        ("We'll create a file.", None),
        ("- Added a button to the form", None),
        ("- Used in the projects section to describe them", None),
        ("We'll use SQLAlchemy for the ledger.", "We'll use SQLAlchemy for the ledger."),
        ("1. **Caching**: Used Flask-Caching to keep answers", "Caching: Used Flask-Caching to keep answers"),
        ("- Added a lock to prevent lost writes", "Added a lock to prevent lost writes"),
    ],
)
def test_an_answer_that_teaches_settles_only_what_it_did_and_why(line: str, decision: str | None) -> None:
    assert extract(TEACHING.format(line)) == decision


def test_a_decision_is_cut_at_a_word_after_200_characters() -> None:
    decision = extract("Decision: keep " + "the old format " * 30)
    assert decision is not None
    assert len(decision) <= 200
    assert decision.endswith("the…")
    assert clipped("x" * 300, 200) == "x" * 199 + "…"


def test_a_marker_is_found_whoever_wrote_it_and_only_a_marker() -> None:
    assert explicit("hello\n\nDecision: keep SQLite for now") == "Decision: keep SQLite for now"
    assert explicit("I'll use SQLite.") is None
    assert explicit("<system-reminder>\nDecision: keep SQLite for now") is None


def test_what_only_follows_to_is_no_verb_that_acts() -> None:
    assert first_verb("run it to create tables") == -1
    assert first_verb("we now create tables") == 2


@given(st.text(alphabet="`~ab\n- *:>#1.", max_size=60))
def test_any_text_may_be_an_answer(text: str) -> None:
    found = extract(text)
    assert found is None or (0 < len(found) <= 200 and "\n" not in found)
    assert all(line == line.strip() != "" for line in prose(text))
    assert len(entry(text)) <= 200


@given(st.sampled_from(["```", "~~~", "````"]), st.lists(st.sampled_from(["Decision: use SQLite now", "~~", "x ```"])))
def test_nothing_inside_a_fence_is_ever_a_decision(fence: str, lines: list[str]) -> None:
    assert extract("\n".join([fence, *lines, fence])) is None
