"""The example project of the hook tests, and functions that read what its hooks wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp_server.context.windows import PUSHED
from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.storage import logs
from tests.clients.hooks.windows import ClaudeWindow

FACT = "The spare boathouse key hangs behind the cellar door, next to the fuse box."
ASKED = "where is the spare boathouse key?"
LASTS = "The boats are painted in June."

FACTS = [
    ("The staging database of the harbour app listens on port 6543.", "Which port has the staging database?", "6543"),
    ("Mirela cuts the releases of the harbour app on Tuesdays.", "Who cuts the releases?", "Mirela"),
    ("The invoice template lives in the folder attic-ledger.", "Where is the invoice template?", "attic-ledger"),
    ("Customer Brodar pays in Norwegian kroner.", "How does customer Brodar pay?", "kroner"),
    ("The crane sensor reports every 17 seconds.", "How often does the crane sensor report?", "17 seconds"),
]
"""Facts that have nothing to do with each other: the fact, a question, and what answers it."""

Open = Callable[..., ClaudeWindow]


def log(memory: Memory) -> list[dict[str, Any]]:
    """Returns the log of pushes with their reasons, newest first."""
    return list(logs.newest_first(memory.files, PUSHED))


async def said(memory: Memory, session: str) -> list[str]:
    """Returns the recorded texts of a session."""
    return [turn.content for turn in await sessions.session_turns(memory, session)]
