from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import Invalid
from mcp_server.model import ToolCall, Turn
from mcp_server.text import forgotten
from mcp_server.text.forgotten import MARK, Forgotten, blank, cut_short, from_line, joined

AT = datetime(2026, 2, 16, 12, 0, tzinfo=UTC)
EMPTY = Forgotten("fgt_1", AT, b"0123456789abcdef")
FACT = "The vault's code is 47-11 Žarko"


def request(*texts: str) -> Forgotten:
    return replace(EMPTY, windows=frozenset(EMPTY.window(text) for text in texts))


def turn(content: str, number: int = 1, **more: object) -> Turn:
    return replace(Turn(number, "user", content, AT), **more)  # type: ignore[arg-type]


ANY = st.text(max_size=60)
WORD = st.from_regex(r"[a-zčšžéA-ZĆŽ0-9]{1,8}", fullmatch=True)
WORDS = st.lists(WORD, min_size=1, max_size=6)
BETWEEN = st.sampled_from([" ", "  ", "\n", ", ", " — ", "-", "_", "/", "…", "\t", ' "', "**", "\u00a0"])


@st.composite
def said_otherwise(draw: st.DrawFn) -> tuple[str, str]:
    """A run of words, and the same run with other case and other characters between the words."""
    words = draw(WORDS.filter(lambda found: len(joined(" ".join(found))) >= 3))
    other = [draw(st.sampled_from([word.upper(), word.lower(), word.title(), word])) for word in words]
    text = other[0] + "".join(draw(BETWEEN) + word for word in other[1:])
    return " ".join(words), text


@given(said_otherwise(), ANY, ANY)
def test_a_run_is_found_inside_any_text_in_any_spelling(spelt: tuple[str, str], before: str, after: str) -> None:
    run, other = spelt
    text = f"{before} {other} {after}"
    cleaned = request(run).clean(text)
    assert not request(run).find(cleaned)
    assert MARK in cleaned


@given(ANY, st.lists(ANY.filter(lambda text: bool(joined(text))), max_size=3))
def test_cleaning_twice_is_cleaning_once_and_loses_no_line(text: str, runs: list[str]) -> None:
    once = request(*runs).clean(text)
    assert request(*runs).clean(once) == once
    assert once.count("\n") == text.count("\n")


@given(ANY, ANY.filter(lambda text: bool(joined(text))))
def test_a_text_that_does_not_hold_the_run_stays_as_it_is(text: str, run: str) -> None:
    if joined(run) not in joined(text):
        assert request(run).clean(text) == text


@given(st.lists(ANY.filter(lambda text: bool(joined(text))), max_size=3), ANY)
def test_a_request_reads_back_from_its_line(runs: list[str], session: str) -> None:
    made = replace(
        request(*runs),
        sessions=frozenset({EMPTY.session_hash(session)}),
        turns=frozenset({EMPTY.turn_hash(turn("x"), session)}),
        paths=frozenset({EMPTY.path_hash(session)}),
        sources=frozenset({EMPTY.source_hash(session, 3)}),
    )
    assert from_line(made.as_line()) == made


@given(st.lists(ANY.filter(lambda text: bool(joined(text))), min_size=1, max_size=3), ANY)
def test_what_was_cleaned_bit_by_bit_equals_what_comes_in_later(runs: list[str], text: str) -> None:
    requests = [request(run) for run in runs]
    step_by_step = text
    for one in requests:
        step_by_step = one.clean(step_by_step)
    assert forgotten.clean(requests, text) == step_by_step
    assert forgotten.clean(requests, step_by_step) == step_by_step


@given(ANY)
def test_blanking_keeps_every_line_and_no_word(text: str) -> None:
    assert blank(text).count("\n") == text.count("\n")
    assert not joined(blank(text).replace(MARK, ""))


@pytest.mark.parametrize(
    "text",
    [
        "the vault's code is 47-11 Žarko",
        "THE VAULTS CODE IS 4711 ZARKO",
        "He said: «the vault's\ncode is: 47 11, žarko»!",
        "the_vaults_code_is_4711_zarko.txt",
        "the **vault's** code is `4711` Zˇarko".replace("Zˇ", "Z\u030c"),
    ],
)
def test_spellings_that_are_found(text: str) -> None:
    assert request(FACT).find(text)


@pytest.mark.parametrize(
    "text", ["the vault's code is 47-12 Žarko", "the vault's code was 47-11 Žarko", "xthe vault's code is 47-11 Žarkov"]
)
def test_paraphrases_and_longer_words_are_not(text: str) -> None:
    assert not request(FACT).find(text)


def test_text_without_spaces_is_found_inside_a_sentence_and_never_across_a_mark() -> None:
    assert request("東京の金庫").clean("彼は東京の金庫に住む") == f"彼は{MARK}に住む"
    assert not request("one forgotten two").find(f"one {MARK} two")
    assert not request("one two").find(f"one {MARK} two")


def test_forgotten_names_get_no_brackets_and_are_found_in_other_spellings_of_a_letter() -> None:
    made = request("vault code")
    assert made.path("knowledge/vault-code/the-vault-code.md") == "knowledge/forgotten/the-forgotten.md"
    assert request("Đorđe Petrović").name("djordje-petrovic.md") == "forgotten.md"


