"""People: who they are, what they like, what they plan, what happened to them; each in a file of their own."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_server.core.lifecycle.extractors.extractor import Context, Extractor
from mcp_server.core.lifecycle.lines import Line, LineKind
from mcp_server.core.model import Turn

KINDS: tuple[LineKind, ...] = ("about", "preference", "plan", "event")


def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
    """What people say of themselves. Where they have names, their decisions and lessons belong to them too."""
    return [
        context.line_of(told)
        for told in context.told
        if told.statement.about_self and (told.statement.kind in KINDS or told.person is not None)
    ]


EXTRACTOR = Extractor("people", 3, extract, KINDS)
