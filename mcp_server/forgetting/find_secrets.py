"""Finds secrets that were stored before they were recognized: in files, and in every object of git."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mcp_server.memory import Memory
from mcp_server.storage.local.copies import Copies
from mcp_server.storage.local.git.forget_history import History
from mcp_server.storage.values import LOCAL
from mcp_server.text.redaction import secrets

_OWN_KEYS = re.compile(rf"{re.escape(LOCAL)}/(?:[a-z-]{1, 20}token|installs/.*)|\.git(?:ignore|attributes)")
"""Files that are not searched: tokens of our own servers, and backups of clients' settings, whose keys the clients
need."""


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A secret in a file (`line` is its line) or in an object of git (`path` names it, `line` is None).

    `words` are the whole words that contain it: forgetting matches whole words.
    """

    kind: str
    path: str
    line: int | None
    words: str


def stored_secrets(memory: Memory) -> Iterator[StoredSecret]:
    """Yields every secret in the workspace's files, then every further one in git's objects. Reads all of them."""
    copies = Copies(memory.disk)
    known: set[str] = set()
    for path in copies.walk():
        if not _OWN_KEYS.fullmatch(path):
            for found in _in_text(path, copies.text(path), lines=True):
                known.add(found.words)
                yield found
    if not memory.git.available():
        return
    for oid, data in History(memory.disk.root).texts():
        for found in _in_text(f"git object {oid[:10]}", data, lines=False):
            if found.words not in known:
                known.add(found.words)
                yield found


def _in_text(path: str, text: str, *, lines: bool) -> Iterator[StoredSecret]:
    if "\0" in text[:8000]:  # a binary file
        return
    for secret in secrets(text):
        start, end = secret.start, secret.end
        while start > 0 and text[start - 1].isalnum():
            start -= 1
        while end < len(text) and text[end].isalnum():
            end += 1
        yield StoredSecret(secret.kind, path, text.count("\n", 0, secret.start) + 1 if lines else None, text[start:end])
