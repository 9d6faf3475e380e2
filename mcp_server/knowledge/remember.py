"""Remember: writes a lasting fact into the knowledge file in which a person would look for it."""

from __future__ import annotations

import re
import secrets as random_ids
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.conversations.projects import claim, project_of, slugs_of
from mcp_server.errors import ContextManagerError, Invalid, Refused
from mcp_server.history.committing import WRITTEN_IN
from mcp_server.knowledge.duplicates import is_duplicate
from mcp_server.knowledge.editing import NewFact as NewFact  # re-exported for the callers of `remember`
from mcp_server.knowledge.editing import Old, archive, despite_editors, edited, replace_old
from mcp_server.knowledge.pages import current_entries, settled_section, without_emptied, without_repeats
from mcp_server.knowledge.writing import renew_memory
from mcp_server.memory import Memory
from mcp_server.model import Caller, KnowledgeChange, Project
from mcp_server.storage.journal import Pending, Proposal, hash_of
from mcp_server.storage.values import Change, SessionRow
from mcp_server.text.destinations import (
    DEFAULTS,
    GENERAL_PAGE,
    JOURNALS,
    MEMORY,
    OWN_HAND,
    PROJECTS,
    Kind,
    Place,
    archived_path,
    is_for_own_hand,
    is_page,
    place_for,
)
from mcp_server.text.entries import Entry, Source, disowned, normalised
from mcp_server.text.fencing import printable
from mcp_server.text.markdown import SplitText, difference, split_front_matter
from mcp_server.text.prose import clipped, did_you_mean, sentences
from mcp_server.text.redaction import secrets
from mcp_server.text.words import words
from mcp_server.understanding.cues import stems_of_text

_LINE = re.compile(r"(\S.*\.md):(\d{1,9})(?:-\d{1,9})?")
"""A line of a file, as the results of `remember` and `search` name it."""

LEAST_WORDS, LEAST_SHARE = 2, 0.25
"""A text names a longer entry that contains it if it has at least LEAST_WORDS words. If the entry has several
sentences, the text must also have LEAST_SHARE of its words, because the other sentences may still be true."""

CLOSEST, LEAST_CLOSE = 3, 0.5
"""If `supersedes` matches no line, or several, a note names at most CLOSEST lines, each with at least LEAST_CLOSE of
its words."""

WRITABLE = ("knowledge/", "archive/", "topics/")
LONGEST, LONGEST_SUMMARY = 20_000, 120
"""Maximum number of characters of a fact, and of its summary in the conversation's transcript."""

ACTIONS = ("append", "replace", "edit", "create")


@dataclass(frozen=True, slots=True)
class Remembered:
    """What changed. `action` is appended, merged, replaced, edited, created, kept (the fact was known already), or
    waiting: then `proposal` is the id of the change that waits for the user's approval, and `diff` is what it would
    change."""

    path: str
    action: str
    diff: str
    notes: tuple[str, ...] = ()
    proposal: str | None = None
    others: tuple[str, ...] = ()
    """Other files that changed, because they had entries that the fact replaces or repeats."""

    @property
    def markdown(self) -> str:
        """The change for people."""
        diff = [f"```diff\n{self.diff}\n```"] if self.diff else []
        return "\n".join([f"{self.action}: {self.path}", *diff, *self.notes])


async def remember(memory: Memory, fact: NewFact, caller: Caller, *, approved: bool = False) -> Remembered:
    """Writes a fact durably into a knowledge file and returns the diff. A known fact is not written again.

    A change of the user's identity or of topics becomes a proposal, unless a setting allows it or the user has
    `approved` it.

    Raises:
        Refused: the text contains a secret, or its file is not a knowledge file.
        Invalid: an unknown kind or action, or a missing name or project.
        NotFound, Conflict: `old_text` does not occur exactly once; `create` on a file that exists.
    """
    fact, session, project, place = await _checked_fact(memory, fact, caller)
    if needs_approval(memory, place.path) and not approved:
        return await _propose(memory, fact, place, session, caller)
    known = await run_sync(slugs_of, memory)
    await claim(memory, project)
    done = await write(memory, fact, place, session, project)
    if not fact.project or project.slug is None or project.slug in known:
        return done
    return replace(done, notes=(*done.notes, f"new project {project.slug!r}{did_you_mean(project.slug, known)}"))


