"""Briefs: what a new session begins with, kept ready as files so that a hook needs no server to print it.

    .local/brief/{project}.md   the exact text for a session of that project; empty while nothing is to be pushed
    .local/brief/global.md      for every other session
    .local/brief/index.json     real folder → the name of its file

A brief is compiled like any context, with the slots for identity, memory, projects, journal and the last conversation,
within `hooks.start_tokens`. A file is rewritten only when what it is made of has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.actions import pauses
from mcp_server.actions.compile import compiler_settings, source_files
from mcp_server.actions.projects import project_of
from mcp_server.core.compiler.compile import Compiled, compile_inputs
from mcp_server.core.compiler.inputs import CompileInputs, LastSession, LeftOff
from mcp_server.core.injection import LONGEST
from mcp_server.core.model import GLOBAL, Caller, Turn
from mcp_server.core.projects import Project
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.store.state import SessionRow

FOLDER = ".local/brief"
INDEX = f"{FOLDER}/index.json"
GLOBAL_FILE = "global.md"

FOLDERS = "folders"
"""Namespace of the state: real folder → `{"project": raw key, "at": …}`."""

MADE = "briefs"
"""Namespace of the state: file name → the digest of what it was made of."""

MOST_FOLDERS = 1000
LAST_EXCHANGES = 3
LEAST_EXCHANGES = 3
"""A shorter conversation was a question, or something told by the way: it is found when a prompt bears on it. Only what
was worked on is told to everybody who begins."""

LOOKED_AT = 20
"""So many conversations back."""


SHARES: dict[str, Any] = {"identity_share": 0.3, "memory_share": 0.5}
"""A brief has no scored knowledge: what that leaves goes to the files."""


@dataclass(frozen=True, slots=True)
class Brief:
    """`text` is what a hook injects, "" for nothing to say; `digest` of what it was made of."""

    file: str
    text: str
    tokens: int
    digest: str
    compiled: Compiled | None = None


def file_of(project: Project) -> str:
    """The name of a project's file."""
    if project.slug is None:
        return GLOBAL_FILE
    return f"{project.slug}-project.md" if project.slug in ("global", "index") else f"{project.slug}.md"


async def make(
    memory: Memory, project: Project, without: str | None = None, stood: LeftOff | None = None, *, whole: bool = True
) -> Brief:
    """The brief of a project as things stand; `without` is the session that it is for: its own turns are no news.
    `stood` is where that session was when its window was emptied; not `whole`: nothing but that."""
    inputs = await _inputs(memory, project, await memory.state.sessions(), without)
    inputs = replace(inputs, checkpoint=stood)
    if not whole:
        inputs = replace(inputs, files=(), last_session=None)
    return await _compiled(memory, project, inputs, _digest(inputs))


async def keep(memory: Memory, project: Project, rows: Sequence[SessionRow] | None = None) -> bool:
    """Rewrites a project's file if what it is made of has changed: then True. `rows`: all sessions, if known."""
    name = file_of(project)
    paused = await pauses.why_silent(memory, project)
    rows = await memory.state.sessions() if rows is None else rows
    inputs = None if paused else await _inputs(memory, project, rows, None)
    digest = _digest(inputs) if inputs else "paused"
    if await memory.state.get(MADE, name) == digest and await run_sync(memory.files.exists, f"{FOLDER}/{name}"):
        return False
    text = (await _compiled(memory, project, inputs, digest)).text if inputs else ""
    text = memory.forgotten.clean(text)  # it may be made of what was read before somebody asked to forget it
    await run_sync(memory.files.write_atomic, f"{FOLDER}/{name}", text)
    await memory.state.put(MADE, name, digest)
    return True


async def refresh(memory: Memory) -> int:
    """Brings every brief up to date, and the index of folders; returns how many files were rewritten."""
    folders = await memory.state.entries(FOLDERS)
    names: dict[str, str] = {}
    projects: dict[str, Project] = {GLOBAL: Project()}
    for folder, known in folders.items():
        key = str(known.get("project", GLOBAL)) if isinstance(known, dict) else GLOBAL
        if key not in projects:
            projects[key] = await project_of(memory, Caller(), key)
        names[folder] = file_of(projects[key])
    written = 0
    rows = await memory.state.sessions()  # once for all: there may be thousands, and a hundred projects
    for project in {file_of(project): project for project in projects.values()}.values():
        written += await keep(memory, project, rows)
    await run_sync(_write_index, memory, names)
    return written


async def know_folder(memory: Memory, folder: str, project: Project) -> None:
    """Remembers which project a folder belongs to, so that its next session finds the right brief."""
    real = await run_sync(os.path.realpath, folder)
    known = await memory.state.get(FOLDERS, real)
    if isinstance(known, dict) and known.get("project") == project.key:
        return
    await memory.state.put(FOLDERS, real, {"project": project.key, "at": memory.clock().isoformat()})
    entries = await memory.state.entries(FOLDERS)
    for old in sorted(entries, key=lambda name: str(entries[name].get("at", "")))[:-MOST_FOLDERS]:
        await memory.state.remove(FOLDERS, old)
    await refresh(memory)


