"""The view that MCP clients embed: its HTML document, and the HTML fragments that it shows.

The document is static. Its content security policy allows only the script and the style sheet in it, by their hashes,
so that nothing in a fragment can run, even if the client allows inline scripts.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.knowledge import review
from mcp_server.memory import Memory
from mcp_server.page.answer import FOLDER, rendered
from mcp_server.page.now import candidates, largest_sum, parts_of, records

LISTED = 8
"""Maximum number of included candidates, and of excluded ones, in the list."""

LOOKED_BACK = 50
"""The newest log records that are searched for a compiled context."""


def document() -> str:
    style, script = ((FOLDER / "static" / name).read_text("utf-8") for name in ("style.css", "view.js"))
    return rendered("view.html", style=style, script=script, style_hash=_hash(style), script_hash=_hash(script))


async def receipt(memory: Memory, sha256: str) -> str:
    """Returns the HTML of the receipt of a compiled context, or "" if the log no longer has it."""
    same = (record for record in islice(records(memory), LOOKED_BACK) if record.get("sha256") == sha256)
    record = await run_sync(next, same, None)
    if record is None:
        return ""
    inside, outside = await candidates(memory, record)
    return rendered(
        "view_receipt.html",
        record=record,
        parts=parts_of(record),
        groups=(("In", inside, LISTED), ("Out", outside, LISTED)),
        most=largest_sum((*inside[:LISTED], *outside[:LISTED])),
    )


async def changes(memory: Memory, written: Mapping[str, Any] | None, key: Callable[[review.Waiting], str]) -> str:
    """Returns the HTML of the change that `remember` has `written`, if any, and of all pending proposals.

    `key` returns the secret that the view sends with the user's decision about a proposal.
    """
    waiting = await review.waiting(memory)
    return rendered("view_changes.html", written=written, waiting=[(one, key(one)) for one in waiting])


def _hash(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
