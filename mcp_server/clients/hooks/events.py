"""Handles the events of a client's hooks: records the conversation and pushes relevant memory.

    SessionStart       push the brief once a window; after a compaction again, with the state of the work
    UserPromptSubmit   record; push passages that are relevant to the prompt and not in the window yet; if the window
                       is nearly full, also advice on what could be removed from it
    PostToolUse        record, at most every `TOOL_PAUSE`
    Stop               record
    PreCompact         record, and make a checkpoint before the client summarizes
    PostCompact        record; texts that were pushed before may be pushed again
    SessionEnd         record the rest, seal, commit

Recording reads the client's own transcript; the fields of a hook are the fallback. Nothing is pushed to subagents:
their task was written for them, and they have their own window. After an error nothing is pushed, and the user's
prompt is not blocked.

Some clients write a transcript, or its end, only after the hooks of Stop and SessionEnd. Such an event goes through the
queue again until the last answer is there, for `STILL_WRITING` at most.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
from anyio.to_thread import run_sync

from mcp_server.checkpoints import stored
from mcp_server.checkpoints.checkpoint import make
from mcp_server.clients.adapters import ADAPTERS
from mcp_server.clients.adapters.adapter import CLAUDE_CODE, Adapter
from mcp_server.clients.hooks import offline
from mcp_server.clients.importers.imported import time_of_epoch
from mcp_server.clients.importers.recording import capture, contents_read, continued_session, subagent_session
from mcp_server.concurrency import both
from mcp_server.context import briefs, push, windows
from mcp_server.context.window_text import FOR_THE_CLIENT, asks_nothing
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import LONGEST_ID, NewTurn, observe
from mcp_server.conversations.projects import project_of
from mcp_server.errors import ContextManagerError, NotFound, Refused
from mcp_server.knowledge import extract
from mcp_server.memory import Memory
from mcp_server.model import Caller, Project
from mcp_server.pressure import advisor
from mcp_server.text.prose import without_inserted
from mcp_server.text.redaction import redact

log = logging.getLogger(__name__)

PROMPT_CAPTURE_SECONDS = 0.5
"""Time limit of recording while a prompt waits. The rest is recorded at the next event."""

END_SECONDS = 30.0
"""Time limit of sealing, longer than the client waits: it continues in the server after the client has gone."""

TOOL_PAUSE = timedelta(seconds=20)
"""Time after a recorded turn in which PostToolUse records nothing."""

PROMPTS = "prompts"
"""Namespace of the state: session → prompts that are not in any transcript yet."""

ANSWER = "answer"
"""Namespace of the state: session → the answer to a prompt that no server got, until the client writes its transcript.
It is stored here because entries of the queue contain no answers."""

MOST_PROMPTS = 50

STILL_WRITING = timedelta(seconds=30)
"""Time after an event in which the client may still write its transcript."""

Captured = Literal["read", "missing", "unreadable"]
"""`missing`: the client has not written the transcript yet. `unreadable`: there is none that we may read."""


@dataclass(frozen=True, slots=True)
class Given:
    """A hook's validated input: a field that is missing or of another type is empty."""

    adapter: Adapter
    session: str
    transcript: Path | None
    transcripts: Path
    """The folder of the client's transcripts."""
    folder: str | None
    agent: str
    prompt: str
    source: str
    last_message: str
    printed: str | None
    paused: bool
    at: datetime | None
    fields: Mapping[str, object]
    """The input, not validated."""

    @property
    def caller(self) -> Caller:
        return Caller(
            source=self.adapter.source, client=self.adapter.client, explicit_sessions=True, folder=self.folder
        )


async def handle(memory: Memory, event: str, given: Mapping[str, object]) -> dict[str, object]:
    """Returns the hook's output, {} for nothing. Logs errors and never raises."""
    try:
        return await work(memory, event, given)
    except Exception as error:  # a hook must not stop a prompt
        kind = str(error) if isinstance(error, ContextManagerError) else f"{type(error).__name__}: {error}"
        log.warning("hook %s: %s", event[:40], kind)
        return {}


async def work(memory: Memory, event: str, given: Mapping[str, object]) -> dict[str, object]:
    """Returns the hook's output. Raises ContextManagerError if recording fails, so that the queue can retry."""
    read = read_input(given)
    act = _EVENTS.get(event)
    if act is None or not read.session:
        return {}
    await sessions.ready(memory)
    waiting = offline.reports(str(memory.disk.local), read.session)  # the queue may not have handled them yet
    read = await _in_continued_session(memory, read)
    if read.printed is not None:
        await _count_printed(memory, event, read)
        return {}
    for entry in waiting:
        printed = read_input({**entry["given"], "at": entry["at"]})
        await _count_printed(memory, entry["event"], replace(printed, session=read.session))
    said = await act(memory, read)
    return offline.output(said.event, said.text, said.line, read.adapter.client) if said and said.text else {}


