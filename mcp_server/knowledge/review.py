"""Lists what the user reviews: new lines of the pages, contradicting lines, and proposed changes.

Proposals of agents and other machines change identity, topics and settings only. Two lines contradict each other if
they share most of their content words, and either both give a number of the same unit and no such number is the same,
or only one of them is negated. Lines of several sentences are not compared: they share words by chance. The pages of
eleven conversations contain no contradiction, and none is reported.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, ContextManagerError, Refused
from mcp_server.history import merging
from mcp_server.knowledge.duplicates import NEGATIONS
from mcp_server.knowledge.editing import NewFact, archive, despite_editors, edited, stamped
from mcp_server.knowledge.pages import ITEMS, is_changed, with_entry, without_emptied
from mcp_server.knowledge.remember import Remembered, checked, write
from mcp_server.knowledge.summaries import shortened, with_state
from mcp_server.knowledge.writing import renew_memory
from mcp_server.memory import Memory
from mcp_server.storage.journal import Pending, Proposal, hash_of
from mcp_server.storage.values import Change
from mcp_server.text import entries
from mcp_server.text.destinations import (
    CORRECTED,
    DECISIONS,
    ENDED,
    FACTS,
    GENERAL_PAGE,
    OPEN,
    REMOVED,
    RULES,
    Place,
    is_for_own_hand,
    is_page,
)
from mcp_server.text.entries import Entry
from mcp_server.text.markdown import split_front_matter
from mcp_server.understanding.cues import content_stems, word_list

LEAST_SHARED, LEAST_SHARE = 2, 0.6
"""Minimum number of content words without numbers that both lines have, and their minimum share of all content words of
the two lines."""

LONGEST, QUOTED = 200, 100
"""Maximum number of characters of a line that is compared, and of its quotation."""

LATEST = "9999"
"""The date by which a line without a date is sorted: it was written by hand, so it counts as the newest."""

_QUANTITY = re.compile(r"(\d+(?:[.,:]\d+)*)\s*(%|€|\$|[^\W\d_]+)")
_SENTENCE_END = re.compile(r"[.!?]\s+\S")


@dataclass(frozen=True, slots=True)
class _Statement:
    entry: Entry
    stems: frozenset[str]
    numbers: frozenset[tuple[str, str]]
    negated: bool

    @classmethod
    def of(cls, one: Entry) -> _Statement:
        words = word_list(one.said)
        stems = frozenset(stem for stem in content_stems(words) if not any(map(str.isdigit, stem)))
        numbers = frozenset((unit.casefold(), number) for number, unit in _QUANTITY.findall(one.said))
        return cls(one, stems - NEGATIONS, numbers, not NEGATIONS.isdisjoint(words))


def contradictions(body: str) -> list[tuple[Entry, Entry]]:
    """Returns the pairs of current rules, decisions and facts of a page that contradict each other, in order."""
    inside = (one for one in entries.entries(body) if one.section in ITEMS and one.section != OPEN)
    current = (one for one in inside if not is_changed(one.said))
    short = [_Statement.of(one) for one in current if len(one.said) <= LONGEST and not _SENTENCE_END.search(one.said)]
    return [(one.entry, other.entry) for one, other in combinations(short, 2) if _contradict(one, other)]


def _contradict(one: _Statement, other: _Statement) -> bool:
    shared = one.stems & other.stems
    if len(shared) < LEAST_SHARED or len(shared) < LEAST_SHARE * len(one.stems | other.stems):
        return False
    units = {unit for unit, _ in one.numbers} & {unit for unit, _ in other.numbers}
    return one.negated != other.negated or bool(units and not one.numbers & other.numbers)


def sentences(memory: Memory) -> list[str]:
    """Returns a sentence for each contradiction on the pages, with both sources and a command that settles it."""
    stats = [*memory.files.walk("knowledge/projects/"), *memory.files.walk("knowledge/reference/")]
    return [sentence for stat in stats if is_page(stat.path) for sentence in _of_page(memory, stat.path)]


def _of_page(memory: Memory, path: str) -> Iterator[str]:
    text = memory.files.readable(path)
    if text is None:
        return
    start = split_front_matter(text)
    project = "global" if path == GENERAL_PAGE else path.split("/")[2]
    for pair in contradictions(start.body):
        one, other = sorted(pair, key=lambda entry: (entry.date or LATEST, entry.start))
        said = [f"{shortened(entry.said, QUOTED)!r} ({_source(entry)})" for entry in (one, other)]
        line = start.body_line - 1 + one.start
        command = f"remember {shlex.quote(other.said)} --kind {ITEMS[other.section]} --project {project}"
        yield (
            f"{path}: two lines contradict each other: {said[0]} and {said[1]}; to keep the second one: "
            f"context-manager {command} --supersedes {path}:{line}, or delete the wrong line"
        )


def _source(entry: Entry) -> str:
    return f"{entry.date} {entry.sources[0]}".lstrip() if entry.sources else f"{entry.date} written by hand".lstrip()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A proposal and the change that it would make now.

    `problem` says why it cannot be carried out; the diff may then be empty. `changed`: the file has changed since the
    proposal was made.
    """

    proposal: Proposal
    diff: str
    changed: bool = False
    problem: str = ""

    @property
    def mark(self) -> str:
        """Returns a hash of the data of this change that the user sees."""
        return hash_of(f"{self.proposal.id}\n{self.changed}\n{self.diff}") or ""


