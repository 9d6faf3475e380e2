"""Near-duplicates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.context.compiler import compile_inputs
from mcp_server.context.cut import LEFT_OUT, beginning, head_and_tail, relevant_part, without_code
from mcp_server.context.inputs import CompileInputs, Dropped, Shortened
from mcp_server.context.slots.knowledge import Included, shingles
from mcp_server.context.slots.session import MOST_TOKENS
from mcp_server.tokens import Meter, Room, shared_out
from tests.context.states import inputs, tokens, turn

TEXT = "We decided on the fourth of May to keep the memory in markdown files under git, and to rebuild the index."


def test_short_texts_are_one_only_if_equal() -> None:
    seen = Included()
    seen.add("a", shingles("Ana: yes"))
    assert seen.twin(shingles("Ana: Yes!")) == "a"
    assert seen.twin(shingles("Milan: yes")) is None


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9),
    st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9),
)
def test_looking_up_finds_what_comparing_finds(one: list[str], other: list[str]) -> None:
    known, wanted = shingles(" ".join(one)), shingles(" ".join(other))
    seen = Included()
    seen.add("a", known)
    alike = bool(wanted) and len(wanted & known) / len(wanted | known) >= 0.8
    assert (seen.twin(wanted) == "a") == alike


def dropped(count: int) -> tuple[Dropped, ...]:
    return tuple(Dropped(f"c{number:011x}", number, f"user: about the oven {number}") for number in range(count, 0, -1))


def compiled(given: CompileInputs) -> tuple[str, dict[str, int]]:
    result = compile_inputs(given, tokens().count)
    assert result.tokens <= given.budget
    return result.text, {slot.name: slot.tokens for slot in result.receipt.slots}


def test_the_newest_are_named_and_the_rest_is_counted() -> None:
    text, slots = compiled(inputs(delivery="replace", session="s", drop_list=dropped(40), dropped=90))
    assert "- c00000000028 user: about the oven 40\n" in text
    shown = text.count("user: about the oven")
    assert 3 <= shown < 40
    assert text.endswith(f"- {90 - shown} chunks more (recover lists them)")
    assert slots["dropped"] <= MOST_TOKENS


def test_a_few_are_all_named_and_none_is_no_section() -> None:
    text, _ = compiled(inputs(delivery="replace", session="s", drop_list=dropped(2), dropped=2))
    assert text.count("user: about the oven") == 2
    assert "chunks more" not in text
    assert "dropped" not in compiled(inputs(delivery="replace", session="s"))[0]


def test_a_long_history_leaves_it_its_room() -> None:
    turns = tuple(turn(number, content="word " * 200) for number in range(1, 60))
    text, _ = compiled(inputs(delivery="replace", session="s", turns=turns, drop_list=dropped(40), dropped=40))
    assert "<!-- dropped" in text


def test_the_receipt_names_the_ids_that_recover_takes() -> None:
    turns = (turn(1, content="In short."), turn(2, content="And now?"))
    given = inputs(
        delivery="replace",
        session="s",
        turns=turns,
        live_set=(Shortened(1, ("cabc",)),),
        drop_list=dropped(1),
        dropped=1,
    )
    receipt = compile_inputs(given, tokens().count).receipt
    assert "recent, shortened: recover cabc" in {one.reason for one in receipt.considered}
    assert "c00000000001" in {one.id for one in receipt.considered if one.slot == "dropped"}
    assert CompileInputs.from_json(given.to_json()) == given


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


def test_of_a_line_only_whose_answer_is_about_the_question_the_answer_remains() -> None:
    text = "We could bake it hotter and longer. " * 9 + "(agreed: Filip has a hazelnut allergy. He orders in May.)"
    shown = relevant_part(text, frozenset({"filip", "orders"}), 25, meter())
    assert shown == "Filip has a hazelnut allergy. He orders in May."


def test_what_follows_the_words_of_the_question_is_shown_before_what_precedes_them() -> None:
    begins = "Good morning to everybody here today. The log of the report server was read, all of it."
    settles = "137 reports are unopened. We archive them as PDF."
    shown = relevant_part(f"{begins} {settles}", frozenset({"reports"}), 24, meter())
    assert shown == f"{LEFT_OUT} {settles}"
    assert relevant_part(f"{begins} {settles}", frozenset({"plums"}), 24, meter()).startswith("Good morning")


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
