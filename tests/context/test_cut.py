"""Cutting a text so that it fits and says so."""

from __future__ import annotations

from mcp_server.context.cut import LEFT_OUT, beginning, head_and_tail, relevant_part, without_code
from mcp_server.tokens import Meter, Room, shared_out
from tests.context.states import tokens

SECTIONS = (
    "# Memory\n\n## Decisions\n" + "- We chose files over a database.\n" * 9 + "\n## Lessons\n" + "- Measure it.\n" * 60
)


def meter() -> Meter:
    return Meter(tokens().count)


def mark(end: int) -> str:
    return f"[cut after {end}]"


def test_a_cut_falls_on_a_section_end_where_that_keeps_most() -> None:
    cut = beginning(SECTIONS, Room(110), meter(), mark)
    assert "## Lessons" not in cut.text
    assert cut.text.count("files over") == 9
    assert cut.text.endswith(mark(cut.end))


def test_else_it_falls_on_a_line_or_sentence_end() -> None:
    text = "One thing is said. Another thing is said too, and at length. " * 30
    cut = beginning(text, Room(60), meter(), mark)
    assert cut.text.split("\n")[0].endswith((".",))
    assert tokens().count(cut.text) <= 60


def test_a_text_without_a_sentence_ends_at_a_word() -> None:
    cut = beginning("word " * 500, Room(40), meter(), mark)
    assert cut.text.split("\n")[0].split() == ["word"] * cut.text.count("word")
    assert cut.text.count("word") > 20


def test_bytes_limit_as_tokens_do() -> None:
    cut = beginning(SECTIONS, Room(1000, 200), meter(), mark)
    assert len(cut.text.encode()) <= 200
    assert not cut.whole


def test_of_a_long_message_head_and_tail_remain() -> None:
    text = "Please look at this log. " + "line of the log\n" * 500 + "What went wrong here?"
    shown = head_and_tail(text, 80, meter())
    assert shown.startswith("Please look at this log.")
    assert shown.endswith("What went wrong here?")
    assert LEFT_OUT in shown
    assert tokens().count(shown) <= 80


def test_of_a_long_passage_the_sentences_about_the_question_remain() -> None:
    text = "It rained all day. " * 20 + "Ana keeps her passport in the blue drawer. " + "We had soup. " * 20
    shown = relevant_part(text, frozenset({"ana", "passport"}), 40, meter())
    assert "Ana keeps her passport in the blue drawer." in shown
    assert shown.startswith(LEFT_OUT)
    assert shown.endswith(LEFT_OUT)
    assert tokens().count(shown) <= 40


def test_a_sentence_that_is_too_long_itself_is_cut_at_a_word() -> None:
    shown = relevant_part("many words " * 100, frozenset({"words"}), 30, meter())
    assert shown.startswith("many words")
    assert shown.endswith(LEFT_OUT)


def test_small_needs_are_met_whole_and_large_ones_get_equal_parts() -> None:
    assert shared_out([10, 500, 300], 210) == [10, 100, 100]
    assert shared_out([], 10) == []
    assert sum(shared_out([7, 7, 7], 20)) <= 20


LOG = "\n".join(f"carrier={n % 4} parcel=NL{n}" for n in range(9))


def test_pasted_code_that_holds_no_word_of_the_question_is_left_out() -> None:
    said = f"Map the address.\n```json\n{LOG}\n```\nIs it odd?"
    asked = frozenset({"address"})
    assert without_code(said, asked) == "Map the address.\n[…]\nIs it odd?"
    assert without_code(said, frozenset({"parcel"})) == said
    assert without_code(said.removesuffix("\n```\nIs it odd?"), asked) == "Map the address.\n[…]", "a fence left open"
    short = "Run this:\n```\npytest -q\n```"
    assert without_code(short, asked) == short


def test_a_part_of_a_message_that_may_begin_inside_of_code_stays_as_it_is() -> None:
    part = f"{LOG}\n```\n" + "Then there is much to say.\n" * 9
    assert without_code(part, frozenset({"address"}), begins_inside=True) == part
    opening = f"Then the log.\n```text\n{LOG}\n```"
    assert without_code(opening, frozenset({"address"}), begins_inside=True) == "Then the log.\n[…]"
