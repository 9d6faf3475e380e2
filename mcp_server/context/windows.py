"""Stores the windows of clients: the session of each, and which pushed texts it holds, so that none is pushed twice.

Hooks report a window's session to the process that maintains the workspace, but another process may serve the window,
so the state stores it. A compaction removes these texts from a window. The client's hooks report it; if no server was
running, the transcript has a compaction turn. This module also stores the pauses of pushes, and the lines that are
never pushed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.context.exclusions import without
from mcp_server.context.window_text import fingerprints, was_sent
from mcp_server.conversations import sessions
from mcp_server.errors import Invalid
from mcp_server.memory import Memory
from mcp_server.model import Project, SourceFile
from mcp_server.storage import logs
from mcp_server.storage.values import SessionRow
from mcp_server.text.entries import without_sources

PAUSES = "pause"
EVERYWHERE = "*"


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause. `project` is a raw project key, "" for sessions without a project, None for everywhere; `name` is for
    people. Without `until` it lasts until `resume`."""

    project: str | None
    name: str
    since: datetime
    until: datetime | None = None

    @property
    def place(self) -> str:
        return "everywhere" if self.project is None else f"in {self.name}"

    @property
    def words(self) -> str:
        """`paused everywhere until 2026-05-04 14:30 UTC`."""
        return f"paused {self.place}" + (f" until {self.until:%Y-%m-%d %H:%M} UTC" if self.until else "")


async def pause(memory: Memory, project: Project | None = None, duration: timedelta | None = None) -> Pause:
    """Stops pushes in one project or everywhere, for a time or until `resume`. Replaces an earlier pause there."""
    now = memory.clock()
    name = "everywhere" if project is None else project.slug or "sessions without a project"
    new = Pause(None if project is None else project.key, name, now, now + duration if duration else None)
    stored = {"name": new.name, "since": new.since.isoformat(), "until": new.until and new.until.isoformat()}
    await memory.state.put(PAUSES, EVERYWHERE if new.project is None else f"={new.project}", stored)
    return new


async def resume(memory: Memory, project: Project | None = None) -> list[Pause]:
    """Ends the pauses of one project, or all pauses. Returns those that were in force."""
    lifted = [one for one in await pauses(memory) if project is None or _covers(one, project)]
    for key in await memory.state.entries(PAUSES):
        if project is None or key[1:] in project.keys | {project.key}:
            await memory.state.remove(PAUSES, key)
    return lifted if project is None else [one for one in lifted if one.project is not None]


async def pauses(memory: Memory) -> list[Pause]:
    """Returns the pauses in force, the one for everywhere first."""
    return _in_force(await memory.state.entries(PAUSES), memory.clock())


def _in_force(stored: Mapping[str, object], now: datetime) -> list[Pause]:
    found = [_read(key, value) for key, value in stored.items()]
    return [one for one in found if one is not None and (one.until is None or one.until > now)]


def why_silent(memory: Memory, project: Project, some: Sequence[Pause]) -> str | None:
    """Returns why nothing is pushed into this project's prompts, or None. `some` are the pauses in force."""
    if not memory.settings.hooks.inject:
        return "switched off (hooks.inject, or CONTEXT_MANAGER_PAUSE)"
    return next((one.words for one in some if _covers(one, project)), None)


def _covers(one: Pause, project: Project) -> bool:
    return one.project is None or one.project == project.key or one.project in project.keys


def _read(key: str, value: object) -> Pause | None:
    try:
        assert isinstance(value, dict)
        project, since, until = key[1:], datetime.fromisoformat(value["since"]), value.get("until")
        until = datetime.fromisoformat(until) if until else None
        return Pause(None if key == EVERYWHERE else project, str(value["name"]), since, until)
    except (AssertionError, LookupError, TypeError, ValueError):  # written by another version
        return None


NEVER_PUSHED = "never_pushed"
WHY = "you said: never push this"
LONGEST_SHOWN = 200  # characters of a text that are kept to show it to the user