async def take_back(memory: Memory, event: str, given: Mapping[str, object], output: Mapping[str, object]) -> None:
    """Records that the client did not receive a hook's output, so that its text may be pushed again. Never raises."""
    read = read_input(given)
    said = output.get("hookSpecificOutput", output)
    if not read.session or not isinstance(said, dict) or "additionalContext" not in said:
        return
    try:
        read = await _in_continued_session(memory, read)
        await push.take_back(memory, read.session, event, said["additionalContext"], read.caller)
    except Exception as error:  # the next events must still be answered
        log.warning("a text that no hook received still counts as sent: %s", error)


async def _in_continued_session(memory: Memory, given: Given) -> Given:
    """Returns the input with the session that its window continues since our prompt `resume`; else unchanged."""
    if given.transcript is None:
        return given
    return replace(given, session=await continued_session(memory, given.adapter, given.transcript, given.session))


async def _count_printed(memory: Memory, event: str, read: Given) -> None:
    if read.printed is not None and read.at is not None:
        at = read.at.timestamp()
        await push.count_printed(memory, read.session, event, read.source, read.printed, at, read.caller)


def read_input(given: Mapping[str, object]) -> Given:
    """Returns the validated fields of a hook's input."""

    def text(name: str) -> str:
        value = given.get(name)
        return value if isinstance(value, str) and "\0" not in value else ""

    adapter = ADAPTERS.get(text("client"), CLAUDE_CODE)
    session = text("session_id").strip()
    session = session if len(session) <= LONGEST_ID and session.isprintable() else ""
    printed = given.get("printed")
    named = {(adapter.data or adapter.folder).variable: text("client_folder")} if text("client_folder") else {}
    transcripts = adapter.transcripts_folder({**os.environ, **named}, Path.home())
    return Given(
        adapter=adapter,
        session=session,
        transcript=_transcript(adapter, transcripts, text("transcript_path"), session),
        transcripts=transcripts,
        folder=text("project_dir") or text("cwd") or None,
        agent=text("agent_id"),
        prompt=without_inserted(text("prompt")).strip(),
        source=text("source"),
        last_message=next(filter(None, map(text, offline.ANSWERS)), ""),
        printed=printed if isinstance(printed, str) and printed.strip() else None,
        paused=given.get("paused") is True,
        at=time_of_epoch(given["at"]) if "at" in given else None,
        fields=given,
    )


def _transcript(adapter: Adapter, folder: Path, path: str, session: str) -> Path | None:
    """Returns the path of the transcript, also for clients that name it only at some events."""
    if not (session and adapter.session_file) or (path and not adapter.is_database):
        return Path(path) if path else None
    return folder / adapter.session_file(session)


async def _on_session_start(memory: Memory, given: Given) -> push.Injection | None:
    if given.agent:
        return None
    if given.source == "compact":
        await _capture(memory, given, limit=PROMPT_CAPTURE_SECONDS)
        await _checkpoint(memory, given.session)
    return await push.for_start(memory, given.session, given.source, given.caller, paused=given.paused)


async def _on_prompt(memory: Memory, given: Given) -> push.Injection | None:
    if given.agent:
        return None
    captured = await _capture(memory, given, limit=PROMPT_CAPTURE_SECONDS)
    pushed = push.for_prompt(memory, given.session, given.prompt, given.caller, paused=given.paused)
    for_the_client = asks_nothing(given.prompt) in FOR_THE_CLIENT
    if captured == "read" or for_the_client:
        said = await pushed
    else:  # the client may write no transcript: the prompt is stored until `Stop`
        noted = memory.state.add(PROMPTS, given.session, redact(given.prompt).text, MOST_PROMPTS)
        _, said = await both(noted, pushed)
    if given.paused or for_the_client or not said.recorded:
        return said
    read = partial(contents_read, given.transcript, given.adapter, given.transcripts) if given.transcript else dict
    try:  # a window that is nearly full
        advice = await advisor.with_prompt(memory, given.session, given.prompt, read)
    except ContextManagerError as error:
        log.warning("no advice: %s", error)
        return said
    return push.with_advice(said, advice, await run_sync(memory.tokens.count, advice)) if advice else said


async def _on_tool(memory: Memory, given: Given) -> None:
    row = await memory.state.session(given.session)
    if row is not None and memory.clock() - row.last_arrival >= TOOL_PAUSE:
        await _capture(memory, given, limit=PROMPT_CAPTURE_SECONDS)


async def _on_stop(memory: Memory, given: Given) -> None:
    captured = await _capture(memory, given, stopped=True)
    if given.agent:
        return
    noted: list[str] = await memory.state.get(PROMPTS, given.session) or []
    if captured == "missing" and not noted and await _is_being_written(memory, given, captured):
        # No server got the prompt. An answer that is recorded now would come before the prompt.
        if given.last_message:
            await memory.state.put(ANSWER, given.session, redact(given.last_message).text)
        await _look_again(memory, "Stop", given)
        return
    kept = await memory.state.get(ANSWER, given.session) if given.at else None
    if captured != "read":
        for prompt in noted:
            await _observe(memory, given, "user", prompt)
        await _observe(memory, given, "agent", given.last_message or kept or "")
    if kept:
        await memory.state.remove(ANSWER, given.session)
    if noted:
        await memory.state.remove(PROMPTS, given.session)
    if await _is_being_written(memory, given, captured):
        await _look_again(memory, "Stop", given)
    await _know_folder(memory, given)


