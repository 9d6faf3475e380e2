"""Extracts knowledge from conversations: people, decisions, lessons, procedures, facts, the day's journal.

Every line names its source turn. A repeated run changes nothing: a conversation is not read again until a version of an
extractor changes. Lines that a person or an agent wrote are never changed.

Pages also show the items of open conversations (`refresh`, `live_pages.py`). They have no effect on what is extracted
when the conversation ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

import anyio
from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.conversations.closed_sessions import LIVE_ITEMS, LIVE_PAGES, PENDING_EXTRACTION, queue_extraction
from mcp_server.errors import ContextManagerError
from mcp_server.knowledge import notes
from mcp_server.knowledge.derive import Derived, chosen, derive, derive_live, versions
from mcp_server.knowledge.editing import despite_editors
from mcp_server.knowledge.extractors import Extractor
from mcp_server.knowledge.live_pages import lines_from, page_from
from mcp_server.knowledge.writing import ChangedFile, put_page, renew, write_lines
from mcp_server.memory import Memory
from mcp_server.text.destinations import place_of
from mcp_server.text.transcript import Transcript

log = logging.getLogger(__name__)

EXTRACTED = "extracted"
"""Namespace of the state: path of a transcript → the versions of the extractors that read it, and its number of
turns."""

PARTLY = "partly"
"""Value in EXTRACTED of a transcript if some of its lines could not be written. The next extraction reads it again."""

BATCH = 20
"""Number of transcripts that are read before their lines are written: after a crash, at most these are read again.
`extract(anew=True)` writes all lines together."""


@dataclass(slots=True)
class Extracted:
    """The result of an extraction: the numbers of transcripts read, of transcripts skipped because they were read
    before (`known`), of lines, and of transcripts for which the LLM gave no usable answer (`fell_back`); and the
    changed files by path."""

    dry_run: bool = False
    read: int = 0
    known: int = 0
    lines: int = 0
    fell_back: int = 0
    files: dict[str, ChangedFile] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON values."""
        added = sum(file.added for file in self.files.values())
        removed = sum(file.removed for file in self.files.values())
        files = [asdict(one) for one in self.files.values()]
        return {**asdict(self), "added": added, "removed": removed, "files": files}


async def extract(
    memory: Memory,
    session: str | None = None,
    names: Sequence[str] = (),
    *,
    anew: bool = False,
    dry_run: bool = False,
    show: Callable[[float, float, str], None] = lambda done, total, label: None,
) -> Extracted:
    """Extracts knowledge from the closed conversations, or from `session`, open or not, by the named extractors (by all
    if no name is given).

    With `anew`, conversations that were read before are read again, and lines that are not found again are removed.

    Raises:
        Invalid: no extractor of that name.
        NotFound: no such session.
    """
    extractors = chosen(names)
    done = Extracted(dry_run)
    if session is None:
        paths = await run_sync(lambda: sorted(memory.transcripts.all()))
    else:
        paths = list((await sessions.show_session(memory, session)).paths)
    known = await memory.state.entries(EXTRACTED)
    waiting: list[_Read] = []

    def is_new(path: str, transcript: Transcript, seen: str) -> bool:
        if transcript.head.ended is None and session is None:
            return False
        is_known = not anew and not names and known.get(path) == seen
        done.known += is_known
        return not is_known

    for number, path in enumerate(paths, start=1):
        show(number - 1, len(paths), path.rsplit("/", 1)[-1])
        one = await _read(memory, path, extractors, is_new)
        if isinstance(one, str):
            done.notes.append(f"left out: {one}")
        elif one is not None:
            waiting.append(replace(one, anew=not names and (anew or path in known)))
        if len(waiting) == BATCH and not anew:  # `anew` needs one batch: lines may replace each other
            await _finish(memory, waiting, done, bool(names))
            waiting = []
    await _finish(memory, waiting, done, bool(names))
    show(len(paths), max(1, len(paths)), "")
    return done


async def waiting_conversations(memory: Memory) -> int:
    """Returns the number of conversations that `extract_pending` will read."""
    if memory.settings.lifecycle.extraction_trigger == "manual":
        return 0
    return len(await memory.state.keys_of(PENDING_EXTRACTION))


async def extract_pending(memory: Memory, rest: float = 0.0) -> int:
    """Extracts knowledge from the queued conversations, and returns their number. After each conversation it sleeps
    `rest` times as long as the extraction took, so that other work is not slowed down."""
    if not await waiting_conversations(memory):
        return 0
    known = await memory.state.entries(EXTRACTED)
    done = Extracted()
    for path in await memory.state.keys_of(PENDING_EXTRACTION):
        began = perf_counter()
        one = await _read(memory, path, chosen(()), lambda path, _, seen: known.get(path) != seen)
        if one is None or isinstance(one, str):
            if one:  # `status` and `extract` report it too
                log.warning("left out: %s", one)
            await memory.state.remove(PENDING_EXTRACTION, path)
            continue
        await _finish(memory, [replace(one, anew=path in known)], done, False)
        await anyio.sleep(rest * (perf_counter() - began))
    return done.read


