"""A search on PostgreSQL gets the same candidates, with the same values, as one in the embedded engine."""

from __future__ import annotations

import os
import random
from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from mcp_server.embed import Embedder, Wanted
from mcp_server.embed.providers import load
from mcp_server.model import TranscriptHead, Turn
from mcp_server.search.query import parse_query
from mcp_server.search.ranking import rank
from mcp_server.storage.files import Files
from mcp_server.storage.transcripts import Transcripts
from mcp_server.storage.values import Candidates, Filters, Mode
from tests.searching import candidates_of, values_of
from tests.storage.engines import Ports, local, postgres
from tests.storage.fingerprint import fingerprint

pytestmark = pytest.mark.anyio
AT = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)
QUERIES = int(os.environ.get("CM_TEAM_QUERIES", "40"))
"""The default has each kind of query with each filter once."""

SUBJECTS = [
    "harbour", "crane", "office", "release", "database", "kitchen", "garden", "train", "ticket", "invoice",
    "customer", "report", "mountain",
]  # fmt: skip
VERBS = [
    "moved", "broke", "painted", "sold", "repaired", "measured", "delayed", "shipped", "cancelled",
    "cleaned", "described", "planned",
]  # fmt: skip
PLACES = [
    "Berlin", "Hamburg", "Oslo", "Lisbon", "the", "cellar", "the", "second", "floor", "a", "small", "island",
    "the", "old", "station",
]  # fmt: skip
PEOPLE = ("Anna", "Bert", "Carla", "Dmitri")


def sentence(chance: random.Random) -> str:
    one, two = chance.choices(SUBJECTS, k=2)
    when = chance.choice(["in March", "yesterday", "on the first Monday", "at 14:30", "", "", "when I was in a hurry"])
    return f"The {one} near the {two} was {chance.choice(VERBS)} in {chance.choice(PLACES)} {when}".strip()


def fill(files: Files, conversations: int = 12) -> None:
    """Writes conversations of 12 turns, and knowledge with lines that name their turns."""
    chance = random.Random(1)
    transcripts = Transcripts(files)
    lines: list[str] = []
    for number in range(conversations):
        started = AT - timedelta(days=number)
        project = chance.choice(["", "name:atlas", "name:borealis"])
        head = TranscriptHead(f"ses_{number:02d}", started, f"Talk {number}", f"talk-{number}", project)
        turns = [
            Turn(
                place,
                "user" if place % 2 else "agent",
                " ".join(f"{sentence(chance)}{chance.choice('.?!')}" for _ in range(chance.randint(1, 12))),
                started + timedelta(minutes=place),
                name=chance.choice(PEOPLE) if place % 2 else None,
            )
            for place in range(1, 13)
        ]
        path, _ = transcripts.create(head, *turns)
        lines.append(f"- 2026-02-01: {sentence(chance)}. [src: {path}#{chance.randint(1, 12)}]")
    for name in SUBJECTS:
        text = "\n\n".join(f"## {chance.choice(VERBS)}\n\n{sentence(chance)}. {sentence(chance)}." for _ in range(4))
        files.write_atomic(f"knowledge/reference/{name}.md", f"# {name}\n\n{text}\n")
    files.write_atomic("knowledge/journal/2026-02-01.md", "# Journal\n\n## Lines\n\n" + "\n".join(lines) + "\n")


def queries() -> list[tuple[str, Filters, Mode]]:
    chance = random.Random(2)
    modes: list[Mode] = ["hybrid", "hybrid", "keyword", "vector"]
    asked: list[tuple[str, Filters, Mode]] = []
    for number in range(QUERIES):
        words = f"{chance.choice(SUBJECTS)} {chance.choice(VERBS)} {chance.choice(PLACES)}"
        text = [
            f"when was the {words}?",
            words,
            f'"{chance.choice(SUBJECTS)} near the" {chance.choice(PLACES)}',
            f"{words} -{chance.choice(VERBS)}",
            f"what did {chance.choice(PEOPLE)} say about the {chance.choice(SUBJECTS)}?",
        ][number % 5]
        filters = [
            Filters(),
            Filters(projects=frozenset({"name:atlas"})),
            Filters(session=f"ses_{number % 12:02d}"),
            Filters(exclude_session="ses_03"),
            Filters(category="reference"),
            Filters(category="conversation", since=AT - timedelta(days=20)),
            Filters(exclude_session="ses_05", exclude_from=10, projects=frozenset({"name:borealis"})),
            Filters(speaker="Anna"),
        ][number % 8]
        asked.append((text, filters, chance.choice(modes)))
    return asked


def comparable(found: Candidates) -> dict[str, Any]:
    """Returns what a search found. The last bits of a cosine depend on the rows that NumPy multiplies at once."""
    return {
        "words": (found.asked, found.frequencies, found.passages, found.used),
        "candidates": [
            tuple(pytest.approx(value, abs=1e-5) if isinstance(value, float) else value for value in candidate)
            for candidate in plain(found)
        ],
        "sources": sorted((one.candidate.unit, one.text) for one in found.found if one.source is not None),
    }


def plain(found: Candidates) -> list[tuple[Any, ...]]:
    """Returns the values of all candidates without what the network reads, which it may read later."""
    candidates = [astuple(replace(one, about=None)) for one in values_of(found)]
    return sorted(candidates, key=lambda one: (one[0], one[2], one[15], one[1]))


