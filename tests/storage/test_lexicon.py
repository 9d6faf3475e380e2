"""The advisor's lexicon: the shipped one, and errors in a user's own file, which are named with their line."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mcp_server.errors import Invalid
from mcp_server.pressure.advisor import scored
from mcp_server.relevance.advisor_items import ContextItem, ItemType, Lexicon, relevance
from mcp_server.storage.local.lexicon import LexiconFile, parsed

NOW = datetime(2026, 1, 18, 10, 30, tzinfo=UTC)
REST = "Design a REST API endpoint for user authentication"


@pytest.fixture(scope="module")
def shipped() -> Lexicon:
    return LexiconFile(Path(), None).read()


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
    assert (score.total, score.band) == (total, label)


@pytest.mark.parametrize(
    ("prompt", "words", "points"),
    [
        ("a pytest fixture", {"django"}, 6),
        ("the login endpoint", {"graphql"}, 4),
        ("the oven", {"utils"}, 2),
        ("the oven", {"react"}, 0),
    ],
)
def test_it_knows_technologies_layers_and_what_is_generic(
    shipped: Lexicon, prompt: str, words: set[str], points: int
) -> None:
    assert relevance(prompt.split(), frozenset(words), frozenset(), shipped)[0] == points


def test_a_file_of_the_users_own_stands_in_its_place_and_is_read_again_when_it_changes(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("technologies:\n  oven: [Oven, Šporet]\n")
    lexicon = LexiconFile(tmp_path, "mine.yaml")
    assert lexicon.read() == Lexicon({"oven": frozenset({"oven", "sporet"})}, {}, frozenset())
    assert lexicon.read() is lexicon.read()
    own.write_text("generic: [oven]\n")
    os.utime(own, ns=(1, 1))
    assert lexicon.read().generic == {"oven"}


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("technologies:\n  web: [node.js]\n", 2, "'node.js' is not one word"),
        ("technologies:\n  web: [html,\n    two words]\n", 3, "'two words' is not one word"),
        ("layers:\n  web: html\n", 2, "web must be a list"),
        ("layers: [html]\n", 1, "layers must hold"),
        ("generic:\n  - [a]\n", 2, "is not one word"),
        ("generic: [a]\ntechnolgies: {}\n", 2, "'technolgies' is not one of"),
        ("layers:\n  web: [a]\n  web: [b]\n", 3, 'duplicate key "web"'),
        ("layers: {\n", 2, ""),
        ("- a\n", 1, "must be `name: value` lines"),
        ("a: \x00\n", 1, ""),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, where: int, what: str) -> None:
    with pytest.raises(Invalid) as caught:
        parsed(text, "mine.yaml")
    assert str(caught.value).startswith(f"mine.yaml: line {where}: ")
    assert what in str(caught.value)


def test_while_it_is_wrong_the_one_that_ships_serves(tmp_path: Path, shipped: Lexicon) -> None:
    lexicon, problem = LexiconFile(tmp_path, "mine.yaml").read_or_shipped()
    assert lexicon == shipped
    assert "mine.yaml cannot be read" in problem
    (tmp_path / "mine.yaml").write_bytes(b"\xff")
    assert "no UTF-8" in LexiconFile(tmp_path, "mine.yaml").read_or_shipped()[1]
    (tmp_path / "mine.yaml").write_text("")
    assert LexiconFile(tmp_path, "mine.yaml").read_or_shipped() == (Lexicon({}, {}, frozenset()), "")
