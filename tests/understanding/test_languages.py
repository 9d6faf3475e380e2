"""Tests of the recognizer with conversations in German, Serbian and Spanish."""

from __future__ import annotations

import pytest

from mcp_server.text.words import languages_of
from mcp_server.understanding.features import Message, common_words
from tests.understanding.talks import items


def test_a_rule_in_german_is_recognized() -> None:
    (rule,) = items("Und ganz wichtig: niemals echte Mieternamen in Testdaten oder in Logs.", "Verstanden.")
    assert (rule.kind, rule.text) == ("rule", "Und ganz wichtig: niemals echte Mieternamen in Testdaten oder in Logs.")


def test_a_change_of_a_proposal_in_serbian_is_a_decision() -> None:
    (decision,) = items(
        "Kako da čuvamo kopije baze?",
        "Predlažem da kopije pravimo svake noći i da ih čuvamo 14 dana na serveru u Nišu.",
        "Može, ali neka bude 30 dana.",
        "U redu, onda 30 dana.",
    )
    assert decision.kind == "decision"
    assert "14 dana na serveru u Nišu" in decision.text
    assert "30 dana" in decision.text


@pytest.mark.parametrize(
    ("said", "language"),
    [
        ("Wir nehmen das nicht mehr, und die Liste bleibt auch hier.", "german"),
        ("We keep the list here, and die hat was not the war.", "english"),
        ("Može", "english"),
    ],
)
def test_the_language_of_a_message_is_told_by_its_stop_words(said: str, language: str) -> None:
    assert languages_of([said]) == [language]


def test_a_short_message_has_the_language_of_the_one_before() -> None:
    before = "Wir nehmen das nicht mehr, und die Liste bleibt auch hier. Soll ich?"
    assert languages_of([before, "Niemals!"]) == ["german", "german"]
    assert Message("user", "Niemals!", language="german").english == "never!"


def test_an_accent_tells_words_apart_and_may_be_missing() -> None:
    said = "Sí, si la lista no está aquí la escribimos mañana, y el manana también."
    read = Message("user", said, language="spanish").english
    assert read.startswith("yes, if the list not is here")
    assert read.count("tomorrow") == 2


def test_no_language_has_a_word_that_stands_for_nothing() -> None:
    for language, known in common_words().items():
        assert known, language
        assert all(word and english.strip() == english for word, english in known.items()), language
