"""Which words of a message count?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_a_letter_that_is_a_word_stays() -> None:
    assert content_words("vitamin D and the C compiler") == ["vitamin", "d", "c", "compiler"]


def test_what_only_holds_an_english_sentence_together_is_left_out() -> None:
    assert content_words("When did you go to the harbour, and what was the boat's name?") == ["harbour", "boat", "name"]


def test_serbian_is_treated_as_serbian_with_or_without_diacritics() -> None:
    assert content_words("Šta smo se dogovorili oko čamca?") == ["dogovorili", "camca"]
    assert content_words("Sta smo se dogovorili oko camca?") == ["dogovorili", "camca"]


def test_english_words_that_look_serbian_stay() -> None:
    assert content_words("Why was Sam sad about his bio?") == ["sam", "sad", "bio"]
    assert content_words("Sam is sad") == ["sam", "sad"]


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