async def waiting(memory: Memory, number: str | None = None) -> list[Waiting]:
    """Returns the proposals, oldest first, or only the one with the id `number`. If there is none, raises NotFound,
    which names all ids."""

    def look() -> list[Waiting]:
        pending = Pending(memory.files)
        return [_shown(memory, found) for found in ([pending.get(number)] if number else pending.all())]

    return await run_sync(look)


async def approve(memory: Memory, number: str, *, anyway: bool = False) -> Remembered:
    """Writes a proposal into its file, as `remember` does, and drops the proposal.

    Raises:
        NotFound: no such proposal.
        Conflict: the file has changed since. With `anyway` the proposal is written into the changed file.
    """
    pending = Pending(memory.files)
    proposal = await run_sync(pending.get, number)
    found = await run_sync(_shown, memory, proposal)
    if found.changed and not anyway:
        raise Conflict(
            f"{proposal.path} has changed since {number} was proposed; `context-manager approve {number}` shows the "
            "change as it would be now; --yes --anyway makes it"
        )
    if merging.is_incoming(proposal):
        async with memory.locks.files(), memory.locks.git():
            return Remembered(proposal.path, "taken over", await run_sync(merging.accept, memory, proposal))
    fact, place = await run_sync(_fact_and_place, memory, proposal)
    before = await run_sync(_hash_now, memory, proposal.path)
    done = await write(memory, fact, place, proposal.session)
    async with memory.locks.files():
        await run_sync(pending.remove, number)
        await run_sync(pending.rebase, proposal.path, before, await run_sync(_hash_now, memory, proposal.path))
    return done


async def reject(memory: Memory, number: str) -> Proposal:
    """Drops a proposal. Raises NotFound."""
    pending = Pending(memory.files)
    proposal = await run_sync(pending.get, number)
    if merging.is_incoming(proposal):
        async with memory.locks.files(), memory.locks.git():
            await run_sync(merging.release, memory, proposal)
        return proposal
    async with memory.locks.files():
        await run_sync(pending.remove, number)
    return proposal


def waiting_sentence(memory: Memory) -> str:
    """Returns the sentence about waiting proposals for `status` and `doctor`; empty if there are none."""
    found = Pending(memory.files).all()
    if not found:
        return ""
    paths = ", ".join(sorted({proposal.path for proposal in found})[:5])
    what = f"{len(found)} changes wait" if len(found) > 1 else "1 change waits"
    return f"{what} for your approval ({paths}): context-manager approve"


def _shown(memory: Memory, proposal: Proposal) -> Waiting:
    changed = _hash_now(memory, proposal.path) != proposal.base
    try:
        if merging.is_incoming(proposal):
            diff, problem = merging.shown(memory, proposal)
            return Waiting(proposal, diff, changed, problem)
        edit = edited(memory, *_fact_and_place(memory, proposal), proposal.session)
    except ContextManagerError as error:
        return Waiting(proposal, "", changed, str(error))
    if not edit.changes:
        return Waiting(proposal, "", changed, "the file already says this")
    return Waiting(proposal, edit.difference(proposal.path), changed)


