"""Review: the lines of the pages that the user has not looked at yet, and what becomes of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from anyio.to_thread import run_sync

from mcp_server.errors import Conflict
from mcp_server.knowledge.editing import NewFact, despite_editors, stamped
from mcp_server.knowledge.pages import with_entry
from mcp_server.knowledge.remember import remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.storage.values import Change
from mcp_server.text import entries
from mcp_server.text.destinations import DECISIONS, ENDED, FACTS, GENERAL_PAGE, OPEN, RULES, is_page
from mcp_server.text.entries import Entry
from mcp_server.text.markdown import split_front_matter

REVIEWED = "reviewed"
"""Namespace of the state: a line that the user has looked at → the day of the line."""

SECTIONS = (RULES, DECISIONS, FACTS, OPEN)
"""Sections of a project's page that a line can be moved to."""


@dataclass(frozen=True, slots=True)
class Unreviewed:
    """A derived line of a page that the user has not looked at."""

    path: str
    entry: Entry

    @property
    def key(self) -> str:
        """The line's key in the state. A line with other words is another line."""
        digest = hashlib.sha256(self.entry.said.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{self.path}#{digest}"


async def unreviewed(memory: Memory) -> list[Unreviewed]:
    """Returns the derived lines of people's and projects' pages that the user has not looked at, newest first. Replaced
    and closed items are left out."""
    seen = set(await memory.state.keys_of(REVIEWED))
    found = [one for one in await run_sync(lambda: list(_lines(memory))) if one.key not in seen]
    return sorted(found, key=lambda one: (one.entry.date, one.path, -one.entry.start), reverse=True)


def _lines(memory: Memory) -> Iterator[Unreviewed]:
    stats = [*memory.files.walk("knowledge/projects/"), *memory.files.walk("knowledge/people/")]
    for path in (*(stat.path for stat in stats), GENERAL_PAGE):
        is_index = path.rpartition("/")[2].startswith("_")
        text = memory.files.readable(path) if path.endswith(".md") and not is_index else None
        for entry in entries.derived(split_front_matter(text or "").body):
            if entry.section not in ENDED:
                yield Unreviewed(path, entry)


async def keep(memory: Memory, line: Unreviewed) -> None:
    """Records that the user has looked at a line. The line stays as it is."""
    await memory.state.put(REVIEWED, line.key, line.entry.date)


async def correct(memory: Memory, line: Unreviewed, text: str, caller: Caller) -> None:
    """Replaces a line by the user's own words. They have no source, so that no extractor changes them."""
    written = entries.written(text, line.entry.date or None)
    fact = NewFact(written, project="global", path=line.path, action="edit", old_text=line.entry.text)
    await remember(memory, fact, caller, approved=True)


async def move(memory: Memory, line: Unreviewed, section: str) -> None:
    """Moves a line to another section of its page, as the user's own. Raises Conflict if the page has changed."""
    assert is_page(line.path)

    def work() -> None:
        before = memory.files.read_text(line.path)
        split = split_front_matter(before)
        there = _found(split.body, line)
        body = entries.without(split.body, [there])
        body = with_entry(body, section, entries.written(there.said, there.date or None))
        memory.files.write_atomic(line.path, stamped(line.path, split.head + body, memory.clock(), None), before)

    async with memory.locks.files():
        await run_sync(despite_editors, work)
    memory.changes.publish(Change("file", line.path))


def lines_of(memory: Memory, line: Unreviewed) -> tuple[int, int]:
    """Returns the first and the last line of an entry in its file. Raises Conflict if the page has changed."""
    split = split_front_matter(memory.files.read_text(line.path))
    there = _found(split.body, line)
    return there.start + split.body_line - 1, there.end + split.body_line - 1


def _found(body: str, line: Unreviewed) -> Entry:
    there = next((one for one in entries.derived(body) if one.text == line.entry.text), None)
    if there is None:
        raise Conflict(f"{line.path} has changed, and this line is not there any more")
    return there
