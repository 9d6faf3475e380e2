"""Committing: commits changed files at intervals, with messages that describe the change.

`closed_sessions.commit_pending` commits a closed conversation at once. All other changes are committed every
`lifecycle.commit_interval_minutes` and when a server ends. Files that `core.history.admission` refuses are left out and
named in `status` until they are corrected. A failed commit is retried.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError
from mcp_server.history import incoming
from mcp_server.history.admission import Admission, warning
from mcp_server.history.commit_messages import ANSWER_TOKENS, FileChange, Type, grouped, message, read_answer, request
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory

log = logging.getLogger(__name__)

OURS = (
    "knowledge",
    "topics",
    "archive",
    "checkpoints",
    "attachments",
    "raw/conversations",
    "anchors.yaml",
    "forgotten.jsonl",
    "memory-config.yaml",
    "lexicon.yaml",
    ".gitignore",
    ".gitattributes",
    ".gitmodules",
)
"""Paths that are committed automatically. The owner commits everything else in the workspace."""

STATE, LAST, REPORT, PUSH = "git", "swept", "report", "push"
"""Namespace of the state, and its keys: time of the last round, its report, and why the last push failed."""

WRITTEN_IN = "written_in"
"""Namespace of the state: path of a knowledge file → transcript of the conversation that last wrote to it."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a round: ids of the commits, files left out with the reason, committed files with a warning, files
    that wait for the user's own commit, and why nothing could be committed."""

    commits: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    warned: Mapping[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    note: str = ""


async def commit_changes(memory: Memory, *, ask: bool = True) -> Swept:
    """Commits all changed files in `OURS`, one commit for each type. `ask`: an LLM may word the messages.

    If git refuses, the result's `note` says why, and the next round tries again.
    """
    if not memory.settings.git.auto_commit:
        return Swept(note="git.auto_commit is off")
    if not memory.git.available():
        return Swept(note="git was not found; nothing is committed")
    try:
        swept = await _swept(memory, ask)
    except ContextManagerError as error:
        swept = Swept(note=str(error))
    await memory.state.put(STATE, REPORT, asdict(swept))
    await memory.state.put(STATE, LAST, memory.clock().isoformat())
    return swept


async def commit_if_due(memory: Memory) -> Swept | None:
    """Runs a round if the commit interval has passed; otherwise returns None."""
    now = memory.clock()
    last = await memory.state.get(STATE, LAST)
    if last is None:  # a new memory: its first files are committed
        await memory.state.put(STATE, LAST, now.isoformat())
        return None
    interval = timedelta(minutes=memory.settings.lifecycle.commit_interval_minutes)
    if interval > now - datetime.fromisoformat(last) >= timedelta(0):
        return None
    return await commit_changes(memory)


async def report(memory: Memory) -> Swept:
    """Returns the result of the last round."""
    found: Mapping[str, Any] = await memory.state.get(STATE, REPORT) or {}
    return Swept(
        commits=tuple(found.get("commits", ())),
        left_out=dict(found.get("left_out", {})),
        warned=dict(found.get("warned", {})),
        waiting=tuple(found.get("waiting", ())),
        note=str(found.get("note", "")),
    )


async def _swept(memory: Memory, ask: bool) -> Swept:
    held = await run_sync(incoming.held_paths, memory)
    found = [one for one in await run_sync(memory.git.changes, OURS) if one.path not in held]
    if not found:
        return Swept()
    written_in: Mapping[str, str] = await memory.state.entries(WRITTEN_IN)
    found = [FileChange(one.path, one.before, one.after, written_in.get(one.path)) for one in found]
    admission = Admission()
    left_out = {one.path: reason for one in found if (reason := admission.refusal(one.path, one.after, one.before))}
    warned = {one.path: said for one in found if (said := warning(one.path, one.after))}
    commits: list[str] = []
    waiting: list[str] = []
    branch = await run_sync(memory.git.branch)
    for kind, group in grouped([one for one in found if one.path not in left_out], branch).items():
        text = await _message(memory, kind, group, ask)
        async with memory.locks.git():
            done = await run_sync(memory.git.commit_files, [one.path for one in group], text)
        left_out |= done.left_out
        waiting += done.waiting
        commits += [done.commit] if done.commit else []
        await memory.state.remove(WRITTEN_IN, *(path for path in done.paths if path in written_in))
    for path, reason in left_out.items():
        log.warning("%s was not committed: %s", path, reason)
    return Swept(tuple(commits), left_out, {p: w for p, w in warned.items() if p not in left_out}, tuple(waiting))


async def _message(memory: Memory, kind: Type, group: Sequence[FileChange], ask: bool) -> str:
    """Returns the commit message: the LLM's if there is an LLM and its answer is usable, else ours. Holds no lock."""
    if ask and memory.llm is not None and kind != "conversation":
        try:
            prompt = request(memory.templates("commit_message"), kind, group)
            answer = await memory.llm.complete(prompt, purpose="commit message", max_tokens=ANSWER_TOKENS)
            if worded := read_answer(answer, kind, group):
                return worded
        except LlmUnavailable:
            pass
    return await run_sync(message, kind, group)
