"""Briefs: what a new session begins with, kept ready as files so that a hook needs no server to print it.

    .local/brief/{project}.md   the exact text for a session of that project; empty while nothing is to be pushed
    .local/brief/global.md      for every other session
    .local/brief/index.json     real folder → the name of its file, and its project's names in the index (null while
                                nothing is to be pushed); "" stands for every other folder

A brief is compiled like any context, with the slots for identity, memory, projects and journal, within
`hooks.start_tokens`: first what holds (rules, decisions in force, open items). Conversations are not in it: what was
said comes with a prompt that needs it.
A file is rewritten only when what it is made of has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.actions.compile import anchored, compiler_settings, source_files
from mcp_server.actions.injecting import pauses
from mcp_server.actions.projects import project_of
from mcp_server.core.compiler.compile import Compiled, compile_inputs
from mcp_server.core.compiler.inputs import CompileInputs, LeftOff
from mcp_server.core.injection import LONGEST
from mcp_server.core.model import GLOBAL, Caller
from mcp_server.core.projects import Project
from mcp_server.memory import Memory

FOLDER = ".local/brief"
INDEX = f"{FOLDER}/index.json"
GLOBAL_FILE = "global.md"

FOLDERS = "folders"
"""Namespace of the state: real folder → `{"project": raw key, "at": …}`."""

MADE = "briefs"
"""Namespace of the state: file name → the digest of what it was made of."""

MOST_FOLDERS = 1000

SHARES: dict[str, Any] = {"identity_share": 0.2, "memory_share": 0.4, "holding_share": 1.0}
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


async def make(memory: Memory, project: Project, stood: LeftOff | None = None, *, whole: bool = True) -> Brief:
    """The brief of a project as things stand. `stood` is where the session that it is for was when its window was
    emptied; not `whole`: nothing but that."""
    inputs = replace(await _inputs(memory, project), checkpoint=stood)
    if stood is not None:
        inputs = replace(inputs, budget=memory.settings.hooks.compaction_tokens)
    inputs = inputs if whole else replace(inputs, files=())
    return await _compiled(memory, project, inputs, _digest(inputs))


async def keep(memory: Memory, project: Project) -> bool:
    """Rewrites a project's file if what it is made of has changed: then True."""
    name = file_of(project)
    paused = await pauses.why_silent(memory, project)
    inputs = None if paused else await _inputs(memory, project)
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
    folders = {"": None, **await memory.state.entries(FOLDERS)}
    known: dict[str, dict[str, Any]] = {}
    projects: dict[str, Project] = {GLOBAL: Project()}
    for folder, noted in folders.items():
        key = str(noted.get("project", GLOBAL)) if isinstance(noted, dict) else GLOBAL
        if key not in projects:
            projects[key] = await project_of(memory, Caller(), key)
        project = projects[key]
        silent = memory.settings.hooks.turn_tokens <= 0 or await pauses.why_silent(memory, project)
        known[folder] = {"brief": file_of(project), "projects": None if silent else sorted(project.scope)}
    await run_sync(_write_index, memory, known)  # first: a hook looks nothing up without it
    written = 0
    for project in {file_of(project): project for project in projects.values()}.values():
        written += await keep(memory, project)
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


async def _inputs(memory: Memory, project: Project) -> CompileInputs:
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
        anchors=await run_sync(anchored, memory),
        settings=replace(compiler_settings(memory.settings), **SHARES),
        vocabulary=memory.tokens.vocabulary,
    )


def _says_something(inputs: CompileInputs) -> bool:
    return inputs.checkpoint is not None or any(not source.untouched and source.text.strip() for source in inputs.files)


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


def _digest(inputs: CompileInputs) -> str:
    return hashlib.sha256(json.dumps(inputs.digests(), sort_keys=True).encode()).hexdigest()


def _write_index(memory: Memory, known: dict[str, dict[str, Any]]) -> None:
    text = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    if not memory.files.exists(INDEX) or memory.files.read_text(INDEX) != text:
        memory.files.write_atomic(INDEX, text)


def shown(compiled: Compiled | None) -> Sequence[dict[str, Any]]:
    """What stands in a text that was compiled for a window, for the log: id, slot, tokens, why."""
    considered = compiled.receipt.considered if compiled else ()
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