async def write(
    memory: Memory, fact: NewFact, place: Place, session: str | None, project: Project | None = None
) -> Remembered:
    """Writes a checked and approved fact, and records it in the conversation's transcript. The entry that it supersedes
    is replaced, also in MEMORY.md. Derived items with the same meaning are removed from the page. Items of open
    conversations on a changed page are settled again by `extract.refresh`, in the background."""
    if session is None:
        done, _ = await _apply(memory, fact, place, None, project)
    else:
        await sessions.ready(memory)
        async with memory.locks.transcript(session):
            try:
                row = await sessions.checked_row(memory, session, await memory.state.session(session))
            except ContextManagerError:  # a broken transcript: the fact is written without a line in it
                row = None
            done, row = await _apply(memory, fact, place, session, project, row)
            if row is not None:
                await memory.state.save_session(row, entries={(WRITTEN_IN, done.path): row.path})
    for path in (done.path, *done.others) if done.diff else ():
        memory.changes.publish(Change("file", path, session))
    if fact.supersedes and done.diff:
        with suppress(ContextManagerError):  # the fact is written, and the next extraction renews MEMORY.md
            await renew_memory(memory)
    return done


def needs_approval(memory: Memory, path: str) -> bool:
    """Returns whether a change of this file needs the user's approval."""
    return memory.settings.knowledge.approve and is_for_own_hand(path)


async def previewed(memory: Memory, fact: NewFact, caller: Caller) -> Remembered | None:
    """Returns the change for which `remember` would need the user's approval; None if it needs none. Writes nothing.
    Raises as `remember` does."""
    fact, session, _, place = await _checked_fact(memory, fact, caller)
    if not needs_approval(memory, place.path):
        return None
    edit = await run_sync(edited, memory, fact, place, session)
    return Remembered(place.path, "waiting", edit.difference(place.path)) if edit.changes else None


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
        "not written yet: it waits for the user's approval. Tell the user to run "
        f"`context-manager approve {proposal.id}`, which shows the change first"
    )
    diff = edit.difference(place.path)
    return Remembered(place.path, "waiting", diff, (note,), proposal.id)


def checked(fact: NewFact) -> NewFact:
    """Returns the fact as it will be written: control characters are made visible, and an entry cannot look like a
    derived line. Raises Invalid or Refused for an empty or long text, or a secret."""
    if fact.kind not in get_args(Kind):
        raise Invalid(f"kind {fact.kind!r} is none of {', '.join(get_args(Kind))}")
    if fact.action not in ACTIONS:
        raise Invalid(f"action {fact.action!r} is none of {', '.join(ACTIONS)}")
    if not fact.content.strip() and fact.action in {"append", "create"}:
        raise Invalid("there is nothing to remember: content is empty")
    if len(fact.content) > LONGEST:
        raise Invalid(f"content has {len(fact.content):,} characters; a fact has at most {LONGEST:,}; shorten it")
    if fact.supersedes is not None and (fact.action != "append" or not fact.supersedes.strip()):
        raise Invalid("supersedes needs action 'append' and the entry that content replaces: its text, or path:line")
    if fact.action == "edit" and not fact.old_text:
        raise Invalid("action 'edit' needs old_text: the exact text that content replaces")
    if fact.action == "replace" and fact.path is None and fact.section is None:
        raise Invalid(
            "action 'replace' needs a section, whose text it replaces, or a path, whose whole file it replaces"
        )
    if "\0" in fact.content:  # then the whole file would count as binary, and nobody could read it any more
        raise Invalid("content holds a NUL character; say it in plain text")
    if fact.section is not None and not fact.section.isprintable():
        raise Invalid(f"section {fact.section[:40]!r} is not a heading: give its words, on one line")
    found = secrets("\n".join((fact.path or "", fact.section or "", fact.content)))
    if found:
        kinds = ", ".join(sorted({secret.kind for secret in found}))
        raise Refused(f"this holds a secret ({kinds}), and memory is plain text: say where it is kept, not what it is")
    content = printable(fact.content)
    return replace(fact, content=disowned(content) if fact.action == "append" else content)


async def _checked_fact(memory: Memory, fact: NewFact, caller: Caller) -> tuple[NewFact, str | None, Project, Place]:
    """Returns the checked fact, its session, project and place. The project is the named one, else the session's
    project, else the project of the caller's folder."""
    fact = checked(fact)
    session = fact.session or caller.session
    named: str | None = fact.project
    if named == "current":
        row = await memory.state.session(session) if session else None
        named = row.project or "global" if row else None
    project = await project_of(memory, caller, named)
    return fact, session, project, _place(memory, fact, project)


def _place(memory: Memory, fact: NewFact, project: Project) -> Place:
    """Returns the place of a fact: the requested path, else the file of its kind. Raises Refused for a file that tools
    may not write."""
    if fact.path is None:
        place = place_for(fact.kind, fact.content, project.slug, memory.local_date(memory.clock()), fact.section)
    else:
        place = Place(fact.path, fact.section or DEFAULTS.get(fact.kind, ""), "", dated=fact.path == MEMORY)
    path = memory.files.relative(place.path)
    if fact.kind in {"identity", "topic"} and not is_for_own_hand(path):
        raise Invalid(f"kind {fact.kind!r} belongs under {' or '.join(OWN_HAND)}, not into {path}")
    if not path.startswith(WRITABLE) or not path.endswith(".md"):
        raise Refused(
            f"{path} is not a knowledge file; memory is written to .md files under knowledge/, topics/ or archive/"
        )
    return Place(path, place.section, place.template, place.dated)


