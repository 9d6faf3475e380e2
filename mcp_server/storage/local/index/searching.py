"""The statements of a search that only the embedded engine has: its keyword tables, and names by number."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from mcp_server.storage.index.scoring import Fetching, Scope
from mcp_server.storage.index.searching import FIRST_FETCH, Searching
from mcp_server.storage.state import Dialect
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
        "totals": "SELECT passages, words, lines, line_words FROM totals",
    },
)


class LocalSearching(Searching):
    """A search over one connection. New names are added to `names`."""

    dialect = SQLITE

    def numbers(self, names: Sequence[str]) -> dict[str, int]:
        return dict(self.rows(f"SELECT name, id FROM names WHERE name IN ({', '.join('?' * len(names))})", *names))

    def learn(self, rows: Sequence[tuple[Any, ...]]) -> None:
        learn(self.connection, rows, self.names)

    def units_with(self, sequence: Sequence[str]) -> tuple[str, list[Any]]:
        holding = " UNION ALL ".join(
            f"SELECT u.file, u.mark FROM {table} JOIN knowledge_meta u ON u.id = {table}.rowid WHERE {table} MATCH ?"
            for table in ("knowledge_fts", "lines_fts")
        )
        return holding, [f'"{" ".join(sequence)}"'] * 2

    def documents(self, words: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        terms = self.stems.terms(words)
        of_each = "SELECT {0}, t.term, t.doc FROM json_each(?) j CROSS JOIN {1}_terms t ON t.term = j.value"
        select = f"{of_each.format(0, 'knowledge')} UNION ALL {of_each.format(1, 'lines')}"
        known = {(kind, term): number for kind, term, number in self.rows(select, terms, terms)}
        said, lines = (tuple(known.get((kind, term), 0) for term in terms) for kind in (0, 1))
        return said, lines

    def holding(self, words: Sequence[str], scope: Scope) -> list[int]:
        tables = ("knowledge_fts", "lines_fts") if scope.lines else ("knowledge_fts",)
        select = " UNION ALL ".join(
            f"SELECT m.id FROM {table} CROSS JOIN knowledge_meta m ON m.id = {table}.rowid "
            f"WHERE {table} MATCH ? AND {scope.condition}"
            for table in tables
        )
        values = [(f'"{word}"', *scope.values) * len(tables) for word in words]
        return [self.ids(f"SELECT count(*) FROM ({select})", *bound)[0] for bound in values]

    def matching(self, words: Sequence[Fetching], wanted: int, first: int, scope: Scope, *, lines: bool) -> list[int]:
        """Ordering by `bm25()` keeps only the best; ordering by `rank`, which is the same value, would sort all
        matches."""
        if not words:
            return []
        table = "lines_fts" if lines else "knowledge_fts"
        fetch = " OR ".join(f'"{one.word}"' for one in words)
        for most in (first, FIRST_FETCH) if first < FIRST_FETCH else (FIRST_FETCH,):
            found = self.ids(
                f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY bm25({table}) LIMIT ?", fetch, most
            )
            kept = self.inside(found, scope)
            if len(found) < most or len(kept) >= wanted:
                return kept[:wanted]
        # CROSS JOIN fixes the order: the keyword index first, never one keyword search per passage of the scope.
        return self.ids(
            f"SELECT m.id FROM {table} CROSS JOIN knowledge_meta m ON m.id = {table}.rowid "
            f"WHERE {table} MATCH ? AND {scope.condition} ORDER BY {table}.rank LIMIT ?",
            *(fetch, *scope.values, wanted),
        )

    def turns(self, sources: Sequence[Source]) -> list[tuple[Any, ...]]:
        return self.rows(
            "SELECT f.path, m.mark, m.id FROM json_each(?) j "
            "CROSS JOIN files f ON f.path = json_extract(j.value, '$[0]') "
            "CROSS JOIN knowledge_meta m ON m.file = f.id AND m.mark = json_extract(j.value, '$[1]') AND m.part = 0",
            [(source.path, source.turn) for source in sources],
        )


def learn(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], names: dict[int, str]) -> None:
    """Adds the names in these rows to `names`. A number never gets another name."""
    new = {row[column] for row in rows for column in NAMED} - names.keys()
    if new:
        names.update(
            connection.execute(
                "SELECT id, name FROM names WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(new)),)
            )
        )
