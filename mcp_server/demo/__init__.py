"""Runs the main job once: creates a workspace, imports a conversation, starts a real server, connects a real client.

The steps are yielded as values; `mcp_server/cli/compile.py` prints them. The resource, the tool and a compilation in
this process must give the same bytes.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.app import catch_up, open_memory
from mcp_server.clients.importers.imported import ImportReport
from mcp_server.clients.importers.run import import_path
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.push import for_prompt
from mcp_server.conversations.sessions import list_sessions, session_turns
from mcp_server.errors import Unavailable
from mcp_server.knowledge.extract import extract
from mcp_server.memory import Memory
from mcp_server.model import Caller

if TYPE_CHECKING:
    from mcp import Client

CONVERSATION = "conversation.json"
PROMPT = "Mrs Kovač ordered Filip's birthday cake. What do I tell Luka and Jelena?"
"""The prompt of the before-and-after: everything that answers it was said months ago."""
QUESTION = (
    "Mrs Kovač wants Filip's birthday cake for Friday, and Ognjen asks whether he may still change the order page "
    "before Saturday. What did we decide about hazelnuts and about changes?"
)
SEARCH = "Stripe Monri payments"
DECISION = "For the July night market the order page is frozen from Thursday evening, as at Easter."
SMALL_TALK = "ok, thanks a lot!"
SETTINGS = {"CONTEXT_MANAGER_CONTEXT_COMPILER__TOKEN_BUDGET": "1200"}
"""A budget so small that the compiler has to choose."""
FOLDERS = ("CLAUDE_PROJECT_DIR", "CONTEXT_MANAGER_HOME")
"""Variables that would point the server at something of the user's own."""


@dataclass(frozen=True, slots=True)
class Step:
    """A heading, its result as text, and its duration in seconds.

    `pushed` is the text that a hook adds to `message`, and `line` is what the user sees of it. `receipt` is the receipt
    of the context compiled for `message`.
    """

    title: str
    text: str
    seconds: float
    receipt: Mapping[str, Any] | None = None
    message: str = ""
    pushed: str | None = None
    line: str = ""


async def demo(
    workspace: Path,
    environ: Mapping[str, str],
    file: Path | None,
    question: str | None,
) -> AsyncGenerator[Step, None]:
    """Yields each step when it is done. If `file` is given, it is imported instead of the package's own conversation.

    Raises:
        ContextManagerError: a step failed; the message says which and why.
    """
    clock = _Clock()
    own = {name: value for name, value in environ.items() if name not in FOLDERS} | SETTINGS
    async with open_memory(workspace, own) as memory:
        yield Step("A memory, made from nothing", f"{workspace}\n{_tree(workspace)}", clock.lap())
        report = await _import(memory, file)
        await extract(memory)  # a server does it in the background, and what is compiled meanwhile may differ
        await catch_up(memory)
        while await memory.index.read_ahead(500):  # as a server does in the background
            pass
        question = question or (QUESTION if file is None else await _question(memory))
        yield Step(f"Imported {file.name if file else 'a conversation'}", report.markdown, clock.lap())
        prompt = PROMPT if file is None else question
        yield await _pushed(memory, prompt, "A prompt in a new window: what a hook adds to it", clock)
        yield await _pushed(memory, SMALL_TALK, "Small talk: nothing is added", clock)

    from mcp import Client, StdioServerParameters

    command = [sys.executable, "-m", "mcp_server", "--workspace", str(workspace)]
    server = StdioServerParameters(command=command[0], args=command[1:], env=own, cwd=tempfile.gettempdir())
    async with Client(server) as client:
        tools = ", ".join(tool.name for tool in (await client.list_tools()).tools)
        yield Step(
            "Started the real server, connected a real client over stdio",
            f"$ {' '.join(['python', *command[1:]])}\nprotocol {client.protocol_version}; tools: {tools}",
            clock.lap(),
        )
        observed = await _call(client, "observe", role="user", content=question)
        session = observed.splitlines()[0].removeprefix("session: ")
        yield Step("observe: records a message", f"> {question}\n{observed}", clock.lap())
        if file is None:
            found = await _call(client, "search", query=SEARCH, limit=2)
            yield Step(f"search: {SEARCH}", found, clock.lap())
            done = await _call(client, "remember", content=DECISION, kind="decision")
            yield Step("remember: writes a decision into a file", done, clock.lap())
        idle = await _call(client, "compile_context", message=SMALL_TALK, format="receipt")
        gate = next((line for line in idle.splitlines() if "gate" in line.lower()), idle)
        yield Step(f"compile_context for “{SMALL_TALK}”: the gate stays closed", gate, clock.lap())
        text = await _resource(client, f"context://compiled/{session}")
        yield Step(f"Read the resource context://compiled/{session}", text, clock.lap())
        by_tool = await _call(client, "compile_context", session=session)

    async with open_memory(workspace, own) as memory:
        await catch_up(memory)
        compiled = await compile_context(memory, CompileRequest(session=session), Caller(source="demo"))
    same = {hashlib.sha256(one.encode()).hexdigest() for one in (text, by_tool)} | {compiled.sha256}
    if len(same) != 1:
        raise Unavailable(f"resource, tool and command gave different bytes ({', '.join(sorted(same))}); report it")
    yield Step(
        "Why this text: its receipt (resource, tool and this process gave the same bytes)",
        "",
        clock.lap(),
        compiled.receipt_json(),
        question,
    )


async def _pushed(memory: Memory, prompt: str, title: str, clock: _Clock) -> Step:
    """Returns the step that shows what a hook adds to a prompt in a new window."""
    said = await for_prompt(memory, f"demo-{uuid.uuid4()}", prompt, Caller(source="demo"))
    text = f"> {prompt}\n\n{said.text or f'nothing: {said.why}'}"
    return Step(title, text, clock.lap(), message=prompt, pushed=said.text, line=said.line)


class _Clock:
    """Measures the seconds since the previous step."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        last, self._last = self._last, time.perf_counter()
        return self._last - last


async def _import(memory: Memory, file: Path | None) -> ImportReport:
    if file is not None:
        return await import_path(memory, file)
    with as_file(files("mcp_server.demo") / CONVERSATION) as ours:
        return await import_path(memory, ours, kind="claude-ai")


async def _question(memory: Memory) -> str:
    """The last question that a user asked in what was imported, else a question about its title."""
    rows = await list_sessions(memory, limit=1)
    turns = await session_turns(memory, rows[0].session) if rows else ()
    asked = [turn.content for turn in turns if turn.role == "user" and turn.content.rstrip().endswith("?")]
    return asked[-1][:500] if asked else f"What do I know about {rows[0].title if rows else 'this'}?"


async def _call(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    text = "\n".join(block.text for block in result.content if block.type == "text")
    if result.is_error:
        raise Unavailable(f"the tool {tool} failed: {text}")
    return text


async def _resource(client: Client, uri: str) -> str:
    from mcp.types import TextResourceContents

    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


def _tree(workspace: Path) -> str:
    """The files that were made, a line for each folder."""
    folders: dict[str, list[str]] = {}
    for path in sorted(workspace.rglob("*")):
        relative = path.relative_to(workspace)
        if path.is_file() and relative.parts[0] not in (".git", ".local"):
            folders.setdefault(relative.parent.as_posix(), []).append(relative.name)
    return "\n".join(f"  {folder}/  {'  '.join(names)}" for folder, names in folders.items())
