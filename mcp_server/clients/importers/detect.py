"""Which format a file or folder has, by its first bytes."""

from __future__ import annotations

from pathlib import Path

from mcp_server.clients.importers import beam, locomo, markdown
from mcp_server.clients.importers.imported import Format
from mcp_server.errors import Invalid, NotFound, Unavailable

HEAD = 256 * 1024
"""Bytes that are looked at: a long first message may stand before the first telling key."""


def detect(path: Path) -> Format:
    """The format of `path`.

    Raises:
        NotFound: there is nothing at `path`.
        Invalid: nothing in it is known; the message says what to do.
    """
    if path.is_dir():
        if any(detect_json(found) == "beam" for found in beam.chats(path)[:1]):
            return "beam"
        if any(found.suffix.lower() in markdown.SUFFIXES for found, _ in markdown.listing(path)):
            return "markdown"
        raise Invalid(f"{path}: no markdown file and no {beam.CHAT} in it; give a folder that has some, or --format")
    if not path.exists():
        raise NotFound(f"there is nothing at {path}; give a file or folder that exists")
    if path.suffix.lower() in markdown.SUFFIXES:
        return "markdown"
    if found := detect_json(path):
        return found
    raise Invalid(f"{path}: neither markdown nor a conversation file known here; say which with --format")


def detect_json(path: Path) -> Format | None:
    """`locomo` or `beam` by the keys that show at the start of a JSON file, else None."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD).decode("utf-8", "ignore")
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}; check its permissions") from None
    if not head.lstrip("\ufeff \t\r\n").startswith(("[", "{")):
        return None
    if any(mark in head for mark in locomo.MARKS):
        return "locomo"
    return "beam" if any(mark in head for mark in beam.MARKS) else None
