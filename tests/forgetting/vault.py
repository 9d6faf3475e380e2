"""A memory in which one fact stands in every place that holds text."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta

from mcp_server.conversations.closed_sessions import commit_pending
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.search.search import SearchRequest, search

CALLER = Caller()
AT = datetime(2026, 2, 10, 9, 0, tzinfo=UTC)
FACT = "The vault's code is 47-11 Zephyr"
PIECES = ("zephyr", "vault")
"""Words of it that stand nowhere else."""


def said(*contents: str, session: str = "old", ids: bool = True) -> ImportedSession:
    """A conversation to import, in which user and agent take turns."""
    turns = tuple(
        ImportedTurn(
            "user" if number % 2 == 0 else "agent",
            content,
            AT + timedelta(minutes=number),
            f"u{number}" if ids else None,
        )
        for number, content in enumerate(contents)
    )
    return ImportedSession(session, turns, "import:test")


CONVERSATION = said(
    "Remember this: the vault's code is 47-11 ZEPHYR, please.",
    "I wrote down that the vault's code is 47-11 Zephyr.\n\nAnything else?",
    "No, thanks. Let us talk about the garden.",
)


async def filled(memory: Memory, source: ImportedSession = CONVERSATION) -> None:
    """A fact in a transcript, an open one, three knowledge files, logs, local files, state and index; all committed."""
    await record_session(memory, source)
    await observe(memory, NewTurn("user", f"By the way, {FACT}! Is it safe?", session="open"), CALLER)
    await remember(memory, NewFact(f"{FACT}.", session="open"), CALLER)
    await remember(memory, NewFact(f"Ana: knows that {FACT.lower()}.", kind="person"), CALLER)
    await remember(memory, NewFact(f"{FACT}, and the garden is large.", path="knowledge/reference/notes.md"), CALLER)
    files = memory.files
    files.write_atomic(".local/logs/context/injection.jsonl", json.dumps({"text": FACT, "n": 1}) + '\n{"n": 2}\n')
    files.write_atomic(".local/logs/context/injection.jsonl.1", json.dumps({"text": f"a\n{FACT}"}) + "\n")
    files.write_bytes_atomic(".local/logs/context/old.jsonl.gz", gzip.compress(FACT.encode()))
    files.write_atomic(".local/brief/global.md", f"Known: {FACT}\n")
    files.write_atomic(".local/queue/hooks.jsonl", json.dumps({"event": "Stop", "prompt": FACT}) + "\n")
    files.write_atomic(".local/pending/a.json", json.dumps({"content": FACT}, ensure_ascii=True))
    files.write_atomic(".local/installs/x/settings.json", json.dumps({"note": FACT}, indent=2))
    files.write_atomic(".local/instructions.md", f"{FACT}\n")
    files.write_atomic("checkpoints/open/c1.md", f"# Checkpoint\n\nDecided: {FACT}\n")
    files.write_atomic(".local/cold-storage/open/x.jsonl", json.dumps({"text": FACT}) + "\n")
    files.write_atomic("archive/the-vaults-code-is-47-11-zephyr.md", "An old note.\n")
    files.write_atomic("knowledge/.cm-0123456789abcdef.tmp", f"{FACT}\n")
    files.write_bytes_atomic(".local/state.db.damaged-1", b"SQLite format 3\0" + FACT.encode())
    await memory.state.put("notes", f"key {FACT}", {"said": [FACT, "č"]})
    await memory.state.put("notes", "other", "kept")
    await commit_pending(memory)
    memory.git.commit_files(
        [
            "knowledge/memory/MEMORY.md",
            "knowledge/people/ana.md",
            "knowledge/reference/notes.md",
            "checkpoints/open/c1.md",
        ],
        f"memory: {FACT}",
    )
    await memory.index.rebuild()


async def found(memory: Memory, query: str) -> str:
    """The texts of all that a search finds."""
    return json.dumps([hit.passage.text for hit in (await search(memory, SearchRequest(query))).hits])