@dataclass(frozen=True, slots=True)
class NeverPushed:
    """A text that is never pushed. `words` is its beginning, `id` its name for `allow`."""

    id: str
    words: str
    at: datetime


async def never_push(memory: Memory, text: str) -> NeverPushed:
    """Stops pushes of a text, wherever it is stored. Raises Invalid for a text without words."""
    plain = without_sources(text)
    marks = fingerprints(plain)
    if not marks:
        raise Invalid("these lines have no words by which they could be recognized")
    number = hashlib.sha256("".join(marks).encode()).hexdigest()[:12]
    now = memory.clock()
    words = " ".join(plain.split())[:LONGEST_SHOWN]
    await memory.state.put(NEVER_PUSHED, number, {"words": words, "marks": list(marks), "at": now.isoformat()})
    return NeverPushed(number, words, now)


async def allow(memory: Memory, number: str) -> None:
    """Allows pushes of a text again."""
    await memory.state.remove(NEVER_PUSHED, number)


async def never_pushed(memory: Memory) -> list[NeverPushed]:
    """Returns the texts that are never pushed, newest first."""
    stored = await memory.state.entries(NEVER_PUSHED)
    found = [
        NeverPushed(number, str(one["words"]), datetime.fromisoformat(one["at"]))
        for number, one in stored.items()
        if isinstance(one, dict)
    ]
    return sorted(found, key=lambda one: one.at, reverse=True)


def marks_of(stored: Mapping[str, Any]) -> frozenset[str]:
    """Returns the fingerprints of all lines that are never pushed. `stored` are the entries of NEVER_PUSHED."""
    return frozenset(mark for one in stored.values() if isinstance(one, dict) for mark in one.get("marks", ()))


def is_never_pushed(text: str, marks: Collection[str]) -> bool:
    """Returns whether every line of a text is never pushed. `marks` are those of `marks_of`."""
    return bool(fingerprints(text)) and was_sent(text, marks)


def without_lines(source: SourceFile, marks: Collection[str]) -> SourceFile:
    """Returns a file without the lines that are never pushed."""
    if not marks:
        return source
    rows = map(without_sources, source.text.split("\n"))
    return without(source, {place: WHY for place, row in enumerate(rows) if is_never_pushed(row, marks)})


PUSHED = "injection"  # the log of pushes
TAKEN_BACK = "taken back"  # the decision of a record: the text before was not shown


def pushed(memory: Memory) -> Iterator[Mapping[str, Any]]:
    """Yields the records of the log of pushes, newest first, without texts that were not shown because the hook had
    stopped waiting."""
    taken: set[object] = set()  # sessions whose next text was not shown
    for record in logs.newest_first(memory.files, PUSHED):
        session = record.get("session")
        if record.get("decision") == "injected" and session in taken:
            taken.discard(session)
            continue
        if record.get("decision") == TAKEN_BACK:
            taken.add(session)
        yield record


WINDOWS = "windows"  # namespace of the state: window → its session


async def session_in(memory: Memory, window: str) -> str | None:
    """Returns the window's session; None if its hooks have not reported one yet."""
    session = await memory.state.get(WINDOWS, window)
    return session if isinstance(session, str) else None


async def enter(memory: Memory, window: str, session: str) -> None:
    """Stores the window's session."""
    if await session_in(memory, window) != session:
        await memory.state.put(WINDOWS, window, session)


async def forget_closed(memory: Memory) -> None:
    """Removes closed windows. A window's name is the path of a file that exists as long as the window. A named pipe of
    Windows is not checked, because that would open it."""
    for window in await memory.state.entries(WINDOWS):
        with contextlib.suppress(OSError):
            if not window.startswith("\\\\.\\pipe\\") and not await run_sync(Path(window).exists):
                await memory.state.remove(WINDOWS, window)


SENT = "sent"  # namespace of the state: session → its `Window`
KEEP_WINDOWS = timedelta(days=60)


