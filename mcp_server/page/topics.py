"""The screen "Topics": all topics, their last activations, whether answers used them, and a box to try a message."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from anyio.to_thread import run_sync
from starlette.responses import Response

from mcp_server.context.try_message import try_message
from mcp_server.memory import Memory
from mcp_server.page.answer import Page, Routes
from mcp_server.relevance.clarity import session_if_any, session_meant
from mcp_server.topics import gate_log
from mcp_server.topics.listing import list_topics, switch

LOOKED_BACK = 5_000
"""At most this many records of the log are read."""

SHOWN = 25
"""Activations that are listed."""

LONGEST_TRIED = 4_000
"""Maximum length of a message in the box, in characters."""


async def show_topics(page: Page) -> Response:
    memory = page.memory
    session = await session_if_any(memory)
    tried = page.query.get("try", "")[:LONGEST_TRIED]
    counts, fired = await run_sync(_decisions, memory)
    return page.show(
        "topics.html",
        view=await list_topics(memory, session),
        session=session,
        counts=counts,
        fired=fired,
        tried=tried,
        trial=await try_message(memory, tried) if tried.strip() else None,
    )


async def switch_topic(page: Page) -> Response:
    """Switches a topic on or off in the conversation with the latest message."""
    form = await page.form()
    done = await switch(
        page.memory, form.get("name", ""), await session_meant(page.memory, None), on=form.get("on") == "yes"
    )
    return page.back(form, "/topics", done.markdown)


def _decisions(memory: Memory) -> tuple[dict[str, dict[str, Any]], list[Mapping[str, Any]]]:
    """Returns the counts and the last time of each topic's activations, and the last activations."""
    counts: dict[str, dict[str, Any]] = {}
    fired: list[Mapping[str, Any]] = []
    for line in islice(gate_log.decisions(memory), LOOKED_BACK):
        if not line.get("gate_result"):
            continue
        one = counts.setdefault(
            str(line.get("topic_name")), {"fired": 0, "useful": 0, "useless": 0, "last": line.get("timestamp")}
        )
        one["fired"] += 1
        one["useful"] += line.get("was_useful") is True
        one["useless"] += line.get("was_useful") is False
        if len(fired) < SHOWN:
            fired.append(line)
    return counts, fired


ROUTES: Routes = (("GET", "/topics", show_topics), ("POST", "/topics", switch_topic))
