"""Committing: commits changed files at intervals, with messages that describe the change.

`closed_sessions.commit_pending` commits a closed conversation at once. All other changes are committed every
`lifecycle.commit_interval_minutes` and when a server ends. Files that `refusal` rejects are left out and named in
`status` until they are corrected. A failed commit is retried.

Tags name states of the memory. Days and weeks are tagged automatically when they are over:

    memory/daily/2026-02-16   memory/weekly/2026-W07      the last commit of a day or week with changes
    memory/milestone/NAME     memory/before/EVENT         on request
    memory/extract/VERSION                                after a change of the extraction algorithm
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError, Invalid, NotFound, Refused
from mcp_server.history import merging
from mcp_server.history.commit_rules import (
    ANSWER_TOKENS,
    FileChange,
    Type,
    group_by_type,
    message,
    read_answer,
    refusal,
    request,
    warning,
)
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.storage.history_values import TAG_PREFIX, Tag
from mcp_server.text.redaction import redact

log = logging.getLogger(__name__)

OURS = (
    *("knowledge", "topics", "archive", "checkpoints", "attachments", "raw/conversations"),
    *("anchors.yaml", "forgotten.jsonl", "memory-config.yaml", "lexicon.yaml"),
    *(".gitignore", ".gitattributes", ".gitmodules"),
)
"""Paths that are committed automatically. The owner commits everything else in the workspace."""

STATE, LAST, REPORT, PUSH = "git", "swept", "report", "push"
"""Namespace of the state, and its keys: time of the last round, its report, and why the last push failed."""

WRITTEN_IN = "written_in"
"""Namespace of the state: path of a knowledge file → transcript of the conversation that last wrote to it."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of one round of commits.

    `commits` are their ids. `left_out` maps files that were not committed to the reason, `warned` maps committed files
    to a warning. `waiting` files need the user's own commit. `note` says why nothing could be committed.
    """

    commits: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    warned: Mapping[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    note: str = ""


async def export_history(memory: Memory) -> str | None:
    """Brings the repository of `git.export_folder` up to date with the history of a memory on PostgreSQL, and returns
    its last commit; None if another process is exporting."""
    knobs = memory.settings.git
    held = await run_sync(memory.locks.try_exclusive, "git export")
    if held is None or knobs.export_folder is None:
        return None
    with held:
        return await run_sync(memory.git.export, Path(knobs.export_folder), knobs.remote, OURS)


async def commit_changes(memory: Memory, *, ask: bool = True) -> Swept:
    """Commits all changed files in `OURS`, one commit for each type. `ask`: an LLM may write the messages.

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
    found: dict[str, Any] = await memory.state.get(STATE, REPORT) or {}
    return Swept(**found | {name: tuple(value) for name, value in found.items() if isinstance(value, list)})


async def _swept(memory: Memory, ask: bool) -> Swept:
    held = await run_sync(merging.held_paths, memory)
    found = [one for one in await run_sync(memory.git.changes, OURS) if one.path not in held]
    if not found:
        return Swept()
    written_in: Mapping[str, str] = await memory.state.entries(WRITTEN_IN)
    found = [FileChange(one.path, one.before, one.after, written_in.get(one.path)) for one in found]
    left_out = {one.path: reason for one in found if (reason := refusal(one.path, one.after, one.before))}
    warned = {one.path: said for one in found if (said := warning(one.path, one.after))}
    commits: list[str] = []
    waiting: list[str] = []
    branch = await run_sync(memory.git.branch)
    for kind, group in group_by_type([one for one in found if one.path not in left_out], branch).items():
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
    """Returns the commit message: the LLM's if there is an LLM and its answer is usable, else that of `message`. Holds
    no lock."""
    if ask and memory.llm is not None and kind != "conversation":
        try:
            prompt = request(memory.templates("commit_message"), kind, group)
            answer = await memory.llm.complete(prompt, purpose="commit message", max_tokens=ANSWER_TOKENS)
            if worded := read_answer(answer, kind, group):
                return worded
        except LlmUnavailable:
            pass
    return await run_sync(message, kind, group)


# ---------------------------------------------------------------- tags

DAILY, WEEKLY = "memory/daily/", "memory/weekly/"


def due(commits: Iterable[tuple[str, datetime]], existing: Collection[str], today: date) -> list[tuple[str, str]]:
    """Returns (tag, commit) for each day and week (Monday to Sunday, ISO 8601) before `today` that has commits and no
    tag: its last commit. `commits` have their times in the user's time zone, oldest first."""
    last: dict[str, str] = {}
    for oid, at in commits:
        day = at.date()
        if day < today:
            last[f"{DAILY}{day.isoformat()}"] = oid
        year, week, weekday = day.isocalendar()
        if day + timedelta(days=7 - weekday) < today:
            last[f"{WEEKLY}{year}-W{week:02d}"] = oid
    return [(name, oid) for name, oid in last.items() if name not in existing]


Kind = Literal["milestone", "before", "extract"]
KINDS: tuple[Kind, ...] = get_args(Kind)

CAUGHT_UP_DAYS = 35
"""Days without a tag are searched this number of days back. A machine that was off for longer has no tags for that
time."""

TAGGED = "tagged"
"""Key of the state: the day of the last search."""

_NAME = re.compile(r"[^\W_][\w.-]*", re.ASCII)


async def tag(memory: Memory, kind: Kind, name: str, note: str = "") -> Tag:
    """Tags the present state of the memory. Commits uncommitted changes first.

    Raises:
        Invalid: no such kind, or a name that git does not accept.
        Conflict: another state has this name.
        Refused: the name or note contains a secret, which git would keep.
        Unavailable: git is missing or busy.
    """
    if kind not in KINDS:
        raise Invalid(f"a tag is one of {', '.join(KINDS)}, not {kind!r}")
    name = "-".join(name.split())
    if not _NAME.fullmatch(name):
        raise Invalid(f"{name!r} is not a valid name for a tag; use letters, digits, '-', '_' and '.'")
    if kinds := redact(f"{name}\n{note}").kinds:
        raise Refused(f"this holds a secret ({', '.join(kinds)}), and a tag stays in git; leave it out")
    await run_sync(memory.git.check_free)
    await commit_changes(memory)
    head = await run_sync(memory.git.head)
    if head is None:
        raise NotFound("nothing was committed yet, so there is nothing to tag")
    whole = f"{TAG_PREFIX}{kind}/{name}"
    async with memory.locks.git():
        await run_sync(memory.git.tags.create, whole, head, note)
    return next(found for found in await run_sync(memory.git.tags.all, whole) if found.name == whole)


async def tags(memory: Memory) -> list[Tag]:
    """Returns all tags of the memory, oldest first."""
    return await run_sync(memory.git.tags.all)


async def tag_days(memory: Memory) -> list[str]:
    """Tags completed days and weeks, at most once a day; returns the new tags."""
    now = memory.clock().astimezone(ZoneInfo(memory.timezone))
    today = now.date().isoformat()
    if not memory.settings.git.auto_tag_daily or await memory.state.get(STATE, TAGGED) == today:
        return []
    found = await run_sync(memory.git.tags.commits_since, now - timedelta(days=CAUGHT_UP_DAYS), OURS)
    commits = [(oid, at.astimezone(now.tzinfo)) for oid, at in found]
    existing = {found.name for found in await tags(memory)} if commits else set()
    made: list[str] = []
    for name, commit in due(commits, existing, now.date()):
        async with memory.locks.git():
            await run_sync(memory.git.tags.create, name, commit)
        made.append(name)
    await memory.state.put(STATE, TAGGED, today)
    return sorted(made)
