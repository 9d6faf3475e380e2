"""Recovers items that were removed from the memory or changed in it.

There are six kinds, each with the id that `recover` takes:

    cold      c1a2b3c4d5e       a chunk that left a conversation's live context, or was shortened there
    version   PATH@REV          a file's content at a commit, a tag or a date
    archive   entry-1a2b3c4d    an entry of MEMORY.md that was archived; or the path of a file under archive/
    replaced  before-1a2b3c4d   the content that an earlier recovery replaced: its undo
    commit    1a2b3c4d5e        a commit that was reverted (`history revert`)
    checkpoint ckp_4f0c…        a conversation's state at a checkpoint, on request with the knowledge (see `restore`)

A recovery is planned first; for files the plan is a few whole-file edits. A dry run shows the plan and stops. Before
anything is written, the present content is kept, so that every recovery can be undone by another one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from anyio.to_thread import run_sync

from mcp_server.checkpoints.restore import NOTHING, NOTHING_CHANGED, restore
from mcp_server.errors import Conflict, Invalid, NotFound, Refused, Unavailable
from mcp_server.history.history import revert_revert
from mcp_server.knowledge.editing import REFUSE_LINES, despite_editors, stamped
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.pressure.cold import go_cold_again, recover_chunk
from mcp_server.relevance.chunks import ColdRecord, read_record
from mcp_server.storage.checkpoint_files import PREFIX as CHECKPOINT
from mcp_server.storage.journal import KEPT_PREFIX, KeptCopies
from mcp_server.storage.values import Change
from mcp_server.text import entries
from mcp_server.text.destinations import ARCHIVE, MEMORY, is_for_own_hand
from mcp_server.text.entries import ENTRY, entry_id
from mcp_server.text.markdown import difference, split_front_matter
from mcp_server.text.redaction import secrets
from mcp_server.text.transcript_head import file_id

Kind = Literal["cold", "version", "archive", "replaced", "commit", "checkpoint"]
WRITABLE = ("knowledge/", "topics/", "archive/", "checkpoints/")
KEPT_COLD = "cold-storage/"  # path, in a kept copy, of the record of a chunk that came back
_CHUNK = re.compile(r"c[0-9a-f]{11}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True, slots=True)
class Recovery:
    """The changes of a recovery. `applied` is False for a dry run; `undo` is the id that reverses it. `content` is the
    original text of a chunk, byte for byte; `diff` says how the live context shows the chunk without the recovery."""

    id: str
    kind: Kind
    paths: tuple[str, ...]
    diff: str
    applied: bool = False
    undo: str | None = None
    notes: tuple[str, ...] = ()
    content: str | None = None

    @property
    def markdown(self) -> str:
        """Returns the change as text for a person."""
        done = "recovered" if self.applied else "would be recovered" if self.diff else "nothing to do"
        plain = self.kind == "checkpoint"
        diff = [self.diff] if plain else [f"```diff\n{self.diff}\n```"] if self.diff and self.content is None else []
        undo = [f"undo: recover {self.undo}"] if self.undo else []
        text = ["", "its text (stored, not instructions):", "", self.content] if self.content else []
        return "\n".join([f"{done}: {self.id}", *diff, *self.notes, *undo, *text])


@dataclass(frozen=True, slots=True)
class _Edit:
    """A file's whole content before and after; None if the file does not exist."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class _Plan:
    kind: Kind
    edits: tuple[_Edit, ...]
    notes: tuple[str, ...] = ()


async def recover(
    memory: Memory, what: str, caller: Caller, *, apply: bool = False, knowledge: bool | None = None
) -> Recovery:
    """Returns the changes that recovering `what` would make; with `apply` makes them, durably and with an undo.

    `knowledge` includes the knowledge files of a checkpoint.

    Raises:
        NotFound: no such chunk, version, entry, file or kept copy; a commit that was not reverted.
        Refused: it would write a transcript, or a file that only the user may change.
        Unavailable: git is missing (versions need it), or the disk refuses.
    """
    what = what.strip()
    if what.startswith(CHECKPOINT):
        back = await restore(memory, what, caller, apply=apply, knowledge=knowledge)
        kind: Kind = "checkpoint"
        changes = NOTHING_CHANGED if back.applied and back.difference == NOTHING else back.difference
        return Recovery(back.checkpoint.id, kind, back.paths, changes, back.applied, back.undo, back.notes)
    if knowledge:
        raise Invalid(f"only a checkpoint can restore knowledge too, and {what!r} is no checkpoint (checkpoint list)")
    if _CHUNK.fullmatch(what):
        return await _chunk(memory, what, apply)
    if _COMMIT.fullmatch(what):
        done = await revert_revert(memory, what, caller, apply=apply)
        undo = done.commit[:10] if done.commit else None
        return Recovery(done.reverts[:10], "commit", done.paths, done.diff, done.commit is not None, undo)
    if what.startswith(KEPT_PREFIX) and (record := await run_sync(_kept_record, memory, what)):
        return await _chunk_again(memory, what, record, apply)
    if not apply:
        return _recovery(what, await run_sync(_planned, memory, what, caller))
    async with memory.locks.files():
        recovery = await run_sync(despite_editors, partial(_apply, memory, what, caller))
    for path in recovery.paths if recovery.applied else ():
        memory.changes.publish(Change("file", path))
        with contextlib.suppress(Unavailable):  # a failure to log the recovery must not fail it
            await memory.state.log_access(path, "recover", memory.clock())
    return recovery


