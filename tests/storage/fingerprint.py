"""Compares indexes by a SHA-256 of everything that searches can see, independent of the order of indexing."""

from __future__ import annotations

import hashlib
import sqlite3

from mcp_server.storage import ports
from mcp_server.storage.local.index.index import Index
from mcp_server.storage.local.index.tables import COLUMNS, FILES, NAMED, STORED, state
from mcp_server.storage.postgres.database import Connection
from mcp_server.storage.postgres.index import TeamIndex
from mcp_server.storage.postgres.indexing import COLUMNS as TEAM_COLUMNS

ABOUT = COLUMNS.split(", ").index("p.about")
"""The column with what a passage is about, which is filled later, and left out."""

_ALL = f"SELECT {COLUMNS} FROM {STORED}{FILES}"


async def fingerprint(index: ports.Index) -> str:
    """Returns the fingerprint of an index of either engine."""
    if isinstance(index, Index):
        found = await index._ask(_local, None)
        assert found is not None, "there is no index"
        return found
    assert isinstance(index, TeamIndex)
    return await index._database.call(_team)


async def assert_as_rebuilt(index: ports.Index) -> None:
    """Asserts that an index that followed its files equals a new one. The index is rebuilt afterwards."""
    followed = await fingerprint(index)
    await index.rebuild()
    assert await fingerprint(index) == followed


def _local(connection: sqlite3.Connection) -> str:
    """Leaves out ids and times of indexing. The rows of the keyword index and the vector table are included with their
    passages."""
    digest = hashlib.sha256()
    kept = state(connection)
    both = "SELECT rowid, words FROM knowledge_fts UNION ALL SELECT rowid, words FROM lines_fts"
    keywords = dict(connection.execute(both).fetchall())
    vectors: dict[int, bytes] = {}
    if int(kept["dimensions"]) and kept["vectors_stale"] == "0":
        vectors = dict(connection.execute("SELECT rowid, embedding FROM knowledge_vec").fetchall())
    names = dict(connection.execute("SELECT id, name FROM names").fetchall())
    for numbered in connection.execute(f"{_ALL} ORDER BY f.path, m.mark, m.part"):
        number = numbered[0]
        row = [names[value] if column in NAMED else value for column, value in enumerate(numbered)]
        digest.update(
            repr((row[1:ABOUT], keywords.pop(number, None), vectors.pop(number, None))).encode("utf-8", "replace")
        )
    units = (
        "SELECT f.path, m.mark, m.part, m.digest FROM knowledge_meta m JOIN files f ON f.id = m.file ORDER BY 1, 2, 3"
    )
    digest.update(repr(connection.execute(units).fetchall()).encode("utf-8", "replace"))
    digest.update(repr((sorted(keywords.items()), sorted(vectors.items()))).encode("utf-8", "replace"))
    files = connection.execute("SELECT path, size, mtime_ns, sha256, so_far, problem FROM files ORDER BY path")
    digest.update(repr(files.fetchall()).encode("utf-8", "replace"))
    digest.update(repr(connection.execute("SELECT * FROM totals").fetchall()).encode())
    speakers = connection.execute(
        "SELECT j.name, k.name, s.passages, s.lines FROM speakers s "
        "JOIN names j ON j.id = s.project JOIN names k ON k.id = s.speaker ORDER BY 1, 2"
    )
    digest.update(repr(speakers.fetchall()).encode("utf-8", "replace"))
    for terms in ("knowledge_terms", "lines_terms"):
        digest.update(repr(connection.execute(f"SELECT term, doc, cnt FROM {terms} ORDER BY term").fetchall()).encode())
    return digest.hexdigest()


def _team(connection: Connection) -> str:
    digest = hashlib.sha256()
    for statement in (
        f"SELECT {TEAM_COLUMNS}, m.kind, m.words, m.digest FROM passage m WHERE m.ws = %s "
        "ORDER BY m.path, m.mark, m.part",
        "SELECT m.path, m.mark, m.part, v.vector::text FROM passage_vector v JOIN passage m ON m.ws = v.ws "
        "AND m.id = v.id WHERE v.ws = %s ORDER BY 1, 2, 3",
        "SELECT kind, stem, df FROM term WHERE ws = %s ORDER BY 1, 2",
        "SELECT kind, passages, words FROM totals WHERE ws = %s AND passages > 0 ORDER BY 1",
        "SELECT project, speaker, kind, passages FROM speaker WHERE ws = %s ORDER BY 1, 2, 3",
        "SELECT path, size, problem FROM indexed_file WHERE ws = %s ORDER BY 1",
    ):
        for row in connection.rows(statement):
            seen = (*row[1:ABOUT], *row[ABOUT + 1 :]) if statement.startswith("SELECT m.id") else row
            digest.update(repr(seen).encode())
    return digest.hexdigest()
