"""Workspaces on disk, an embedder that needs no weights, and short ways to ask."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mcp_server.model import TranscriptHead, Turn
from mcp_server.search import ranking
from mcp_server.search.query import parse_query
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.index.index import Index
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.transcripts import Transcripts
from mcp_server.storage.values import Filters
from mcp_server.text.words import words
from tests.searching import candidates_of, passage_of, values_of

START = datetime(2026, 5, 1, 9, 0, tzinfo=UTC)
NOW = datetime(2026, 6, 1, tzinfo=UTC)
EVERYTHING = Filters()
Make = Callable[..., Index]
Build = Callable[..., Awaitable[Index]]


@cache
def vector_of(word: str) -> NDArray[np.float32]:
    """Returns a fixed random vector."""
    seed = int.from_bytes(hashlib.sha256(word.encode("utf-8", "replace")).digest()[:4], "big")
    return np.random.default_rng(seed).standard_normal(HashEmbedder.dimensions).astype(np.float32)


class HashEmbedder:
    """Adds up a fixed random vector per word: texts with words in common are near. Quick, and the same everywhere."""

    name = "hash"
    dimensions = 32
    gate_threshold = 0.38

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in words(text):
                row += vector_of(word)
            length = np.linalg.norm(row)
            if length:
                row /= length
        return rows


class Workspace:
    """A folder with files, made by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = WorkspaceFiles(root)
        self.transcripts = Transcripts(self.files)
        self.ends: dict[str, tuple[str, int, datetime, int]] = {}

    def index(self, embedder: HashEmbedder | None = None, name: str | None = None) -> Index:
        return Index(self.files, Locks(self.files.local), self.files.local / "index", embedder, name)

    def write(self, path: str, text: str | bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())

    def say(self, session: str, content: str, *, project: str = "", name: str | None = None, role: str = "user") -> str:
        """Appends a turn to a session's transcript; returns its path."""
        if session not in self.ends:
            head = TranscriptHead(session, START, f"Talk {session}", f"talk-{session}", project=project)
            turn = Turn(1, role, content, START, name=name)  # type: ignore[arg-type]
            path, size = self.transcripts.create(head, turn)
            self.ends[session] = (path, size, START, 1)
            return path
        path, size, at, number = self.ends[session]
        now = at + timedelta(minutes=3)
        turn = Turn(number + 1, role, content, now, name=name)  # type: ignore[arg-type]
        self.ends[session] = (path, self.transcripts.append(path, turn, size, at), now, number + 1)
        return path


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "memory")


@pytest.fixture
async def indexed(ws: Workspace) -> AsyncIterator[Callable[[], Index]]:
    """Makes indexes of the workspace and closes them at the end."""
    made: list[Index] = []

    def make(embedder: HashEmbedder | None = None, name: str | None = None) -> Index:
        made.append(ws.index(embedder, name))
        return made[-1]

    yield make
    for index in made:
        await index.close()


@pytest.fixture
def built(indexed: Make) -> Build:
    """Makes indexes, and fills them from the files."""

    async def make(embedder: HashEmbedder | None = None) -> Index:
        index = indexed(embedder)
        await index.rebuild()
        return index

    return make


async def paths(index: Index, text: str, filters: Filters = EVERYTHING, **options: object) -> list[str]:
    """The paths of what is found, best first."""
    found = await candidates_of(index, parse_query(text, NOW), filters, **options)  # type: ignore[arg-type]
    return [one.candidate.path for one in ranking.rank(found.asked, values_of(found))]


async def texts(index: Index, text: str, filters: Filters = EVERYTHING) -> set[str]:
    found = await candidates_of(index, parse_query(text, NOW), filters, "keyword")
    return {passage_of(found, c).text for c in values_of(found)}


def live(ws: Workspace) -> Path:
    folder = ws.files.local / "index"
    number = next(folder.glob("*.current")).read_text()
    return next(folder.glob(f"*-{number}.db"))
