"""Pauses: the user stops pushes into prompts, everywhere or in one project. Recording continues."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from mcp_server.memory import Memory
from mcp_server.project import Project

NAMESPACE = "pause"
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
    def words(self) -> str:
        """`paused everywhere until 2026-05-04 14:30 UTC`."""
        where = "everywhere" if self.project is None else f"in {self.name}"
        return f"paused {where}" + (f" until {self.until:%Y-%m-%d %H:%M} UTC" if self.until else "")


async def pause(memory: Memory, project: Project | None = None, duration: timedelta | None = None) -> Pause:
    """Stops pushes in one project or everywhere, for a time or until `resume`. Replaces an earlier pause there."""
    now = memory.clock()
    new = Pause(
        project=None if project is None else project.key,
        name="everywhere" if project is None else project.slug or "sessions without a project",
        since=now,
        until=now + duration if duration else None,
    )
    stored = {"name": new.name, "since": new.since.isoformat(), "until": new.until and new.until.isoformat()}
    await memory.state.put(NAMESPACE, EVERYWHERE if new.project is None else f"={new.project}", stored)
    return new


async def resume(memory: Memory, project: Project | None = None) -> list[Pause]:
    """Ends the pauses of one project, or all pauses. Returns those that were in force."""
    lifted = [one for one in await pauses(memory) if project is None or _covers(one, project)]
    for key in await memory.state.entries(NAMESPACE):
        if project is None or key[1:] in project.keys | {project.key}:
            await memory.state.remove(NAMESPACE, key)
    return lifted if project is None else [one for one in lifted if one.project is not None]


async def pauses(memory: Memory) -> list[Pause]:
    """Returns the pauses in force, the one for everywhere first."""
    now = memory.clock()
    found = [_read(key, value) for key, value in (await memory.state.entries(NAMESPACE)).items()]
    return [one for one in found if one is not None and (one.until is None or one.until > now)]


async def why_silent(memory: Memory, project: Project) -> str | None:
    """Returns why nothing is pushed into this project's prompts, or None."""
    if not memory.settings.hooks.inject:
        return "switched off (hooks.inject, or CONTEXT_MANAGER_PAUSE)"
    return next((one.words for one in await pauses(memory) if _covers(one, project)), None)


def _covers(one: Pause, project: Project) -> bool:
    return one.project is None or one.project == project.key or one.project in project.keys


def _read(key: str, value: object) -> Pause | None:
    try:
        assert isinstance(value, dict)
        until = value.get("until")
        return Pause(
            project=None if key == EVERYWHERE else key[1:],
            name=str(value["name"]),
            since=datetime.fromisoformat(value["since"]),
            until=datetime.fromisoformat(until) if until else None,
        )
    except (AssertionError, LookupError, TypeError, ValueError):  # written by another version
        return None
