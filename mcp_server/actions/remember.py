"""Remember: something that should last is written where a person would look for it."""

from __future__ import annotations

import difflib
import secrets as random_ids
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.actions.projects import claim, project_of
from mcp_server.core.model import Caller, KnowledgeChange
from mcp_server.core.projects import Project
from mcp_server.core.text import entries
from mcp_server.core.text.markdown import split_front_matter
from mcp_server.core.text.redaction import secrets
from mcp_server.core.text.remembering import DEFAULTS, Kind, Place, place_for
from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused
from mcp_server.memory import Memory
from mcp_server.store import front_matter
from mcp_server.store.changes import Change
from mcp_server.store.pending import Pending, Proposal, hash_of

MEMORY = "knowledge/memory/MEMORY.md"
ARCHIVE = "archive/memory/MEMORY.md"
WRITABLE = ("knowledge/", "archive/", "topics/")
OWN_HAND = ("knowledge/identity/", "topics/")
"""Who the user is, and what an agent is told to do: such a change waits for the user's word."""
WARN_LINES, REFUSE_LINES = 180, 220
LONGEST = 20_000
ACTIONS = ("append", "replace", "edit", "create")
TRIES = 5


@dataclass(frozen=True, slots=True)
class NewFact:
    """What to remember. Without `path`, `kind` chooses file and section; `old_text` is what `edit` replaces."""

    content: str
    kind: str = "fact"
    project: str = "current"
    session: str | None = None
    path: str | None = None
    section: str | None = None
    action: str = "append"
    old_text: str | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """What changed. `action` is appended, replaced, edited, created, kept for something that was known already, or
    waiting: then `proposal` names what waits for the user's word, and `diff` is what it would change."""

    path: str
    action: str
    diff: str
    notes: tuple[str, ...] = ()
    proposal: str | None = None

    @property
    def markdown(self) -> str:
        """The change as a person reads it."""
        diff = [f"```diff\n{self.diff}\n```"] if self.diff else []
        return "\n".join([f"{self.action}: {self.path}", *diff, *self.notes])


async def remember(memory: Memory, fact: NewFact, caller: Caller, *, approved: bool = False) -> Remembered:
    """Writes a fact durably into a knowledge file and returns the diff. What is known already is not written twice.

    What is for the user's own hand (identity, topics) becomes a proposal, unless a setting says otherwise, or the user
    has `approved` it.

    Raises:
        Refused: it holds a secret, or its file is no knowledge.
        Invalid: an unknown kind or action, or a kind that needs more (a person without a name).
        NotFound, Conflict: `old_text` does not stand there, or more than once; `create` on a file that exists.
    """
    check(fact)
    session = fact.session or caller.session
    project = Project() if fact.project == "global" else await _project(memory, fact, caller, session)
    place = _place(memory, fact, project)
    if needs_approval(memory, place.path) and not approved:
        return await _propose(memory, fact, place, session, caller)
    await claim(memory, project)
    return await write(memory, fact, place, session)


async def write(memory: Memory, fact: NewFact, place: Place, session: str | None) -> Remembered:
    """Writes what was checked and approved, and notes it in the conversation's transcript."""
    if session is None:
        done = await _apply(memory, fact, place, None)
    else:
        await sessions.ready(memory)
        async with memory.locks.transcript(session):
            done = await _apply(memory, fact, place, session)
            if done.diff:
                await _note_in_transcript(memory, session, done, fact.content)
    if done.diff:
        memory.changes.publish(Change("file", done.path, session))
    return done


async def write_entry(memory: Memory, entry: str, place: Place, session: str) -> Remembered:
    """Appends one entry to a knowledge file, unless it stands there already; for callers that hold the lock of the
    session's transcript, which is told nothing."""
    return await _apply(memory, NewFact(entry, "journal"), place, session)


def needs_approval(memory: Memory, path: str) -> bool:
    """Whether a change of this file waits for the user's word."""
    return memory.settings.knowledge.approve and path.startswith(OWN_HAND)


async def previewed(memory: Memory, fact: NewFact, caller: Caller) -> Remembered | None:
    """What `remember` would ask the user about, with its diff; None where it asks nothing. Writes nothing. Raises as
    `remember` does."""
    check(fact)
    session = fact.session or caller.session
    project = Project() if fact.project == "global" else await _project(memory, fact, caller, session)
    place = _place(memory, fact, project)
    if not needs_approval(memory, place.path):
        return None
    edit = await run_sync(edited, memory, fact, place, session)
    return (
        Remembered(place.path, "waiting", difference(edit.before or "", edit.after, place.path))
        if edit.changes
        else None
    )


