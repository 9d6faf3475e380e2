"""The advisor's scores by their tables, and three examples (28 keep, 4 prune, 12 consider)."""

from __future__ import annotations

import pytest

from mcp_server.relevance.advisor_items import Lexicon, band, described_by, frequency, recency, relevance

LEXICON = Lexicon(
    technologies={"react": frozenset({"react", "jsx", "radix"}), "python": frozenset({"python", "fastapi"})},
    layers={
        "frontend": frozenset({"frontend", "ui", "radix", "css"}),
        "backend": frozenset({"backend", "api", "rest", "endpoint"}),
        "database": frozenset({"database", "sql", "schema"}),
    },
    generic=frozenset({"utils", "logging"}),
)


@pytest.mark.parametrize(
    ("minutes", "points"), [(0, 10), (5, 10), (5.1, 8), (15, 8), (30, 6), (60, 4), (120, 2), (121, 0)]
)
def test_recency_falls_by_tiers(minutes: float, points: int) -> None:
    assert recency(minutes) == points


@pytest.mark.parametrize(
    ("accesses", "points"), [(0, 0), (1, 2), (2, 4), (3, 4), (4, 6), (6, 6), (7, 8), (9, 8), (10, 10), (400, 10)]
)
def test_frequency_rises_by_tiers(accesses: int, points: int) -> None:
    assert frequency(accesses) == points


@pytest.mark.parametrize(
    ("total", "label"),
    [
        *((total, "prune") for total in (0, 8)),
        *((total, "consider") for total in (9, 15)),
        *((total, "keep unless critical") for total in (16, 22)),
        *((total, "keep") for total in (23, 30)),
    ],
)
def test_bands_label_a_score(total: int, label: str) -> None:
    assert band(total) == label


@pytest.mark.parametrize(
    ("named", "described", "points"),
    [
        ({"fastapi"}, set(), 10),
        (set(), {"fastapi"}, 8),
        ({"python"}, set(), 6),
        ({"endpoint"}, set(), 4),
        ({"logging"}, set(), 2),
        ({"css"}, set(), 0),
    ],
)
def test_relevance_takes_the_best_tier_that_fits(named: set[str], described: set[str], points: int) -> None:
    assert relevance(["fastapi", "api"], frozenset(named), frozenset(described), LEXICON)[0] == points


@pytest.mark.parametrize(
    ("path", "text", "description"),
    [
        ("docs/feed.md", "Words first.\n\n## The feed of the shop\nIt is paged.", "The feed of the shop"),
        ("app/dhl.py", '#!/usr/bin/env python\n# coding: utf-8\n"""Verifies hooks.\n\nMore."""', "Verifies hooks."),
        ("app/dhl.py", '     1\t"""Verifies."""\n     2\timport os', "Verifies."),
        ("src/feed.ts", "/**\n * Pages the feed.\n */\nexport {}", "Pages the feed."),
        ("src/lib.rs", "//! Pages the feed.\nuse std::fs;", "Pages the feed."),
        ("app/plain.py", "import os\n# comment", ""),
        ("notes.txt", "flour", ""),
    ],
)
def test_a_file_is_described_by_its_first_heading_or_docstring(path: str, text: str, description: str) -> None:
    assert described_by(text, path) == description
