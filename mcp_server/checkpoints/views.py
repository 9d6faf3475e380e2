"""Checkpoints as they are shown, the same through every door: tool, resources, commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mcp_server.checkpoints.document import Checkpoint, Reason, render
from mcp_server.checkpoints.stored import Head
from mcp_server.text.fencing import neutralise
from mcp_server.text.yaml_line import moment_text

WHY: dict[Reason, str] = {
    "asked": "asked for",
    "compaction": "before compaction",
    "end": "session end",
    "hook": "the client compacts",
    "recovery": "before a recovery",
}
LISTED = 50


def made_text(made: Checkpoint) -> str:
    """What a model that asked for a checkpoint is told."""
    more = f'recover(id="{made.id}") shows what going back would change; the prompt `resume` goes on from it elsewhere'
    return f"{told_text(made)}\n{more}"


def told_text(made: Checkpoint) -> str:
    """What a checkpoint that was made holds."""
    kinds = (
        (made.decisions, "decision"),
        (made.open_items, "open item"),
        (made.anchors, "anchor"),
        (made.topics, "topic"),
        (made.live, "live chunk"),
        (made.cold, "cold chunk"),
    )
    held = ", ".join(f"{len(some)} {name}{'' if len(some) == 1 else 's'}" for some, name in kinds if some)
    knowledge = "the knowledge as it is" if made.knowledge_tree else "no knowledge"
    lines = [
        f"checkpoint: {made.id}",
        f"session {made.session}, after turn {made.turn}: {', '.join(filter(None, (held, knowledge)))}",
        *(f"not in it: {path}, {why}" for path, why in made.left_out),
    ]
    return neutralise("\n".join(lines))


def listed_text(heads: Sequence[Head]) -> str:
    """The list, as a resource shows it."""
    if not heads:
        return "No checkpoints yet. The tool `checkpoint` makes one; compactions and ended sessions make them too."
    rows = [f"- `{head.id}` {when(head)}, session {head.session}, {told(head)}" for head in heads[:LISTED]]
    rest = [f"- and {len(heads) - LISTED:,} older ones"] if len(heads) > LISTED else []
    return neutralise("\n".join(["# Checkpoints", "", *rows, *rest]))


def shown_text(checkpoint: Checkpoint) -> str:
    """A checkpoint's file, without what only programs read."""
    return neutralise(render(replace(checkpoint, compile_inputs=None, state=None)))


def when(head: Head) -> str:
    """The time of a checkpoint in UTC, for a person."""
    return moment_text(head.at)[:16].replace("T", " ")


def told(head: Head) -> str:
    """After which turn it was made, and why."""
    why = next((text for reason, text in WHY.items() if reason == head.reason), head.reason)
    return f"after turn {head.turn}, {why}" + (f": {head.note}" if head.note else "")