def test_a_forgotten_turn_is_all_marks_and_its_neighbours_are_not() -> None:
    said = turn("Yes.\n\nOf course", tool_calls=(ToolCall("bash", "ls", "a b", ("x",)),), attachments=("a.png",))
    made = replace(EMPTY, turns=frozenset({EMPTY.turn_hash(said, "s")}))
    kept = made.turn(said, "s")
    assert kept.content == f"{MARK}\n\n{MARK}"
    assert kept.tool_calls == (ToolCall("bash", MARK, MARK),)
    assert kept.attachments == ("forgotten",)
    assert made.turn(said, "other") == said
    assert made.turn(turn("No"), "s").content == "No"


def test_a_turn_of_tool_calls_alone_is_known_by_them() -> None:
    said = turn("", tool_calls=(ToolCall("bash", "ls"),))
    made = replace(EMPTY, turns=frozenset({EMPTY.turn_hash(said, "s")}))
    assert made.turn(said, "s").tool_calls[0].summary == MARK
    assert made.turn(turn("", tool_calls=(ToolCall("bash", "rm"),)), "s").tool_calls[0].summary == "rm"


def test_a_conversation_is_forgotten_up_to_the_request() -> None:
    made = replace(EMPTY, sessions=frozenset({EMPTY.session_hash("s")}))
    assert made.turn(turn("Before"), "s").content == MARK
    assert made.turn(turn("After", at=AT + timedelta(seconds=1)), "s").content == "After"


def test_everything_about_a_turn_is_cleaned() -> None:
    call = ToolCall("vault code", "the vault code", "vault-code", ("a/vault-code.txt",))
    said = turn(
        "The vault code", name="Vault Code", turn_id="vault-code-1", tool_calls=(call,), attachments=("vault code",)
    )
    kept = request("vault code").turn(said, "s")
    assert (kept.content, kept.name, kept.turn_id) == (f"The {MARK}", MARK, None)
    assert kept.tool_calls == (ToolCall("forgotten", f"the {MARK}", MARK, ("a/forgotten.txt",)),)
    assert kept.attachments == ("forgotten",)
    assert forgotten.clean_turn([request("vault code")], said, "s") == kept


def test_lines_that_name_a_forgotten_source_are_derived() -> None:
    made = replace(EMPTY, sources=frozenset({EMPTY.source_hash("raw/a.md", 2), EMPTY.source_hash("ses_1")}))
    assert made.derived("- It is so. [src: raw/a.md#2]")
    assert made.derived("- It is so. [src: ses_1#9]")
    assert not made.derived("- It is so. [src: raw/a.md#3]")
    assert not EMPTY.derived("- It is so. [src: raw/a.md#2]")
    assert not made.derived(f"- it [src: raw/a.md#{'9' * 5_000}]"), "a number without end is nobody's"


def test_what_was_cut_off_is_found_where_it_was_cut() -> None:
    run = joined("the emerald necklace lies behind the brick")
    tails = cut_short("You should know the emerald necklace lies…", run)
    assert tails == {"theemeraldnecklacelies"}
    made = replace(EMPTY, cuts=frozenset(EMPTY.window(tail) for tail in tails))
    assert made.clean("know the emerald necklace lies… ") == f"know {MARK}… "
    assert made.clean("the emerald necklace lies here") == "the emerald necklace lies here"
    assert made.name("know-the-emerald-necklace-lies-2.md") == "know-forgotten-2.md"
    assert cut_short("the emerald…", run) == set()
    assert cut_short("no-the-emerald-necklace.md", run, names=True) == {"theemeraldnecklace"}


def test_renames_are_replaced_but_not_in_what_was_said() -> None:
    made = replace(EMPTY, renames=(("1845-s-hello", "1845-s-forgotten"),))
    assert made.clean("see raw/1845-s-hello.md") == "see raw/1845-s-forgotten.md"
    assert made.holds("raw/1845-s-hello.md")
    assert made.turn(turn("see 1845-s-hello"), "s").content == "see 1845-s-hello"


def test_a_file_is_known_by_its_path() -> None:
    made = replace(EMPTY, paths=frozenset({EMPTY.path_hash("knowledge/a.md")}))
    assert made.covers("knowledge/a.md")
    assert not made.covers("knowledge/b.md")


def test_a_text_without_letters_cannot_be_forgotten() -> None:
    with pytest.raises(Invalid, match="no letter or digit"):
        EMPTY.window(" …! ")


def test_values_inside_json_are_cleaned_with_their_keys() -> None:
    made = request("vault code")
    value = {"vault code": ["the vault code", 1, None, {"a": True}]}
    assert forgotten.values(value, made.clean, made.name) == {"forgotten": [f"the {MARK}", 1, None, {"a": True}]}


GIVEN = '{"id": "fgt_1", "at": "2026-02-16T12:00:00Z", "windows": '


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "[]", '{"id": 1}', '{"id": "x", "at": "never", "salt": "00"}'),
        *(f'{GIVEN}[[5, ""]], "salt": "00"}}', f'{GIVEN}[], "salt": "{"00" * 65}"}}', GIVEN + "[" * 100_000 + "}"),
    ],
)
def test_a_line_that_could_not_be_applied_is_refused_when_it_is_read(line: str) -> None:
    with pytest.raises(Invalid, match=r"not a valid line of .*forgotten\.jsonl"):
        from_line(line)
