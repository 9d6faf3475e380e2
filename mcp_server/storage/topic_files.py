"""The topic files in `topics/`, with values that are computed from them once per change.

Reading costs one `stat` per file; only changed files are parsed again. A broken file is named in `problems` and does
not affect the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeVar, cast

from mcp_server.errors import ContextManagerError
from mcp_server.project import slugify
from mcp_server.storage.ports import Files
from mcp_server.topics.topic import Topic

T = TypeVar("T")

TOPICS = "topics/"
PEOPLE = "knowledge/people/"

FEW, LOOK_AGAIN = 100, 1.0
"""With more than FEW topics, the files are checked at most once in LOOK_AGAIN seconds, because it takes milliseconds.
"""


@dataclass(frozen=True, slots=True)
class TopicSet:
    """The topics at one moment by name, ordered by path. `problems` are sentences with file and line. `people` are the
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
    """The content of a file of this size and time."""

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
        except (OSError, ContextManagerError):  # a folder that leads elsewhere, or cannot be looked into
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
    """Returns all topics by name; of two with the same name, the first."""
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
    """Returns the topic of a name, in any spelling, or of a path; None if there is none."""
    by_path = {topic.path: topic for topic in topics.topics.values()}
    return topics.topics.get(name) or by_path.get(name) or topics.topics.get(slugify(name.removesuffix(".md")))
