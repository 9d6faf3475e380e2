"""Collects the texts of active topics for a compiled context.

A message that was not recorded is judged too, but nothing is stored: a request for the context of "review the PR"
includes the playbook for reviews.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.model import SourceFile
from mcp_server.storage import topics as activations
from mcp_server.storage.files import is_untouched_template
from mcp_server.storage.topics import PEOPLE, SessionTopics, TopicSet
from mcp_server.text.markdown import link_targets, links, resolve, sections, split_front_matter
from mcp_server.text.prose import extract
from mcp_server.text.words import fold, words
from mcp_server.topics import watch
from mcp_server.topics.similarity import similarity
from mcp_server.topics.topic import Activations, ActiveTopic, Correction, Topic, TopicActivation

LINKABLE = ("knowledge/", "archive/", "topics/")
"""Folders of files that a wiki link can name, in order of preference."""

MOST_KEYWORDS, OWN_WORDS = 8, 4
"""Most words per topic that are added to the search: of its own keywords, or of its typical words if it has no
keywords."""


@dataclass(frozen=True, slots=True)
class InContext:
    """The topics' part of a compilation. `keywords` are added to its search."""

    topics: tuple[ActiveTopic, ...] = ()
    corrections: tuple[Correction, ...] = ()
    keywords: tuple[str, ...] = ()


async def in_context(memory: Memory, session: str | None, seen: watch.Seen) -> InContext:
    """Returns the topics that are active in a session now, and those that the message of `seen` would activate."""
    topics = seen.topics
    if not topics.topics:
        return InContext()
    current = await activations.session_topics(memory.state, session) if session else SessionTopics()
    stored, exchange = current.active, current.exchanges
    living = stored.living(exchange, memory.settings.watchers.topic_ttl)
    if seen.message.text.strip():
        judged = await watch.judge_message(memory, session or "", seen, stored, exchange, quiet=True)
        living = {one.name: one for one in judged.topics} | living
    return await active_context(memory, topics, stored, living)


async def active_context(
    memory: Memory, topics: TopicSet, stored: Activations, living: Mapping[str, TopicActivation]
) -> InContext:
    """Returns the topics that are `living` and the corrections among the `stored` activations."""
    known = {name: topics.topics[name] for name in sorted(living) if name in topics.topics}
    if not known and not stored.corrections:
        return InContext()
    corrections = tuple(one for one in stored.corrections if one.topic in topics.topics)

    def read() -> InContext:
        active = as_texts(memory, topics, [living[name] for name in known])
        words: list[str] = []
        for topic in known.values():  # a topic without keywords adds its most typical words
            typical = similarity(memory, topics).typical_words
            words += topic.keywords[:MOST_KEYWORDS] or typical(topic.name, OWN_WORDS)
        return InContext(active, corrections, tuple(words))

    return await run_sync(read)


def as_texts(memory: Memory, topics: TopicSet, living: Sequence[TopicActivation]) -> tuple[ActiveTopic, ...]:
    """Returns these active topics with all their texts. Reads files: call it in a thread."""
    paths = _Paths(memory)
    return tuple(_as_text(paths, topics, topics.topics[one.name], one) for one in living)


async def items_of_active(memory: Memory, session: str, stored: Activations) -> frozenset[str]:
    """Returns the ids of Clarity's items that a session's active topics name: projects, tools and files in their
    instructions, and their keywords. `stored` are the session's activations."""
    if not stored.topics:
        return frozenset()
    topics = await run_sync(memory.topics.read)
    exchange = await memory.state.count_turns(session, "user")
    living = stored.living(exchange, memory.settings.watchers.topic_ttl)
    known = [topics.topics[name] for name in living if name in topics.topics]
    return frozenset().union(*(topics.derived(("items", one.name), partial(_items, one)) for one in known))


def _items(topic: Topic) -> frozenset[str]:
    named = {item for item, category in extract(topic.instructions).items() if category != "keyword"}
    return frozenset(named.union(*map(extract, topic.keywords)))


def _as_text(paths: _Paths, topics: TopicSet, topic: Topic, active: TopicActivation) -> ActiveTopic:
    """Returns the topic with the texts of its subscriptions, linked files, and the people who were mentioned."""
    subscribed = {wanted: paths.subscribed(wanted) for wanted in topic.subscriptions}
    linked = (paths.linked(link.name, link.heading) for link in links(topic.instructions))
    people = (person_file(person, topics.people) for person in active.people)
    found: dict[str, SourceFile] = {}
    for source in (
        *subscribed.values(),
        *(one for one in linked if one is not None and one.path != topic.path),
        *(paths.read(path) for path in people if path),
    ):
        if source is not None:
            found.setdefault(source.path, source)
    return ActiveTopic(
        name=topic.name,
        source=SourceFile(topic.path, topic.instructions, topic.first_line),
        by=active.by,
        priority=topic.priority,
        score=active.score,
        most_kb=topic.max_context_kb,
        subscriptions=tuple(found.values()),
        missing=tuple(wanted for wanted, source in subscribed.items() if source is None),
        payloads=active.payloads,
    )


class _Paths:
    """Finds and reads files by path or link. The files that links can mean are listed once, on first use."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._targets: dict[str, str] | None = None

    def subscribed(self, wanted: str) -> SourceFile | None:
        """Returns the file of a subscription, which is a path or a wiki link."""
        (link, *_) = links(wanted) or (None,)
        if link is not None:
            return self.linked(link.name, link.heading)
        return self.read(wanted) or self.linked(wanted, None)

    def linked(self, name: str, heading: str | None) -> SourceFile | None:
        """Returns the file, or the section of it, to which `[[name#heading]]` refers."""
        if self._targets is None:
            self._targets = link_targets(stat.path for folder in LINKABLE for stat in self._memory.files.walk(folder))
        path = resolve(name, self._targets)
        source = self.read(path) if path else None
        return _section(source, heading) if source and heading else source

    def read(self, path: str) -> SourceFile | None:
        """Returns a file; None if it is missing, not text, or its path begins with a dot."""
        try:
            clean = self._memory.files.relative(path)
            if clean.startswith(".") or not self._memory.files.exists(clean):
                return None
            text = self._memory.files.read_text(clean)
        except ContextManagerError:
            return None
        split = split_front_matter(text)
        return SourceFile(clean, split.body, split.body_line, is_untouched_template(clean, text))


def _section(source: SourceFile, heading: str) -> SourceFile:
    """Returns a heading's section of a file with its subsections; the whole file if it has no such heading."""
    found = sections(source.text, source.first_line)
    wanted = fold(heading.strip())
    for place, section in enumerate(found):
        if section.level and fold(section.title) == wanted:
            inside = [section.text]
            for below in found[place + 1 :]:
                if below.level <= section.level:
                    break
                inside.append(below.text)
            return replace(source, text="\n".join(inside), first_line=section.start)
    return source


def person_file(name: str, people: Iterable[str]) -> str | None:
    """Returns the file of a named person, which is the file whose name has all words of the person's name. Returns None
    if no file or several match; a file with exactly these words is preferred."""
    said = set(words(name))
    of_all: Mapping[str, set[str]] = {
        path: set(words(path.removeprefix(PEOPLE).removesuffix(".md"))) for path in people
    }
    fits = [path for path, known in of_all.items() if said and said <= known]
    exact = [path for path in fits if of_all[path] == said]
    return exact[0] if len(exact) == 1 else fits[0] if len(fits) == 1 else None