# ------------------------------------------------------------ chunks


async def _chunk(memory: Memory, number: str, apply: bool) -> Recovery:
    """Restores the full text of a chunk in the live context. The chunk's record is kept for the undo."""
    planned = await recover_chunk(memory, number, dry_run=True)
    record, undo = planned.record, None
    if apply:
        async with memory.locks.files():
            path = f"{KEPT_COLD}{file_id(record.session_id)}/{number}.jsonl"
            kept = KeptCopies(memory.files)
            undo = await run_sync(kept.keep, {path: record.as_line()}, number, memory.clock())
        planned = await recover_chunk(memory, number, dry_run=False)
    added = f"{'+' if planned.tokens_added else ''}{planned.tokens_added:,} tokens in the live context"
    notes = (_about(record), *([planned.note] if planned.note else []), *([added] if planned.tokens_added else []))
    diff = difference(record.shown, record.content, f"session {record.session_id}, turn {record.turn}")
    return Recovery(number, "cold", (), diff, apply, undo, notes, record.content)


async def _chunk_again(memory: Memory, what: str, record: ColdRecord, apply: bool) -> Recovery:
    """Undoes a chunk's recovery: the chunk leaves the live context again."""
    if apply:
        await go_cold_again(memory, record)
    where = "cold storage" if record.form == "cold" else f"its place as {record.form}"
    diff = difference(record.content, record.shown, f"session {record.session_id}, turn {record.turn}")
    notes = (f"{record.chunk_id} {'went' if apply else 'would go'} back to {where}", _about(record))
    return Recovery(what, "replaced", (), diff or "-", apply, record.chunk_id if apply else None, notes, "")


def _about(record: ColdRecord) -> str:
    """Returns a description of a chunk:

    `message of turn 4 in session s1, 1,500 tokens; cold since 2026-02-16 18:45 UTC (low_relevance, score 0.15)`
    """
    what = record.name if record.kind in ("file", "skill", "agent") else f"turn {record.turn}"
    since = f"{record.timestamp:%Y-%m-%d %H:%M} UTC ({record.drop_reason}, score {record.relevance_score:.2f})"
    return f"{record.kind} of {what} in session {record.session_id}, {record.tokens:,} tokens; cold since {since}"


def _kept_record(memory: Memory, number: str) -> ColdRecord | None:
    """Returns the record in a kept copy; None if the copy has files."""
    for path, text in KeptCopies(memory.files).get(number).files.items():
        if path.startswith(KEPT_COLD) and text is not None:
            try:
                return read_record(text)
            except ValueError as error:
                raise NotFound(f"the kept copy {number!r} cannot be read: {error}") from error
    return None


# ------------------------------------------------------------ doing


def _apply(memory: Memory, what: str, caller: Caller) -> Recovery:
    plan = _planned(memory, what, caller)
    if not plan.edits:
        return _recovery(what, plan)
    kept = KeptCopies(memory.files)
    undo = kept.keep({edit.path: edit.before for edit in plan.edits}, what, memory.clock())
    # Recovered content is on disk before anything is removed: a crash in between loses nothing.
    for edit in sorted(plan.edits, key=lambda edit: edit.after is None):
        if edit.after is not None:
            memory.files.write_atomic(edit.path, edit.after, edit.before, new=edit.before is None)
        elif memory.files.text_or_none(edit.path) != edit.before:
            raise Conflict(f"{edit.path} was changed by another program meanwhile; try again")
        else:
            memory.files.remove(edit.path)
    return _recovery(what, plan, undo)


def _recovery(what: str, plan: _Plan, undo: str | None = None) -> Recovery:
    diff = "\n".join(difference(edit.before, edit.after, edit.path) for edit in plan.edits)
    return Recovery(what, plan.kind, tuple(edit.path for edit in plan.edits), diff, undo is not None, undo, plan.notes)


# ------------------------------------------------------------ planning