async def on_disk(memory: Memory, project: Project) -> str:
    """The text that a hook without a server prints for this project now; "" for none."""
    try:
        return await run_sync(memory.files.read_text, f"{FOLDER}/{file_of(project)}")
    except ContextManagerError:
        return ""


async def _inputs(memory: Memory, project: Project, rows: Sequence[SessionRow], without: str | None) -> CompileInputs:
    now = memory.clock()
    local_date = memory.local_date(now)
    files = await run_sync(lambda: tuple(source_files(memory, local_date, project)))
    return CompileInputs(
        message="",
        budget=memory.settings.hooks.start_tokens,
        now=now.replace(hour=0, minute=0, second=0, microsecond=0),
        local_date=local_date,
        project=project.key,
        files=files,
        settings=replace(compiler_settings(memory.settings), **SHARES),
        vocabulary=memory.tokens.vocabulary,
        last_session=await _last_session(memory, project, rows, without),
    )


def _says_something(inputs: CompileInputs) -> bool:
    told = (inputs.last_session, inputs.checkpoint)
    return any(one is not None for one in told) or any(
        not source.untouched and source.text.strip() for source in inputs.files
    )


async def _compiled(memory: Memory, project: Project, inputs: CompileInputs, digest: str) -> Brief:
    """Compiles within tokens and characters; nothing to say costs nothing, not even loading the tokenizer."""
    if inputs.budget <= 0 or not _says_something(inputs):
        return Brief(file_of(project), "", 0, digest)
    compiled = await run_sync(compiled_within, memory, inputs)
    if not any(one.included for one in compiled.receipt.considered):
        return Brief(file_of(project), "", 0, digest)
    return Brief(file_of(project), compiled.text, compiled.tokens, digest, compiled)


def compiled_within(memory: Memory, inputs: CompileInputs) -> Compiled:
    """Compiles, and again with fewer tokens while the text has more characters than an injection may have."""
    compiled = compile_inputs(inputs, memory.tokens.count)
    while len(compiled.text) > LONGEST:
        fewer = compiled.tokens * LONGEST * 9 // (10 * len(compiled.text))
        compiled = compile_inputs(replace(inputs, budget=fewer), memory.tokens.count)
    return compiled


async def _last_session(
    memory: Memory, project: Project, rows: Sequence[SessionRow], without: str | None
) -> LastSession | None:
    """The project's conversation that was last worked in."""
    keys = project.keys or {project.key}
    own = [row for row in rows if row.project in keys and row.kind != "subagent" and row.session != without]
    for row in sorted(own, key=lambda row: row.last_at or row.last_arrival, reverse=True)[:LOOKED_AT]:
        if await memory.state.count_turns(row.session, "user") < LEAST_EXCHANGES:
            continue
        try:
            turns = await run_sync(_last_turns, memory, row)
        except ContextManagerError:
            continue
        if turns:
            return LastSession(row.path, row.title, memory.local_date(turns[-1].at), turns)
    return None


def _last_turns(memory: Memory, row: SessionRow) -> tuple[Turn, ...]:
    """The last exchanges, of each what the user said and how the answer ended."""
    said = [placed.turn for placed in memory.transcripts.read(row.path).turns if placed.turn.content.strip()]
    kept: list[Turn] = []
    users = 0
    for position in range(len(said) - 1, -1, -1):
        turn = said[position]
        follows = said[position + 1].role if position + 1 < len(said) else "user"
        if turn.role == "user" or (turn.role == "agent" and follows != "agent"):
            kept.insert(0, turn)
        users += turn.role == "user"
        if users == LAST_EXCHANGES:
            break
    return tuple(kept)


def _digest(inputs: CompileInputs) -> str:
    return hashlib.sha256(json.dumps(inputs.digests(), sort_keys=True).encode()).hexdigest()


def _write_index(memory: Memory, names: dict[str, str]) -> None:
    text = json.dumps(names, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    if not memory.files.exists(INDEX) or memory.files.read_text(INDEX) != text:
        memory.files.write_atomic(INDEX, text)


def shown(brief: Brief) -> Sequence[dict[str, Any]]:
    """What stands in a brief, for the log: id, slot, tokens, why."""
    considered = brief.compiled.receipt.considered if brief.compiled else ()
    return [
        {
            "id": one.id,
            "slot": one.slot,
            "source": one.source,
            "turn": one.turn,
            "tokens": one.tokens,
            "included": one.included,
            "reason": one.reason,
        }
        for one in considered
    ]