@dataclass(frozen=True, slots=True)
class Window:
    """The pushed texts in a session's window since it began or was last compacted. `lines` are fingerprints of the
    texts' lines. `brief`: it holds a brief. `compacting`: the client has begun to compact. `start` is the number of the
    compaction turn that the window begins with; `unmarked`: that turn is not recorded yet. `checkpoint` is the id of
    the checkpoint that was sent, `tokens` the number of tokens pushed with prompts. `printed` is the time, in seconds
    since 1970, of the hook's last report that was counted."""

    lines: frozenset[str] = frozenset()
    brief: bool = False
    compacting: bool = False
    start: int | None = None
    unmarked: bool = False
    at: str = ""
    checkpoint: str = ""
    tokens: int = 0
    printed: float = 0.0


async def window_of(memory: Memory, session: str) -> Window:
    """Returns the session's window; an empty one if nothing is known of it."""
    return _window(await memory.state.get(SENT, session))


def _window(stored: object) -> Window:
    if not isinstance(stored, dict):
        return Window()
    known = {field.name: stored[field.name] for field in fields(Window) if field.name in stored}
    return Window(**{**known, "lines": frozenset(known.get("lines", ()))})


@dataclass(frozen=True, slots=True)
class PushState:
    """The stored values that decide what is pushed into a session's window, as of one moment. `row` is the session's,
    `resumed` its entry in `sessions.RESUMED`; `pauses` are those in force; `never` are the fingerprints of lines that
    are never pushed."""

    row: SessionRow | None
    window: Window
    resumed: object
    pauses: Sequence[Pause]
    never: frozenset[str]


async def push_state(memory: Memory, session: str) -> PushState:
    """Returns the stored values for a push, in one read. The row is only what the state knows: see
    `sessions.checked_row`."""
    row, (sent, resumed), (paused, never) = await memory.state.session_and_entries(
        session, [(SENT, session), (sessions.RESUMED, session)], [PAUSES, NEVER_PUSHED]
    )
    return PushState(row, _window(sent), resumed, _in_force(paused, memory.clock()), marks_of(never))


def window_from(window: Window, start: int | None) -> Window:
    """Returns the window if it still begins with turn number `start` (`sessions.window_start`), else a new one."""
    if start is not None and (window.start or 0) < start:  # compacted; without `unmarked` no hook reported it
        if window.unmarked:
            return replace(window, start=start, unmarked=False)
        return Window(start=start, at=window.at, printed=window.printed)
    return window


async def keep(memory: Memory, session: str, window: Window) -> None:
    """Stores the session's window. After a power cut, which ends the client too, it may be as it was a moment before:
    then a text may be pushed twice."""
    stored = {field.name: getattr(window, field.name) for field in fields(Window)}
    stored |= {"lines": sorted(window.lines), "at": memory.clock().isoformat()}
    await memory.state.put(SENT, session, stored, waits=False)  # a prompt waits for it


async def compacting(memory: Memory, session: str) -> None:
    """Stores that the client has begun to compact the session's window."""
    await keep(memory, session, replace(await window_of(memory, session), compacting=True))


async def compacted(memory: Memory, session: str) -> None:
    """Empties the session's window after a compaction, unless the brief that followed it has done so."""
    window = await window_of(memory, session)
    if window.compacting:
        await keep(memory, session, await emptied(memory, session, window))


async def emptied(memory: Memory, session: str, window: Window) -> Window:
    """Returns the window after a compaction, or the same window if this compaction was reported before. The
    compaction's turn may not be recorded yet."""
    row = await sessions.current_row(memory, session)
    start = await sessions.window_start(memory, row) if row else None
    if window.at and not window.compacting and start == window.start:
        return window
    return Window(start=start, unmarked=start == window.start, at=window.at, printed=window.printed)


async def forget_old(memory: Memory) -> int:
    """Removes windows that nothing was sent to for two months and returns how many."""
    oldest = memory.clock() - KEEP_WINDOWS
    removed = 0
    for session, stored in (await memory.state.entries(SENT)).items():
        with contextlib.suppress(LookupError, TypeError, ValueError):
            if datetime.fromisoformat(stored["at"]) >= oldest:
                continue
        await memory.state.remove(SENT, session)
        removed += 1
    return removed