async def _propose(memory: Memory, fact: NewFact, place: Place, session: str | None, caller: Caller) -> Remembered:
    async with memory.locks.files():
        edit = await run_sync(edited, memory, fact, place, session)
        if not edit.changes:
            return Remembered(place.path, "kept", "", edit.notes)
        given = {
            "content": fact.content,
            "kind": fact.kind,
            "section": place.section,
            "action": fact.action,
            "old_text": fact.old_text,
            "template": place.template,
        }
        proposal = Proposal(
            id=f"prop_{random_ids.token_hex(4)}",
            at=memory.clock(),
            path=place.path,
            fact=given,
            base=hash_of(edit.before),
            session=session,
            by=caller.client or caller.source,
        )
        proposal = await run_sync(Pending(memory.files).add, proposal)
    note = (
        f"not written yet: it waits for the user's approval. Tell the user to run "
        f"`context-manager approve {proposal.id}`, which shows the change first"
    )
    return Remembered(
        place.path, "waiting", difference(edit.before or "", edit.after, place.path), (note,), proposal.id
    )


def check(fact: NewFact) -> None:
    """Raises Invalid or Refused for what cannot be remembered at all: empty, too long, a secret."""
    if fact.kind not in get_args(Kind):
        raise Invalid(f"kind {fact.kind!r} is none of {', '.join(get_args(Kind))}")
    if fact.action not in ACTIONS:
        raise Invalid(f"action {fact.action!r} is none of {', '.join(ACTIONS)}")
    if not fact.content.strip() and fact.action in {"append", "create"}:
        raise Invalid("there is nothing to remember: content is empty")
    if len(fact.content) > LONGEST:
        raise Invalid(f"content has {len(fact.content):,} characters; a fact has at most {LONGEST:,}: say it shorter")
    if fact.action == "edit" and not fact.old_text:
        raise Invalid("action 'edit' needs old_text: the exact text that content replaces")
    found = secrets(fact.content)
    if found:
        kinds = ", ".join(sorted({secret.kind for secret in found}))
        raise Refused(f"this holds a secret ({kinds}), and memory is plain text: say where it is kept, not what it is")


async def _project(memory: Memory, fact: NewFact, caller: Caller, session: str | None) -> Project:
    """The session's own project if there is a session, else that of the caller's folder, else the one named."""
    if fact.project != "current":
        return await project_of(memory, caller, fact.project)
    row = await memory.state.session(session) if session else None
    return await project_of(memory, caller, row.project or "global" if row else None)


def _place(memory: Memory, fact: NewFact, project: Project) -> Place:
    """Where it goes: the path that was asked for, else the kind's own file; always one that tools may write."""
    if fact.path is None:
        place = place_for(fact.kind, fact.content, project.slug, memory.local_date(memory.clock()), fact.section)
    else:
        place = Place(fact.path, fact.section or DEFAULTS.get(fact.kind, ""), "", dated=fact.path == MEMORY)
    path = memory.files.relative(place.path)
    if fact.kind in {"identity", "topic"} and not path.startswith(OWN_HAND):
        raise Invalid(f"kind {fact.kind!r} belongs under {' or '.join(OWN_HAND)}, not into {path}")
    if not path.startswith(WRITABLE) or not path.endswith(".md"):
        raise Refused(
            f"{path} is no knowledge file; memory is written under knowledge/, topics/ or archive/, in .md files"
        )
    return Place(path, place.section, place.template, place.dated, place.level)


