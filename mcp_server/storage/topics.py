"""Topics in storage: the files in `topics/`, and the stored activations.

Values that are computed from the files are cached until a file changes: reading costs one `stat` per file, and only
changed files are parsed again. A broken file is listed in `problems` and does not affect the others. Activations are
entries of the state, each read and changed in one transaction:

Namespace `topics`             session → its active topics (`Activations`)
Namespace `topic deliveries`   raw project key → events that wait for a conversation
Namespace `topic schedule`     topic and cron expression → time of the last firing
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeVar, cast

from mcp_server.errors import ContextManagerError
from mcp_server.model import GLOBAL, slugify
from mcp_server.storage.files import Files
from mcp_server.storage.state import State
from mcp_server.storage.values import Place
from mcp_server.topics.topic import Activations, Payload, Topic

ACTIVE, WAITING, SCHEDULE, CUT_OFF = "topics", "topic deliveries", "topic schedule", "topic troubles"

MOST_WAITING = 50
"""Most events that wait for a project's next conversation; older ones are dropped."""

Change = Callable[[Activations], Activations]
Entries = Mapping[Place, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """An external event that activates a topic. `by` describes the sender."""

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
    """Returns the active topics of a session with its position, from one snapshot."""
    active, exchanges, last, waiting = await state.session_entry(ACTIVE, session, WAITING)
    return SessionTopics(Activations.from_json(active), exchanges, last, waiting)


async def change(state: State, session: str, how: Change, *, waits: bool = True) -> tuple[Activations, Activations]:
    """Changes the active topics of a session, and writes them if they differ. Returns them before and after."""
    place = ACTIVE, session

    def changed(stored: Entries) -> tuple[tuple[Activations, Activations], Entries]:
        before = Activations.from_json(stored.get(place))
        after = how(before)
        return (before, after), {place: asdict(after)} if after != before else {}

    return await state.change_entries([place], changed, waits=waits)


async def deliver(
    state: State,
    events: Sequence[Event],
    changes: Mapping[str, Change],
    project: str,
    ran: tuple[str, datetime] | None = None,
) -> bool:
    """Changes the active topics of several sessions in one transaction; `changes` is by session.

    Without `changes`, the events wait for the next session of `project` (GLOBAL: of any project). `ran` is a schedule
    and the moment up to which it has fired. Returns False, and writes nothing, if another process has already recorded
    that moment.
    """
    waiting = WAITING, project

    def delivered(stored: Entries) -> tuple[bool, Entries]:
        written: dict[Place, Any] = {}
        if ran is not None:
            done = stored.get((SCHEDULE, ran[0]))
            if done is not None and datetime.fromisoformat(done) >= ran[1]:
                return False, {}
            written[SCHEDULE, ran[0]] = ran[1].isoformat()
        written |= _changed(stored, changes)
        if not changes and events:
            written[waiting] = [*stored.get(waiting, ()), *map(asdict, events)][-MOST_WAITING:]
        return True, written

    places = [(ACTIVE, session) for session in changes]
    places += [(SCHEDULE, ran[0])] if ran else []
    return await state.change_entries([*places, waiting], delivered)


async def last_ran(state: State) -> dict[str, datetime]:
    """Returns the time at which each schedule fired last."""
    return {name: datetime.fromisoformat(at) for name, at in (await state.entries(SCHEDULE)).items()}


async def take(state: State, session: str, projects: Iterable[str], how: Callable[[list[Event]], Change]) -> bool:
    """Moves the waiting events of these projects (raw keys), and those for any project, to a session.

    Returns True if there were any.
    """
    waiting = [(WAITING, key) for key in (GLOBAL, *projects)]
    if not {key for _, key in waiting} & {*await state.keys_of(WAITING)}:
        return False

    def taken(stored: Entries) -> tuple[bool, Entries]:
        sent = [one for place in waiting for one in stored.get(place, ())]
        events = [Event(one["topic"], one["by"], one["payload"] and Payload(**one["payload"])) for one in sent]
        written: dict[Place, Any] = dict.fromkeys(waiting)
        if events:
            written |= _changed(stored, {session: how(events)})
        return bool(events), written

    return await state.change_entries([*waiting, (ACTIVE, session)], taken)


def _changed(stored: Entries, changes: Mapping[str, Change]) -> dict[Place, Any]:
    """Applies these changes, and returns the new entries of the sessions whose active topics differ afterwards."""
    written: dict[Place, Any] = {}
    for session, how in changes.items():
        before = Activations.from_json(stored.get((ACTIVE, session)))
        after = how(before)
        if after != before:
            written[ACTIVE, session] = asdict(after)
    return written


T = TypeVar("T")

TOPICS = "topics/"
PEOPLE = "knowledge/people/"

FEW, LOOK_AGAIN = 100, 1.0
"""With more than FEW topics, the files are checked at most once in LOOK_AGAIN seconds, because a check takes
milliseconds."""


@dataclass(frozen=True, slots=True)
class TopicSet:
    """A snapshot of the topics by name, ordered by path. `problems` are sentences with file and line. `people` are the
    files of `knowledge/people/`."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    _derived: dict[Hashable, Any] = field(default_factory=dict)

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns `make()`, computed once for these topics."""
        if key not in self._derived:
            self._derived[key] = make()
        return cast(T, self._derived[key])


@dataclass(frozen=True, slots=True)
class _Read:
    """A parsed topic file. `stamp` is the size and mtime (ns) of the file when it was read."""

    stamp: tuple[int, int]
    topic: Topic | None
    problems: tuple[str, ...]


class TopicFiles:
    """Reads `topics/`. Safe to call from several threads; takes milliseconds for a thousand topics."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = Lock()
        self._read: dict[str, _Read] = {}
        self._set = TopicSet()
        self._looked = 0.0

    def read(self) -> TopicSet:
        """Returns the current topics; the same object as before if no file changed."""
        with self._lock:
            now = time.monotonic()
            if len(self._read) > FEW and now - self._looked < LOOK_AGAIN:
                return self._set
            self._looked = now
            stats = [stat for stat in self._walk(TOPICS) if not stat[0].rsplit("/", 1)[-1].startswith("_")]
            people = tuple(path for path, _ in self._walk(PEOPLE)) if stats else ()
            read = {path: self._one(path, stamp) for path, stamp in stats}
            if read.keys() != self._read.keys() or any(read[path] is not self._read[path] for path in read):
                self._read = read
                self._set = _by_name(read, people)
            elif people != self._set.people:
                self._set = TopicSet(self._set.topics, self._set.problems, people)
            return self._set

    def _walk(self, folder: str) -> list[tuple[str, tuple[int, int]]]:
        try:
            found = self._files.walk(folder)
            return [(stat.path, (stat.size, stat.mtime_ns)) for stat in found if stat.path.endswith(".md")]
        except (OSError, ContextManagerError):  # a link out of the workspace, or an unreadable folder
            return []

    def _one(self, path: str, stamp: tuple[int, int]) -> _Read:
        known = self._read.get(path)
        if known is not None and known.stamp == stamp:
            return known
        from mcp_server.topics.topic_file import parse_topic

        try:
            topic, warnings = parse_topic(path, self._files.read_text(path))
        except ContextManagerError as error:
            return _Read(stamp, None, (str(error),))
        return _Read(stamp, topic, warnings)


def _by_name(read: Mapping[str, _Read], people: tuple[str, ...]) -> TopicSet:
    """Returns all topics by name. If several have the same name, keeps the first and reports the others."""
    topics: dict[str, Topic] = {}
    problems: list[str] = []
    for one in read.values():
        problems += one.problems
        if one.topic is None:
            continue
        first = topics.setdefault(one.topic.name, one.topic)
        if first is not one.topic:
            problems.append(f"{one.topic.path}: {first.path} is called {first.name!r} too; rename one of them")
    return TopicSet(MappingProxyType(topics), tuple(problems), people)


def named(topics: TopicSet, name: str) -> Topic | None:
    """Returns the topic with this name (in any spelling) or path; None if there is none."""
    by_path = {topic.path: topic for topic in topics.topics.values()}
    return topics.topics.get(name) or by_path.get(name) or topics.topics.get(slugify(name.removesuffix(".md")))
