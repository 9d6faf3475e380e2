"""Finds what may be pushed with a prompt: passages, each with a decision, and topics that the window does not hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mcp_server.context import never_pushed, push_policy
from mcp_server.context.compile import other_projects, reasons_out
from mcp_server.context.push_policy import Judged
from mcp_server.context.receipt import Receipt
from mcp_server.context.window_text import fingerprints, was_sent
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.model import Hit
from mcp_server.project import Project
from mcp_server.search.search import Found, SearchRequest, find, find_page_lines, with_exchanges
from mcp_server.storage.templates import is_untouched_template
from mcp_server.storage.values import Depth
from mcp_server.text.derived_lines import sources_of
from mcp_server.text.passages import own_text
from mcp_server.topics import watch
from mcp_server.topics.activations import Correction
from mcp_server.topics.topic import ActiveTopic
from mcp_server.topics.topic_context import active_context

DEPTH = Depth(postings=1_000, words=60, lines=30, meaning=30, around=10)
"""Half the work of a search: a prompt waits, and few passages are pushed."""

MORE = 20
"""Hits beyond those that are judged, because lines of the page are among them."""

IN_WINDOW = "quotes this conversation, and the window holds it"


@dataclass(frozen=True, slots=True)
class PromptHits:
    """The hits for a prompt: among all passages, and among the lines of the project's page."""

    all: Found
    lines: Found


async def find_hits(memory: Memory, prompt: str, project: Project, session: str, start: int | None) -> PromptHits:
    """Returns the hits for a prompt, without the session's turns from number `start` on, which the window holds."""
    request = SearchRequest(
        query=prompt,
        limit=push_policy.MAX_PASSAGES + MORE,
        project=project,
        exclude_session=session,
        exclude_from=start,
        operators=False,
        depth=DEPTH,
    )
    found, lines = await find(memory, request), await find_page_lines(memory, request)
    return PromptHits(await with_exchanges(memory, prompt, found), await with_exchanges(memory, prompt, lines))


def judged(
    memory: Memory,
    prompt: str,
    found: PromptHits,
    sent: frozenset[str],
    project: Project,
    allowance: int,
    own: tuple[str, int],
    never: frozenset[str] = frozenset(),
) -> tuple[Judged, ...]:
    """Returns the decision on each hit, without those in templates that nobody has filled in: they hold no knowledge.
    Reads files: call it in a thread.

    `sent` are the fingerprints of the lines that the window holds, `allowance` is in tokens. `own` is the window's
    transcript and the first turn that the window holds: lines that only quote these turns are excluded. `never` are the
    fingerprints of lines that the user never wants to see pushed.
    """
    templates: dict[str, bool] = {}

    def is_template(path: str) -> bool:
        if path not in templates:
            try:
                templates[path] = is_untouched_template(path, memory.files.read_text(path))
            except ContextManagerError:  # deleted since it was indexed
                templates[path] = True
        return templates[path]

    def filled_in(hits: Sequence[Hit]) -> tuple[Hit, ...]:
        return tuple(hit for hit in hits if hit.passage.category == "conversation" or not is_template(hit.passage.path))

    passages, lines = filled_in(found.all.hits), filled_in(found.lines.hits)
    hits = (*passages, *lines)
    journals = any(hit.passage.category == "journal" for hit in hits)
    others = other_projects(memory, project) if journals else frozenset()
    out = {
        f"{hit.passage.path}:{hit.passage.start}": why
        or (IN_WINDOW if _quotes_only(hit, own) else "")
        or (never_pushed.WHY if never_pushed.is_never_pushed(own_text(hit.passage), never) else "")
        for hit, why in zip(hits, reasons_out(memory, hits, others), strict=True)
    }
    needed = memory.recognizer().needs_memory(prompt)
    return push_policy.choose(prompt, needed, lines, passages, found.all.gate, sent, out, allowance)


def _quotes_only(hit: Hit, own: tuple[str, int]) -> bool:
    """Returns whether every line of a passage comes from a turn of the window's own conversation."""
    if "[src: " not in hit.passage.text:
        return False
    rows = [row for row in hit.passage.text.split("\n") if row.strip() and not row.startswith("#")]
    return bool(rows) and all(
        found and all(one.path == own[0] and one.turn >= own[1] for one in found) for found in map(sources_of, rows)
    )


@dataclass(frozen=True, slots=True)
class TopicOffer:
    """The topics and corrections that may be pushed, without files that the window holds."""

    topics: tuple[ActiveTopic, ...] = ()
    corrections: tuple[Correction, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.topics or self.corrections)

    def shown(self, receipt: Receipt) -> tuple[str, ...]:
        """Returns the names of the topics whose instructions were included."""
        inside = _included(receipt)
        return tuple(topic.name for topic in self.topics if topic.source.path in inside)

    def marks(self, receipt: Receipt) -> set[str]:
        """Returns the fingerprints of all lines of the included files, also of those that were cut."""
        inside = _included(receipt)
        files = [file for topic in self.topics for file in (topic.source, *topic.subscriptions)]
        return {mark for file in files if file.path in inside for mark in fingerprints(file.text)}


def _included(receipt: Receipt) -> set[str]:
    return {one.source for one in receipt.considered if one.included and one.slot == "topics"}


async def offered_topics(
    memory: Memory, session: str, prompt: str, seen: watch.Seen, sent: Collection[str]
) -> TopicOffer:
    """Judges the prompt's topics, and returns the active ones that the window does not hold.

    `sent` are the fingerprints of the lines that the window holds.
    """
    topics, standing = await watch.judge_prompt(memory, session, prompt, seen)
    living = standing.active.living(standing.exchanges, memory.settings.watchers.topic_ttl)
    active = await active_context(memory, topics, standing.active, living)
    fresh = tuple(
        replace(topic, subscriptions=tuple(one for one in topic.subscriptions if not was_sent(one.text, sent)))
        for topic in active.topics
        if topic.payloads or not was_sent(topic.source.text, sent)
    )
    return TopicOffer(fresh, active.corrections)
