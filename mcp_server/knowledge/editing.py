"""Computes the change that a fact makes to its file, before anything is written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from mcp_server.errors import Conflict, Invalid, NotFound, Refused
from mcp_server.knowledge.duplicates import is_duplicate, is_like
from mcp_server.knowledge.pages import (
    current_entries,
    settled_section,
    superseded,
    with_entry,
    without_emptied,
    without_repeats,
)
from mcp_server.knowledge.summaries import with_state, within_the_day
from mcp_server.memory import Memory
from mcp_server.text import entries
from mcp_server.text.destinations import ARCHIVE, GENERAL_PAGE, JOURNALS, MEMORY, Place, archived_path, is_page
from mcp_server.text.entries import Source
from mcp_server.text.markdown import difference, split_front_matter
from mcp_server.topics import front_matter

T = TypeVar("T")

TRIES = 5


def despite_editors(work: Callable[[], T]) -> T:
    """Returns the result of `work`, which reads and writes a file. If another program writes the file meanwhile, runs
    `work` again, TRIES times in total; then raises Conflict."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(Conflict):
            return work()
    return work()


WARN_LINES, REFUSE_LINES = 180, 220
"""Lines of MEMORY.md, which every session reads. From WARN_LINES on, `remember` adds a warning; above REFUSE_LINES it
refuses the fact."""

RECORDS = ("journal", "procedure")
"""Kinds whose entries may have the same meaning: events of a day, and steps of a procedure."""

_SIMILAR = "a similar entry exists: {entry} (if it is no longer true, call remember again with its text in supersedes)"
_MOVED = f"it moved to {ARCHIVE} today"


@dataclass(frozen=True, slots=True)
class NewFact:
    """A request to remember a text. Without `path`, `kind` chooses file and section; `edit` replaces `old_text`.
    `supersedes` names the entry that the fact replaces, by its text or as `path:line`."""

    content: str
    kind: str = "fact"
    project: str = "current"
    session: str | None = None
    path: str | None = None
    section: str | None = None
    action: str = "append"
    old_text: str | None = None
    supersedes: str | None = None


@dataclass(frozen=True, slots=True)
class Old:
    """An entry that a fact supersedes, and the path of its file. `source` is the turn of the request."""

    path: str
    entry: entries.Entry
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file: its text `before` (None for a new file) and `after`, the `action` in one word, and notes for
    the caller.

    `leaving` are entries that must be archived first. `stands_in` is another file that already has the fact. `shown` is
    `after` without updates of the front matter, for the diff; None if it is the same.
    """

    before: str | None
    after: str
    action: str
    notes: tuple[str, ...] = ()
    leaving: tuple[entries.Entry, ...] = ()
    stands_in: str | None = None
    shown: str | None = None

    def difference(self, path: str) -> str:
        """Returns the change as a unified diff."""
        return difference(self.before or "", self.after if self.shown is None else self.shown, path)

    @property
    def changes(self) -> bool:
        """Returns whether anything would be written."""
        return self.action != "kept"


def edited(memory: Memory, fact: NewFact, place: Place, session: str | None, old: Old | None = None) -> Edit:
    """Returns the change that a fact makes to its file, and writes nothing. If the file is a page that has the entry
    `old`, the change also replaces that entry. Raises as `remember` does."""
    now = memory.clock()
    today = memory.local_date(now)
    before = memory.files.text_or_none(place.path)
    exists = before is not None
    if fact.action == "create" and exists:
        raise Conflict(f"{place.path} exists already; use append, replace or edit")
    if fact.action in {"replace", "edit"} and not exists:
        raise NotFound(f"no file {place.path}; use create or append")
    text = before or place.template
    start = split_front_matter(text)
    body = start.body
    if is_page(place.path) and fact.action == "append":
        there = next((one for one in current_entries(body) if old and one.text == old.entry.text), None)
        if old and there is not None and old.path == place.path:
            body = _replaced(body, there, today, old)
        body = without_repeats(body, fact.content)
    body, notes, action = _edited(fact, place, body, today, old.entry.text if old else "")
    if place.path.startswith(JOURNALS):
        body = within_the_day(body)
    if fact.action == "append":
        body = without_emptied(start.body, body)
    if body == start.body and exists:
        return Edit(before, text, "kept", notes)
    action = "edited" if action == "kept" else action
    if place.path == MEMORY and action == "appended" and _archived_on(memory, fact.content, today):
        return Edit(before, text, "kept", (f"known already: {_MOVED}",), stands_in=ARCHIVE)
    leaving: tuple[entries.Entry, ...] = ()
    if place.path == MEMORY:
        body, note, leaving = _within_cap(memory, body, text.count("\n") - start.body.count("\n"))
        notes += note
    shown = start.head + body
    after = stamped(place.path, shown, now, session)
    return Edit(before, after, action if exists else "created", notes, leaving, shown=shown if exists else None)


def _replaced(body: str, there: entries.Entry, today: str, old: Old) -> str:
    """Returns the body of a page with an entry replaced, and with the state at the top of a project's page updated."""
    after = superseded(body, there, today, old.source)
    return after if old.path == GENERAL_PAGE else with_state(after)


def replace_old(memory: Memory, old: Old) -> str:
    """Replaces an entry in its file and returns the change as a diff. On a page, the entry moves to the replaced
    decisions. From other files it moves to the archive, which is written first."""
    today = memory.local_date(memory.clock())
    before = memory.files.text_or_none(old.path) or ""
    start = split_front_matter(before)
    there = next((one for one in current_entries(start.body) if one.text == old.entry.text), None)
    if there is None:
        return ""
    if is_page(old.path):
        body = without_emptied(start.body, _replaced(start.body, there, today, old))
    else:
        first, *rest = there.text.split("\n")
        text = "\n".join([f"{first} (replaced {today} on request)", *rest])
        archive(memory, [replace(there, text=text, section=settled_section(there)[0])], old.path)
        rows = start.body.split("\n")
        body = without_emptied(start.body, "\n".join([*rows[: there.start - 1], *rows[there.end :]]))
    shown = start.head + body
    memory.files.write_atomic(old.path, stamped(old.path, shown, memory.clock(), None), before)
    return difference(before, shown, old.path)


