"""Reword: an LLM words the summaries that compaction has put in the place of long messages (S1, SPEC §5 and §15).

    the rules' summary, at once → the LLM, when there is time → its summary, if it is one → cold record and live set

No turn waits for it and no lock is held while it is asked. Without an answer that can be used the first summary stays;
the original lies in cold storage all the while.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from anyio.to_thread import run_sync

from mcp_server.llm import LlmUnavailable
from mcp_server.llm.queue import work_off
from mcp_server.memory import Memory
from mcp_server.pressure import wording
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.relevance.live_set import change
from mcp_server.storage.values import Change
from mcp_server.text.redaction import redact

TEMPLATE = "summarise"
REWORDING = "rewording"
"""Namespace of the state: chunk → its session, for summaries that an LLM shall still word."""

log = logging.getLogger(__name__)


async def note(memory: Memory, session: str, chunks: Sequence[LiveChunk]) -> None:
    """Has the summaries among these chunks worded when there is time; nothing without an LLM."""
    if memory.llm is not None:
        for chunk in chunks:
            if chunk.form == "summary":
                await memory.state.put(REWORDING, chunk.id, session)


async def reword_all(memory: Memory) -> int:
    """Asks for every summary that waits, once; returns how many have other words now."""
    return await work_off(memory, REWORDING, lambda chunk, session: reword(memory, str(session), chunk))


async def reword(memory: Memory, session: str, chunk: str) -> bool:
    """Asks the LLM about one summary; False if it stays as it is. Raises NotFound for a chunk that is not in cold
    storage."""
    before = await run_sync(memory.cold.get, session, chunk)
    if memory.llm is None or before.form != "summary":
        return False
    most = memory.settings.context.summary_target_tokens
    prompt = await run_sync(wording.request, memory.templates(TEMPLATE), before.content, most)
    try:
        answer = await memory.llm.complete(prompt, purpose="summary", max_tokens=most)
    except LlmUnavailable as error:
        log.info("the summary of %s stays as it is: %s", chunk, error)
        return False
    clean = memory.forgotten.clean(redact(answer).text)
    shown = await run_sync(wording.read, clean, before.content, most, memory.tokens.count)
    if shown is None or shown == before.shown:
        return False
    async with memory.locks.transcript(session):
        if await run_sync(memory.cold.get, session, chunk) != before:  # something else became of it meanwhile
            return False
        await run_sync(memory.cold.put, replace(before, shown=shown))
        live = [one for one in await memory.live.of(session) if one.id == chunk and one.form == "summary"]
        if live:
            tokens = await run_sync(memory.tokens.count, shown)
            await change(memory, session, [replace(one, shown=shown, tokens=tokens) for one in live])
    memory.changes.publish(Change("session", None, session))
    return True