async def _apply(
    memory: Memory,
    fact: NewFact,
    place: Place,
    session: str | None,
    project: Project | None = None,
    row: SessionRow | None = None,
) -> tuple[Remembered, SessionRow | None]:
    """Writes the fact, and then a line about it into the open transcript of `row`. Returns the session's new row; None
    if no line was written."""
    source = Source(row.path, row.turns) if row else None

    def work() -> tuple[Remembered, SessionRow | None]:
        done = despite_editors(partial(_changed, memory, fact, place, session, project, source))
        if row is None or row.status != "open" or not done.diff:
            return done, None
        change = KnowledgeChange(done.path, done.action, clipped(fact.content, LONGEST_SUMMARY), memory.clock())
        size = memory.transcripts.append(row.path, change, row.size, row.last_at, row.turns)
        return done, replace(row, size=size, last_at=change.at)

    async with memory.locks.files():
        return await run_sync(work)


def _changed(
    memory: Memory, fact: NewFact, place: Place, session: str | None, project: Project | None, source: Source | None
) -> Remembered:
    folder = f"knowledge/projects/{project.slug}" if project and project.slug else ""
    own = (f"{folder}/context.md", f"{folder}/notes.md") if folder else ()
    pages = (*own, GENERAL_PAGE) if project else ()
    others = (*pages, MEMORY) if project else ()
    old, copies, found = (
        _superseded(memory, fact, (place.path, *others), project, source) if fact.supersedes else (None, (), ())
    )
    edit = edited(memory, fact, place, session, old)
    diffs: dict[str, str] = {}
    if edit.changes:
        if edit.leaving:
            archive(memory, edit.leaving)
        memory.files.write_atomic(place.path, edit.after, edit.before, new=edit.before is None)
        diffs[place.path] = edit.difference(place.path)
    for one in (old, *copies) if old else ():
        if change := replace_old(memory, one):
            diffs[one.path] = "\n".join(filter(None, (diffs.get(one.path), change)))
    if fact.kind == "fact" and fact.action == "append" and not is_page(place.path):
        for path in filter(is_page, pages):
            if change := _remove_repeats(memory, path, fact.content):
                diffs[path] = "\n".join(filter(None, (diffs.get(path), change)))
    changed = tuple(path for path in diffs if path != place.path)
    if not diffs:
        return Remembered(edit.stands_in or place.path, "kept", "", (*edit.notes, *found))
    action = edit.action if edit.changes else "replaced"
    return Remembered(place.path, action, "\n".join(diffs.values()), (*edit.notes, *found), others=changed)


def _superseded(
    memory: Memory, fact: NewFact, paths: Sequence[str], project: Project | None, source: Source | None
) -> tuple[Old | None, Sequence[Old], tuple[str, ...]]:
    """Returns the entry that `supersedes` names (None unless exactly one matches), other entries with the same meaning,
    and notes for the caller. Searches these files in order, and then all other files for entries that were written by
    hand."""
    wanted = fact.supersedes or ""
    known = {path: _known(memory, fact, path) for path in dict.fromkeys(paths)}
    if named := _LINE.fullmatch(wanted.strip()):
        path = memory.files.relative(named[1])
        start = _readable(memory, path)
        inside = current_entries(start.body) if path.startswith("knowledge/") else []
        found = [(path, one) for one in inside if one.start <= int(named[2]) - start.body_line + 1 <= one.end]
    elif not (found := _first_matching(known, wanted)):
        others = {
            path: [one for one in _known(memory, fact, path) if not one.sources]
            for path in _elsewhere(memory, project)
            if path not in known
        }
        known |= others
        found = _first_matching(others, wanted)
    if len(found) == 1:
        ((path, one),) = found
        section, verb = settled_section(one) if is_page(path) else ("", "replaced")
        where = f"{section!r} of {path}" if section else archived_path(path)
        said = f"{verb}: {one.said} (it is now in {where})"
        if verb == "replaced" and len(sentences(one.said)) > 1:
            said += ". The whole line was moved; if another sentence of it is still true, remember that sentence again"
        copies, beside = [], []
        for at, other in ((path, other) for path, inside in known.items() for other in inside if other is not one):
            parts = sentences(other.said)
            if len(parts) <= max(1, len(sentences(one.said))):
                copies += [Old(at, other, source)] if is_duplicate(other.said, one.said) else []
            elif any(is_duplicate(part, one.said) for part in parts):
                beside.append(_place_of(memory, at, other))
        notes = [said, *(f"also replaced: {_place_of(memory, copy.path, copy.entry)}" for copy in copies)]
        if beside:
            notes.append(f"a longer line says the same and was kept: {'; '.join(beside[:CLOSEST])}")
        return Old(path, one, source), copies, tuple(notes)
    why = f"{len(found)} lines match" if found else "no line matches"
    near = found or _closest([(path, one) for path, inside in known.items() for one in inside], wanted)
    named_lines = "; ".join(_place_of(memory, path, one) for path, one in near[:CLOSEST])
    hint = f"; the closest: {named_lines}. Call again with the PATH:LINE of the line to replace" if near else ""
    return None, (), (f"nothing was replaced: {why} {wanted[:100]!r}{hint}",)


