"""Conversations in the folder of a project (the fixture `folder`)."""

from __future__ import annotations

from pathlib import Path

from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.projects import project_of
from mcp_server.memory import Memory
from mcp_server.model import Caller, Project


async def talk(memory: Memory, folder: Path, session: str, *said: str) -> Project:
    """A conversation in which user and agent take turns; returns its project."""
    for number, text in enumerate(said):
        await observe(memory, NewTurn("agent" if number % 2 else "user", text, session), Caller(folder=str(folder)))
    return await project_of(memory, Caller(folder=str(folder)))
