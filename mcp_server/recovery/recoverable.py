"""Lists what `recover` can bring back, newest first or best match first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from anyio.to_thread import run_sync

from mcp_server.checkpoints.stored import described_text
from mcp_server.errors import ContextManagerError, Invalid, NotFound
from mcp_server.history.history import reverted_commits
from mcp_server.memory import Memory
from mcp_server.pressure.cold import cold_records, find_cold
from mcp_server.recovery.recover import KEPT_COLD, WRITABLE, Kind
from mcp_server.storage.checkpoint_files import CheckpointFiles
from mcp_server.storage.history_values import Version, object_id
from mcp_server.storage.journal import KeptCopies
from mcp_server.text import entries
from mcp_server.text.destinations import ARCHIVE, MEMORY
from mcp_server.text.entries import entry_id
from mcp_server.text.markdown import minute_text, read_moment
from mcp_server.text.prose import clipped, counted
from mcp_server.text.words import content_words, fold, words


def lost_lines(earlier: str, now: str) -> list[str]:
    """Returns the lines of `earlier` that `now` lacks or has less often, in order, without empty ones."""
    left = Counter(line.strip() for line in now.splitlines())
    lost: list[str] = []
    for line in filter(str.strip, earlier.splitlines()):
        if left[line.strip()]:
            left[line.strip()] -= 1
        else:
            lost.append(line)
    return lost


def matching(query: str, texts: Iterable[str]) -> tuple[int, str]:
    """Returns how many content words of the query are in the texts together, and the text with most of them."""
    wanted = set(content_words(query)) or set(words(query))
    found: set[str] = set()
    best, most = "", 0
    for text in texts:
        here = {word for word in wanted if word in fold(text)}
        found |= here
        if len(here) > most:
            best, most = text, len(here)
    return len(found), best


COMMITS = 200  # number of commits that are searched for earlier versions
VERSIONS_PER_FILE = 3
SUMMARY = 100


@dataclass(frozen=True, slots=True)
class Recoverable:
    """An item that can be restored to `path`. `at` is when it was written (ISO), `summary` one line of it, `matched`
    the number of words of the query in it."""

    id: str
    kind: Kind
    path: str
    at: str
    summary: str
    matched: int = 0

    @property
    def written(self) -> str:
        """Returns the day and the minute of `at` in UTC; an archived entry has only a day, or nothing."""
        moment = read_moment(self.at) if "T" in self.at else None
        return minute_text(moment) if moment else self.at


async def recoverable(
    memory: Memory, query: str | None = None, limit: int = 20, session: str | None = None
) -> list[Recoverable]:
    """Returns what can be recovered, at most `limit` of each kind: the newest first, or the best matches of `query`.
    With a session, only chunks that left its live context. Raises NotFound if there is no such session."""
    query = (query or "").strip() or None
    cold = await _cold(memory, query, limit, session)
    if session:
        return cold
    kept = await run_sync(_checkpoints, memory, query, limit)
    return cold + kept + await run_sync(lambda: _listed(memory, query, limit))


async def meant(memory: Memory, query: str, session: str | None = None) -> Recoverable:
    """Returns the recoverable item that has the most words of a query; with a session, only chunks that left its live
    context are searched.

    Raises:
        NotFound: no item has any of its words.
        Invalid: several items match equally well; the error names them.
    """
    # Kept copies for an undo, and checkpoints, can be chosen by their id only.
    found = [
        one for one in await recoverable(memory, query, session=session) if one.kind not in ("replaced", "checkpoint")
    ]
    found.sort(key=lambda one: -one.matched)
    best = [one for one in found if one.matched and one.matched == found[0].matched]
    if not best:
        raise NotFound(f"nothing that can be recovered matches {query!r}; `recover` without arguments lists everything")
    if len(best) > 1:
        named = "; ".join(f"{one.id} ({one.summary[:60]})" for one in best[:5])
        raise Invalid(f"{len(best)} things match {query!r} equally well, give the id of one: {named}")
    return best[0]


def as_text(found: list[Recoverable], query: str | None = None) -> str:
    """Returns the list as text for a model."""
    about = f" that matches {query!r}" if query else ""
    if not found:
        return f"There is nothing to recover{about}."
    lines = [f"- {one.written or one.path}, {one.kind}: {one.summary} · {one.id}" for one in found]
    return "\n".join([f"Can be recovered{about}, by the id at the end of the line (times in UTC):", *lines])


async def _cold(memory: Memory, query: str | None, limit: int, session: str | None) -> list[Recoverable]:
    """Returns chunks in cold storage that are not live and whole, with the reason, the score and the last day."""
    if query is None:
        records = [record for record in await cold_records(memory, session) if record.form != "whole"][:limit]
    else:
        records = await find_cold(memory, query, session, limit)
    found = []
    for one in records:
        place, matched = f"session {one.session_id}, turn {one.turn}", 0
        if query:
            matched, _ = matching(query, [one.content, one.name])
        text = clipped(one.content[: SUMMARY * 8], SUMMARY) or one.name or f"a {one.kind} that the client named"
        why = f"{one.drop_reason.replace('_', ' ')}, score {one.relevance_score:.2f}"
        summary = f"{text} ({why}, until {one.recoverable_until:%Y-%m-%d})"
        found.append(Recoverable(one.chunk_id, "cold", place, one.timestamp.isoformat(), summary, matched))
    return found


def _checkpoints(memory: Memory, query: str | None, limit: int) -> list[Recoverable]:
    """Returns checkpoints, matched by their note and their text."""
    files = CheckpointFiles(memory.files)

    def found() -> Iterator[_Listed]:
        for head in files.heads():
            lines = [head.note]
            with suppress(ContextManagerError):  # a damaged checkpoint is found by its note
                if query:
                    read = files.read(head.path)
                    lines += [*read.thread.splitlines(), *read.decisions, *read.open_items]
            summary = described_text(files.described(head))
            yield Recoverable(head.id, "checkpoint", head.path, head.at.isoformat(), summary), lines

    return list(islice(_ranked(found(), query), limit))


_Listed = tuple[Recoverable, list[str]]  # a recoverable item, and the lines that a query is matched against


def _listed(memory: Memory, query: str | None, limit: int) -> list[Recoverable]:
    """Returns kept copies, reverted commits, versions, archived entries and files. A kind that cannot be read is left
    out."""
    listed: list[Recoverable] = []
    for kind in (_replaced_ones, _reverted, _versions, _archived):
        with suppress(ContextManagerError):  # no git, an unreadable archive: the other kinds are still listed
            listed += islice(_ranked(kind(memory), query), limit)
    return listed


def _ranked(found: Iterator[_Listed], query: str | None) -> Iterator[Recoverable]:
    """Yields the items in their order, or with a query those that match it, best first."""
    if not query:
        yield from (one for one, _ in found)
        return
    scored = [(matching(query, [*lines, one.path]), one) for one, lines in found]
    for (count, best), one in sorted(scored, key=lambda pair: -pair[0][0]):
        if count:
            shown = one.summary if best in ("", one.path) else clipped(best, SUMMARY)
            yield Recoverable(one.id, one.kind, one.path, one.at, shown, count)


def _replaced_ones(memory: Memory) -> Iterator[_Listed]:
    for kept in KeptCopies(memory.files).all():
        cold = any(path.startswith(KEPT_COLD) for path in kept.files)
        texts = {} if cold else kept.files  # records of cold chunks are JSON
        lines = [line for path, text in texts.items() for line in lost_lines(text or "", _text(memory, path))]
        summary = f"sends {kept.why} back to cold storage" if cold else f"as it was before {kept.why} was recovered"
        yield Recoverable(kept.id, "replaced", ", ".join(kept.files), kept.at.isoformat(), summary), lines


def _reverted(memory: Memory) -> Iterator[_Listed]:
    for commit in reverted_commits(memory):
        said = memory.forgotten.clean(commit.message)
        summary = f"the reverted commit: {said.partition(chr(10))[0]}"
        found = Recoverable(commit.id[:10], "commit", "", commit.at.isoformat(), clipped(summary, SUMMARY))
        yield found, said.splitlines()


def _versions(memory: Memory) -> Iterator[_Listed]:
    """Yields the last versions of each file that differ from the current one."""
    seen: dict[str, set[str]] = {}
    for version in memory.git.versions([folder.rstrip("/") for folder in WRITABLE], COMMITS):
        if version.path == ARCHIVE:
            continue
        if version.path not in seen:
            now = _bytes(memory, version.path)
            seen[version.path] = {"" if now is None else object_id(now, version.blob)}
        blobs = seen[version.path]
        if version.blob not in blobs and len(blobs) <= VERSIONS_PER_FILE:
            blobs.add(version.blob)
            yield _as_listed(memory, version)


def _as_listed(memory: Memory, version: Version) -> _Listed:
    # An earlier version may still contain text that was forgotten on request: it must not be shown.
    earlier = memory.forgotten.clean(memory.git.blob(version.blob).decode("utf-8", "replace"))
    now = _text(memory, version.path)
    back, away = lost_lines(earlier, now), lost_lines(now, earlier)
    gone = "" if memory.files.exists(version.path) else "the file is gone; "
    change = f"restoring adds {counted(len(back), 'line')} and removes {len(away):,}"
    summary = f"{gone}{change} ({clipped(version.subject, SUMMARY)})"
    what = f"{version.path}@{version.commit[:10]}"
    return Recoverable(what, "version", version.path, version.at.isoformat(), summary), back


def _archived(memory: Memory) -> Iterator[_Listed]:
    """Yields archived entries of MEMORY.md, newest date first, then whole files under archive/."""
    kept = entries.entries(_text(memory, ARCHIVE))
    for entry in sorted(kept, key=lambda entry: (entry.date, entry.start), reverse=True):
        summary = clipped(entry.text.removeprefix("- "), SUMMARY)
        found = Recoverable(entry_id(entry.text), "archive", MEMORY, entry.date, summary)
        yield found, entry.text.splitlines()
    for stat in memory.files.walk("archive/"):
        if stat.path != ARCHIVE and stat.path.endswith(".md"):
            lines = _text(memory, stat.path).splitlines()
            title = next((line for line in lines if line.startswith("#")), "")
            yield Recoverable(stat.path, "archive", stat.path, "", clipped(title, SUMMARY)), lines


def _text(memory: Memory, path: str) -> str:
    """Returns the file as text; empty if it is missing or no text."""
    return (_bytes(memory, path) or b"").decode("utf-8", "replace")


def _bytes(memory: Memory, path: str) -> bytes | None:
    try:
        return memory.files.bytes_or_none(path)
    except ContextManagerError:
        return None
