"""A checkpoint: the state of a session as one markdown file, readable by a person and read back exactly (SPEC §11).

    ---
    schema: context-manager/checkpoint
    id: ckp_4f0c…
    …
    ---

    # Checkpoint before compaction, 2026-02-16 18:45

    ## Thread
    > Began with: …

    ## Decisions
    - Use SQLite for the index

Sections with nothing in them are left out. `compile_inputs` and `state` are JSON for programs and stand last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, cast, get_args

from mcp_server.checkpoints import layout
from mcp_server.checkpoints import layout as parts
from mcp_server.checkpoints.threads import Exchange
from mcp_server.errors import Invalid
from mcp_server.knowledge.anchors import Anchor
from mcp_server.model import GLOBAL, ToolCall
from mcp_server.relevance.gauges import Gauges
from mcp_server.text.markdown import split_front_matter
from mcp_server.text.transcript import LoadYaml
from mcp_server.text.transcript_head import own_fields
from mcp_server.text.yaml_line import moment_text, read_moment, yaml_line

SCHEMA = "context-manager/checkpoint"
VERSION = 1

Reason = Literal["asked", "compaction", "end", "hook", "recovery"]
"""Why it was made: by tool or command, before compaction, at session end, by a client's hook, before a recovery."""

_TITLES: Mapping[Reason, str] = {
    "asked": "on demand",
    "compaction": "before compaction",
    "end": "at the end of the session",
    "hook": "before the client compacts",
    "recovery": "before a recovery",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that a session's state can be restored from, and what a person wants to know of it.

    `turn` is the last turn it has seen. `live` and `cold` are chunk ids. `compile_inputs` is what `CompileInputs`
    needs, with references in the place of texts, `compiled_sha256` the hash of what they gave. `knowledge_tree` names
    the tree (or copy) of the knowledge as it was. `state` holds what else a recovery needs, by name (Clarity, forms of
    chunks). `left_out` names files of the knowledge that the tree does not hold, each with the reason. Times keep
    milliseconds.
    """

    id: str
    session: str
    at: datetime
    turn: int
    project: str = GLOBAL
    reason: Reason = "asked"
    note: str = ""
    thread: str = ""
    decisions: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    last_tool_call: ToolCall | None = None
    files: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    gauges: Gauges | None = None
    live: tuple[str, ...] = ()
    cold: tuple[str, ...] = ()
    compile_inputs: Mapping[str, Any] | None = None
    compiled_sha256: str | None = None
    knowledge_tree: str | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    state: Mapping[str, Any] | None = None


def render(checkpoint: Checkpoint) -> str:
    """The checkpoint's file."""
    gauges = checkpoint.gauges
    fields: dict[str, object] = {
        "schema": SCHEMA,
        "version": VERSION,
        "id": checkpoint.id,
        "session": checkpoint.session,
        "project": checkpoint.project,
        "at": checkpoint.at,
        "reason": checkpoint.reason,
        "note": checkpoint.note,
        "turn": checkpoint.turn,
        "live_tokens": gauges.live_tokens if gauges else None,
        "limit_tokens": gauges.limit if gauges else None,
        "client_tokens": gauges.client_tokens if gauges else None,
        "compiled_sha256": checkpoint.compiled_sha256,
        "knowledge_tree": checkpoint.knowledge_tree,
    }
    head = ["---", *(f"{name}: {yaml_line(value)}" for name, value in fields.items()), "---"]
    title = f"# Checkpoint {_TITLES[checkpoint.reason]}, {moment_text(checkpoint.at)[:16].replace('T', ' ')} UTC"
    live = f", live context at {gauges.live:.0%} of {gauges.limit:,} tokens" if gauges else ""
    lines = [*head, "", title, "", f"After turn {checkpoint.turn}{live}."]
    for name, content in _sections(checkpoint).items():
        if content:
            lines += ["", f"## {name}", *content]
    return "\n".join(lines) + "\n"


def _sections(checkpoint: Checkpoint) -> dict[str, list[str]]:
    call, inputs, state = checkpoint.last_tool_call, checkpoint.compile_inputs, checkpoint.state
    return {
        "Thread": layout.quote(checkpoint.thread),
        "Decisions": layout.bullets(checkpoint.decisions),
        "Open items": layout.bullets(checkpoint.open_items),
        "Key exchanges": parts.exchanges(checkpoint.exchanges),
        "Last tool call": parts.tool_call(call) if call else [],
        "Files touched": layout.bullets(checkpoint.files),
        "Topics": layout.bullets(checkpoint.topics),
        "Anchors": parts.anchors(checkpoint.anchors),
        "Live chunks": layout.bullets(checkpoint.live),
        "Cold chunks": layout.bullets(checkpoint.cold),
        "Left out": [layout.row(path, why) for path, why in checkpoint.left_out],
        "Compile inputs": [] if inputs is None else layout.block(inputs),
        "State": [] if state is None else layout.block(state),
    }


def without_counts(checkpoint: Checkpoint) -> Checkpoint:
    """Without what was counted from the words of the conversation, and what its context was made of: a recovery counts
    again. For a conversation of which something was deleted."""
    state = {**(checkpoint.state or {}), "entries": {}}
    return replace(checkpoint, compile_inputs=None, compiled_sha256=None, state=state)


def parse(text: str, where: str = "checkpoint", load_yaml: LoadYaml | None = None) -> Checkpoint:
    """What `render` was given. A front matter that we did not write needs `load_yaml`. Raises Invalid naming file and
    field."""
    found = split_front_matter(text.replace("\r\n", "\n"))
    fields: Mapping[str, object] | None = own_fields(found.raw)
    if fields is None and load_yaml is not None:
        fields = load_yaml(found.raw, where)
    if not fields or fields.get("schema") != SCHEMA:
        raise Invalid(f"{where}: no checkpoint: it does not begin with front matter that says `schema: {SCHEMA}`")
    if parts.number(fields, "version", where) > VERSION:
        raise Invalid(f"{where}: `version` is newer than {VERSION}; update context-manager to read it")
    at, reason = read_moment(fields.get("at")), fields.get("reason")
    if at is None:
        raise Invalid(f"{where}: `at` must be a time such as 2026-02-16T18:45:00Z, not {fields.get('at')!r}")
    if reason not in get_args(Reason):
        raise Invalid(f"{where}: `reason` must be one of {', '.join(get_args(Reason))}, not {reason!r}")
    body = layout.sections(found.body)
    try:
        inputs, state = (layout.read_block(body.get(name, ())) for name in ("Compile inputs", "State"))
    except ValueError as error:
        raise Invalid(f"{where}: a JSON block is broken ({error}); take the file from git") from error
    return Checkpoint(
        id=parts.text(fields, "id", where),
        session=parts.text(fields, "session", where),
        at=at,
        turn=parts.number(fields, "turn", where),
        project=str(fields.get("project") or ""),
        reason=cast(Reason, reason),
        note=str(fields.get("note") or ""),
        thread=layout.read_quote(body.get("Thread", ())),
        decisions=layout.read_bullets(body.get("Decisions", ())),
        open_items=layout.read_bullets(body.get("Open items", ())),
        exchanges=parts.read_exchanges(body.get("Key exchanges", ())),
        last_tool_call=parts.read_tool_call(body.get("Last tool call", ())),
        files=layout.read_bullets(body.get("Files touched", ())),
        topics=layout.read_bullets(body.get("Topics", ())),
        anchors=parts.read_anchors(body.get("Anchors", ())),
        gauges=parts.gauges(fields, where),
        live=layout.read_bullets(body.get("Live chunks", ())),
        cold=layout.read_bullets(body.get("Cold chunks", ())),
        compile_inputs=inputs,
        compiled_sha256=parts.optional(fields, "compiled_sha256"),
        knowledge_tree=parts.optional(fields, "knowledge_tree"),
        left_out=parts.read_pairs(body.get("Left out", ())),
        state=state,
    )
