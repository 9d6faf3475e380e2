"""A search on PostgreSQL gets the same candidates, with the same values, as one in the embedded engine."""

from __future__ import annotations

import random
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mcp_server.embed import Embedder, Wanted
from mcp_server.embed.providers import load
from mcp_server.model import TranscriptHead, Turn
from mcp_server.search.query import parse_query
from mcp_server.search.ranking import rank
from mcp_server.storage.ports import Files
from mcp_server.storage.transcripts import Transcripts
from mcp_server.storage.values import Candidates, Filters, Mode
from tests.storage.engines import local, postgres

pytestmark = pytest.mark.anyio
AT = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)

SUBJECTS = "harbour crane office release database kitchen garden train ticket invoice customer report mountain".split()
VERBS = "moved broke painted sold repaired measured delayed shipped cancelled cleaned described planned".split()
PLACES = "Berlin Hamburg Oslo Lisbon the cellar the second floor a small island the old station".split()
PEOPLE = ("Anna", "Bert", "Carla", "Dmitri")


def sentence(chance: random.Random) -> str:
    one, two = chance.choices(SUBJECTS, k=2)
    when = chance.choice(["in March", "yesterday", "on the first Monday", "at 14:30", "", "", "when I was in a hurry"])
    return f"The {one} near the {two} was {chance.choice(VERBS)} in {chance.choice(PLACES)} {when}".strip()


def fill(files: Files) -> None:
    """Writes 60 conversations of 30 turns, and knowledge with lines that name their turns."""
    chance = random.Random(1)
    transcripts = Transcripts(files)
    lines: list[str] = []
    for number in range(60):
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
            for place in range(1, 31)
        ]
        path, _ = transcripts.create(head, *turns)
        lines.append(f"- 2026-02-01: {sentence(chance)}. [src: {path}#{chance.randint(1, 30)}]")
    for name in SUBJECTS:
        text = "\n\n".join(f"## {chance.choice(VERBS)}\n\n{sentence(chance)}. {sentence(chance)}." for _ in range(4))
        files.write_atomic(f"knowledge/reference/{name}.md", f"# {name}\n\n{text}\n")
    files.write_atomic("knowledge/journal/2026-02-01.md", "# Journal\n\n## Lines\n\n" + "\n".join(lines) + "\n")


def queries() -> list[tuple[str, Filters, Mode]]:
    chance = random.Random(2)
    modes: list[Mode] = ["hybrid", "hybrid", "keyword", "vector"]
    asked: list[tuple[str, Filters, Mode]] = []
    for number in range(100):
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
            Filters(session=f"ses_{number % 60:02d}"),
            Filters(exclude_session="ses_03"),
            Filters(category="reference"),
            Filters(category="conversation", since=AT - timedelta(days=20)),
            Filters(exclude_session="ses_05", exclude_from=10, projects=frozenset({"name:borealis"})),
            Filters(speaker="Anna"),
        ][number % 8]
        asked.append((text, filters, chance.choice(modes)))
    return asked


def comparable(found: Candidates) -> dict[str, Any]:
    return {
        "words": (found.asked, found.frequencies, found.passages, found.used),
        "candidates": sorted(map(astuple, found.candidates), key=lambda one: (one[0], one[2], one[14], one[1])),
        "sources": sorted((one.candidate.unit, one.text) for one in found.found if one.source is not None),
    }


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    loaded, why = load(Wanted("wordllama", None, None, None, None))
    if loaded is None:
        pytest.skip(str(why))
    return loaded


async def test_a_hundred_queries_get_the_same_candidates_and_the_same_ranking(
    tmp_path: Path, embedder: Embedder
) -> None:
    async with local(tmp_path / "memory")() as embedded, postgres()() as team:
        fill(embedded.files)
        fill(team.files)
        one, two = embedded.index(embedder), team.index(embedder)
        await one.refresh()
        await two.refresh()
        assert (await one.status()).passages == (await two.status()).passages
        different = 0
        for text, filters, mode in queries():
            query = parse_query(text, AT)
            expected, found = [await index.candidates(query, filters, mode) for index in (one, two)]
            assert comparable(found) == comparable(expected), (text, filters, mode)
            different += rank(found.asked, found.candidates) != rank(expected.asked, expected.candidates)
        assert different == 0


async def test_an_index_that_grew_finds_the_same_as_one_that_was_rebuilt(embedder: Embedder) -> None:
    async with postgres()() as team:
        index = team.index(embedder)
        fill(team.files)
        await index.refresh()
        for name in SUBJECTS[:6]:
            team.files.write_atomic(f"knowledge/reference/{name}.md", f"# {name}\n\nThe {name} is new now.\n")
            await index.apply([f"knowledge/reference/{name}.md"])
        team.files.remove("knowledge/reference/train.md")
        await index.refresh()
        query = parse_query("the new train near the office", AT)
        before, fingerprint = comparable(await index.candidates(query)), await index.fingerprint()
        await index.rebuild()
        assert await index.fingerprint() == fingerprint
        assert comparable(await index.candidates(query)) == before
