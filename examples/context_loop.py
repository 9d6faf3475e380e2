"""An agent that keeps its own list of messages, and lets the memory keep it short. It runs as it stands: no key, no
network.

    python examples/context_loop.py [FOLDER]

Before each answer: is the context too full? Then compact it. What leaves the list is on disk first, a note in the list
names it, and what is recovered comes back into its place. At the end everything that was said is in one transcript.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from mcp_server.agent import AgentMemory

MAX_TOKENS = 1_000
SUBJECTS = ("the boiler of the boat", "the tulips in the garden", "the winter berth in the harbour")


def model(messages: list[Mapping[str, Any]]) -> str:
    """The place of a real model."""
    return f"Noted, with {len(messages)} messages before me."


async def main(workspace: str) -> None:
    async with AgentMemory.open(workspace, project="boat") as memory:
        messages: list[Mapping[str, Any]] = [{"role": "system", "content": "You keep a logbook."}]

        def replace(new: list[Mapping[str, Any]]) -> None:
            messages[:] = new

        loop = memory.loop(get_context=lambda: messages, set_context=replace)
        compacted = 0
        for number in range(8):
            about = SUBJECTS[number % 3]
            said = f"Entry {number} is about {about}. " + f"Much was done to {about} on day {number}. " * 8
            messages.append({"role": "user", "content": said})
            status = await loop.before_response(max_tokens=MAX_TOKENS)
            if status.needs_compaction:
                done = await loop.compact()
                compacted += 1
                print(f"entry {number}: {status.why}; {done.tokens_before:,} → {done.tokens_after:,} tokens")
                assert done.tokens_after <= MAX_TOKENS * 0.5
            messages.append({"role": "assistant", "content": model(messages)})

        print(f"compacted {compacted} times; the context has {len(messages)} messages")
        assert not any("Entry 0 " in message["content"] for message in messages[2:])

        found = (await memory.recoverable("entry 0 about the boiler"))[0]
        back = await memory.recover(found.id, apply=True)
        print(f"recover {back.id}: {(back.content or '')[:40]}…")
        await loop.before_response(max_tokens=MAX_TOKENS)
        await loop.compact()
        assert any(message["content"] == back.content for message in messages)
        print("It is in the context again, in its place.")

        await loop.session_end()
        print(f"Every word is in the transcript of {loop.session}.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else empty))
