"""Finds in a transcript what tools returned of each file since the last compaction, which is what the window holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mcp_server.clients.adapters.adapter import Adapter
from mcp_server.clients.importers.claude_code import messages
from mcp_server.clients.importers.imported import as_mapping, as_text, files_named, result_text

LONGEST_RESULT = 1_000_000
"""Characters of a tool result that are read."""


def files_read(transcript: Path, adapter: Adapter) -> Mapping[str, Sequence[str]]:
    """Returns the results of the tool calls that name one file, whole, by the path as tool calls have it.

    Raises OSError if the transcript cannot be read.
    """
    found: dict[str, list[str]] = {}
    called: dict[str, str] = {}
    with transcript.open("rb") as file:
        for line in messages.lines(file, 0):
            for fields in adapter.lines(line.fields) if line.fields else ():
                if fields.get("subtype") == messages.COMPACTED:
                    found.clear()
                if fields.get("isSidechain") is True:
                    continue
                for block in messages.blocks_of(fields):
                    files = files_named(as_mapping(block.get("input")), as_text(fields.get("cwd")) or None)
                    if len(files) == 1:
                        called[as_text(block.get("id"))] = files[0]
                    elif (path := called.get(as_text(block.get("tool_use_id")))) is not None:
                        text = result_text(block.get("content"), block.get("is_error") is True, LONGEST_RESULT)
                        found.setdefault(path, []).append(text)
    return found
