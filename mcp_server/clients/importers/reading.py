"""Reads a transcript file from the end of the last reading, in batches that fit in memory, and finds such files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from mcp_server.clients.adapters.adapter import CLAUDE_CODE, Adapter
from mcp_server.clients.importers.imported import Skipped
from mcp_server.clients.importers.threads import ReadingState, Threads, ThreadTurn
from mcp_server.text.redaction import redact
from mcp_server.topics.topic import validated

LONGEST = 64 * 1024 * 1024
"""Bytes of a line; a longer one is skipped, so that memory stays bounded."""

TORN = "last line cut short"
_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A line of a transcript: its bytes `start` to `end`, and its fields. For an unusable line, `why` is the reason.

    `why` is TORN for an incomplete last line: the client may still be writing it.
    """

    start: int
    end: int
    fields: Mapping[str, Any] | None
    why: str = ""


def lines(file: BinaryIO, start: int) -> Iterator[TranscriptLine]:
    """Yields the lines from byte `start` on, the beginning of a line. Skips empty lines."""
    file.seek(start)
    while raw := file.readline(LONGEST):
        end = start + len(raw)
        if len(raw) == LONGEST and not raw.endswith(b"\n"):
            raw = b""
            while (more := file.readline(_PIECE)) and not more.endswith(b"\n"):
                end += len(more)
            if not more:
                yield TranscriptLine(start, end, None, TORN)
                return
            end += len(more)
            yield TranscriptLine(start, end, None, f"line over {LONGEST // 1024**2} MB")
        elif raw.strip():
            fields, why = _fields(raw)
            if fields is None and not raw.endswith(b"\n"):
                yield TranscriptLine(start, end, None, TORN)
                return
            yield TranscriptLine(start, end, fields, why)
        start = end


def _fields(raw: bytes) -> tuple[Mapping[str, Any] | None, str]:
    try:
        found = json.loads(raw.decode("utf-8", "replace"))
    except RecursionError:
        return None, "line nested too deeply"
    except ValueError:
        return None, "line that is not JSON"
    return (found, "") if isinstance(found, dict) else (None, "line that is not an object")


SUFFIX = ".jsonl"
SUBAGENTS = "subagents"

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SESSION_ID = re.compile(r"[^\x00-\x20\x7f-\x9f\ud800-\udfff][^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,99}")
_LOOKED_AT = 200  # lines


def transcripts(path: Path, adapter: Adapter = CLAUDE_CODE) -> Iterator[Path | Skipped]:
    """Yields the transcripts at `path` (a file, a project's folder, or all projects); as Skipped, links that leave it.

    They are ordered by the time of their last change, so that a copy comes after its original.
    """
    if path.is_file():
        yield path
        yield from subagents(path)
        return
    root = path.resolve()
    found: list[tuple[int, str, Path]] = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if not file.match(adapter.file_names):
                continue
            if not file.resolve().is_relative_to(root):
                yield Skipped(str(file.relative_to(path)), "a link that leads out of the folder")
            elif file.is_file():
                found.append((file.stat().st_mtime_ns, str(file), file))
    yield from (file for _, _, file in sorted(found))


def subagents(transcript: Path) -> list[Path]:
    """Returns the transcripts of a session's subagents, which are in a folder named after it."""
    folder = transcript.with_suffix("") / SUBAGENTS
    found = sorted(folder.rglob(f"*{SUFFIX}")) if folder.is_dir() else []
    return [file for file in found if file.is_file() and file.resolve().is_relative_to(folder.resolve())]


def session_of(path: Path, file: BinaryIO, adapter: Adapter = CLAUDE_CODE) -> str:
    """Returns the session of a file: its name if that is a UUID, else the first session id in its lines."""
    if _UUID.fullmatch(path.stem):
        return path.stem
    for line in islice(lines(file, 0), _LOOKED_AT):
        for fields in adapter.lines(line.fields or {}):
            named = fields.get("sessionId")
            if isinstance(named, str) and _SESSION_ID.fullmatch(named):
                return named
    return re.sub(r"[^\w-]+", "-", path.stem)[:64].strip("-_") or "session"


def project_place(cwd: str | None) -> tuple[str | None, str | None]:
    """Returns the project of the folder `cwd`: an existing folder, or a name if the folder is gone.

    A removed worktree belongs to the repository around it.
    """
    if not cwd:
        return None, None
    folder = Path(cwd)
    if folder.is_dir():
        return cwd, None
    if folder.is_absolute():
        there = next((parent for parent in folder.parents if parent.is_dir()), folder)
        if any(
            (place / marker).exists() for place in (there, *there.parents) for marker in (".git", ".context-manager")
        ):
            return str(there), None
        if any(folder.is_relative_to(place) for place in (tempfile.gettempdir(), "/tmp")):
            return None, None
    name = PurePosixPath(cwd.replace("\\", "/")).name
    return None, name or None


