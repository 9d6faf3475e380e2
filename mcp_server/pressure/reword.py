"""Lets an LLM write better summaries of the long messages that compaction has summarised.

    summary by rules, at once → later the LLM's summary, if it is valid → cold record and live set

No turn waits for the LLM and no lock is held meanwhile. An answer is valid if it fits, is complete, and has its words
from the original. The original stays in cold storage.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from anyio.to_thread import run_sync

from mcp_server.llm import LlmUnavailable
from mcp_server.llm.metered import work_off
from mcp_server.memory import Memory
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.relevance.live_set import change
from mcp_server.storage.values import Change
from mcp_server.text.fencing import neutralise
from mcp_server.text.redaction import redact
from mcp_server.text.words import content_words

TEMPLATE = "summarise"
REWORDING = "rewording"  # namespace of the state: chunk → its session, for summaries that wait for the LLM
log = logging.getLogger(__name__)


async def note(memory: Memory, session: str, chunks: Sequence[LiveChunk]) -> None:
    """Queues the summaries among these chunks for the LLM, if there is one."""
    if memory.llm is not None:
        for chunk in chunks:
            if chunk.form == "summary":
                await memory.state.put(REWORDING, chunk.id, session)


async def reword_all(memory: Memory) -> int:
    """Asks the LLM about every queued summary, once; returns how many changed."""
    return await work_off(memory, REWORDING, lambda chunk, session: reword(memory, str(session), chunk))


async def reword(memory: Memory, session: str, chunk: str) -> bool:
    """Asks the LLM about one summary; returns whether it changed. Raises NotFound for a chunk that is not in cold
    storage."""
    before = await run_sync(memory.cold.find, chunk, session)
    if memory.llm is None or before.form != "summary":
        return False
    most = memory.settings.context.summary_target_tokens
    prompt = await run_sync(request, memory.templates(TEMPLATE), before.content, most)
    try:
        answer = await memory.llm.complete(prompt, purpose="summary", max_tokens=most)
    except LlmUnavailable as error:
        log.info("the summary of %s stays as it is: %s", chunk, error)
        return False
    clean = memory.forgotten.clean(redact(answer).text)
    shown = await run_sync(read, clean, before.content, most, memory.tokens.count)
    if shown is None or shown == before.shown:
        return False
    async with memory.locks.transcript(session):
        if await run_sync(memory.cold.find, chunk, session) != before:  # the chunk was changed meanwhile
            return False
        await run_sync(memory.cold.put_all, [replace(before, shown=shown)])
        live = [one for one in await memory.live.of(session) if one.id == chunk and one.form == "summary"]
        if live:
            tokens = await run_sync(memory.tokens.count, shown)
            await change(memory, session, [replace(one, shown=shown, tokens=tokens) for one in live])
    memory.changes.publish(Change("session", None, session))
    return True


LONGEST_SHOWN = 24_000  # characters of a message in a request; of a longer one, its head and tail
WORDS_A_TOKEN = 0.6  # words to ask for per token, so that the answer ends before the limit cuts it
SUPPORTED = 0.5  # share of a summary's content words that must be in the original
_FENCED = re.compile(r"\s*```\w*\n(.*?)\n```\s*", re.DOTALL)
_ENDED = re.compile(r"[.!?…:;)\]\"'`*|]$|\n\s*(?:[-*+]|\d+[.)])\s[^\n]*$")
_LAST_END = re.compile(r".*[.!?…](?=\s)", re.DOTALL)


def request(template: str, message: str, most_tokens: int) -> str:
    if len(message) > LONGEST_SHOWN:
        message = f"{message[: LONGEST_SHOWN * 3 // 4]}\n[…]\n{message[-LONGEST_SHOWN // 4 :]}"
    words = max(1, int(most_tokens * WORDS_A_TOKEN))
    before, _, after = template.replace("{words}", str(words)).partition("{message}")
    return before + neutralise(message) + after


def read(answer: str, original: str, most_tokens: int, count: Callable[[str], int]) -> str | None:
    """Returns the summary in an answer; None if it has more than `most_tokens` tokens, is not shorter than the
    original, or is about something else."""
    fenced = _FENCED.fullmatch(answer)
    text = (fenced[1] if fenced else answer).strip()
    if not _ENDED.search(text) and (last := _LAST_END.match(text)):  # the limit cut off its last sentence
        text = last[0]
    if not text or len(text) >= len(original) or count(text) > most_tokens:
        return None
    said, known = content_words(text), set(content_words(original))
    return text if said and sum(word in known for word in said) >= SUPPORTED * len(said) else None