async def _know_folder(memory: Memory, given: Given) -> Project:
    """Stores which project the client's folder belongs to, and returns the session's project. With this, the client's
    next window finds the brief on disk, even if this server is killed with the client."""
    row = await memory.state.session(given.session)
    project = await project_of(memory, given.caller, (row.project if row else "") or "global")
    if given.folder and project.slug:
        await briefs.know_folders(memory, {given.folder: project})
    return project


async def _on_pre_compact(memory: Memory, given: Given) -> None:
    await windows.compacting(memory, given.session)
    await _capture(memory, given, stopped=True)
    await _checkpoint(memory, given.session)


async def _on_post_compact(memory: Memory, given: Given) -> None:
    await _capture(memory, given)
    await windows.compacted(memory, given.session)


async def _on_session_end(memory: Memory, given: Given) -> None:
    """Records the rest, closes the session, and updates its page and the brief.

    The page and the brief must be ready now: this server may end with the client, and the next session may start
    without a server.
    """
    if given.agent:
        return
    captured = await _capture(memory, given, stopped=True)
    if await _is_being_written(memory, given, captured):
        await _look_again(memory, "SessionEnd", given)
        return
    await _capture(memory, given, final=True)
    given = await _in_continued_session(memory, given)
    row = await memory.state.session(given.session)
    if given.at and row and row.last_at and row.last_at > given.at:  # resumed before this event was handled
        return
    with anyio.move_on_after(END_SECONDS):
        await extract.refresh(memory)  # so that the page is up to date when the next window begins
        try:
            await sessions.end_session(memory, given.session)
        except NotFound:  # the session has no turns
            return
        await memory.state.remove(PROMPTS, given.session)
        await briefs.keep(memory, await _know_folder(memory, given))
        for agent in await memory.state.sessions(open_only=True):  # subagents end with their session
            if agent.kind == "subagent" and agent.session.startswith(subagent_session(given.session, "")):
                await sessions.end_session(memory, agent.session)


_EVENTS = {
    "SessionStart": _on_session_start,
    "UserPromptSubmit": _on_prompt,
    "PostToolUse": _on_tool,
    "Stop": _on_stop,
    "SubagentStop": _on_stop,
    "PreCompact": _on_pre_compact,
    "PostCompact": _on_post_compact,
    "SessionEnd": _on_session_end,
}


async def _checkpoint(memory: Memory, session: str) -> None:
    """Makes a checkpoint before the client compacts, unless there is one. Logs a failure."""
    row = await memory.state.session(session)
    if row is None:
        return
    compacted = await sessions.window_start(memory, row)
    kept = await stored.listed(memory, session)
    if kept and kept[0].turn >= (row.turns - 1 if compacted == row.turns else row.turns):
        return
    try:
        await make(memory, session, "hook")
    except ContextManagerError as error:
        log.warning("no checkpoint was made before the client's compaction: %s", error)


async def _capture(
    memory: Memory, given: Given, *, final: bool = False, stopped: bool = False, limit: float | None = None
) -> Captured:
    """Records the client's transcript. `stopped` includes the last answer if it is complete.

    If the transcript cannot be read, the caller uses the hook's own fields. `limit` is in seconds; after it the next
    event continues.
    """
    if not memory.settings.hooks.capture:
        return "read"
    if given.transcript is None:
        return "unreadable"
    try:
        with anyio.move_on_after(limit):
            await capture(
                memory,
                given.transcript,
                adapter=given.adapter,
                session=str(given.fields["session_id"]).strip(),
                cwd=given.folder,
                final=final,
                stopped=stopped,
                projects=given.transcripts,
            )
    except ContextManagerError as error:
        if given.at is not None and not isinstance(error, NotFound | Refused):
            raise  # a queued event stays in the queue and is retried
        if isinstance(error, NotFound):
            return "missing"
        log.warning("the transcript could not be recorded: %s", error)
        return "unreadable"
    return "read"


async def _is_being_written(memory: Memory, given: Given, captured: Captured) -> bool:
    """Returns whether the client may still write the last answer: it is not recorded yet, within `STILL_WRITING`."""
    is_over = memory.clock() - (given.at or memory.clock()) >= STILL_WRITING
    if captured == "unreadable" or is_over or not memory.settings.hooks.capture:
        return False
    row = await memory.state.session(given.session)
    if row is None:
        return True
    last = (await run_sync(memory.transcripts.read, row.path)).turns[-1].turn
    return last.role == "user" or bool(last.tool_calls)


async def _look_again(memory: Memory, event: str, given: Given) -> None:
    """Puts an event into the queue, which handles it a second later."""
    fields = {**given.fields, "at": (given.at or memory.clock()).timestamp()}
    await run_sync(partial(offline.enqueue, str(memory.disk.local), event, fields, again=True))


async def _observe(memory: Memory, given: Given, role: str, content: str) -> None:
    if content.strip() and memory.settings.hooks.capture:
        await observe(memory, NewTurn(role, content, session=given.session), given.caller)
