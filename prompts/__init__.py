"""The MCP prompts.

reflect       asks the model to write down what should outlast the conversation
flush         asks the model to save what matters before its context is compacted
clarity       commands about what matters in a conversation (`/clarity scores`, `/clarity anchor ITEM`, …)
prune_review  asks the model to review with the user what could be removed, before anything is
resume        continues a conversation that began in another window or client
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server import MCPServer
from pydantic import Field

from mcp_server.connection import Connection
from mcp_server.relevance.clarity_scores import COMMANDS

Session = Annotated[str | None, Field(description="Handle of the conversation, if observe gave one")]

REFLECT = """\
Look back over this conversation and write down, with the tool `remember`, what should still be known in later ones.

- decision: what was decided, and the reason ("We use SQLite, because one file is easy to back up").
- lesson: what went wrong or surprisingly well, and what to do next time.
- person: who somebody is, what they care about, how to work with them.
- procedure: steps that worked and will be needed again.
- open: what is still to do, what comes next, what waits for whom.
- fact: where the work stands, and anything else that is true, lasting, and not plain from the files at hand.

One call for each thing, in sentences that stand alone: names instead of "it" and "he", dates instead of "yesterday".
Leave out what was only said in passing, what is general knowledge, and every secret. `search` first if you think that
something is known already; correct it with action "edit" instead of adding its opposite. If nothing should last, write
nothing and say so.{handle}
"""

FLUSH = """\
The context of this conversation is filling up, and older messages will leave it soon. The conversation itself is kept;
save now what must be at hand without it. Use the tool `remember`, one call for each thing:

- decisions that were taken, with their reasons: kind "decision"
- lessons, with what to do next time: kind "lesson"
- where the work stands: kind "fact"
- what is still to do, what comes next, what waits for whom: kind "open"
- what happened today that somebody may ask for: kind "journal"

Sentences that stand alone: names instead of "it" and "he", dates instead of "yesterday". Only what is worth keeping, no
secrets, and nothing that is already there (`search` says so). What must stay in view as it is: `anchor` it. If nothing
is worth keeping, answer FLUSH_OK.{handle}
"""

SHOWN = "This is what the memory's Clarity says. Show it to me as it is.\n\n{said}"

REVIEW = """\
Review with me what could leave this conversation's context and my memory. Change nothing before I have said so.

1. Call `prune`, which is a dry run by default, for "auto" and "advisor", then "memory" and "files"{handle}.
2. Tell me in a few lines, by keep, fading and gone: what would go, how many tokens or lines that is, and why. Name what
   you would rather keep because the work at hand, or something that we decided, needs it.
3. Call `anchor` for what I want to keep. If a chunk that would go holds a decision or a lesson that is written nowhere
   else, call `remember` for it first.
4. Ask me which of it to do. Only then call `prune` with dry_run=false, one strategy at a time, and tell me the ids with
   which `recover` brings it back.

What `prune` answers is about this memory's own copy of the conversation. A client that keeps its own window (Claude
Code, Claude Desktop, Cursor, …) still holds all of it: then tell me what I can do there, such as /compact, a new chat,
or taking files out of it.
"""

RESUME = """\
We go on with an earlier conversation, of which you have nothing in your window. Below is what my memory compiled of it:
the state of the work, the last messages, and related knowledge. It is stored data, not a message of mine.

In every call of this memory's tools pass session="{session}", so that it stays one conversation. Tell me in two or
three sentences where we stopped and what is still open; then wait for what I say.{earlier}

{compiled}
"""
EARLIER = """

This is the conversation as it was after turn {turn}; what was said later is not undone by this. To wind it back, with
its anchors and topics: recover(id="{id}")."""


def add(mcp: MCPServer[Any], connection: Connection) -> None:
    """Adds the prompts to a server, in the order in which they are listed."""

    def handle(session: str | None) -> str:
        named = session or connection.session
        return f'\n\nPass session="{named}" in each call.' if named else ""

    @mcp.prompt(title="Write down what should last")
    def reflect(session: Session = None) -> str:
        """Write the lasting knowledge of this conversation into the memory."""
        return REFLECT.format(handle=handle(session))

    @mcp.prompt(title="Save what matters before the context is compacted")
    def flush(session: Session = None) -> str:
        """Write down decisions, lessons and the state of the work before older messages leave the context."""
        return FLUSH.format(handle=handle(session))

    @mcp.prompt(title="What is this conversation about?")
    async def clarity(
        action: Annotated[str | None, Field(description=f"{', '.join(COMMANDS)}; default: status")] = None,
        item: Annotated[str | None, Field(description="What to anchor or unanchor")] = None,
        session: Session = None,
    ) -> str:
        """Show or change what counts as relevant in this conversation: scores, anchors, pruning."""
        done = await _do(connection, (action or "status").strip().lower(), (item or "").strip(), session)
        return SHOWN.format(said=done)

    @mcp.prompt(title="Review what could leave the context")
    def prune_review(session: Session = None) -> str:
        """Go through what could be pruned, and do only what the user agrees to."""
        chosen = session or connection.session
        return REVIEW.format(handle=f'; pass session="{chosen}"' if chosen else "")

    @mcp.prompt(title="Go on with an earlier conversation")
    async def resume(
        session: Annotated[
            str | None,
            Field(description="Handle of the conversation, or a checkpoint's id; default: the last conversation"),
        ] = None,
    ) -> str:
        """Continue a conversation here that began in another window or client."""
        from mcp_server.checkpoints.stored import resume as action

        memory, caller = await connection.memory(), await connection.caller()
        resumed = await action(memory, (session or "").strip() or None, caller)
        connection.saw(resumed.session)
        made = resumed.checkpoint
        earlier = EARLIER.format(turn=made.turn, id=made.id) if resumed.earlier else ""
        return RESUME.format(session=resumed.session, earlier=earlier, compiled=resumed.compiled.text)


async def _do(connection: Connection, action: str, item: str, named: str | None) -> str:
    from mcp_server.errors import Invalid
    from mcp_server.knowledge.anchor import anchor
    from mcp_server.relevance import clarity
    from mcp_server.relevance.clarity import prune

    memory = await connection.memory()
    await connection.caller()  # sets the session that the client's hooks reported
    if action not in COMMANDS:
        raise Invalid(f"action {action!r} is not one of {', '.join(COMMANDS)}")
    session = named or connection.session
    if action in ("anchor", "unanchor"):
        if not item:
            raise Invalid(f"{action} needs an item")
        return await clarity.anchored_text(memory, await anchor(memory, item, action == "anchor"), session)
    if action == "prune":
        meant = await clarity.session_meant(memory, session)
        return clarity.pruned_text(await prune(memory, meant, dry_run=False))
    return (await clarity.view(memory, action, session)).markdown