MOST_TURNS, MOST_CHARACTERS = 2_000, 4_000_000
"""The size at which a batch is yielded."""

_CHECKED = 256


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position in a file: the next reading begins at byte `offset`; bytes before `reached` were read once.

    `check` is a digest of the file's first bytes and of those before `offset`; another digest means that the file was
    replaced. `turns` is the number of turns before `offset`. `whole`: no answer was held back when the file had `size`
    bytes and was changed at `mtime_ns`. `session` is the session of the turns that follow: the file's own, or the one
    that our prompt `resume` continued in it.
    """

    session: str = ""
    offset: int = 0
    check: str = ""
    reached: int = 0
    turns: int = 0
    size: int = -1
    mtime_ns: int = 0
    whole: bool = False
    state: ReadingState = field(default_factory=ReadingState)

    def as_json(self) -> dict[str, Any]:
        """Returns the fields of the cursor and its state as one JSON object, without secrets."""
        fields = asdict(self)
        state = fields.pop("state")
        clean = {name: state[name] and redact(state[name]).text for name in ("cwd", "model")}
        return {**fields, **state, **clean, "at": self.state.at.isoformat()}


def cursor_from(stored: object) -> Cursor:
    """Returns the cursor that `as_json` stored; for an invalid value, a cursor at the beginning."""
    return (isinstance(stored, dict) and validated(Cursor, {**stored, "state": stored})) or Cursor()


@dataclass(frozen=True, slots=True)
class Batch:
    """Turns to record, and the cursor to store afterwards. `session` is the file's, without a subagent's id."""

    session: str
    said: tuple[ThreadTurn, ...]
    cursor: Cursor
    cwd: str | None
    model: str | None


def batches(
    path: Path,
    cursor: Cursor,
    skipped: Counter[str],
    *,
    adapter: Adapter = CLAUDE_CODE,
    final: bool,
    only_whole: bool = False,
    most_turns: int | None = None,
    most_characters: int | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Iterator[Batch]:
    """Yields the turns of `path` after `cursor`; the last batch may be empty. `skipped` counts lines by kind.

    `final` includes the last answer; with `only_whole` only if it seems complete. `on_bytes` is called with the number
    of bytes read. Raises OSError if the file cannot be read.
    """
    with path.open("rb") as file:
        found = path.stat()
        is_longer = found.st_size >= max(cursor.offset, cursor.reached)
        start = cursor if is_longer and _check(file, cursor.offset) == cursor.check else Cursor()
        if start.offset == 0 and start.reached == 0:
            start = replace(start, state=ReadingState(at=datetime.fromtimestamp(int(found.st_mtime), UTC)))
        session = start.session or session_of(path, file, adapter)
        threads = Threads(start.state)
        quiet, turns, end = start, start.turns, start.offset
        said: list[ThreadTurn] = []
        characters, torn = 0, False

        def batch(at: Cursor) -> Batch:
            at = replace(
                at, session=at.session or session, check=_check(file, at.offset), reached=max(start.reached, end)
            )
            return Batch(session, tuple(said), at, threads.cwd, threads.model)

        for line in lines(file, start.offset):
            threads.skipped = skipped if line.start >= start.reached else Counter()
            if line.why == TORN:
                torn = True
                break
            end = line.end
            on_bytes(end)
            if line.fields is None:
                threads.skipped[line.why] += 1
                continue
            for fields in adapter.lines(line.fields):
                before = threads.state() if fields.get("type") == "assistant" else None
                new = threads.read(fields, line.start)
                said += new
                turns += len(new)
                characters += sum(len(one.turn.content) + 300 * len(one.turn.tool_calls) for one in new)
                if threads.waiting_since == line.start and before is not None:
                    quiet = Cursor(session, offset=line.start, turns=turns, state=before)
            waiting, following = threads.waiting_since, threads.resumed or session
            is_full = len(said) >= (most_turns or MOST_TURNS) or characters >= (most_characters or MOST_CHARACTERS)
            if is_full or following != session:
                here = Cursor(following, offset=end, turns=turns, state=threads.state()) if waiting is None else quiet
                place = file.tell()
                yield batch(here)
                file.seek(place)
                said, characters, session = [], 0, following
        if final:
            if torn:
                threads.skipped[TORN] += 1
            rest = threads.finish(only_whole=only_whole)
            said += rest
            turns += len(rest)
        if threads.waiting_since is None:
            quiet = Cursor(session, offset=end, turns=turns, state=threads.state())
        whole = threads.waiting_since is None and (final or not torn)
        yield batch(replace(quiet, size=found.st_size, mtime_ns=found.st_mtime_ns, whole=whole))


def _check(file: BinaryIO, offset: int) -> str:
    """Returns a digest of the first and the last bytes before `offset`."""
    digest = hashlib.sha256()
    for start in (0, max(0, offset - _CHECKED)):
        file.seek(start)
        digest.update(file.read(min(_CHECKED, offset - start)))
    return digest.hexdigest()[:16]
