"""Activations on disk: entries of the state, read and changed in one transaction each.

Namespace `topics`             session → what is active in it (`Activations`)
Namespace `topic deliveries`   raw project key → events that no open conversation could take
Namespace `topic schedule`     topic and cron expression → when it last fired
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mcp_server.model import GLOBAL
from mcp_server.storage.local.state import State
from mcp_server.topics.activations import Activations, Payload

ACTIVE, WAITING, SCHEDULE, CUT_OFF = "topics", "topic deliveries", "topic schedule", "topic troubles"

MOST_WAITING = 50
"""Events of a project that wait for its next conversation; older ones give way."""

Change = Callable[[Activations], Activations]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that set off a topic from outside: `by` in words, with what it sent, if it sent anything."""

    topic: str
    by: str
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a session's topics at one moment: the active ones, how many turns of the user it has, role and
    SHA-256 of its last turn ("" without one), and whether events wait for any session."""

    active: Activations = field(default_factory=Activations)
    exchanges: int = 0
    last: tuple[str, str] = ("", "")
    waiting: bool = False


async def standing(state: State, session: str) -> Standing:
    """Where a session stands."""

    def read(connection: sqlite3.Connection) -> Standing:
        turns = "FROM turn_keys WHERE session = ?"
        (users,) = connection.execute(f"SELECT count(*) {turns} AND role = 'user'", (session,)).fetchone()
        last = connection.execute(f"SELECT role, sha {turns} ORDER BY number DESC LIMIT 1", (session,)).fetchone()
        waits = "SELECT EXISTS (SELECT 1 FROM entries WHERE namespace = ?)"
        (waiting,) = connection.execute(waits, (WAITING,)).fetchone()
        active = Activations.from_json(_get(connection, ACTIVE, session))
        return Standing(active, users, last or ("", ""), bool(waiting))

    return await state.read(read)


async def of(state: State, session: str) -> Activations:
    """What is active in a session."""
    return Activations.from_json(await state.get(ACTIVE, session))


async def change(state: State, session: str, how: Change, *, waits: bool = True) -> tuple[Activations, Activations]:
    """Changes what is active in a session, and returns what it was and what it is. If both are equal nothing is
    written. `waits` as in `State.write`: all of it can be lost without harm."""

    def write(connection: sqlite3.Connection) -> tuple[Activations, Activations]:
        return _changed(connection, session, how)

    return await state.write(write, waits=waits)


async def deliver(
    state: State,
    events: Sequence[Event],
    changes: Mapping[str, Change],
    project: str,
    ran: tuple[str, datetime] | None = None,
) -> bool:
    """Changes several sessions at once, `changes` by session; without any, the events wait for the next session of
    `project`, GLOBAL for whichever.

    `ran` is a schedule that is done with this up to a moment, in the same transaction; False, and nothing is written,
    if another process has done it.
    """

    def write(connection: sqlite3.Connection) -> bool:
        if ran is not None:
            done = _moment(_get(connection, SCHEDULE, ran[0]))
            if done is not None and done >= ran[1]:
                return False
            _put(connection, SCHEDULE, ran[0], ran[1].isoformat())
        for session, how in changes.items():
            _changed(connection, session, how)
        if not changes and events:
            waiting = _list(_get(connection, WAITING, project))
            waiting += [_as_json(event) for event in events]
            _put(connection, WAITING, project, waiting[-MOST_WAITING:])
        return True

    return await state.write(write)


async def last_ran(state: State) -> dict[str, datetime]:
    """When each schedule was done last."""
    stored = await state.entries(SCHEDULE)
    return {name: at for name, value in stored.items() if (at := _moment(value)) is not None}


async def take(state: State, session: str, projects: Iterable[str], how: Callable[[list[Event]], Change]) -> bool:
    """Gives what waits for a session of these raw project keys (and for whichever) to this one: True if there was
    something."""
    keys = [GLOBAL, *projects]
    if not {*keys} & {*await state.keys_of(WAITING)}:
        return False

    def write(connection: sqlite3.Connection) -> bool:
        events = [event for key in keys for one in _list(_get(connection, WAITING, key)) if (event := _event(one))]
        connection.executemany("DELETE FROM entries WHERE namespace = ? AND key = ?", [(WAITING, key) for key in keys])
        if events:
            _changed(connection, session, how(events))
        return bool(events)

    return await state.write(write)


def _changed(connection: sqlite3.Connection, session: str, how: Change) -> tuple[Activations, Activations]:
    before = Activations.from_json(_get(connection, ACTIVE, session))
    after = how(before)
    if after != before:
        _put(connection, ACTIVE, session, after.to_json())
    return before, after


def _get(connection: sqlite3.Connection, namespace: str, key: str) -> Any:
    row = connection.execute("SELECT value FROM entries WHERE namespace = ? AND key = ?", (namespace, key)).fetchone()
    return json.loads(row[0]) if row else None


def _put(connection: sqlite3.Connection, namespace: str, key: str, value: Any) -> None:
    connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (namespace, key, json.dumps(value)))


def _moment(stored: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(stored)
    except (TypeError, ValueError):
        return None


def _list(stored: Any) -> list[Any]:
    return list(stored) if isinstance(stored, list) else []


def _as_json(event: Event) -> dict[str, Any]:
    sent = event.payload
    return {
        "topic": event.topic,
        "by": event.by,
        "payload": sent and {"sender": sent.sender, "at": sent.at, "text": sent.text},
    }


def _event(stored: Any) -> Event | None:
    try:
        sent = stored["payload"]
        payload = sent and Payload(str(sent["sender"]), str(sent["at"]), str(sent["text"]))
        return Event(str(stored["topic"]), str(stored["by"]), payload)
    except (KeyError, TypeError):
        return None
