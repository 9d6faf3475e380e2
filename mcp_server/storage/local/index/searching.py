"""The statements of a search that only the embedded engine has: its keyword tables, and names by number."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from mcp_server.storage.index.scoring import Fetching, QueryPlan, Scope
from mcp_server.storage.index.searching import FIRST_FETCH, Searching
from mcp_server.storage.sqlite import Stems
from mcp_server.storage.state import Dialect
from mcp_server.storage.values import Depth, Filters
from mcp_server.text.entries import Source

COLUMNS = (
    "m.id, f.path, m.mark, m.part, p.ordinal, p.first_line, p.last_line, p.text, p.title, m.category, m.project, "
    "m.session, p.turn, p.turn_id, p.role, m.speaker, m.at, "
    "p.chars, p.tells_time, p.first_person, p.ends_with_question, p.stems, p.vector"
)
NAMED = (9, 10, 11, 15)
"""The columns with numbers of names."""

STORED, FILES = "knowledge_meta m CROSS JOIN passages p ON p.id = m.id", " CROSS JOIN files f ON f.id = m.file"

SQLITE = Dialect(
    "?",
    json.dumps,
    {
        "meta": "knowledge_meta",
        "speaker": "speakers",
        "here": "",
        "among": "IN (SELECT value FROM json_each(?))",
        "derived": "derived",
        "at": "coalesce(m.at, (SELECT f.mtime_ns / 1e9 FROM files f WHERE f.id = m.file))",
        "file": "file",
        "same_file": "n.file = m.file",
        "stored": STORED,
        "files": FILES,
        "columns": COLUMNS,
        "speakers": "SELECT DISTINCT n.name FROM speakers m JOIN names n ON n.id = m.speaker WHERE n.name <> ''",
        "of_speakers": "SELECT coalesce(sum(passages + ? * lines), 0) FROM speakers m WHERE true",
    },
)


class LocalSearching(Searching):
    """A search over one connection. New names are added to `names`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        names: dict[int, str],
        stems: Stems,
        text: str,
        filters: Filters,
        depth: Depth,
    ) -> None:
        super().__init__(connection.execute, SQLITE, names, stems, text, filters, depth)
        self.connection, self._names = connection, names

    def fetched(self, ids: Sequence[int]) -> list[tuple[Any, ...]]:
        rows = super().fetched(ids)
        learn(self.connection, rows, self._names)
        return rows

    def number(self, name: str) -> int | None:
        rows = self.rows("SELECT id FROM names WHERE name = ?", name)
        return rows[0][0] if rows else None

    def units_with(self, sequence: Sequence[str]) -> tuple[str, list[Any]]:
        holding = " UNION ALL ".join(
            f"SELECT u.file, u.mark FROM {table} JOIN knowledge_meta u ON u.id = {table}.rowid WHERE {table} MATCH ?"
            for table in ("knowledge_fts", "lines_fts")
        )
        return holding, [f'"{" ".join(sequence)}"'] * 2

    def totals(self) -> tuple[int, int, int, int]:
        passages, words, lines, line_words = self.rows("SELECT passages, words, lines, line_words FROM totals")[0]
        return passages, words, lines, line_words

    def documents(self, words: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        terms = self.stems.terms(words)

        def counted(table: str) -> tuple[int, ...]:
            found = (self.rows(f"SELECT doc FROM {table} WHERE term = ?", term) for term in terms)
            return tuple(rows[0][0] if rows else 0 for rows in found)

        return counted("knowledge_terms"), counted("lines_terms")

    def holding(self, word: str, scope: Scope) -> int:
        times = 0
        for table in ("knowledge_fts", "lines_fts") if scope.lines else ("knowledge_fts",):
            select = (
                f"SELECT count(*) FROM {table} CROSS JOIN knowledge_meta m ON m.id = {table}.rowid "
                f"WHERE {table} MATCH ? AND {scope.condition}"
            )
            times += self.rows(select, f'"{word}"', *scope.values)[0][0]
        return times

    def matching(
        self, words: Sequence[Fetching], wanted: int, plan: QueryPlan, scope: Scope, *, lines: bool
    ) -> list[int]:
        """Ordering by `bm25()` keeps only the best; ordering by `rank`, which is the same value, would sort all
        matches."""
        if not words:
            return []
        table = "lines_fts" if lines else "knowledge_fts"
        fetch = " OR ".join(f'"{one.word}"' for one in words)
        likely = self.fetched_first(wanted, plan, scope)
        for most in (likely, FIRST_FETCH) if likely < FIRST_FETCH else (FIRST_FETCH,):
            best = f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY bm25({table}) LIMIT ?"
            found = [number for (number,) in self.rows(best, fetch, most)]
            kept = self.inside(found, scope)
            if len(found) < most or len(kept) >= wanted:
                return kept[:wanted]
        # CROSS JOIN fixes the order: the keyword index first, never one keyword search per passage of the scope.
        rows = self.rows(
            f"SELECT m.id FROM {table} CROSS JOIN knowledge_meta m ON m.id = {table}.rowid "
            f"WHERE {table} MATCH ? AND {scope.condition} ORDER BY {table}.rank LIMIT ?",
            *(fetch, *scope.values, wanted),
        )
        return [number for (number,) in rows]

    def turns(self, sources: Sequence[Source]) -> list[tuple[str, int, int]]:
        rows = self.rows(
            "SELECT f.path, m.mark, m.id FROM json_each(?) j "
            "CROSS JOIN files f ON f.path = json_extract(j.value, '$[0]') "
            "CROSS JOIN knowledge_meta m ON m.file = f.id AND m.mark = json_extract(j.value, '$[1]') AND m.part = 0",
            [(source.path, source.turn) for source in sources],
        )
        return [(path, mark, number) for path, mark, number in rows]


def learn(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], names: dict[int, str]) -> None:
    """Adds the names in these rows to `names`. A number never gets another name."""
    new = {row[column] for row in rows for column in NAMED} - names.keys()
    if new:
        names.update(
            connection.execute(
                "SELECT id, name FROM names WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(new)),)
            )
        )
