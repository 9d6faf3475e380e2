"""Stored activations of topics: entries of the state, each read and changed in one transaction.

Namespace `topics`             session → its active topics (`Activations`)
Namespace `topic deliveries`   raw project key → events that wait for a conversation
Namespace `topic schedule`     topic and cron expression → time of the last firing
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mcp_server.model import GLOBAL
from mcp_server.storage.ports import State
from mcp_server.storage.values import Place
from mcp_server.topics.activations import Activations, Payload

ACTIVE, WAITING, SCHEDULE, CUT_OFF = "topics", "topic deliveries", "topic schedule", "topic troubles"

MOST_WAITING = 50
"""Events of a project that wait for its next conversation; older ones are dropped."""

Change = Callable[[Activations], Activations]
Entries = Mapping[Place, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """An event from outside that activates a topic. `by` names the sender in words."""

    topic: str
    by: str
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class SessionTopics:
    """The active topics of a session, the number of the user's turns, role and SHA-256 of its last turn ("" for none),
    and whether events wait for any session."""

    active: Activations = field(default_factory=Activations)
    exchanges: int = 0
    last: tuple[str, str] = ("", "")
    waiting: bool = False


async def session_topics(state: State, session: str) -> SessionTopics:
    """Returns the active topics of a session with its position, as of one moment."""
    found = await state.session_entry(ACTIVE, session, WAITING)
    return SessionTopics(Activations.from_json(found.value), found.exchanges, found.last, found.waiting)


async def of(state: State, session: str) -> Activations:
    """Returns the active topics of a session."""
    return Activations.from_json(await state.get(ACTIVE, session))


async def change(state: State, session: str, how: Change, *, waits: bool = True) -> tuple[Activations, Activations]:
    """Changes the active topics of a session. Returns them before and after; equal ones are not written."""
    place = ACTIVE, session

    def changed(stored: Entries) -> tuple[tuple[Activations, Activations], Entries]:
        before = Activations.from_json(stored.get(place))
        after = how(before)
        return (before, after), {place: after.to_json()} if after != before else {}

    return await state.change_entries([place], changed, waits=waits)


async def deliver(
    state: State,
    events: Sequence[Event],
    changes: Mapping[str, Change],
    project: str,
    ran: tuple[str, datetime] | None = None,
) -> bool:
    """Changes the active topics of several sessions in one transaction; `changes` is by session.

    Without `changes`, the events wait for the next session of `project` (GLOBAL: of any). `ran` is a schedule and the
    moment up to which it has fired. Returns False, and writes nothing, if another process has recorded that moment.
    """
    waiting = WAITING, project

    def delivered(stored: Entries) -> tuple[bool, Entries]:
        written: dict[Place, Any] = {}
        if ran is not None:
            done = _moment(stored.get((SCHEDULE, ran[0])))
            if done is not None and done >= ran[1]:
                return False, {}
            written[SCHEDULE, ran[0]] = ran[1].isoformat()
        for session, how in changes.items():
            before = Activations.from_json(stored.get((ACTIVE, session)))
            after = how(before)
            if after != before:
                written[ACTIVE, session] = after.to_json()
        if not changes and events:
            known = [*_list(stored.get(waiting)), *map(_as_json, events)]
            written[waiting] = known[-MOST_WAITING:]
        return True, written

    places = [(ACTIVE, session) for session in changes]
    places += [(SCHEDULE, ran[0])] if ran else []
    return await state.change_entries([*places, waiting], delivered)


async def last_ran(state: State) -> dict[str, datetime]:
    """Returns for each schedule when it fired last."""
    stored = await state.entries(SCHEDULE)
    return {name: at for name, value in stored.items() if (at := _moment(value)) is not None}


async def take(state: State, session: str, projects: Iterable[str], how: Callable[[list[Event]], Change]) -> bool:
    """Moves the waiting events of these projects (raw keys), and those for any project, to a session.

    Returns True if there were any.
    """
    waiting = [(WAITING, key) for key in (GLOBAL, *projects)]
    if not {key for _, key in waiting} & {*await state.keys_of(WAITING)}:
        return False

    def taken(stored: Entries) -> tuple[bool, Entries]:
        events = [event for place in waiting for one in _list(stored.get(place)) if (event := _event(one))]
        written: dict[Place, Any] = dict.fromkeys(waiting)
        if events:
            before = Activations.from_json(stored.get((ACTIVE, session)))
            after = how(events)(before)
            if after != before:
                written[ACTIVE, session] = after.to_json()
        return bool(events), written

    return await state.change_entries([*waiting, (ACTIVE, session)], taken)


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