def _edited(fact: NewFact, place: Place, body: str, today: str, leaving: str) -> tuple[str, tuple[str, ...], str]:
    """Returns the new body, notes for the caller, and the action. `leaving` is the text of the entry that the fact
    supersedes, or ""."""
    match fact.action:
        case "append":
            known = entries.same_entry(body, fact.content)
            if known is not None:
                return body, (f"known already: {known.text.splitlines()[0]}",), "kept"
            entry = entries.written(fact.content, today if place.dated else None)
            others = [] if fact.kind in RECORDS else entries.statements(body, place.section)
            others = [(one, said) for one, said in others if one.text != leaving]
            wanted = entries.statement(fact.content)
            beside = None
            for one, said in others:
                if is_duplicate(said, wanted):
                    return _merged(body, one, entry)
                if beside is None and is_like(said, wanted):
                    beside = one
            notes = (_SIMILAR.format(entry=beside.text.splitlines()[0]),) if beside else ()
            return with_entry(body, place.section, entry), notes, "appended"
        case "edit":
            old = fact.old_text or ""
            count = body.count(old)
            if count != 1:
                found = "does not occur" if count == 0 else f"occurs {count} times"
                raise NotFound(
                    f"old_text {found} in {place.path}; read the file and give an exact passage that is unique"
                )
            return body.replace(old, fact.content), (), "edited"
        case "replace":
            if fact.section is None:
                return fact.content.rstrip("\n") + "\n", (), "replaced"
            return entries.section_replaced(body, fact.section, fact.content), (), "replaced"
        case _:
            return (
                body.rstrip("\n") + "\n\n" + fact.content.strip("\n") + "\n" if body.strip() else fact.content,
                (),
                "created",
            )


def _merged(body: str, like: entries.Entry, entry: str) -> tuple[str, tuple[str, ...], str]:
    """Returns the body with two nearly identical entries joined into one, notes for the caller, and the action. The
    newer wording comes first. The older one stays below it, because they may differ in the one word that matters."""
    before, now = entries.statement(like.text), entries.statement(entry)
    if entries.tells_no_more(now, before):
        return body, (f"known already: {like.text.splitlines()[0]}",), "kept"
    note = f"merged with a nearly identical entry: {like.text.splitlines()[0]}"
    return (entries.reworded(body, like, entry, keep=not entries.tells_no_more(before, now)), (note,), "merged")


def _within_cap(memory: Memory, body: str, head_lines: int) -> tuple[str, tuple[str, ...], tuple[entries.Entry, ...]]:
    """Returns the body of MEMORY.md shortened to its cap, notes for the caller, and the removed entries, the oldest
    ones. Raises Refused if the body is still too long."""
    lines = body.count("\n") + head_lines
    cap = memory.settings.lifecycle.memory_line_cap
    if lines > cap:
        body, leaving = entries.without_oldest(body, lines - cap)
        lines = body.count("\n") + head_lines
        if lines > max(cap, REFUSE_LINES):
            raise Refused(
                f"{MEMORY} would have {lines} lines (at most {REFUSE_LINES}); shorten it, or add dates to its entries"
            )
        if leaving:
            return body, (f"{len(leaving)} oldest entries of {MEMORY} moved to {ARCHIVE}",), tuple(leaving)
    if lines >= WARN_LINES:
        return body, (f"{MEMORY} has {lines} of {cap} lines; the oldest entries are archived beyond that",), ()
    return body, (), ()


def archive(memory: Memory, leaving: Iterable[entries.Entry], path: str = MEMORY) -> None:
    """Adds entries to the archive of a file, durably, before they leave the file. A crash in between leaves them in
    both places, and an entry that the archive has is not added again."""
    cold = archived_path(path)
    before = memory.files.text_or_none(cold)
    start = body = before or ("# Archived memory\n" if path == MEMORY else "# Archived\n")
    known = {entries.normalised(entry.text) for entry in entries.entries(body)}
    for entry in leaving:
        if entries.normalised(entry.text) not in known:
            body = entries.appended(body, entry.section or "Entries", entry.text)
    if body != start:
        memory.files.write_atomic(cold, body, before, new=before is None)


def _archived_on(memory: Memory, content: str, day: str) -> bool:
    """Returns whether the same text was remembered on that day and has left MEMORY.md since."""
    archived = memory.files.text_or_none(ARCHIVE) or ""
    if content.strip().splitlines()[0] not in archived:  # avoids parsing a long archive
        return False
    known = entries.same_entry(archived, content)
    return known is not None and known.date == day


def stamped(path: str, text: str, now: datetime, session: str | None) -> str:
    """Returns a file's text with up-to-date front matter: `updated`, `line_count`, a journal's `sessions`. Returns the
    text unchanged if its front matter is missing or invalid."""
    try:
        fields = front_matter.check(text, path).fields
    except Invalid:
        return text
    if not fields:
        return text
    text = front_matter.with_field(text, "updated", now.replace(microsecond=0))
    if path == MEMORY:
        text = front_matter.with_field(text, "line_count", text.count("\n"))
    if path.startswith(JOURNALS) and session:
        known = [str(name) for name in fields.get("sessions") or ()]
        if session not in known:
            text = front_matter.with_field(text, "sessions", [*known, session])
    return text
