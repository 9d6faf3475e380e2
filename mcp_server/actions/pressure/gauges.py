"""Gauges: how full a session's context is (SPEC §5)."""

from __future__ import annotations

from dataclasses import replace

from mcp_server.actions.pressure.live_set import live_set
from mcp_server.core.pressure.gauges import Gauges
from mcp_server.memory import Memory
from mcp_server.store.live_sets import Entered


async def gauges(memory: Memory, session: str, client_tokens: int | None = None) -> Gauges:
    """How full the session's context is. Without `client_tokens`: what the client said last, if that is not old."""
    entered = await memory.live.entered(session)
    if not entered.live + entered.cold:  # a set that was lost holds what it held
        live = sum(chunk.tokens for chunk in await live_set(memory, session) if chunk.form != "cold")
        entered = replace(entered, now=replace(entered.now, live=live))
    return gauges_of(memory, entered, client_tokens)


def gauges_of(memory: Memory, entered: Entered, client_tokens: int | None = None) -> Gauges:
    """As `gauges`, of a live set that was just looked at."""
    said = (client_tokens, entered.now.client, *(one.client for one in reversed(entered.earlier)))
    client = next((tokens for tokens in said if tokens is not None), None)
    return Gauges(entered.now.live, memory.settings.context.limit_tokens, client)
