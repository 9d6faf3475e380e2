"""Detects the format of a file or folder by its first bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from mcp_server.clients.importers import chatgpt, claude_ai, exports, markdown
from mcp_server.clients.importers.claude_code import places
from mcp_server.clients.importers.claude_code.lines import lines
from mcp_server.clients.importers.imported import Format
from mcp_server.errors import Invalid, NotFound, Unavailable

HEAD = 256 * 1024
"""Bytes that are read: a long first message may come before the first key that identifies the format."""

_LINES, _FILES = 50, 20
"""Lines of a transcript, and transcripts of a folder, that are read."""


def detect(path: Path) -> Format:
    """Returns the format of `path`.

    Raises:
        NotFound: there is nothing at `path`.
        Invalid: the format is unknown; the message says what to do.
    """
    if path.is_dir():
        if found := _by_marks(exports.head(path, HEAD)):
            return found
        if any(is_claude_code(file) for file in islice(_jsonl(path), _FILES)):
            return "claude-code"
        if any(found.suffix.lower() in markdown.SUFFIXES for found, _ in markdown.listing(path)):
            return "markdown"
        raise Invalid(f"{path}: no file in it has a known format; give a folder of transcripts or notes, or --format")
    if not path.exists():
        raise NotFound(f"there is nothing at {path}; give a file or folder that exists")
    if path.suffix.lower() in markdown.SUFFIXES:
        return "markdown"
    if path.suffix == places.SUFFIX and is_claude_code(path):
        return "claude-code"
    if path.suffix.lower() == exports.SUFFIX:
        exports.parts(path)  # raises for a broken one
        if found := _by_marks(exports.head(path, HEAD)):
            return found
        if exports.holds_zips(path):
            raise Invalid(f"{path} contains other zips: unpack it, and import the folder with those zips")
        raise Invalid(f"{path} contains no known export; unpack it, or give its format with --format")
    head = _head(path)
    if found := _by_marks(head):
        return found
    if exports.is_manifest(path, head.decode("utf-8", "ignore")):
        raise Invalid(
            f"{path} is only a list of downloads: open it, save every file that it names into one folder, and import "
            "that folder"
        )
    raise Invalid(f"{path} is neither markdown nor a known conversation file; give its format with --format")


def is_claude_code(path: Path) -> bool:
    """Returns True if one of the first lines has a session id and a type, as Claude Code's lines do."""
    try:
        with path.open("rb") as file:
            return any(
                line.fields is not None and "sessionId" in line.fields and "type" in line.fields
                for line in islice(lines(file, 0), _LINES)
            )
    except OSError:
        return False


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}; check its permissions") from None


def _by_marks(head: bytes) -> Format | None:
    """Returns the format of a JSON file by the keys at its start, or None if it is unknown."""
    text = head.decode("utf-8", "ignore")
    if not text.lstrip("\ufeff \t\r\n").startswith(("[", "{")):
        return None
    if any(mark in text for mark in claude_ai.MARKS):
        return "claude-ai"
    return "chatgpt" if any(mark in text for mark in chatgpt.MARKS) else None


def _jsonl(path: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(path):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(places.SUFFIX))