def _readable(memory: Memory, path: str) -> SplitText:
    """Returns the front matter and the body of a file; both are empty if the file is missing or cannot be read."""
    return split_front_matter(memory.files.readable(path) or "")


def _place_of(memory: Memory, path: str, one: Entry) -> str:
    """Returns an entry for people: its place and its first line."""
    return f"{path}:{_readable(memory, path).body_line - 1 + one.start} {one.said.splitlines()[0]}"


def _known(memory: Memory, fact: NewFact, path: str) -> list[Entry]:
    """Returns the entries of a file that a fact may supersede. Leaves out derived lines of MEMORY.md, because they
    repeat another page."""
    return [
        one
        for one in current_entries(_readable(memory, path).body)
        if one.said != fact.content.strip() and not (path == MEMORY and one.sources)
    ]


def _elsewhere(memory: Memory, project: Project | None) -> list[str]:
    """Returns the knowledge files that may contain an entry that a project's fact supersedes: all except the journal,
    the user's identity, and files of other projects."""
    own = f"{PROJECTS}{project.slug}/" if project and project.slug else None
    paths = (stat.path for stat in memory.files.walk("knowledge/") if stat.path.endswith(".md"))
    closed = (JOURNALS, *OWN_HAND)
    return [
        path
        for path in paths
        if not path.startswith(closed) and (not path.startswith(PROJECTS) or (own and path.startswith(own)))
    ]


def _first_matching(known: Mapping[str, Sequence[Entry]], wanted: str) -> list[tuple[str, Entry]]:
    """Returns the entries that `wanted` names, from the first file that has any."""
    by_path = ([(path, one) for one in _matching(inside, wanted)] for path, inside in known.items())
    return next(filter(None, by_path), [])


def _matching(known: Sequence[Entry], wanted: str) -> list[Entry]:
    """Returns the entries that `wanted` names: those with exactly these words, else those that contain it or are
    contained in it, else those with the same meaning."""
    text = normalised(wanted)
    exact = [one for one in known if normalised(one.said) == text]
    if exact or not text:
        return exact
    named = words(wanted)
    inside = [
        one
        for one in known
        if _contains(named, said := words(one.said))
        and (len(named) >= LEAST_SHARE * len(said) or len(sentences(one.said)) == 1)
    ]
    return inside or [one for one in known if is_duplicate(one.said, wanted)]


def _closest(known: Sequence[tuple[str, Entry]], wanted: str) -> list[tuple[str, Entry]]:
    """Returns the entries that contain `wanted` or at least LEAST_CLOSE of its words, each with its file, the best
    first."""
    stems, named = stems_of_text(wanted), words(wanted)
    shared = [
        (1.0 if _contains(named, words(one.said)) else len(stems & stems_of_text(one.said)) / max(1, len(stems)), place)
        for place, (_, one) in enumerate(known)
    ]
    return [known[place] for share, place in sorted(shared, key=lambda found: -found[0]) if share >= LEAST_CLOSE]


def _contains(one: Sequence[str], other: Sequence[str]) -> bool:
    """Returns whether one text contains the other word for word. The shorter text must have at least LEAST_WORDS
    words."""
    short, long = sorted((one, other), key=len)
    return len(short) >= LEAST_WORDS and f" {' '.join(short)} " in f" {' '.join(long)} "


def _remove_repeats(memory: Memory, path: str, content: str) -> str:
    """Removes the derived items that have the meaning of a hand-written fact from a page. Returns the change as a
    diff."""
    before = memory.files.text_or_none(path)
    if before is None:
        return ""
    start = split_front_matter(before)
    body = without_repeats(start.body, content)
    if body == start.body:
        return ""
    after = start.head + without_emptied(start.body, body)
    memory.files.write_atomic(path, after, before)
    return difference(before, after, path)
