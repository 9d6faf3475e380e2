"""AgentMemory: the memory for an agent written in Python, without a server and without MCP.

    from mcp_server.agent import AgentMemory

    async with AgentMemory.open() as memory:
        heard = await memory.observe("user", question, delivery="replace")
        prompt = await memory.compile(session=heard.session, budget=4_000)
        answer = await my_model(prompt)
        await memory.observe("agent", answer, session=heard.session)

The compiled text is the whole prompt (`delivery="replace"`): what the memory knows about the question, and as much of
the conversation as fits. An agent that keeps its own message history leaves `delivery` out and adds the text to it.

Everything that goes wrong is a `mcp_server.errors.ContextManagerError` whose message says what to do. It runs on
asyncio. Several programs and servers may have one workspace open at the same time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from anyio import CancelScope, Lock

from mcp_server.agent_loop import Compacted, ContextLoop, CountTokens, GetContext, LoopStatus, SetContext
from mcp_server.app import catch_up, maintain, open_memory
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.observe import NewTurn, Observed, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import Invalid
from mcp_server.home import working_folder
from mcp_server.knowledge.remember import NewFact, Remembered, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller, Delivery, ToolCall
from mcp_server.model import Kind as SessionKind
from mcp_server.recovery.recover import Recovery, recover
from mcp_server.recovery.recoverable import Recoverable, recoverable
from mcp_server.text.destinations import Kind as FactKind

__all__ = [
    "AgentMemory",
    "Compacted",
    "ContextLoop",
    "LoopStatus",
    "Observed",
    "Recoverable",
    "Recovery",
    "Remembered",
]


class AgentMemory:
    """An open memory. Make one with `AgentMemory.open`.

    A call without `session` means the one that this object opened first, so an agent with one conversation needs no
    ids. `memory` is what every action in `mcp_server.actions` takes, for whatever is not here.
    """

    def __init__(self, memory: Memory, project: str | None = None, folder: str | None = None) -> None:
        self.memory = memory
        self._project = project
        self._folder = folder
        self._session: str | None = None
        self._first = Lock()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        workspace: str | Path | None = None,
        *,
        project: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Self]:
        """Opens the memory in the folder `workspace`, which is made if it is missing, and keeps its index up to date.

        Args:
            workspace: by default `CONTEXT_MANAGER_HOME`, else `~/.context-manager`.
            project: what the conversations belong to; `"global"` for nothing in particular. By default the project of
                the working folder.
            environ: where settings (`CONTEXT_MANAGER_<SECTION>__<KEY>`) are read from; by default `os.environ`.

        Raises:
            Unavailable: the folder can neither be made nor read.
        """
        given = os.environ if environ is None else environ
        folder = given.get("CLAUDE_PROJECT_DIR") or working_folder()
        try:
            async with open_memory(Path(workspace) if workspace else None, given) as memory:
                await catch_up(memory)
                async with maintain(memory, given):
                    yield cls(memory, project, folder)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:  # the task group's wrapping of what the caller's own code raised
                raise group.exceptions[0] from None
            raise

    async def observe(
        self,
        role: Literal["user", "agent", "assistant", "system"],
        content: str,
        *,
        session: str | None = None,
        turn_id: str | None = None,
        name: str | None = None,
        at: datetime | None = None,
        kind: SessionKind | None = None,
        delivery: Delivery | None = None,
        model: str | None = None,
        important: bool = False,
        tool_calls: Sequence[Mapping[str, Any]] = (),
        context_tokens: int | None = None,
    ) -> Observed:
        """Records a message; it is on disk when this returns. Secrets are redacted first.

        Args:
            session: the conversation; its name is yours to choose, a new one opens it. See `Observed.session`.
            turn_id: your id of the message: the same id is recorded once.
            delivery: `"replace"` if the compiled text alone is your prompt. Fixed by the first call that names it, as
                is `kind`.
            tool_calls: what was called for this message: `name`, and if you like `summary`, `result`, `files`.

        Returns:
            Where it stands: `session`, `turn` (its number), `recorded` (False for a repeat), `redacted`, `notes`.
        """
        turn = NewTurn(
            role=role,
            content=content,
            session=session,
            turn_id=turn_id,
            name=name,
            at=at,
            project=self._project,
            kind=kind,
            delivery=delivery,
            model=model,
            important=important,
            tool_calls=tuple(_tool_call(call) for call in tool_calls),
            context_tokens=context_tokens,
        )
        if session or self._session:
            return await self._recorded(turn)
        async with self._first:  # two first messages at once are of one conversation
            return await self._recorded(turn)

    async def _recorded(self, turn: NewTurn) -> Observed:
        with CancelScope(shield=True):  # a caller that is cancelled in the middle has said it all the same
            observed = await observe(self.memory, turn, self._caller)
        self._session = self._session or observed.session
        return observed

    async def compile(
        self,
        message: str | None = None,
        *,
        session: str | None = None,
        budget: int | None = None,
        scope: Literal["project", "all"] = "project",
    ) -> str:
        """The densest context for a message that fits `budget` tokens, as markdown.

        Without a message: for the last thing that the user said in the session. `budget` is by default the setting
        `context_compiler.token_budget`, and at least 128. `scope="all"` looks beyond the project.
        """
        request = CompileRequest(message, session, self._project, budget, scope, strict=True)
        return (await compile_context(self.memory, request, self._caller)).text

    async def remember(
        self,
        content: str,
        *,
        kind: FactKind = "fact",
        project: str | None = None,
        session: str | None = None,
    ) -> Remembered:
        """Writes down what should outlive the conversation: `path` and `diff` of the answer say where.

        `project="global"` for what concerns everything; by default the memory's project. What is known already is not
        written twice. A secret raises Refused.
        """
        fact = NewFact(content, kind, project or self._project or "current", session)
        return await remember(self.memory, fact, self._caller)

    async def recoverable(self, query: str | None = None, *, limit: int = 20) -> list[Recoverable]:
        """What `recover` could bring back, at most `limit` of each kind: chunks that went cold, earlier versions of
        files, archived entries.

        The newest first, or what best matches the words of `query`. Each has `id`, `kind`, `path`, `at`, `summary`.
        """
        return await recoverable(self.memory, query, limit)

    async def recover(self, what: str, *, apply: bool = False) -> Recovery:
        """Shows (`diff`) what bringing `what` back would change, and does it if `apply` is set.

        `what` is the id of something `recoverable`, or `PATH@REV` for a file as it was at a commit, a tag or a date.
        The answer's `undo` is the id that takes it back; `content` is the original text of a chunk, byte for byte.
        """
        return await recover(self.memory, what, self._caller, apply=apply)

    def loop(
        self,
        get_context: GetContext,
        set_context: SetContext,
        *,
        get_token_count: CountTokens | None = None,
        session: str | None = None,
    ) -> ContextLoop:
        """For an agent that keeps its own list of messages: what is in it is recorded, and it is kept short.

        `get_context` gives the messages (mappings with `role` and `content`), `set_context` takes those that shall be
        the context from now on; both may be coroutine functions. `session` goes on with a conversation; by default a
        new one begins. See `mcp_server/agent_loop.py` and `examples/context_loop.py`.
        """
        return ContextLoop(self.memory, self._caller, get_context, set_context, get_token_count, session, self._project)

    async def end(self, session: str | None = None) -> None:
        """Closes a conversation: its transcript is sealed and committed. What is said in it later continues it."""
        chosen = session or self._session
        if chosen is None:
            raise Invalid("no conversation was opened here yet; say which `session` to end")
        await end_session(self.memory, chosen)
        if chosen == self._session:
            self._session = None

    @property
    def session(self) -> str | None:
        """What a call without `session` means; None before the first message."""
        return self._session

    @property
    def _caller(self) -> Caller:
        return Caller("python", None, explicit_sessions=False, folder=self._folder, session=self._session)


def _tool_call(given: Mapping[str, Any]) -> ToolCall:
    unknown = set(given) - {"name", "summary", "result", "files"}
    if unknown or not given.get("name"):
        raise Invalid(f"a tool call has name, summary, result and files; this one has {', '.join(given) or 'nothing'}")
    files = tuple(str(file) for file in given.get("files", ()))
    return ToolCall(str(given["name"]), str(given.get("summary", "")), str(given.get("result", "")), files)
