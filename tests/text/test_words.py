"""The words of a text, and the names in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.text.forgotten import MARK
from mcp_server.text.prose import LONGEST_READ, extract, item_id, known_in
from mcp_server.text.words import (
    ENGLISH_STOP_WORDS,
    SERBIAN_STOP_WORDS,
    TALK_WORDS,
    content_words,
    fold,
    names_in,
    words,
)


def test_case_and_diacritics_do_not_matter() -> None:
    assert fold("Čačak, ĐORĐE i Žuća") == "cacak, dorde i zuca"
    assert fold("Łódź Größe crème") == "lodz grosse creme"


@given(st.text())
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.text())
def test_words_are_folded_letters_and_digits(text: str) -> None:
    assert all(word and "_" not in word and word == fold(word) for word in words(text))


@given(st.text())
def test_content_words_are_words_of_the_text_in_order_each_once(text: str) -> None:
    found = content_words(text)
    spoken = words(text)
    assert len(set(found)) == len(found)
    assert [spoken.index(word) for word in found] == sorted(spoken.index(word) for word in found)


def test_contractions_and_genitives_leave_no_letters_behind() -> None:
    assert words("Ana's boat, I'd say, isn’t blue") == ["ana", "boat", "i", "say", "isn", "blue"]


def test_chinese_and_japanese_are_taken_in_pairs_of_characters() -> None:
    assert words("搬到新办公室。Python3を使う") == ["搬到", "到新", "新办", "办公", "公室", "python3", "を使", "使う"]
    assert words("茶 一蘭 ｶﾀｶﾅ 한국어 naïve") == ["茶", "一蘭", "カタ", "タカ", "カナ", *words("한국어"), "naive"]
    assert len(words("한국어")) == 1  # Korean has blanks


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("vitamin D and the C compiler", ["vitamin", "d", "c", "compiler"]),  # a letter that is a word stays
        ("When did you go to the harbour, and what was the boat's name?", ["harbour", "boat", "name"]),
        ("Šta smo se dogovorili oko čamca?", ["dogovorili", "camca"]),
        ("Sta smo se dogovorili oko camca?", ["dogovorili", "camca"]),
        ("Why was Sam sad about his bio?", ["sam", "sad", "bio"]),  # English words that look Serbian stay
        ("Sam is sad", ["sam", "sad"]),
        ("Was ist noch offen?", ["offen"]),
        ("¿Cuándo tenemos que enviar el informe al ayuntamiento?", ["enviar", "informe", "ayuntamiento"]),
        ("the hat and the war", ["hat", "war"]),
    ],
)
def test_stop_words_of_several_languages_are_left_out(text: str, left: list[str]) -> None:
    assert content_words(text) == left


@pytest.mark.parametrize("text", ["the picnic in May", "7 May 2023", "May 7, 2023"])
def test_the_month_of_may_is_a_word_and_the_verb_is_not(text: str) -> None:
    assert "may" in content_words(text)
    assert "may" not in content_words("It may rain. May I go?")


def test_a_caller_can_leave_out_more() -> None:
    assert content_words("Ana saw the boat", also_leave_out=["ana"]) == ["saw", "boat"]


def test_people_are_found_by_a_part_of_their_name() -> None:
    people = ["Ana Petrović", "Bo", "Will", "C"]
    assert names_in("What did Petrovic tell Bo, and will C see?", people) == ["Ana Petrović", "Bo"]


def test_the_lists_are_written_as_words_come_out_of_a_text() -> None:
    for listed in (ENGLISH_STOP_WORDS, SERBIAN_STOP_WORDS, TALK_WORDS):
        assert all(words(word) == [word] for word in listed)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("ClaraCore is down", {"claracore": "project"}),
        ("merge focus-engine today", {"focus-engine": "project", "merge": "keyword"}),
        ("use web_search and memory_search", {"tool:web_search": "tool", "tool:memory_search": "tool"}),
        ("see SOUL.md and memory/active-context.md", {"soul.md": "file", "memory/active-context.md": "file"}),
        ("src/app.py fails", {"src/app.py": "file", "fails": "keyword"}),
        ("the oven", {"oven": "keyword"}),
        ("ok, thanks!", {}),
        ("", {}),
        (
            "a high-quality, up-to-date oven",
            {"high": "keyword", "quality": "keyword", "date": "keyword", "oven": "keyword"},
        ),
        ("see https://example.org/FooBar/x_y.py", {}),
        ("focus-core/src/app.py", {"focus-core/src/app.py": "file"}),
        (f"the oven {MARK} and [redacted:api-key] here", {"oven": "keyword"}),
    ],
)
def test_names_are_recognized_once_each_by_their_shape_and_marks_are_no_names(text: str, items: dict[str, str]) -> None:
    assert extract(text) == items


def test_of_fenced_code_only_files_count() -> None:
    pasted = 'Map the address.\n```json\n{"fieldAlpha": 1, "street_name": "Trg"}\n# src/app.py\n```\nThen the weight.'
    assert extract(pasted) == {"src/app.py": "file", "map": "keyword", "address": "keyword", "weight": "keyword"}


def test_a_called_tool_counts_by_its_name_whatever_its_shape() -> None:
    assert extract("", ["Bash", "Read"]) == {"tool:bash": "tool", "tool:read": "tool"}


def test_an_answer_refers_only_to_what_is_known() -> None:
    assert known_in("ClaraCore and the oven", (), {"oven": 1}) == ["oven"]


def test_of_a_very_long_message_both_ends_are_read() -> None:
    text = "FirstThing " + "x" * (2 * LONGEST_READ) + " LastThing"
    assert {"firstthing", "lastthing"} <= extract(text).keys()


@pytest.mark.parametrize(
    ("said", "counted"),
    [("web_search", "tool:web_search"), ("ClaraCore", "claracore"), ("Winter Berth", "winter berth"), ("x", "x")],
)
def test_what_a_person_names_has_the_id_under_which_it_is_counted(said: str, counted: str) -> None:
    assert item_id(said) == counted


@given(st.text(max_size=300))
def test_any_text_gives_lower_case_ids_of_bounded_length(text: str) -> None:
    assert all(item == item.lower() and 0 < len(item) <= 110 for item in extract(text))
