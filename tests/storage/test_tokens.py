"""Tokens are counted exactly, offline, and never stall on strange texts."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import Invalid
from mcp_server.tokens import EXACT_CHARACTERS, TokenCounter

counter = TokenCounter()
TEXTS = st.text(st.characters(), max_size=60) | st.lists(
    st.sampled_from(["word ", " ", "\n", "č", "😀", "👩‍👩‍👧", "<|endoftext|>", "don't", "12345", "\ud800", "\t"]),
    max_size=30,
).map("".join)


def test_the_vocabulary_is_the_real_one() -> None:
    assert counter.count("hello world") == 2
    assert counter.count("tiktoken is great!") == 6
    assert counter.count("antidisestablishmentarianism") == 6
    assert counter.count("") == 0
    assert counter.count("<|endoftext|>") > 1  # a text, not a command


@given(TEXTS, st.integers(-1, 20))
def test_a_cut_text_is_a_beginning_that_fits(text: str, tokens: int) -> None:
    cut = counter.truncate(text, tokens)

    assert text.startswith(cut)
    assert counter.count(cut) <= max(tokens, 0)
    if counter.count(text) <= tokens:
        assert cut == text


@given(
    st.lists(
        TEXTS | st.sampled_from(["/", "\n/", ". ", "\u0301", "\x1c", "\x85", "\r", " word\n", "[", "'s"]), max_size=40
    )
)
def test_a_text_counted_by_its_lines_counts_as_the_tokenizer_counts_it_whole(parts: list[str]) -> None:
    text = "".join(parts)
    padded = text + "\n" + "word " * 500  # only what is longer than a passage is taken apart

    assert counter.count(padded) == len(counter._encoding().encode_ordinary(padded))


def test_a_cut_uses_what_it_may() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 2000

    assert counter.count(counter.truncate(text, 500)) == 500


@pytest.mark.parametrize(
    "text",
    ["a" * 3_000_000, " " * 3_000_000, "\n" * 3_000_000, "The quick brown fox.\n" * 200_000, "čž😀" * 700_000,
     " \t" * 600_000, "\ud800" * 10_000],
    ids=["letters", "blanks", "line feeds", "prose", "scripts", "mixed blanks", "surrogates"],
)  # fmt: skip
def test_huge_texts_are_never_counted_too_low(text: str) -> None:
    part = text[:20_000]

    assert counter.count(text) >= counter.count(part)
    assert counter.count(counter.truncate(text, 100)) <= 100


def test_prose_is_counted_exactly_up_to_the_limit() -> None:
    line = "The quick brown fox.\n"
    times = EXACT_CHARACTERS // len(line)

    assert counter.count(line * times) == counter.count(line) * times
    assert counter.count(line * (times + 1)) >= counter.count(line) * (times + 1)


def test_a_run_of_blanks_that_would_break_the_tokenizer_is_counted_by_its_length() -> None:
    text = "before" + " " * 60_000 + "after"

    assert counter.count(text) >= 60_000
    assert counter.count(counter.truncate(text, 100)) <= 100


def test_many_threads_may_load_and_count() -> None:
    fresh = TokenCounter()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(fresh.count("hello world"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [2, 2, 2, 2]


def test_an_unknown_vocabulary_is_refused() -> None:
    with pytest.raises(Invalid, match="o200k_base"):
        TokenCounter("p50k_base")