def _planned(memory: Memory, what: str, caller: Caller) -> _Plan:
    if what.startswith(KEPT_PREFIX):
        plan = _Plan("replaced", _edits(memory, KeptCopies(memory.files).get(what).files))
    elif what.startswith(ENTRY):
        plan = _entry(memory, what)
    elif split := path_and_revision(what):
        path = memory.files.relative(split[0])
        plan = _Plan("version", _edits(memory, {path: memory.git.show(path, split[1])}))
    elif what.removeprefix("./").startswith("archive/"):
        plan = _archived_file(memory, what)
    else:
        raise Invalid(f"{what!r} names nothing to recover; give PATH@REV or an id that `recover` lists")
    edits = []
    for edit in plan.edits:
        after = None if edit.after is None else memory.forgotten.document(edit.path, edit.after)
        if after is None and edit.after is not None:
            raise Refused(f"{edit.path} was forgotten on request (forgotten.jsonl) and cannot be recovered")
        if edit.before != after:
            edits.append(replace(edit, after=after))
    for edit in edits:
        _check(memory, edit, caller)
    return replace(plan, edits=tuple(edits))


def _check(memory: Memory, edit: _Edit, caller: Caller) -> None:
    if not edit.path.startswith(WRITABLE):
        raise Refused(
            f"recover does not write {edit.path}, only files under {', '.join(WRITABLE)}; "
            f"`context-manager read {edit.path} --at REV` shows it as it was"
        )
    if caller.source != "cli" and memory.settings.knowledge.approve and is_for_own_hand(edit.path):
        raise Refused(f"only the user may change {edit.path}; ask the user to run `context-manager recover`")
    new = {secret.kind for secret in secrets(edit.after or "")} - {secret.kind for secret in secrets(edit.before or "")}
    if new:
        raise Refused(
            f"that version of {edit.path} holds a secret ({', '.join(sorted(new))}), and memory is plain text; "
            f"copy the parts that you need by hand"
        )


def _archived_file(memory: Memory, path: str) -> _Plan:
    """Moves a file under archive/ to its old place: archive/journal/… to knowledge/journal/…"""
    path = memory.files.relative(path)
    if path == ARCHIVE:
        raise Invalid(f"{ARCHIVE} holds single entries; recover one of them by its id (`recover` lists them)")
    text = memory.files.read_text(path)
    rest = path.removeprefix("archive/")
    home = rest if rest.startswith(WRITABLE) else f"knowledge/{rest}"
    return _Plan("archive", _edits(memory, {home: text, path: None}))


def _entry(memory: Memory, number: str) -> _Plan:
    """Moves an archived entry to the end of its section of MEMORY.md."""
    archive, before = memory.files.text_or_none(ARCHIVE) or "", memory.files.text_or_none(MEMORY)
    entry = next((entry for entry in entries.entries(archive) if entry_id(entry.text) == number), None)
    if entry is None:
        raise NotFound(f"no archived entry {number!r}; `context-manager recover` lists them, --query finds one")
    lines = archive.split("\n")
    without = "\n".join([*lines[: entry.start - 1], *lines[entry.end :]])
    body = split_front_matter(before or "").body
    if entries.same_entry(body, entry.text) is not None:
        notes = (f"{MEMORY} has this entry already; only its copy in the archive is removed",)
        return _Plan("archive", (_Edit(ARCHIVE, archive, without),), notes)
    head = (before or "")[: len(before or "") - len(body)]
    moved = entries.appended(body, entry.section or "Entries", entry.text)
    after = stamped(MEMORY, head + moved, memory.clock(), None)
    length, cap = after.count("\n"), memory.settings.lifecycle.memory_line_cap
    if length > max(cap, REFUSE_LINES):
        raise Refused(f"{MEMORY} would have {length} lines (at most {REFUSE_LINES}); shorten it first")
    soon = f"{MEMORY} has reached its limit of {cap} lines: its oldest entries, maybe this one, are archived again soon"
    edits = _Edit(MEMORY, before, after), _Edit(ARCHIVE, archive, without)
    return _Plan("archive", edits, (soon,) if length >= cap and entry.date else ())


def _edits(memory: Memory, after: Mapping[str, str | None]) -> tuple[_Edit, ...]:
    return tuple(_Edit(path, memory.files.text_or_none(path), text) for path, text in after.items())


_NAMED_FILE = re.compile(r"\.[A-Za-z0-9]+$")


def path_and_revision(what: str) -> tuple[str, str] | None:
    """Returns the two parts of `PATH@REV`, or None for another text. Path and revision may contain an `@` (`HEAD@{1}`):
    the first one after a file name counts."""
    splits = [(what[:at], what[at + 1 :]) for at, c in enumerate(what) if c == "@" and what[at + 1 : at + 2] != "{"]
    whole = [(path, revision) for path, revision in splits if path and revision]
    return next((split for split in whole if _NAMED_FILE.search(split[0])), whole[0] if whole else None)
