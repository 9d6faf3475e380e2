"""Live items: what open conversations have settled is on their projects' pages before they end.

    a turn is on disk → `checkpoints.noted` finds its items → an exchange is over → `refresh` → the page

The page goes on as `core.lifecycle.live_pages` says: `extract` writes the items of a conversation that ended into the
page's base, and so what was shown before has no effect on the result.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations.closed_sessions import LIVE_ITEMS, LIVE_PAGES, PENDING_EXTRACTION
from mcp_server.errors import ContextManagerError
from mcp_server.knowledge.derive import derive_live
from mcp_server.knowledge.editing import despite_editors
from mcp_server.knowledge.live_pages import lines_from, page_from, stored_lines
from mcp_server.knowledge.writing import put_page, write_lines
from mcp_server.memory import Memory


async def refresh(memory: Memory) -> int:
    """Brings the pages up to date with the items of open conversations; returns how many pages changed.

    Only conversations with new turns are read. Doing it again changes nothing.
    """
    if memory.settings.lifecycle.extraction_trigger != "on_session_end":
        return 0
    rows = {row.path: row for row in await memory.state.sessions(open_only=True)}
    known = await memory.state.entries(LIVE_ITEMS)
    new = {path: row for path, row in rows.items() if path not in known or known[path]["turn"] != row.turns}
    left = known.keys() - rows.keys()
    left = left - set(await memory.state.keys_of(PENDING_EXTRACTION)) if left else left
    if not new and not left:
        return 0
    found: dict[str, dict[str, Any]] = {}
    for path, row in new.items():
        try:
            before = lines_from(known[path]["lines"]) if path in known else []
            lines = await derive_live(memory, row, before)
        except ContextManagerError:  # gone or broken meanwhile: `status` names it
            continue
        found[path] = {"turn": row.turns, "lines": stored_lines(lines)}
    return len(await write_lines(memory, (), live=found, ended=left))


def _take_back(memory: Memory, path: str, stored: object) -> None:
    before = memory.files.text_or_none(path)
    put_page(memory.files, path, before, page_from(stored, before).base)


async def retract(memory: Memory) -> None:
    """Takes the items of all open conversations from the pages and from the state. The next `refresh` reads them anew,
    so do this before something that they quote is deleted."""
    async with memory.locks.files():
        items = await memory.state.keys_of(LIVE_ITEMS)
        for path, stored in (await memory.state.entries(LIVE_PAGES)).items():
            await run_sync(despite_editors, partial(_take_back, memory, path, stored))
            await memory.state.remove(LIVE_PAGES, path)
        if items:
            await memory.state.remove(LIVE_ITEMS, *items)
