"""The slots of a compiled context, in two orders.

They are filled in order of importance: each takes what it needs within its cap, while the floors of later slots stay
free. They are shown in order of how rarely they change, so that a provider's prompt cache keeps the longest prefix.

A new slot is one file with a `fill` function and one entry in each of these two orders.
"""

from __future__ import annotations

from mcp_server.context.section import Slot
from mcp_server.context.slots import checkpoint, files, history, in_force, knowledge, session, topics

FILL: tuple[Slot, ...] = (
    session.SAFETY,  # P0
    files.IDENTITY,
    in_force.HOLDING,  # P1
    files.MEMORY,
    files.ACTIVE_PROJECTS,
    files.PROJECT,
    files.JOURNAL,
    checkpoint.CHECKPOINT,
    session.LAST_SESSION,
    topics.CORRECTIONS,  # P2
    topics.TOPICS,
    session.CLARITY,
    knowledge.KNOWLEDGE,  # P3
    history.HISTORY,  # P4
    session.DROP_LIST,
)

SHOWN: tuple[str, ...] = (
    "safety",
    "identity",
    "what holds",
    "memory",
    "active projects",
    "project",
    "journal",
    "last session",
    "checkpoint",
    "history",
    "topics",
    "corrections",
    "knowledge",
    "clarity",
    "dropped",
)
