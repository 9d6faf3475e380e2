"""What is told of pressure: the gauge, and what was done about it, in words a person knows.

In `add` the client keeps its own window and only our mirror of it changes: every sentence says so, and what the user
can do.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp_server.memory import Memory
from mcp_server.model import Delivery
from mcp_server.relevance.gauges import Gauges


async def mirror_note(memory: Memory, sessions: Iterable[str]) -> str:
    """The sentence for a report about these conversations; "" where each is sent just as we compile it."""
    ours = {row.session for row in await memory.state.sessions() if row.delivery == "replace"}
    return "" if set(sessions) <= ours else OF_MIRRORS


TOLD_FROM = 0.10
"""Share of the limit from which the gauge is told unasked."""

IN_ADD = "your client's own window is as it was: /compact there, or clear a file, to make room"
OF_MIRRORS = (
    "Where the client keeps its own window, this is about our mirror of it. The window is as it was: only its user "
    "makes room in it, with /compact there, a new chat, or by clearing a file."
)
IN_REPLACE = "`recover` brings them back"


def gauge_line(gauges: Gauges, delivery: Delivery) -> str:
    """How full the context is: `live context: 81,000 of 200,000 tokens (41%)`."""
    whose = "live context" if delivery == "replace" else "our mirror of this conversation"
    said = f"{whose}: {_of(gauges.live_tokens, gauges.limit)}"
    if gauges.client_tokens is not None:
        said += f"; client context: {_of(gauges.client_tokens, gauges.limit)}"
    return said


def relief_line(event: str, dropped: int, shortened: int, saved: int, delivery: Delivery) -> str:
    """What a curation or compaction did; empty if it changed nothing."""
    if not (dropped or shortened):
        return ""
    parts = [f"{dropped} chunks went to cold storage"] * bool(dropped)
    parts += [f"{shortened} chunks were shortened"] * bool(shortened)
    did = f"{' and '.join(parts)} ({saved:,} tokens)"
    if delivery == "replace":
        return f"{event}: {did}; {IN_REPLACE}"
    return f"{event} of our mirror: {did}; {IN_ADD}"


def recovered_line(count: int, delivery: Delivery) -> str:
    """What came back by itself."""
    where = "the live context" if delivery == "replace" else "our mirror"
    return f"{count} {'chunk' if count == 1 else 'chunks'} came back from cold storage into {where}"


def over_limit_line(gauges: Gauges) -> str:
    """What is said where nothing more can be taken out."""
    return (
        f"the live context is still over its limit ({_of(gauges.live_tokens, gauges.limit)}): what is left is loaded "
        "by the client, or too many pieces that are protected; take off anchors, or raise context.limit_tokens"
    )


def _of(tokens: int, limit: int) -> str:
    return f"{tokens:,} of {limit:,} tokens ({tokens / limit:.0%})"