async def queue_outdated(memory: Memory) -> int:
    """Queues the closed conversations that were read by other versions of the extractors, for `extract_pending`.
    Returns their number."""
    if memory.settings.lifecycle.extraction_trigger == "manual":
        return 0
    used = versions(chosen(()))
    still_open = {row.path for row in await memory.state.sessions(open_only=True)}
    known = await memory.state.entries(EXTRACTED)
    old = [path for path, seen in known.items() if not seen.startswith(f"{used}; ") and path not in still_open]
    for path in old:
        try:
            session = (await run_sync(memory.transcripts.head, path)).session_id
        except ContextManagerError:  # gone or broken: `status` reports it
            continue
        await queue_extraction(memory, path, session)
    return len(old)


@dataclass(frozen=True, slots=True)
class _Read:
    """A conversation that was read: its lines, its value for EXTRACTED, and whether it was read before, with other
    versions of the extractors or with fewer turns."""

    derived: Derived
    seen: str
    anew: bool = False


async def _read(
    memory: Memory, path: str, extractors: Sequence[Extractor], is_new: Callable[[str, Transcript, str], bool]
) -> _Read | str | None:
    """Returns the lines of a transcript, or a sentence that says why it cannot be read, or None if `is_new` returns
    False. `is_new` gets the path, the transcript and its value for EXTRACTED."""
    try:
        transcript = await run_sync(memory.transcripts.read, path)
    except ContextManagerError as error:
        return str(error)
    seen = f"{versions(extractors)}; {len(transcript.turns)} turns"
    if not is_new(path, transcript, seen):
        return None
    try:
        return _Read(await derive(memory, path, transcript, extractors), seen)
    except ContextManagerError:
        raise
    except Exception as error:  # an error in one conversation must not stop the others
        return f"{path} cannot be read by the rules ({type(error).__name__}: {error})"


async def _finish(memory: Memory, waiting: Sequence[_Read], done: Extracted, partly: bool) -> None:
    """Writes derived lines, and records in the state which conversations were read. `partly`: only some extractors ran,
    so nothing is recorded."""
    if not waiting:
        return
    derived = [one.derived for one in waiting]
    anew = frozenset(one.derived.path for one in waiting if one.anew)
    done.read += len(derived)
    done.lines += sum(len(one.lines) for one in derived)
    done.fell_back += sum(one.fell_back for one in derived)
    ended = () if partly else [one.path for one in derived]
    changed, unreadable = await write_lines(memory, derived, anew=anew, ended=ended, dry_run=done.dry_run)
    done.notes += [note for reason in unreadable.values() if (note := f"left as it is: {reason}") not in done.notes]
    if not done.dry_run:
        for one in waiting if not partly else ():
            is_whole = not any(place_of(line, one.derived.title).path in unreadable for line in one.derived.lines)
            await memory.state.put(EXTRACTED, one.derived.path, one.seen if is_whole else PARTLY)
            await memory.state.remove(PENDING_EXTRACTION, one.derived.path)
        changed += await renew(memory)
    for file in changed:
        done.files[file.path] = file.after(done.files.get(file.path))


# ---------------------------------------------------------------- open conversations


async def refresh(memory: Memory) -> int:
    """Updates the pages with the items of open conversations and returns how many changed. Only conversations with new
    turns are read. Pages that somebody edited are written again."""
    if memory.settings.lifecycle.extraction_trigger != "on_session_end":
        return 0
    rows = {row.path: row for row in await memory.state.sessions(open_only=True)}
    known = await memory.state.entries(LIVE_ITEMS)
    new = {path: row for path, row in rows.items() if path not in known or known[path]["turn"] != row.turns}
    left = known.keys() - rows.keys()
    left = left - set(await memory.state.keys_of(PENDING_EXTRACTION)) if left else left
    if not new and not left and not await run_sync(_edited, memory, await memory.state.entries(LIVE_PAGES)):
        return 0
    found: dict[str, dict[str, Any]] = {}
    for path, row in new.items():
        try:
            before = lines_from(known[path]["lines"]) if path in known else []
            await notes.keep(memory, row.session)
            lines = await derive_live(memory, row, before)
        except ContextManagerError:  # gone or broken meanwhile: `status` reports it
            continue
        found[path] = {"turn": row.turns, "lines": [asdict(line) for line in lines]}
    changed, _ = await write_lines(memory, (), live=found, ended=left)
    return len(changed)


def _edited(memory: Memory, shown: Mapping[str, Any]) -> bool:
    """Returns whether a page with items of open conversations is no longer as it was written."""
    return any(memory.files.readable(path) != page["shown"] for path, page in shown.items())


def _restore_base(memory: Memory, path: str, stored: object) -> None:
    before = memory.files.text_or_none(path)
    put_page(memory.files, path, before, page_from(stored, before).base)


async def retract(memory: Memory) -> None:
    """Removes the items of all open conversations from the pages and the state, before a text that they quote is
    deleted. The next `refresh` reads them again."""
    async with memory.locks.files():
        items = await memory.state.keys_of(LIVE_ITEMS)
        for path, stored in (await memory.state.entries(LIVE_PAGES)).items():
            await run_sync(despite_editors, partial(_restore_base, memory, path, stored))
            await memory.state.remove(LIVE_PAGES, path)
        if items:
            await memory.state.remove(LIVE_ITEMS, *items)
