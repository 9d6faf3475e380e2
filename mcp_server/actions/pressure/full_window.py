"""A client's window grows full: a checkpoint is made while what it holds is known, again and again (SPEC §5).

Most clients compact their window by themselves and tell nobody. Those that say how full it is (`context_tokens`) get a
checkpoint at the compaction trigger and with each further tenth.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcp_server.actions.checkpoints import checkpoint
from mcp_server.actions.pressure.pressure import triggers_of
from mcp_server.core.model import Turn
from mcp_server.core.pressure.gauges import checkpoint_step
from mcp_server.memory import Memory

STEPS = "checkpoint_steps"
"""Namespace of the state: session → how often a checkpoint was made since its window was last empty."""


async def checkpoint_if_full(memory: Memory, session: str, new: Sequence[Turn]) -> None:
    """Makes a checkpoint if the client's gauge has reached the next step with the turns `new`. Call it under the
    transcript's lock."""
    said = next((turn.context_tokens for turn in reversed(new) if turn.context_tokens is not None), None)
    if said is None:
        return
    step = checkpoint_step(said / memory.settings.context.limit_tokens, triggers_of(memory.settings))
    before = int(await memory.state.get(STEPS, session) or 0)
    if step > before:
        await checkpoint.before(memory, session, "hook", since=new[-1].number)
    if step != before:
        await memory.state.put(STEPS, session, step)