def swapped_ties(one: list[tuple[Any, ...]], two: list[tuple[Any, ...]]) -> tuple[list[float], list[float]] | None:
    """Returns the BM25 of the candidates that only the first or only the second search has; None without any. Of
    passages with the same BM25 at the end of the fetched ones, FTS5 takes any."""
    place = itemgetter(0, 2, 15)
    only = [
        sorted(each[5] for each in these if place(each) not in set(map(place, others)))
        for these, others in ((one, two), (two, one))
    ]
    return (only[0], only[1]) if any(only) else None


def scores(found: Candidates) -> list[float]:
    return [one.score for one in rank(found.asked, values_of(found))]


def units(found: Candidates) -> dict[str, float]:
    return {one.candidate.unit: one.score for one in rank(found.asked, values_of(found))}


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    loaded, why = load(Wanted("wordllama", None, None, None, None))
    if loaded is None:
        pytest.skip(str(why))
    return loaded


async def test_queries_of_every_kind_get_the_same_candidates_and_the_same_ranking(
    tmp_path: Path, embedder: Embedder
) -> None:
    async with local(tmp_path / "memory")() as embedded, postgres()() as team:
        fill(embedded.files)
        fill(team.files)
        one, two = embedded.index(embedder), team.index(embedder)
        await one.refresh()
        await two.refresh()
        assert (await one.status()).passages == (await two.status()).passages
        ties = 0
        for text, filters, mode in queries():
            query = parse_query(text, AT)
            expected, found = [await candidates_of(index, query, filters, mode) for index in (one, two)]
            assert comparable(found)["words"] == comparable(expected)["words"], (text, filters, mode)
            assert comparable(found)["sources"] == comparable(expected)["sources"], (text, filters, mode)
            if swapped := swapped_ties(plain(expected), plain(found)):
                ties += 1
                assert swapped[0] == pytest.approx(swapped[1], rel=1e-12), (text, filters, mode)
                continue
            assert plain(found) == comparable(expected)["candidates"], (text, filters, mode)
            assert scores(found) == pytest.approx(scores(expected), abs=1e-5), (text, filters, mode)
            assert units(found) == pytest.approx(units(expected), abs=1e-5), (text, filters, mode)
        assert ties <= 2


async def test_an_index_that_grew_finds_the_same_as_one_that_was_rebuilt(embedder: Embedder) -> None:
    async with postgres()() as team:
        index = team.index(embedder)
        fill(team.files, conversations=3)
        await index.refresh()
        for name in SUBJECTS[:3]:
            team.files.write_atomic(f"knowledge/reference/{name}.md", f"# {name}\n\nThe {name} is new now.\n")
            await index.apply([f"knowledge/reference/{name}.md"])
        team.files.remove("knowledge/reference/train.md")
        await index.refresh()
        query = parse_query("the new train near the office", AT)
        before, known = comparable(await candidates_of(index, query))["candidates"], await fingerprint(index)
        await index.rebuild()
        assert await fingerprint(index) == known
        assert plain(await candidates_of(index, query)) == before


async def test_the_network_reads_copies_after_the_lines_of_a_page(ports: Ports, embedder: Embedder) -> None:
    page, journal = "knowledge/projects/atlas/context.md", "knowledge/journal/2026-02-16.md"
    source = "[src: 3](/raw/conversations/2026/02/16/1845-a1b2c3d4-a.md)"
    for path in (page, journal):
        said = [f"- The quay of berth {number} is closed. {source}\n" for number in range(30)]
        ports.files.write_atomic(path, "".join(said))
    index, query = ports.index(embedder), parse_query("which quay is closed", AT)
    await index.refresh()
    await index.read_ahead(30)
    read = {one.path for one in values_of(await candidates_of(index, query)) if one.about is not None}
    assert read == {page}
    assert [await index.read_ahead(40), await index.read_ahead(40)] == [30, 0]


async def test_passages_that_the_network_has_read_are_ranked_by_what_they_are_about(
    ports: Ports, embedder: Embedder
) -> None:
    said = {"red": "The red door is new.", "hours": "We close at six every day.", "de": "Wir haben heute nicht offen."}
    for name, text in said.items():
        ports.files.write_atomic(f"knowledge/reference/{name}.md", f"{text}\n")
    index, query = ports.index(embedder), parse_query("Is the shop open on Monday evening?", AT)
    await index.refresh()
    found = await candidates_of(index, query)
    about = {Path(one.path).stem: one.about for one in values_of(found)}
    assert about["de"] is None
    assert about["red"] is not None
    assert about["hours"] is not None
    assert about["hours"] > about["red"]
    assert rank(found.asked, values_of(found))[0].candidate.path == "knowledge/reference/hours.md"
    many = "\n\n".join(f"## Lamp {number}\n\nThe lamp is red." for number in range(30))
    ports.files.write_atomic("knowledge/reference/lamps.md", many)
    await index.refresh()
    assert [await index.read_ahead(20), await index.read_ahead(20), await index.read_ahead(20)] == [20, 10, 0]
    ports.files.write_atomic("knowledge/reference/lamps.md", f"## Lamp\n\nThis one is green.\n\n{many}")
    await index.refresh()
    assert await index.read_ahead(20) == 0, "only the new one is read, at once; the others only moved"
    index = ports.index(None)
    ports.files.write_atomic("knowledge/reference/closed.md", "We are closed on Mondays.\n")
    await index.refresh()
    assert await index.read_ahead(9) == 0
    assert {one.about for one in values_of(await candidates_of(index, query))} == {None}
