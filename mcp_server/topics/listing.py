"""Lists topics with their state and problems, and activates or deactivates them for the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.storage import topics as activations
from mcp_server.storage.topics import SessionTopics, TopicSet, named
from mcp_server.storage.values import Change
from mcp_server.text.fencing import neutralise
from mcp_server.text.prose import counted, did_you_mean
from mcp_server.topics import gate_log
from mcp_server.topics.topic import PRIORITIES, Topic, TopicActivation

BY_HAND = "you"
"""The reason of an activation by the user."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic. `state` is active, off (the user deactivated it) or waiting; `by` is the reason of its activation;
    `left` is for how many more exchanges it stays active, None if until the user deactivates it. `problem` is an error
    in its file or triggers."""

    name: str
    path: str
    activation: str
    priority: str
    triggers: str
    description: str
    state: str
    by: str = ""
    left: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TopicsView:
    """All topics, active ones first; `session` is the conversation that `state` refers to, if any."""

    session: str | None
    topics: tuple[TopicRow, ...]
    problems: tuple[str, ...]

    @property
    def markdown(self) -> str:
        """The list in markdown."""
        of = f" in {self.session}" if self.session else ""
        active = sum(row.state == "active" for row in self.topics)
        lines = [f"# Topics: {len(self.topics)}, {active} active{of}"]
        lines += ["", "## Problems", "", *(f"- {problem}" for problem in self.problems)] if self.problems else []
        lines += (
            ["", *map(_line, self.topics)]
            if self.topics
            else ["", "There are no topics yet. (To add one, write topics/NAME.md.)"]
        )
        return neutralise("\n".join(lines))


@dataclass(frozen=True, slots=True)
class Switched:
    """The result of switching a topic in a session; `changed` is False if the topic was in this state already."""

    name: str
    session: str
    on: bool
    changed: bool

    @property
    def markdown(self) -> str:
        """The result in one line."""
        if self.on:
            done = "is active now, until you deactivate it" if self.changed else "is already active (you activated it)"
        else:
            done = "is off now, until you activate it" if self.changed else "is already off (you deactivated it)"
        return f"{self.name} {done} (session {self.session})"


async def list_topics(memory: Memory, session: str | None = None) -> TopicsView:
    """Returns every topic and its state in a session. Raises NotFound if the session does not exist."""
    topics = await run_sync(memory.topics.read)
    current = SessionTopics()
    if session is not None:
        await sessions.require(memory, session)
        current = await activations.session_topics(memory.state, session)
    stored, exchange = current.active, current.exchanges
    troubles = await _troubles(memory, topics)
    ttl = memory.settings.watchers.topic_ttl
    rows = [
        _row(topic, stored.topics.get(name), exchange, ttl, troubles.get(name, ""))
        for name, topic in topics.topics.items()
    ]
    rows.sort(key=lambda row: (row.state != "active", -PRIORITIES[topics.topics[row.name].priority], row.name))
    return TopicsView(session, tuple(rows), (*topics.problems, *troubles.values()))


async def switch(memory: Memory, name: str, session: str, *, on: bool) -> Switched:
    """Activates or deactivates a topic in a session until the user switches it again.

    Raises:
        NotFound: no such topic or session; the nearest is named.
    """
    topics = await run_sync(memory.topics.read)
    topic = named(topics, name)
    if topic is None:
        file = f"topics/{name}.md: "
        broken = next((f": {problem}" for problem in topics.problems if problem.startswith(file)), "")
        hint = broken or f"{did_you_mean(name.lower(), topics.topics, cutoff=0.4)} (topics list)"
        raise NotFound(f"no topic {name!r}{hint}")
    row = await sessions.require(memory, session)
    exchange = await memory.state.count_turns(row.session, "user")
    before, _ = await activations.change(
        memory.state, row.session, lambda one: one.switched(topic.name, on=on, exchange=exchange, by=BY_HAND)
    )
    was = before.topics.get(topic.name)
    changed = was is None or (was.manual, was.off) != (on, not on)
    if changed:
        await gate_log.switched(memory, row.session, topic.name, on=on)
        memory.changes.publish(Change("session", None, row.session))
    return Switched(topic.name, row.session, on, changed)


async def problems(memory: Memory) -> tuple[str, ...]:
    """Returns the problems of topic files and their patterns, in sentences that name file and line."""
    topics = await run_sync(memory.topics.read)
    troubles = await _troubles(memory, topics)
    return (*topics.problems, *troubles.values())


async def _troubles(memory: Memory, topics: TopicSet) -> Mapping[str, str]:
    """Returns, by topic, a sentence about the pattern that a time limit stopped. Topics whose file has changed since
    then are left out."""
    found: dict[str, str] = {}
    for name, stored in (await memory.state.entries(activations.CUT_OFF)).items():
        topic = topics.topics.get(name)
        if topic is not None and isinstance(stored, dict) and stored.get("digest") == topic.digest:
            found[name] = f"{topic.path}: line {stored.get('line')}: {stored.get('what')}"
    return found


def _row(topic: Topic, one: TopicActivation | None, exchange: int, ttl: int, problem: str) -> TopicRow:
    active = one is not None and one.lives(exchange, ttl)
    return TopicRow(
        name=topic.name,
        path=topic.path,
        activation=topic.activation,
        priority=topic.priority,
        triggers=describe_triggers(topic),
        description=topic.description,
        state="active" if active else "off" if one is not None and one.off else "waiting",
        by=one.by if one is not None and active else "",
        left=one.fired + ttl - exchange if one is not None and active and not one.manual else None,
        problem=problem,
    )


def describe_triggers(topic: Topic) -> str:
    """Returns the kinds of a topic's triggers in few words: `2 × pattern, cron`; `likeness` if it has none."""
    kinds = [one.kind for one in topic.triggers]
    parts = [f"{kinds.count(kind)} × {kind}" if kinds.count(kind) > 1 else kind for kind in dict.fromkeys(kinds)]
    return ", ".join(parts) or "likeness"


def _line(row: TopicRow) -> str:
    stays = "" if row.left is None else f", for {counted(row.left, 'more exchange')}"
    state = f"**active** ({row.by}{stays})" if row.state == "active" else row.state
    about = f" — {row.description[:100]}" if row.description else ""
    return f"- {row.name}: {state} · {row.activation}, {row.priority} · {row.triggers}{about}"