async def _apply(memory: Memory, fact: NewFact, place: Place, session: str | None) -> Remembered:
    """The read, the change, the write: tried again if somebody who takes no lock (an editor) was in between."""
    async with memory.locks.files():
        for attempt in range(TRIES):
            try:
                return await run_sync(_changed, memory, fact, place, session)
            except Conflict:
                if attempt == TRIES - 1 or fact.action == "create":
                    raise
        raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class Edit:
    """What a change makes of a file: `before` (None: there is none), `after`, the verb, and what to say of it."""

    before: str | None
    after: str
    action: str
    notes: tuple[str, ...] = ()
    leaving: tuple[entries.Entry, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether anything would be written."""
        return self.action != "kept"


def _changed(memory: Memory, fact: NewFact, place: Place, session: str | None) -> Remembered:
    edit = edited(memory, fact, place, session)
    if not edit.changes:
        path = ARCHIVE if edit.notes and edit.notes[0].endswith(_MOVED) else place.path
        return Remembered(path, "kept", "", edit.notes)
    if edit.leaving:
        archive_entries(memory, list(edit.leaving))
    memory.files.write_atomic(place.path, edit.after, edit.before, new=edit.before is None)
    diff = difference(edit.before or "", edit.after, place.path)
    return Remembered(place.path, edit.action, diff, edit.notes)


_MOVED = f"it moved to {ARCHIVE} today"


def edited(memory: Memory, fact: NewFact, place: Place, session: str | None) -> Edit:
    """What a fact makes of its file. Writes nothing. Raises as `remember` does."""
    now = memory.clock()
    exists = memory.files.exists(place.path)
    if fact.action == "create" and exists:
        raise Conflict(f"{place.path} exists already; use append, replace or edit")
    if fact.action in {"replace", "edit"} and not exists:
        raise NotFound(f"no file {place.path}; use create or append")
    before = memory.files.read_text(place.path) if exists else None
    text = before or place.template
    start = split_front_matter(text)
    body, notes, action = _edited(fact, place, start.body, memory.local_date(now))
    if body == start.body and exists:
        return Edit(before, text, "kept", notes)
    if place.path == MEMORY and action == "appended" and _archived_on(memory, fact.content, memory.local_date(now)):
        return Edit(before, text, "kept", (f"known already: {_MOVED}",))
    leaving: tuple[entries.Entry, ...] = ()
    if place.path == MEMORY:
        body, note, leaving = _within_cap(memory, body, text.count("\n") - start.body.count("\n"))
        notes += note
    after = stamped(place.path, text[: len(text) - len(start.body)] + body, now, session)
    return Edit(before, after, action if exists else "created", notes, leaving)


def _edited(fact: NewFact, place: Place, body: str, today: str) -> tuple[str, tuple[str, ...], str]:
    """The new body, what to say of it, and the verb."""
    match fact.action:
        case "append":
            known = entries.same_entry(body, fact.content)
            if known is not None:
                return body, (f"known already: {known.text.splitlines()[0]}",), "kept"
            entry = entries.written(fact.content, today if place.dated else None)
            return entries.appended(body, place.section, entry, level=place.level), (), "appended"
        case "edit":
            old = fact.old_text or ""
            count = body.count(old)
            if count != 1:
                found = "does not stand there" if count == 0 else f"stands there {count} times"
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


def _within_cap(memory: Memory, body: str, head_lines: int) -> tuple[str, tuple[str, ...], tuple[entries.Entry, ...]]:
    """MEMORY.md stays short: over the cap its oldest entries leave, and go to the archive first."""
    lines = body.count("\n") + head_lines
    cap = memory.settings.lifecycle.memory_line_cap
    if lines > cap:
        body, leaving = entries.without_oldest(body, lines - cap)
        lines = body.count("\n") + head_lines
        if lines > max(cap, REFUSE_LINES):
            raise Refused(
                f"{MEMORY} would have {lines} lines (at most {REFUSE_LINES}); shorten it, or date its entries"
            )
        if leaving:
            return body, (f"{len(leaving)} oldest entries of {MEMORY} moved to {ARCHIVE}",), tuple(leaving)
    if lines >= WARN_LINES:
        return body, (f"{MEMORY} has {lines} of {cap} lines; the oldest entries are archived beyond that",), ()
    return body, (), ()


def archive_entries(memory: Memory, leaving: list[entries.Entry]) -> None:
    """Adds entries to the archive, durably, before they leave MEMORY.md: a crash in between leaves them in both places,
    and what is in the archive already is not added again."""
    before = memory.files.read_text(ARCHIVE) if memory.files.exists(ARCHIVE) else None
    body = before or "# Archived memory\n"
    known = {entries.normalised(entry.text) for entry in entries.entries(body)}
    for entry in leaving:
        if entries.normalised(entry.text) not in known:
            body = entries.appended(body, entry.section or "Entries", entry.text)
    if body != before:
        memory.files.write_atomic(ARCHIVE, body, before, new=before is None)


def _archived_on(memory: Memory, content: str, day: str) -> bool:
    """Whether the same was remembered that day and has left MEMORY.md since: a repeated call adds nothing."""
    archived = memory.files.read_text(ARCHIVE) if memory.files.exists(ARCHIVE) else ""
    if content.strip().splitlines()[0] not in archived:  # spares the parsing of a long archive
        return False
    known = entries.same_entry(archived, content)
    return known is not None and known.date == day


def stamped(path: str, text: str, now: datetime, session: str | None) -> str:
    """Keeps the front matter true: `updated`, MEMORY.md's `line_count`, a journal's `sessions`. A broken one stays as
    it is."""
    try:
        fields = front_matter.check(text, path).fields
    except Invalid:
        return text
    if not fields:
        return text
    text = front_matter.with_field(text, "updated", now.replace(microsecond=0))
    if path == MEMORY:
        text = front_matter.with_field(text, "line_count", text.count("\n"))
    if path.startswith("knowledge/journal/") and session:
        known = [str(name) for name in fields.get("sessions") or ()]
        if session not in known:
            text = front_matter.with_field(text, "sessions", [*known, session])
    return text


def difference(before: str, after: str, path: str) -> str:
    """A change of a file as a unified diff."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, n=1, lineterm="")
    return "\n".join(lines)


async def _note_in_transcript(memory: Memory, session: str, done: Remembered, content: str) -> None:
    """Leaves `> [knowledge:ACTION] path — summary` in the open transcript; the knowledge itself is written by now."""
    try:
        row = await sessions.current_row(memory, session)
    except ContextManagerError:
        return
    if row is None or row.status != "open":
        return
    now = memory.clock()
    summary = " ".join(content.split())
    change = KnowledgeChange(done.path, done.action, summary if len(summary) <= 120 else summary[:119] + "…", now)
    size = await run_sync(memory.transcripts.append, row.path, change, row.size, row.last_at, row.turns)
    await memory.state.save_session(sessions.grown(row, size, now))
