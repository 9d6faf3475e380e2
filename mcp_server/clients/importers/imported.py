"""The values that all importers share: tool calls, ids, skipped items, progress, and the report."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal, TypeVar

from mcp_server.clients.adapters.adapter import Recorded
from mcp_server.conversations.imports import ImportedFile, ImportedSession, ImportedTurn, RecordedSession
from mcp_server.model import ToolCall
from mcp_server.text.redaction import redact

SUMMARY, RESULT = 200, 400
"""Characters kept of a tool call's input and output."""

SPOKEN = frozenset({"AskUserQuestion", "ExitPlanMode"})
"""Tools whose input and output are a conversation of user and model: SPOKEN_LENGTH characters are kept."""
SPOKEN_LENGTH = 4_000

OWN_ANSWERS = ("__compile_context", "__hook")
"""Our tools that return stored text: their output is not recorded again."""

OWN_QUESTIONS = ("__forget",)
"""Our tools whose input must not be recorded, because it contains the text to forget."""

_TELLING = (
    *("description", "command", "file_path", "notebook_path", "path", "pattern", "query", "url"),
    *("skill", "plan", "content", "prompt"),
)
_FILES = ("file_path", "notebook_path")
_LOOKED_AT = 8_000  # characters; more than are kept, so that a secret at the end of the kept text is recognized


def tool_call(name: str, given: Mapping[str, Any], result: str, cwd: str | None) -> ToolCall:
    """Returns a shortened, redacted tool call. File paths inside `cwd` become relative."""
    spoken = name in SPOKEN
    if name.endswith(OWN_ANSWERS + OWN_QUESTIONS):
        result = ""
    if name.endswith(OWN_QUESTIONS):
        given = {}
    return ToolCall(
        name=" ".join(name.split())[:200] or "tool",
        summary=_line(_asked(given), SPOKEN_LENGTH if spoken else SUMMARY),
        result=_line(result, SPOKEN_LENGTH if spoken else RESULT),
        files=files_named(given, cwd),
    )


def result_text(content: object, is_error: bool, longest: int = _LOOKED_AT) -> str:
    """Returns the first characters of a `tool_result` block."""
    if isinstance(content, str):
        text = content[:longest]
    elif isinstance(content, list):
        pieces = (
            block["text"]
            if isinstance(block, Mapping) and isinstance(block.get("text"), str)
            else f"[{block.get('type', 'block') if isinstance(block, Mapping) else 'block'}]"
            for block in content
        )
        text = "\n".join(piece[:longest] for piece in pieces)[:longest]
    else:
        text = ""
    return f"error: {text}" if is_error and text else text


def _asked(given: Mapping[str, Any]) -> str:
    for key in _TELLING:
        if isinstance(value := given.get(key), str) and value.strip():
            return value[:_LOOKED_AT]
    return json.dumps(given, ensure_ascii=False, default=str)[:_LOOKED_AT] if given else ""


