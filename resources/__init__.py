"""The MCP resources. Each returns the same as a tool. Also the completion of arguments.

context://compiled, context://compiled/{session}    the compiled context, ready to be read
context://receipt/{session}                         why the compiled context is what it is
context://status                                    the state of the memory
context://clarity/VIEW, context://clarity/VIEW/{session}
                                                    the subjects of a conversation with their scores
context://checkpoints, context://checkpoint/{id}    the stored checkpoints
context://topics                                    the topics and their state in this connection's session
memory://{+path}                                    a file of the workspace
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from anyio.to_thread import run_sync
from mcp.server import MCPServer
from mcp.server.mcpserver.resources import ResourceSecurity
from mcp.types import Completion, CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

from mcp_server.connection import URI, Connection
from mcp_server.relevance.clarity_scores import COMMANDS

if TYPE_CHECKING:
    from mcp_server.context.compiler import Compiled

MARKDOWN = "text/markdown"
ANY_SESSION = ResourceSecurity(exempt_params={"session"})
"""Turns off the check of paths: a session's handle is not a path, even if it looks like one."""

CLARITY_VIEWS: tuple[tuple[Literal["state", "scores", "stats", "config"], str, str], ...] = (
    ("state", "application/json", "All counts of this conversation, as they are stored."),
    ("scores", MARKDOWN, "What this conversation is about: every item, its score, the score's terms."),
    ("stats", MARKDOWN, "How many items of this conversation are counted, and how many of them stay in view."),
    ("config", "application/json", "The current weights and limits of Clarity."),
)

LONGEST = 25_000
"""Tokens of a file in one answer. If a file is cut, the answer says how to get the rest with the tool `read`."""

MOST_COMPLETIONS = 100


def add(mcp: MCPServer[Any], connection: Connection) -> None:
    """Adds the resources to a server, in the order in which they are listed."""

    async def compiled_of(session: str) -> Compiled:
        from mcp_server.context.compile import CompileRequest, compile_context

        memory, caller, personal = await connection.memory(), await connection.caller(), await connection.personal()
        return await compile_context(memory, CompileRequest(session=session), caller, personal)

    @mcp.resource(URI, name="compiled", title="Compiled context", mime_type=MARKDOWN)
    async def compiled() -> str:
        """The compiled context of this connection's conversation, or the one that all conversations share."""
        return (await connection.compiled()).shown

    @mcp.resource(
        f"{URI}/{{session}}",
        name="compiled-session",
        title="Compiled context",
        mime_type=MARKDOWN,
        security=ANY_SESSION,
    )
    async def compiled_session(session: str) -> str:
        """The compiled context of one conversation for its last user turn."""
        return (await compiled_of(session)).shown

    @mcp.resource(
        "context://receipt/{session}", name="receipt", title="Receipt", mime_type=MARKDOWN, security=ANY_SESSION
    )
    async def receipt(session: str) -> str:
        """What a conversation's compiled context includes, what it leaves out, and why."""
        return (await compiled_of(session)).receipt.markdown

    @mcp.resource("context://status", name="status", title="Memory status", mime_type=MARKDOWN)
    async def status() -> str:
        """The contents of the memory, whether its index is up to date, and problems."""
        from mcp_server.status.status import status

        return (await status(await connection.memory())).markdown

    for name, kind, about in CLARITY_VIEWS:
        _add_clarity(mcp, connection, name, kind, about)

    @mcp.resource("context://checkpoints", name="checkpoints", title="Checkpoints", mime_type=MARKDOWN)
    async def checkpoints() -> str:
        """The checkpoints that are kept, the newest first: time, subject, next step, session, id."""
        from mcp_server.checkpoints.stored import listed_text

        return await listed_text(await connection.memory())

    @mcp.resource("context://checkpoint/{id}", name="checkpoint", title="Checkpoint", mime_type=MARKDOWN)
    async def checkpoint(id: str) -> str:  # noqa: A002 - the name in the URI
        """One checkpoint: what was decided, what is open, what the conversation's state was."""
        from mcp_server.checkpoints.stored import read, shown_text

        return shown_text(await read(await connection.memory(), id))

    @mcp.resource("context://topics", title="Topics", mime_type=MARKDOWN)
    async def topics() -> str:
        """The topics: what each is for, its triggers, and which are active in this connection's session."""
        from mcp_server.topics.listing import list_topics

        caller = await connection.caller()
        return (await list_topics(await connection.memory(), caller.session)).markdown

    # The workspace itself refuses paths outside of it, with a reason; the SDK would only say "unknown resource".
    @mcp.resource(
        "memory://{+path}",
        name="file",
        title="Memory file",
        mime_type=MARKDOWN,
        security=ResourceSecurity(exempt_params={"path"}),
    )
    async def file(path: str) -> str:
        """A file of the memory, as it is now."""
        from mcp_server.conversations.read import read

        return (await read(await connection.memory(), path, max_tokens=LONGEST)).markdown


def _add_clarity(mcp: MCPServer[Any], connection: Connection, name: str, kind: str, about: str) -> None:
    """Adds a view of Clarity for this connection and for any session."""

    async def view(session: str | None) -> str:
        from mcp_server.relevance.clarity import view

        return (await view(await connection.memory(), name, session)).markdown

    async def shown() -> str:
        await connection.caller()  # sets the session that the client's hooks reported
        return await view(connection.session)

    async def shown_of(session: str) -> str:
        return await view(session)

    shown.__doc__ = shown_of.__doc__ = about
    uri, title = f"context://clarity/{name}", f"Clarity: {name}"
    mcp.resource(uri, name=f"clarity-{name}", title=title, mime_type=kind)(shown)
    if name != "config":
        add_of_session = mcp.resource(
            f"{uri}/{{session}}", name=f"clarity-{name}-session", title=title, mime_type=kind, security=ANY_SESSION
        )
        add_of_session(shown_of)


def completion(mcp: MCPServer[Any], connection: Connection) -> None:
    """Adds the completion of the arguments of resource templates and prompts: sessions, checkpoints, paths, items."""

    @mcp.completion()  # type: ignore[no-untyped-call,untyped-decorator]  # the SDK left it without types
    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion | None:
        from mcp_server.checkpoints.stored import listed
        from mcp_server.conversations.sessions import list_sessions
        from mcp_server.relevance.clarity import items_of

        memory = await connection.memory()
        if argument.name == "session":
            known = [row.session for row in await list_sessions(memory, limit=1000)]
            if isinstance(ref, PromptReference) and ref.name == "resume":
                known += [head.id for head in await listed(memory)]
        elif argument.name == "id":
            known = [head.id for head in await listed(memory)]
        elif argument.name == "path":
            known = sorted(stat.path for stat in await run_sync(lambda: list(memory.files.walk(""))))
        elif isinstance(ref, PromptReference) and argument.name == "action":
            known = list(COMMANDS)
        elif isinstance(ref, PromptReference) and argument.name == "item":
            known = await items_of(memory, connection.session)
        else:
            return None
        fitting = [value for value in known if value.startswith(argument.value)]
        return Completion(
            values=fitting[:MOST_COMPLETIONS], total=len(fitting), has_more=len(fitting) > MOST_COMPLETIONS
        )
