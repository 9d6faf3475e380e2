"""AgentMemory: the memory for an agent written in Python, without a server and without MCP.

    from mcp_server.agent import AgentMemory

    async with AgentMemory.open() as memory:
        heard = await memory.observe("user", question, delivery="replace")
        prompt = await memory.compile(session=heard.session, budget=4_000)
        answer = await my_model(prompt)
        await memory.observe("agent", answer, session=heard.session)

The compiled text is the whole prompt (`delivery="replace"`): what the memory knows about the question, and as much of
the conversation as fits. An agent that keeps its own message history leaves `delivery` out and adds the text to it.

Errors are instances of `mcp_server.errors.ContextManagerError`, whose message says what to do. AgentMemory runs on
asyncio. Several programs and servers may open the same workspace at the same time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from anyio import CancelScope, Lock

from mcp_server.agent_loop import Compacted, ContextLoop, CountTokens, GetContext, LoopStatus, SetContext
from mcp_server.app import catch_up, maintain, open_memory
from mcp_server.checkpoints.checkpoint import make as make_checkpoint
from mcp_server.checkpoints.document import Checkpoint
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.observe import NewTurn, Observed, observe
from mcp_server.conversations.projects import project_asked
from mcp_server.conversations.read import ReadAnswer, read
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import Invalid
from mcp_server.forgetting.forget import Receipt, forget, plan_forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.home import working_folder
from mcp_server.knowledge.anchor import Anchored, anchor
from mcp_server.knowledge.prune_knowledge import Pruned
from mcp_server.knowledge.remember import NewFact, Remembered, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller, Category, Delivery, ToolCall
from mcp_server.model import Kind as SessionKind
from mcp_server.pressure.prune import prune
from mcp_server.recovery.recover import Recovery, recover
from mcp_server.recovery.recoverable import Recoverable, recoverable
from mcp_server.search.search import SearchAnswer, SearchRequest, search
from mcp_server.status.status import StatusReport, status
from mcp_server.text.destinations import Kind as FactKind

__all__ = [
    "AgentMemory",
    "Anchored",
    "Checkpoint",
    "Compacted",
    "ContextLoop",
    "LoopStatus",
    "Observed",
    "Pruned",
    "ReadAnswer",
    "Receipt",
    "Recoverable",
    "Recovery",
    "Remembered",
    "SearchAnswer",
    "StatusReport",
]

T = TypeVar("T")
Strategy = Literal["auto", "clarity", "advisor", "compact", "memory", "files"]


class AgentMemory:
    """An open memory. Open one with `AgentMemory.open`.

    A call without `session` uses the conversation that this object opened first, so an agent with one conversation
    needs no ids. `forget`, `prune` and `recover` only show what they would do until `apply` is set. `memory` is the
    first argument of every other function of this package.
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
        """Opens the memory in the folder `workspace`, which is created if it is missing, and updates its index.

        Args:
            workspace: by default `CONTEXT_MANAGER_HOME`, else `~/.context-manager`; or the address of a team's memory,
                `postgresql://…`, which needs the extra `postgres`.
            project: the project of the conversations; `"global"` for no particular one. By default the project of the
                working folder.
            environ: the variables with settings (`CONTEXT_MANAGER_<SECTION>__<KEY>`); by default `os.environ`.

        Raises:
            Unavailable: the folder can neither be created nor read, or the server of the address does not answer.
        """
        given = os.environ if environ is None else environ
        folder = given.get("CLAUDE_PROJECT_DIR") or working_folder()
        try:
            async with open_memory(workspace or None, given) as memory:
                await catch_up(memory)
                async with maintain(memory, given):
                    yield cls(memory, project, folder)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:  # the caller's own exception, wrapped by the task group
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
            session: the id of the conversation. You may choose any id; a new one opens a conversation. By default the
                first conversation of this object, or a new one.
            turn_id: your id of the message; a message with a known id is not recorded again.
            delivery: `"replace"` if the compiled text alone is your prompt. The first call that sets `delivery` or
                `kind` fixes it for the conversation.
            tool_calls: the tool calls of this message: each has `name`, and optionally `summary`, `result`, `files`.

        Returns:
            The recorded turn: `session`, `turn` (its number), `recorded` (False for a repeat), `redacted`, `notes`.
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
        async with self._first:  # two simultaneous first messages open one conversation
            return await self._recorded(turn)

    async def _recorded(self, turn: NewTurn) -> Observed:
        with CancelScope(shield=True):  # the message is recorded even if the caller is cancelled
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
        """Returns the densest context for a message that fits `budget` tokens, as markdown.

        Args:
            message: by default the user's last message in the session.
            budget: tokens, at least 128; by default the setting `context_compiler.token_budget`.
            scope: `"all"` also uses other projects.

        Raises:
            Invalid: the budget is below 128 tokens.
            NotFound: no such session.
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
        """Writes a fact into the file of its kind; a known fact is not written again.

        Args:
            kind: chooses the file and its section.
            project: `"global"` for facts that concern every project; by default the memory's project.

        Returns:
            What was written: `path`, `diff`, `action`, `notes`.

        Raises:
            Refused: the fact is a secret.
        """
        fact = NewFact(content, kind, project or self._project or "current", session)
        return await remember(self.memory, fact, self._caller)

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        category: Category | None = None,
        scope: Literal["project", "all"] = "project",
        mode: Literal["hybrid", "keyword", "vector"] = "hybrid",
        session: str | None = None,
        since: date | str | None = None,
        until: date | str | None = None,
        max_tokens: int = 2000,
    ) -> SearchAnswer:
        """Returns the best passages of everything stored, with their scores, as many as fit into `max_tokens` tokens.

        Args:
            query: a question or words; `"phrase"`, `-without`, `category:journal` and `since:2026-01-31` work.
            scope: `"project"` is the memory's project and everything global; `"all"` also searches other projects.
            session: searches only this conversation, in any project.
            since: the first day, or text such as `7d`; `until` is the last one. Both days are included.

        Returns:
            `hits` (each has a `passage` and a `score`), `snippets` in the same order, `notes`.

        Raises:
            NotFound: no such session.
            Invalid: a date that cannot be read.
        """
        project = await project_asked(self.memory, self._caller, self._project)
        first, last = (
            str(day) if isinstance(day, date) and not isinstance(day, datetime) else day for day in (since, until)
        )
        where = "all" if session else scope  # the session may belong to another project
        request = SearchRequest(query, limit, category, where, mode, session, first, last, project)
        return await search(self.memory, request, max_tokens)

    async def read(
        self,
        path: str,
        *,
        start: int | None = None,
        end: int | None = None,
        at: str | None = None,
        max_tokens: int = 2000,
    ) -> ReadAnswer:
        """Returns a file of the memory, or its lines `start` to `end`, at most `max_tokens` tokens; lists a folder.

        Args:
            path: relative to the workspace, as `search` gives it.
            at: a commit, a tag or a date (YYYY-MM-DD): the file as it was then.

        Raises:
            NotFound: no such file, or not at that time.
            Refused: the path leaves the workspace, or belongs to this machine.
            Invalid: the file is not text, or has no such lines.
        """
        return await read(self.memory, path, start, end, at, max_tokens)

    async def anchor(self, item: str, *, on: bool = True, note: str | None = None) -> Anchored:
        """Marks an item that must stay in the context, or removes the mark (`on=False`).

        Args:
            item: a name, a chunk's id, a file, or `PATH#TURN`.
            note: why it is kept.

        Raises:
            NotFound: no such file, chunk or anchor.
            Invalid: the item is empty.
            Refused: the item is a secret.
        """
        return await anchor(self.memory, item, on, note)

    async def prune(
        self,
        strategy: Strategy = "auto",
        *,
        session: str | None = None,
        target: int | None = None,
        apply: bool = False,
    ) -> Pruned:
        """Returns what a pruning would remove from a conversation's context or from the knowledge; removes it if
        `apply` is set.

        Args:
            strategy: `auto` and `compact` shorten a context, `clarity` and `advisor` its items, `memory` MEMORY.md,
                `files` unused knowledge.
            target: the size to reach: percent of the limit, or lines for `memory`.

        Returns:
            What is kept and removed, and why. `undo` has the ids that `recover` takes.

        Raises:
            Invalid: a target for a strategy that takes none.
            NotFound: no such session, or `session` is missing and this object has opened no conversation.
            Refused: the session has ended.
        """
        return await _shielded(prune(self.memory, strategy, session, not apply, self._caller, target=target))

    async def checkpoint(self, note: str = "", *, session: str | None = None) -> Checkpoint:
        """Saves the state of a conversation. `recover` with the answer's `id` restores it.

        Raises:
            Invalid: `session` is missing, and this object has opened no conversation.
            NotFound: no such session.
        """
        return await _shielded(make_checkpoint(self.memory, self._chosen(session, "save"), "asked", note))

    async def forget(
        self,
        text: str | None = None,
        *,
        turn: str | None = None,
        session: str | None = None,
        path: str | None = None,
        lines: tuple[int, int] | None = None,
        apply: bool = False,
    ) -> Receipt:
        """Returns every copy of a text, message, conversation or file; deletes them permanently if `apply` is set.

        Args:
            text: the words to delete, wherever they are stored.
            turn: one message, `SESSION#NUMBER`.
            lines: the first and the last line of `path` to delete.

        Raises:
            Invalid: no target or more than one is given, or the text is too short to be recognized.
            NotFound: no such conversation, message or file.
        """
        target = ForgetTarget(text=text, turn=turn, session=session, path=path, lines=lines)
        if not apply:
            return await plan_forget(self.memory, target)
        return await _shielded(forget(self.memory, target))

    async def status(self, view: str = "all", *, session: str | None = None, max_tokens: int = 2000) -> StatusReport:
        """Returns the contents and the problems of the memory. `view` selects one part, such as `"sessions"`.

        Raises:
            Invalid: no such view.
            NotFound: no such session.
        """
        return await status(self.memory, view, session, max_tokens)

    async def recoverable(self, query: str | None = None, *, limit: int = 20) -> list[Recoverable]:
        """Returns the items that `recover` can restore, at most `limit` of each kind: dropped chunks, earlier versions
        of files, archived entries, checkpoints.

        The newest come first, or the best matches for the words of `query`. Each has `id`, `kind`, `path`, `at`,
        `summary`.
        """
        return await recoverable(self.memory, query, limit)

    async def recover(self, what: str, *, apply: bool = False) -> Recovery:
        """Returns what a recovery would change (`diff`), and makes the change if `apply` is set.

        Args:
            what: an id from `recoverable`, the id of a checkpoint, or `PATH@REV`: a file at a commit, tag or date.

        Returns:
            The change. `undo` is the id that reverts it; `content` is the original text of a chunk, byte for byte.

        Raises:
            NotFound: there is no such id or version.
            Refused: only the user may change the file, such as the identity files.
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
        """Returns a loop for an agent that keeps its own list of messages: it records them and keeps the list short.

        `get_context` returns the messages (mappings with `role` and `content`), `set_context` receives the new list;
        both may be coroutine functions. `session` continues a conversation; by default a new one begins. See
        `mcp_server/agent_loop.py` and `examples/context_loop.py`.
        """
        return ContextLoop(self.memory, self._caller, get_context, set_context, get_token_count, session, self._project)

    async def end(self, session: str | None = None) -> None:
        """Closes a conversation: its transcript is sealed and committed. A later message continues it.

        Raises:
            Invalid: `session` is missing, and this object has opened no conversation.
            NotFound: no such session.
        """
        chosen = self._chosen(session, "end")
        await end_session(self.memory, chosen)
        if chosen == self._session:
            self._session = None

    def _chosen(self, session: str | None, verb: str) -> str:
        chosen = session or self._session
        if chosen is None:
            raise Invalid(f"no conversation was opened yet; pass the `session` to {verb}")
        return chosen

    @property
    def session(self) -> str | None:
        """Returns the id that a call without `session` uses; None before the first message."""
        return self._session

    @property
    def _caller(self) -> Caller:
        return Caller("python", None, explicit_sessions=False, folder=self._folder, session=self._session)


async def _shielded(work: Awaitable[T]) -> T:
    """Returns the result of `work`, which finishes even if the caller is cancelled."""
    with CancelScope(shield=True):
        result = await work
    return result  # noqa: RET504 - for mypy, because a scope may suppress an exception


def _tool_call(given: Mapping[str, Any]) -> ToolCall:
    unknown = set(given) - {"name", "summary", "result", "files"}
    if unknown or not given.get("name"):
        raise Invalid(f"a tool call has name, summary, result and files; this one has {', '.join(given) or 'nothing'}")
    files = tuple(str(file) for file in given.get("files", ()))
    return ToolCall(str(given["name"]), str(given.get("summary", "")), str(given.get("result", "")), files)
