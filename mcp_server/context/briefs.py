"""Briefs: the first text of a new session, kept in files so that a hook can print it without a server.

    .local/brief/{project}.md   the exact text for a session of that project; empty while pushing is paused
    .local/brief/global.md      for every other session
    .local/brief/index.json     real folder → the name of its file, and its project's names in the index (null while
                                nothing is pushed with prompts); "" is the entry of every other folder

A brief is compiled like any context, within `hooks.start_tokens`: rules, decisions in force and open items first, then
identity, memory, project and journal. It contains no conversations.
A file is rewritten only when its inputs have changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.context import windows
from mcp_server.context.compile import anchored, source_files
from mcp_server.context.compiler import compile_short, compiler_settings
from mcp_server.context.inputs import CompileInputs, LastSession, LeftOff
from mcp_server.context.push_policy import LONGEST
from mcp_server.context.sections import Considered
from mcp_server.conversations.projects import project_of, slugs_of
from mcp_server.memory import Memory
from mcp_server.model import GLOBAL, Caller, Project, SourceFile
from mcp_server.search.search import project_scope

FOLDER = ".local/brief"
INDEX = f"{FOLDER}/index.json"
GLOBAL_FILE = "global.md"
FOLDERS = "folders"  # namespace of the state: real folder → `{"project": raw key, "at": …}`
MADE = "briefs"  # namespace of the state: file name → digest of its inputs
MOST_FOLDERS = 1000

SHARES: dict[str, Any] = {"identity_share": 0.2, "memory_share": 0.4, "holding_share": 1.0}
"""A brief has no scored knowledge, so the files get its share."""


@dataclass(frozen=True, slots=True)
class Brief:
    """A brief's text ("" if there is nothing to say), and its candidates."""

    text: str = ""
    tokens: int = 0
    considered: tuple[Considered, ...] = ()


def file_of(project: Project) -> str:
    """Returns the name of a project's file."""
    if project.slug is None:
        return GLOBAL_FILE
    return f"{project.slug}-project.md" if project.slug in ("global", "index") else f"{project.slug}.md"


async def make(
    memory: Memory,
    project: Project,
    left_off: LeftOff | None = None,
    *,
    last: LastSession | None = None,
    whole: bool = True,
) -> Brief:
    """Compiles the brief of a project. `left_off` is the session's state when its window was compacted, `last` its last
    exchanges; without `whole` the brief contains only these."""
    inputs = replace(await _inputs(memory, project), checkpoint=left_off, last_session=last)
    budget = inputs.budget if left_off is None else memory.settings.hooks.compaction_tokens
    return await _compiled(memory, replace(inputs, budget=budget, files=inputs.files if whole else ()))


async def keep(memory: Memory, project: Project) -> bool:
    """Rewrites a project's file if its inputs have changed, and returns whether it did."""
    name = file_of(project)
    paused = windows.why_silent(memory, project, await windows.pauses(memory))
    inputs = None if paused else await _inputs(memory, project)
    digest = "paused"
    if inputs:
        digest = hashlib.sha256(json.dumps(inputs.digests(), sort_keys=True).encode()).hexdigest()
    if await memory.state.get(MADE, name) == digest and await run_sync(memory.files.exists, f"{FOLDER}/{name}"):
        return False
    text = (await _compiled(memory, inputs)).text if inputs else ""
    text = memory.forgotten.clean(text)  # the inputs may be older than a request to forget
    await run_sync(memory.files.write_atomic, f"{FOLDER}/{name}", text)
    await memory.state.put(MADE, name, digest)
    return True


async def refresh(memory: Memory) -> int:
    """Updates every brief and the index of folders. Returns how many briefs were rewritten."""
    folders = {"": None, **await memory.state.entries(FOLDERS)}
    known: dict[str, dict[str, Any]] = {}
    projects: dict[str, Project] = {GLOBAL: Project()}
    pauses = await windows.pauses(memory)
    for folder, noted in folders.items():
        key = str(noted.get("project", GLOBAL)) if isinstance(noted, dict) else GLOBAL
        if key not in projects:
            projects[key] = await project_of(memory, Caller(), key)
        project = projects[key]
        silent = memory.settings.hooks.turn_tokens <= 0 or windows.why_silent(memory, project, pauses)
        known[folder] = {"brief": file_of(project), "projects": None if silent else sorted(project_scope(project))}
    await run_sync(_write_index, memory, known)  # first: a hook looks nothing up without it
    written = 0
    for project in {file_of(project): project for project in projects.values()}.values():
        written += await keep(memory, project)
    return written


async def know_folders(memory: Memory, folders: Mapping[str, Project]) -> None:
    """Stores which project each folder belongs to, so that its next session finds the right brief."""
    entries = await memory.state.entries(FOLDERS)
    before = dict(entries)
    for folder, project in folders.items():
        real = await run_sync(os.path.realpath, folder)
        known = entries.get(real)
        if not isinstance(known, dict) or known.get("project") != project.key:
            entries[real] = {"project": project.key, "at": memory.clock().isoformat()}
            await memory.state.put(FOLDERS, real, entries[real])
    if entries == before:
        return
    for old in sorted(entries, key=lambda name: str(entries[name].get("at", "")))[:-MOST_FOLDERS]:
        await memory.state.remove(FOLDERS, old)
    await refresh(memory)


async def _inputs(memory: Memory, project: Project) -> CompileInputs:
    now = memory.clock()
    local_date = memory.local_date(now)
    never = windows.marks_of(await memory.state.entries(windows.NEVER_PUSHED))

    def read() -> tuple[SourceFile, ...]:
        others = slugs_of(memory) - {project.slug}  # also without a project: a new folder gets that brief first
        return tuple(windows.without_lines(one, never) for one in source_files(memory, local_date, project, others))

    files = await run_sync(read)
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


async def _compiled(memory: Memory, inputs: CompileInputs) -> Brief:
    """Compiles the brief. If there is nothing to say, the tokenizer is not even loaded."""
    filled = any(not source.untouched and source.text.strip() for source in inputs.files)
    if inputs.budget <= 0 or not (filled or inputs.checkpoint):
        return Brief()
    compiled = await run_sync(compile_short, inputs, memory.tokens.count, LONGEST)
    considered = compiled.receipt.considered
    if not any(one.included for one in considered):
        return Brief()
    return Brief(compiled.text, compiled.tokens, considered)


def _write_index(memory: Memory, known: dict[str, dict[str, Any]]) -> None:
    text = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    if not memory.files.exists(INDEX) or memory.files.read_text(INDEX) != text:
        memory.files.write_atomic(INDEX, text)