def _line(text: str, most: int) -> str:
    """Returns `text` in one line of at most `most` characters. Redacts first: half a secret is not recognized."""
    line = " ".join(redact(text).text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def files_named(given: Mapping[str, Any], cwd: str | None) -> tuple[str, ...]:
    """Returns the files that a tool's input names. Paths inside `cwd` become relative."""
    named = [value for key in _FILES if isinstance(value := given.get(key), str) and value.strip()]
    return tuple(dict.fromkeys(_relative(path, cwd)[:1_000] for path in named))


def _relative(path: str, cwd: str | None) -> str:
    """Returns `path` with slashes, relative to `cwd` if inside. Windows paths are understood on any system."""
    kind = PureWindowsPath if PureWindowsPath(cwd or path).drive else PurePosixPath
    found = kind(path)
    if cwd and found.is_relative_to(kind(cwd)):
        return found.relative_to(kind(cwd)).as_posix()
    return found.as_posix() if kind is PureWindowsPath else path


NAMED = 1000
"""Number of skipped items whose names are kept; all others are only counted."""

REASONS, EXAMPLES = 24, 3
"""Lines of the summary, and names in each line."""

T = TypeVar("T")


@dataclass(slots=True)
class ImportReport:
    """The result of an import. The importers add to it while they read.

    `files` counts markdown files; `unchanged` counts files that have not changed since an earlier import and were not
    read again. `reasons` counts skipped items by reason; `skipped` has the first of them. `commit` is the id of the
    commit, or a sentence why there is none; empty if nothing was new. `folders` are the sessions' working folders, if
    they exist and no project was given.
    """

    format: Format
    sessions: int = 0
    new_sessions: int = 0
    turns: int = 0
    new_turns: int = 0
    copied: int = 0
    files: int = 0
    new_files: int = 0
    changed_files: int = 0
    unchanged: int = 0
    redacted: int = 0
    commit: str = ""
    folders: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def skip(self, item: Skipped) -> None:
        """Counts a skipped item and keeps its name, if not too many are kept already."""
        self.skip_counted({item.why: 1})
        if len(self.skipped) < NAMED:
            self.skipped.append(item)

    def kept(self, items: Iterable[T | Skipped]) -> Iterator[T]:
        """Yields the items that are not `Skipped`, and counts those that are."""
        for item in items:
            if isinstance(item, Skipped):
                self.skip(item)
            else:
                yield item

    def skip_counted(self, reasons: Mapping[str, int]) -> None:
        """Counts skipped items that have no names, by reason."""
        for why, count in reasons.items():
            self.reasons[why] = self.reasons.get(why, 0) + count
            self.skipped_count += count

    def add_session(self, done: RecordedSession, *, is_first: bool) -> None:
        """Counts a recorded part of a conversation. `is_first`: no part of that conversation was counted before."""
        self.sessions += is_first
        self.new_sessions += bool(is_first and done.new_turns and not done.repeated_turns)
        self.turns += done.new_turns + done.repeated_turns
        self.new_turns += done.new_turns
        self.redacted += done.redacted

    def add_file(self, kept: ImportedFile, name: str) -> bool:
        """Counts a markdown file. Returns True if it was written."""
        if kept.status == "skipped":
            self.skip(Skipped(name, kept.why))
            return False
        self.files += 1
        self.new_files += kept.status == "new"
        self.changed_files += kept.status == "changed"
        return kept.status != "same"

    @property
    def nothing_read(self) -> bool:
        return self.skipped_count > 0 and not (self.files or self.sessions or self.unchanged)

    @property
    def markdown(self) -> str:
        verb = "imported" if self.new_files or self.changed_files or self.new_turns else "read"
        known = self.files - self.new_files - self.changed_files
        files = f"{self.new_files} new, {self.changed_files} changed, {known} as they were"
        if self.format == "markdown":
            lines = [f"{self.files} files {verb}: {files}"]
        else:
            lines = [
                f"{self.sessions} sessions, {self.turns} turns {verb}: {self.new_sessions} sessions and "
                f"{self.new_turns} turns new, {self.turns - self.new_turns} turns already recorded"
            ]
            lines += [f"{self.files} files of projects and memories: {files}"] if self.files else []
        if self.copied:
            lines.append(f"{self.copied} of those are recorded in the session that they were copied from")
        if self.unchanged == 1:
            lines.append("1 file did not change since it was imported and was not read again")
        elif self.unchanged:
            lines.append(f"{self.unchanged} files did not change since they were imported and were not read again")
        if self.redacted:
            lines.append(f"{self.redacted} turns contained secrets, which were redacted before writing")
        if self.skipped_count:
            lines += [f"{self.skipped_count} skipped:", *self._reasons()]
        return "\n".join(lines)

    def _reasons(self) -> list[str]:
        names: dict[str, list[str]] = {}
        for item in self.skipped:
            if item.name:
                names.setdefault(item.why, []).append(item.name)
        ranked = sorted(self.reasons.items(), key=lambda reason: (-reason[1], reason[0]))
        lines: list[str] = []
        if len(kinds := [reason for reason in ranked if reason[0] not in names]) > EXAMPLES:
            ranked = [reason for reason in ranked if reason[0] in names]
            number, most = sum(count for _, count in kinds), kinds[0][0]
            lines.append(f"  {number:,} entries of {len(kinds)} kinds contain no message, most of them: {most}")
        for why, count in ranked[:REASONS]:
            named = list(dict.fromkeys(names.get(why, [])))
            if count == 1 and named:
                lines.append(f"  {named[0]}: {why}")
            else:
                more = ", …" if len(named) > EXAMPLES else ""
                lines.append(f"  {count:,} × {why}" + (f": {', '.join(named[:EXAMPLES])}{more}" if named else ""))
        if rest := ranked[REASONS:]:
            lines.append(f"  {sum(count for _, count in rest):,} for {len(rest)} other reasons (--json names them)")
        return lines


Format = Recorded | Literal["claude-ai", "chatgpt", "markdown"]


@dataclass(frozen=True, slots=True)
class Skipped:
    """An item that was left out: `name` is its place, `why` is the reason."""

    name: str
    why: str


LARGEST_PART = 4_000_000
"""Characters recorded in one piece."""

LONGEST_ID = 128
"""Characters of an id in an export; a longer one is replaced."""

EPOCH = datetime.fromtimestamp(0, UTC)
"""The time of messages without a time at the beginning of a conversation."""

Watch = Callable[[int, int, str], object]
"""Called with the progress of an import: done and total (bytes or files), and a label."""


def time_of_epoch(seconds: object) -> datetime | None:
    """Returns the UTC time of a number of seconds since 1970, or None if it is not a valid time."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def as_text(value: object) -> str:
    """Returns `value` if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def mappings_in(value: object) -> list[Mapping[str, Any]]:
    """Returns the JSON objects in a list; [] if `value` is not a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def one_line(value: object, default: str) -> str:
    """Returns a name in one line, or `default` if it is empty."""
    return " ".join(str(value or default).split())


def in_parts(session: ImportedSession) -> Iterator[ImportedSession]:
    """Yields a long session in pieces. A session with a turn without an id stays whole."""
    size = sum(len(turn.content) for turn in session.turns)
    if size <= LARGEST_PART or not all(turn.turn_id for turn in session.turns):
        yield session
        return
    turns: list[ImportedTurn] = []
    size = 0
    for turn in session.turns:
        turns.append(turn)
        size += len(turn.content)
        if size > LARGEST_PART:
            yield replace(session, turns=tuple(turns))
            turns, size = [], 0
    if turns:
        yield replace(session, turns=tuple(turns))


def plain_id(given: object, of: ImportedTurn) -> str:
    """Returns `given` if it can be an id, else a digest of the turn `of`."""
    if isinstance(given, str | int) and not isinstance(given, bool):
        text = str(given).strip()
        if text and len(text) <= LONGEST_ID and text.isprintable():
            return text
    said = f"{of.role}\0{of.at.isoformat()}\0{of.content}"
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def session_of(
    service: str,
    given_id: object,
    title: str,
    shown: str,
    turns: Sequence[ImportedTurn],
    project: str | None,
    model: object,
) -> ImportedSession | Skipped:
    """Returns the session of a conversation in a chat service's export, or why it is left out; reports call it
    `shown`."""
    if not turns:
        return Skipped(shown, "conversation without a message")
    return ImportedSession(
        session_id=f"{service}-{plain_id(given_id, turns[0])}",
        title=title or None,
        turns=tuple(turns),
        project=project,
        source=f"import:{service}",
        model=as_text(model) or None,
    )


def short_name(path: Path) -> str:
    """Returns a name for `path` for use in ids and folder names: letters, digits, `.`, `_`, `-`."""
    return re.sub(r"[^\w.-]+", "-", path.name).strip("-.") or "import"
