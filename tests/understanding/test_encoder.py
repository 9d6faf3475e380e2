"""The encoder: which words it reads with a message, and that its estimates depend on nothing else."""

from __future__ import annotations

import pytest

from mcp_server.model import Turn
from mcp_server.understanding import encoder
from mcp_server.understanding.encoder import AFTER, BEFORE, MAX_WINDOWS, OWN, Window
from mcp_server.understanding.features import Message
from mcp_server.understanding.recognizer import linked
from tests.understanding.talks import HELLO, PROPOSAL, talk

SAID = ("and backups?", f"{PROPOSAL} OK?", "Yes, with one change: 30 copies.", "Set up that way.", "thanks!")


def messages(*said: str) -> list[Message]:
    found = linked(talk(*said)[len(HELLO) :])
    encoder.read(found)
    return found


def windows(*said: str, place: int) -> list[Window]:
    found = linked(talk(*said)[len(HELLO) :])
    roles = [message.role for message in found]
    return list(encoder.windows(encoder.tokens_of(found, encoder.tokenizer()), roles, place))


def words(window: Window) -> str:
    return encoder.tokenizer().decode(list(window.ids), skip_special_tokens=False)


def test_a_window_has_the_end_of_what_was_said_before_and_the_beginning_of_what_was_said_after() -> None:
    (window,) = windows("and backups?", "Daily.", "fine", place=1)
    assert words(window) == "[CLS] user : and backups? [SEP] agent : daily. [SEP] user : fine [SEP]"
    (first,) = windows("and backups?", "Daily.", place=0)
    assert words(first) == "[CLS] [SEP] user : and backups? [SEP] agent : daily. [SEP]"


def test_a_long_message_is_read_in_parts_that_know_what_stands_around_them() -> None:
    many = " ".join(f"Kiln {number} fires at {number + 1200} degrees." for number in range(60))
    found = windows("which kilns?", many, "thanks", place=1)
    assert len(found) > 2
    assert sum(len(window.spans) for window in found) == 60
    assert all(len(window.ids) <= BEFORE + OWN + AFTER + 30 for window in found)
    assert "which kilns?" in words(found[0])
    assert "which kilns?" not in words(found[2])
    assert "thanks" in words(found[-1])


def test_each_sentence_gets_an_estimate_of_each_kind_and_the_message_of_each_act() -> None:
    said = messages(*SAID)
    assert [len(message.estimates) for message in said] == [len(message.sentences) for message in said]
    assert set(said[1].estimates[0]) == {"decision", "rule", "fact", "open", "report", "revise"}
    assert {"propose", "explain"} <= set(said[1].estimates_of_all)
    assert {"accept", "amend"} <= set(said[2].estimates_of_all)
    assert said[1].estimates[0]["decision"] > said[4].estimates[0]["decision"]


def test_estimates_depend_only_on_the_messages_around() -> None:
    whole, part = messages("hi", "Hello.", *SAID), messages(*SAID[:4])
    assert whole[4].estimates == part[2].estimates
    alone = messages(SAID[2])
    assert alone[0].estimates != part[2].estimates


def test_common_words_of_another_language_are_read_in_english() -> None:
    (window,) = windows("Wir nehmen ab jetzt PostgreSQL für die Bestellungen.", place=0)
    assert "we" in words(window).split()
    assert "wir" not in words(window).split()


def test_a_message_in_a_language_without_known_words_has_no_estimates() -> None:
    (russian,) = messages("Мы решили перейти на новую базу данных, потому что старая слишком медленная.")
    assert not russian.estimates
    assert not russian.estimates_of_all


@pytest.mark.parametrize("text", ["\U0001f44d", "\u200b", "\ud800", "\x00", "x" * 5000, "[SEP] [CLS]"])
def test_odd_texts_have_finite_estimates(text: str) -> None:
    for message in messages("ok?", text, "fine"):
        for row in message.estimates:
            assert all(abs(value) < 100 for value in row.values())


def test_only_the_beginning_of_a_very_long_message_is_read() -> None:
    many = "\n".join(
        f"Kiln {number} fires at {number + 1200} degrees, and its door stays shut." for number in range(250)
    )
    said = messages("which kilns?", many, "thanks")
    assert 0 < len(said[1].estimates) < len(said[1].sentences)
    assert len(said[1].estimates) == sum(len(one.spans) for one in windows("which kilns?", many, place=1)[:MAX_WINDOWS])


def test_a_turn_without_words_is_skipped() -> None:
    found = linked([Turn(1, "user", "```\ncode\n```", talk("x")[0].at)])
    encoder.read(found)
    assert not found[0].estimates


@pytest.mark.parametrize(
    ("prompt", "needed", "other"),
    [
        (
            "how do i get into the staging box?",
            "SSH to staging goes through bastion-2.",
            "The invoices are due in June.",
        ),
        ("is the shop open on Monday evening?", "We close at six every day.", "The red door was painted last year."),
    ],
)
def test_a_prompt_is_nearer_to_the_line_that_it_needs(prompt: str, needed: str, other: str) -> None:
    asked, one, far = encoder.vector(prompt), encoder.vector(needed), encoder.vector(other)
    assert asked is not None
    assert one is not None
    assert far is not None
    assert asked @ one > asked @ far
    assert abs(asked @ asked - 1) < 1e-4


def test_a_text_in_another_language_has_no_vector() -> None:
    assert encoder.vector("Мы решили перейти на новую базу данных, потому что старая слишком медленная.") is None


def test_a_pair_about_one_thing_is_a_likelier_replacement_than_a_pair_about_two() -> None:
    old = "We deploy every Friday."
    replaced, _ = encoder.pair("decision", old, "decision", "Deploys happen on Tuesdays from now on.")
    other, _ = encoder.pair("decision", old, "decision", "The logo stays blue.")
    assert replaced > other
    item = "ask Ana for the rota"
    closed = encoder.pair("open", item, "report", "Ana sent me the rota, that's settled")[1]
    assert closed > encoder.pair("open", item, "report", "the export writes a CSV file now")[1]


@pytest.mark.parametrize("text", ["", "\U0001f44d", "\ud800", "\x00", "x" * 5000])
def test_odd_texts_can_be_compared(text: str) -> None:
    vector = encoder.vector(text)
    assert vector is None or abs(vector @ vector - 1) < 1e-4
    assert all(abs(value) < 100 for value in encoder.pair("fact", text, "fact", text))
