"""The advisor's lexicon: the shipped one, and errors in a user's own file, which are named."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import Invalid
from mcp_server.memory import Memory
from mcp_server.pressure.advisor import scored
from mcp_server.relevance.advisor_items import ContextItem, ItemType, Lexicon, band, parsed, read_lexicon
from mcp_server.storage import logs
from mcp_server.tokens import EXACT_CHARACTERS, TokenCounter

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 18, 10, 30, tzinfo=UTC)
REST = "Design a REST API endpoint for user authentication"


@pytest.fixture(scope="module")
def shipped() -> Lexicon:
    return read_lexicon(str.encode, None)[0]


def item(kind: ItemType, path: str, minutes: float, accesses: int, tags: tuple[str, ...] = ()) -> ContextItem:
    seen = NOW - timedelta(minutes=minutes)
    return ContextItem(f"{kind}:{path}", kind, path, seen, seen, accesses, 500, tags)


@pytest.mark.parametrize(
    ("prompt", "judged", "total", "label"),
    [
        (REST, item("skill", "skills/api-design-framework", 3, 8, ("api", "rest", "fastapi", "backend")), 28, "keep"),
        (REST, item("skill", "skills/radix-primitives", 90, 1), 4, "prune"),
        ("Optimize database queries", item("agent", "agents/frontend-ui-developer", 10, 2), 12, "consider"),
    ],
)
def test_the_seeds_examples_with_the_lexicon_that_ships(
    shipped: Lexicon, prompt: str, judged: ContextItem, total: int, label: str
) -> None:
    ((_, score),) = scored([judged], prompt, NOW, shipped, first_prompt=False)
    assert (score.total, band(score.total)) == (total, label)


def test_a_file_of_the_users_own_stands_in_its_place_and_is_read_again_when_it_changes(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("technologies:\n  oven: [Oven, Šporet]\n")
    read = partial(read_lexicon, lambda path: (tmp_path / path).read_bytes(), "mine.yaml")
    assert read() == (Lexicon({"oven": frozenset({"oven", "sporet"})}, {}, frozenset()), "")
    assert read()[0] is read()[0]
    own.write_text("generic: [oven]\n")
    assert read()[0].generic == {"oven"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("technologies:\n  web: [node.js]\n", "technologies: web: 0: 'node.js' is not one word"),
        ("technologies:\n  web: [html,\n    two words]\n", "technologies: web: 1: 'two words' is not one word"),
        ("layers:\n  web: html\n", "layers: web: "),
        ("layers: [html]\n", "layers: "),
        ("generic:\n  - [a]\n", "generic: 0: ['a'] is not one word"),
        ("generic: [a]\ntechnolgies: {}\n", "technolgies: "),
        ("layers:\n  web: [a]\n  web: [b]\n", 'line 3: found duplicate key "web"'),
        ("layers: {\n", "line 2: "),
        ("- a\n", "line 1: must be `name: value` lines"),
        ("a: \x00\n", "line 1: "),
    ],
)
def test_a_wrong_group_is_named(text: str, what: str) -> None:
    with pytest.raises(Invalid) as caught:
        parsed(text, "mine.yaml")
    assert str(caught.value).startswith(f"mine.yaml: {what}")


def test_while_it_is_wrong_the_one_that_ships_serves(tmp_path: Path, shipped: Lexicon) -> None:
    read = partial(read_lexicon, lambda path: (tmp_path / path).read_bytes(), "mine.yaml")
    lexicon, problem = read()
    assert lexicon == shipped
    assert "mine.yaml cannot be read" in problem
    (tmp_path / "mine.yaml").write_bytes(b"\xff")
    assert "not UTF-8" in read()[1]
    (tmp_path / "mine.yaml").write_text("")
    assert read() == (Lexicon({}, {}, frozenset()), "")


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


async def test_records_come_back_newest_first_and_torn_lines_do_not(memory: Memory) -> None:
    assert list(logs.newest_first(memory.files, "test")) == []
    for number in range(3):
        logs.append(memory.files, "test", {"number": number, "text": "čaj\u2028\ud800"})
    place = memory.disk.root / f"{logs.FOLDER}/test.jsonl"
    with place.open("ab") as file:
        file.write(b'{"number": 9\n[1]\n')
    found = list(logs.newest_first(memory.files, "test"))
    assert [record["number"] for record in found] == [2, 1, 0]
    assert found[0]["text"] == "čaj\u2028\ud800"
    assert place.stat().st_mode & 0o077 == 0


async def test_a_full_log_makes_room_and_keeps_the_one_before(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 1_000)
    for number in range(100):
        logs.append(memory.files, "test", {"number": number, "text": "x" * 80})
    numbers = [record["number"] for record in logs.newest_first(memory.files, "test")]
    assert numbers[0] == 99
    assert numbers == list(range(99, 99 - len(numbers), -1))
    assert 10 <= len(numbers) <= 25
    assert len(list((memory.disk.root / logs.FOLDER).iterdir())) <= 2
