"""Enrich: lets an LLM review the decisions and open items of a checkpoint that is already on disk.

    checkpoint, by rules → the LLM's review, when there is time → both merged → the file again

No turn waits for it and no lock is held during the call. Without an answer the checkpoint does not change.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from anyio.to_thread import run_sync

from mcp_server.checkpoints import enrichment, stored
from mcp_server.checkpoints.checkpoint import ENRICHING
from mcp_server.checkpoints.document import Checkpoint
from mcp_server.checkpoints.enrichment import Enrichment
from mcp_server.conversations import sessions
from mcp_server.errors import Conflict
from mcp_server.knowledge import notes
from mcp_server.llm import LlmUnavailable
from mcp_server.llm.metered import work_off
from mcp_server.memory import Memory
from mcp_server.text.redaction import redact

TEMPLATE = "enrich_checkpoint"

log = logging.getLogger(__name__)


async def enrich(memory: Memory, number: str) -> bool:
    """Asks the LLM to review a checkpoint and stores the result. Returns False if nothing changed: there is no LLM, or
    no usable answer. Raises NotFound if the checkpoint was deleted."""
    before = await stored.read(memory, number)
    answer = await _asked(memory, before)
    if answer is None:
        return False
    found = await run_sync(enrichment.merged, before.decisions, before.open_items, answer)
    if (found.decisions, found.open_items) == (before.decisions, before.open_items):
        return False
    try:
        after = replace(before, decisions=found.decisions, open_items=found.open_items)
        await stored.rewrite(memory, before, after)
    except Conflict:  # another program changed it: keep that
        return False
    await notes.learn(memory, before.session, before.turn, answer)
    return True


async def enrich_all(memory: Memory) -> int:
    """Reviews every waiting checkpoint once and returns how many changed."""
    return await work_off(memory, ENRICHING, lambda number, _: enrich(memory, number))


async def _asked(memory: Memory, checkpoint: Checkpoint) -> Enrichment | None:
    if memory.llm is None:
        return None
    turns = [
        turn for turn in await sessions.session_turns(memory, checkpoint.session) if turn.number <= checkpoint.turn
    ]

    entries, newest = (checkpoint.decisions, checkpoint.open_items), turns[-10 * enrichment.MOST_MESSAGES :]
    prompt = await run_sync(
        lambda: enrichment.request(memory.templates(TEMPLATE), *entries, newest, memory.tokens.count)
    )
    try:
        said = await memory.llm.complete(prompt, purpose="enrichment", max_tokens=enrichment.ANSWER_TOKENS)
    except LlmUnavailable as error:
        log.info("checkpoint %s stays as it is: %s", checkpoint.id, error)
        return None
    return enrichment.parse(redact(said).text)