def _fact_and_place(memory: Memory, proposal: Proposal) -> tuple[NewFact, Place]:
    """Returns the fact and its place. The proposal's file is untrusted: the fact is validated again."""
    path = memory.files.relative(proposal.path)
    if path != proposal.path or not is_for_own_hand(path) or not path.endswith(".md"):
        raise Refused(f"{proposal.path} is not a file whose changes need approval; reject {proposal.id}")
    given = proposal.fact
    fact = NewFact(
        content=given.get("content") or "",
        kind=given.get("kind") or "fact",
        path=path,
        section=given.get("section") or None,
        action=given.get("action") or "append",
        old_text=given.get("old_text"),
    )
    fact = checked(fact)
    return fact, Place(path, given.get("section") or "", given.get("template") or "")


def _hash_now(memory: Memory, path: str) -> str | None:
    return hash_of(memory.files.text_or_none(path))


REVIEWED = "reviewed"
"""Namespace of the state: the key of a line that the user has reviewed → the day of the line."""

SECTIONS = (RULES, DECISIONS, FACTS, OPEN)
"""Sections of a project's page that a line can be moved to."""


@dataclass(frozen=True, slots=True)
class Unreviewed:
    """A derived line of a page that the user has not reviewed."""

    path: str
    entry: Entry

    @property
    def key(self) -> str:
        """The line's key in the state. It changes if the words of the line change."""
        digest = hashlib.sha256(self.entry.said.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{self.path}#{digest}"


async def unreviewed(memory: Memory) -> list[Unreviewed]:
    """Returns the derived lines of people's and projects' pages that the user has not reviewed, newest first. Replaced
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
    """Records that the user has reviewed a line. The line stays as it is."""
    await memory.state.put(REVIEWED, line.key, line.entry.date)


async def correct(memory: Memory, line: Unreviewed, text: str) -> None:
    """Replaces a line by the user's own words. They have no source, so that no extractor changes them.

    Raises:
        Conflict: the page has changed.
        Invalid, Refused: an empty or long text, or a secret.
    """
    content = checked(NewFact(text)).content

    def reworded(body: str, there: Entry) -> str:
        return entries.reworded(body, there, entries.written(content, there.date or None), keep=False)

    await _change(memory, line, CORRECTED, reworded)


async def move(memory: Memory, line: Unreviewed, section: str) -> None:
    """Moves a line to another section of its page, as the user's own. Raises Conflict if the page has changed."""

    def moved(body: str, there: Entry) -> str:
        return with_entry(entries.without(body, [there]), section, entries.written(there.said, there.date or None))

    await _change(memory, line, CORRECTED, moved)


async def remove(memory: Memory, line: Unreviewed) -> None:
    """Takes a line off its page. Raises Conflict if the page has changed."""
    await _change(memory, line, REMOVED, lambda body, there: entries.without(body, [there]))


async def _change(memory: Memory, line: Unreviewed, section: str, change: Callable[[str, Entry], str]) -> None:
    """Changes a line of a page, and updates the state at the top of the page and MEMORY.md, which repeat lines. A
    derived or removed line is first copied to `section` of the page's archive: lines in there are not added again when
    their conversation is read again."""
    if not line.path.startswith("knowledge/"):
        raise Refused(f"{line.path} is not a page under knowledge/")

    def work() -> None:
        before = memory.files.read_text(line.path)
        split = split_front_matter(before)
        there = _found(split.body, line)
        if there.sources or section == REMOVED:
            archive(memory, [replace(there, section=section)], line.path)
        body = without_emptied(split.body, change(split.body, there))
        if is_page(line.path) and line.path != GENERAL_PAGE:
            body = with_state(body)
        memory.files.write_atomic(line.path, stamped(line.path, split.head + body, memory.clock(), None), before)

    async with memory.locks.files():
        await run_sync(despite_editors, work)
    memory.changes.publish(Change("file", line.path))
    await renew_memory(memory)


def lines_of(memory: Memory, line: Unreviewed) -> tuple[int, int]:
    """Returns the first and the last line of an entry in its file. Raises Conflict if the page has changed."""
    split = split_front_matter(memory.files.read_text(line.path))
    there = _found(split.body, line)
    return there.start + split.body_line - 1, there.end + split.body_line - 1


def _found(body: str, line: Unreviewed) -> Entry:
    there = next((one for one in entries.entries(body) if one.text == line.entry.text), None)
    if there is None:
        raise Conflict(f"{line.path} has changed and no longer has this line")
    return there
