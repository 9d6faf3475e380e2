"""Facts: what a user says of the world and of their work, not of themselves, with a name or a figure in it."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_server.core.lifecycle.extractors.extractor import Context, Extractor
from mcp_server.core.lifecycle.lines import Line
from mcp_server.core.model import Turn


def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
    """The facts of a conversation, in order."""
    return [context.line_of(told) for told in context.told if told.statement.kind == "fact"]


EXTRACTOR = Extractor("facts", 3, extract, ("fact",))
