"""Rules for commits: which files are refused, how changes are grouped, and how the messages read.

The rules refuse secrets, unresolved conflicts, a MEMORY.md over its cap, and changes of closed conversations. They
apply to every file, no matter who wrote it. Refused files are reported and left out of the commit; the other files are
committed.

A message is `TYPE: what`, a line per file, then the conversations. It is written without an LLM. An LLM may then
improve the wording (`request`); its answer is used only if it has the requested form (`read_answer`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, get_args

from mcp_server.text.destinations import ARCHIVE, MEMORY
from mcp_server.text.entries import is_derived, is_state, remarked, sources_of, without_sources
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import marked_line, may_be_marked, split_front_matter
from mcp_server.text.redaction import redact, secrets

WARN_LINES, MOST_LINES = 180, 220
"""Numbers of lines of MEMORY.md above which there is a warning, and above which it is not committed."""

CONVERSATIONS = "raw/conversations/"
PROJECT_MAP = "knowledge/projects/_map.yaml"
FORGET = "Forget:"
"""The trailer of a commit that may change closed conversations."""

_ENDED = re.compile(r"^ended: *(?!null\b|~)\S", re.MULTILINE)


def refusal(
    path: str, after: str | None, before: str | None, *, forgetting: bool = False, redacted: bool = False
) -> str | None:
    """Returns why a file may not change from `before` to `after` (None: no file) in a commit; None if it may.

    With `forgetting`, the commit's message has the trailer that allows changes of closed conversations. With
    `redacted`, the file was just written without secrets and is not searched again.
    """
    if is_sealed(path, before) and after != before and not forgetting:
        did = "deleted" if after is None else "changed"
        return (
            f"a sealed conversation was {did}; undo it with `git restore`; to remove text, use `context-manager forget`"
        )
    if after is None:
        return None
    if before is None and secrets(path):
        return "its name holds a secret; rename it"
    return (None if redacted else _secret(after, before)) or _broken(path, after)


def _secret(after: str, before: str | None) -> str | None:
    """Returns the refusal of a new secret. A secret that is already in the last commit is allowed, because its owner
    knows about it."""
    found = secrets(after)
    known = {before[one.start : one.end] for one in secrets(before)} if found and before else set()
    new = [one for one in found if after[one.start : one.end] not in known]
    if not new:
        return None
    line = after.count("\n", 0, new[0].start) + 1
    return f"line {line} holds a secret ({new[0].kind}); say where it is kept, not what it is"


def _broken(path: str, after: str) -> str | None:
    if may_be_marked(path) and (line_marked := marked_line(after)):
        return f"line {line_marked} begins an unresolved conflict; keep the right lines and delete the markers"
    if path == MEMORY and (lines := _lines(after)) > MOST_LINES:
        return f"it has {lines} lines, at most {MOST_LINES} are committed; `context-manager prune --strategy memory`"
    return None


def warning(path: str, after: str | None) -> str | None:
    """Returns a warning about a file that is committed nevertheless."""
    if path == MEMORY and after is not None and (lines := _lines(after)) > WARN_LINES:
        return f"it has {lines} lines, over {MOST_LINES} it is not committed; `context-manager prune --strategy memory`"
    return None


def is_sealed(path: str, text: str | None) -> bool:
    """Returns whether a file is a conversation that has ended."""
    if text is None or not path.startswith(CONVERSATIONS) or not text.startswith("---"):
        return False
    return bool(_ENDED.search(text[: text.find("\n---", 3) + 1]))


def _lines(text: str) -> int:
    """Returns the number of lines, including a last one without a line end."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


Type = Literal["conversation", "memory", "identity", "maintenance", "explore", "extract"]
TYPES: tuple[Type, ...] = get_args(Type)

SUBJECT, LINE = 72, 120
"""Maximum number of characters of a subject, and of a quotation in the body."""
MOST_FILES, MOST_QUOTES, MOST_SESSIONS = 20, 8, 5
REPEATING = re.compile(r"knowledge/(?:memory/MEMORY|journal/[^/]+|(?:people|projects)/_\w+)\.(?:md|yaml)")
"""Files that repeat lines of other files, or that map names. In a message with other files, they are only named, not
quoted."""
ANSWER_TOKENS = 100
DIFF_CHARACTERS = 4000
"""Maximum number of characters of a diff in a request to an LLM."""
LONGEST_COMPARED = 200_000
"""For a file with more characters, only the sets of its old and new lines are compared, because a diff takes too
long."""

_BULLET = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")
_DATE = re.compile(r"^\d{4}-\d\d-\d\d:?\s+")
_TRAILERS = ("Session:", FORGET)
"""Beginnings of lines that programs read. Such lines are removed from an LLM's answer."""
_SETTINGS = ("memory-config.yaml", "lexicon.yaml", ".gitignore", ".gitattributes", ".gitmodules")


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of a file: its text before and after the change, None if it did not exist, "" if it is not text."""

    path: str
    before: str | None
    after: str | None
    session: str | None = None
    """The transcript of the conversation that wrote it, if known."""


_Lines = tuple[list[str], list[str]]
"""The lines that a change adds, and those that it removes."""


def group_by_type(changes: Iterable[FileChange], branch: str | None) -> dict[Type, list[FileChange]]:
    """Returns the changes grouped by the type of their commit.

    On the branch of an exploration or extraction all changes have its type. If files move to the archive, files that
    only lose lines are in the same commit.
    """
    every = sorted(changes, key=lambda change: change.path)
    branch_types: tuple[Type, ...] = ("explore", "extract")
    whole = next((one for one in branch_types if (branch or "").startswith(f"{one}/")), None)
    archives = any(change.path.startswith("archive/") for change in every)
    groups: dict[Type, list[FileChange]] = {}
    for change in every:
        groups.setdefault(whole or _type_of(change, archives), []).append(change)
    learned, rest = groups.get("extract", []), groups.get("memory", [])
    if learned and all(change.path == PROJECT_MAP for change in rest):  # the first conversation of a project
        groups["extract"] = sorted([*learned, *rest], key=lambda change: change.path)
        groups.pop("memory", None)
    return groups


def _type_of(change: FileChange, archives: bool) -> Type:
    if change.path.startswith(CONVERSATIONS):
        return "conversation"
    if change.path.startswith("knowledge/identity/"):
        return "identity"
    if change.path.startswith("archive/") or change.path in _SETTINGS:
        return "maintenance"
    said = [line for line in _changed_lines(change)[0] if _words(line)]
    if archives and not said:
        return "maintenance"
    return "extract" if said and all(map(is_derived, said)) else "memory"


def message(kind: Type, changes: Sequence[FileChange]) -> str:
    """Returns a whole commit message, never empty, without secrets."""
    every = sorted(changes, key=lambda change: change.path)
    described = [change for change in every if not REPEATING.fullmatch(change.path)] or every
    compared = [(change, _changed_lines(change)) for change in described]
    compared += [(change, _changed_lines(change)) for change in every if change not in described]
    labels = [label(_printable(change.path)) for change in described]
    if len(described) == 1 and kind == "conversation":
        subject = labels[0]
    elif len(described) == 1:
        change, lines = compared[0]
        subject = f"{labels[0]}: {_summary(change, lines)}"
    else:
        kept = 3 if len(labels) == 3 else 2
        more = f" and {len(labels) - kept} more" if len(labels) > kept else ""
        subject = ", ".join(labels[:kept]) + more
    body: list[str] = []
    for place, (change, lines) in enumerate(compared[:MOST_FILES]):
        body += _file_lines(change, lines, place < len(described))
    body += [f"- and {len(compared) - MOST_FILES} more files"] if len(compared) > MOST_FILES else []
    text = "\n".join([_cut(f"{kind}: {subject}", SUBJECT), "", *body, *trailers(changes)])
    return redact(text).text


def trailers(changes: Iterable[FileChange]) -> list[str]:
    """Returns an empty line and a line `Session: PATH` for every conversation that the changes come from; an empty list
    if there is none."""
    found: dict[str, None] = {}
    for change in changes:
        if change.path.startswith(CONVERSATIONS):
            found[change.path] = None
        if change.session:
            found[change.session] = None
        for line in _changed_lines(change)[0]:
            found.update(dict.fromkeys(source.path for source in sources_of(line)))
    shown = [f"Session: {path}" for path in found if path.isprintable()][:MOST_SESSIONS]
    return ["", *shown] if shown else []


def label(path: str) -> str:
    """Returns a file's name in a subject: `MEMORY.md`, `people/ana`, `journal 2026-02-16`, `project oven: progress`."""
    parts = path.split("/")
    name = parts[-1].removesuffix(".md")
    match parts:
        case ["knowledge", "memory", file]:
            return file
        case ["knowledge", "journal", _]:
            return f"journal {name}"
        case ["knowledge", "projects", slug, _]:
            return f"project {slug}" if name == "context" else f"project {slug}: {name}"
        case ["knowledge", *rest] if len(rest) > 1:
            return "/".join([*rest[:-1], name])
        case ["raw", "conversations", *_]:
            return name
        case _:
            return path


def request(template: str, kind: Type, changes: Sequence[FileChange]) -> str:
    """Returns the prompt that asks an LLM for a better message: a template with the diff as data."""
    lines: list[str] = []
    for change in changes:
        added, removed = _changed_lines(change)
        lines += [f"--- {change.path}", *(f"-{line}" for line in removed), *(f"+{line}" for line in added)]
    diff = neutralise(redact("\n".join(lines)).text[:DIFF_CHARACTERS])
    return template.replace("{type}", kind).replace("{diff}", diff)


def read_answer(answer: str, kind: Type, changes: Sequence[FileChange]) -> str | None:
    """Returns an LLM's message with our type and trailers; None if the answer is not a message."""
    first, _, rest = answer.strip().strip("`").strip().partition("\n")
    given, colon, summary = first.partition(":")
    summary = " ".join(summary.split())
    if not colon or given.strip().lower() not in TYPES or not summary or len(f"{kind}: {summary}") > SUBJECT:
        return None
    if not all(character.isprintable() or character == "\n" for character in summary + rest):
        return None
    lines = [line[: LINE * 2].rstrip() for line in redact(rest).text.strip().splitlines()[:4]]
    body = [line for line in lines if not line.lstrip().startswith(_TRAILERS)]
    text = "\n".join([f"{kind}: {summary}", *(["", *body] if body else []), *trailers(changes)])
    return redact(text).text


# ------------------------------------------------------------ what changed in a file


def _changed_lines(change: FileChange) -> _Lines:
    """Returns the lines that a change adds and removes. Leaves out front matter, which changes with every write."""
    if change.path.startswith(CONVERSATIONS):
        return [], []  # the file itself contains the messages
    before, after = _body(change.before), _body(change.after)
    if max(len(change.before or ""), len(change.after or "")) > LONGEST_COMPARED:
        old, new = set(before), set(after)
        return [line for line in after if line not in old], [line for line in before if line not in new]
    added: list[str] = []
    removed: list[str] = []
    for verb, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if verb != "equal":
            removed += before[a:b]
            added += after[c:d]
    return added, removed


def _body(text: str | None) -> list[str]:
    """Returns the lines of a text. Source marks in the form of older versions are converted, so that this form does not
    count as a change."""
    return [line for line in remarked(split_front_matter(text).body).split("\n") if line.strip()] if text else []


def _words(line: str) -> str:
    """Returns a line's text without bullet, date and provenance; empty for a heading."""
    if line.lstrip().startswith(("#", "<!--", "---", "```")) or is_state(line):
        return ""
    return _DATE.sub("", _BULLET.sub("", without_sources(line))).strip()


def _quotes(lines: Iterable[str]) -> list[str]:
    """Returns the texts of lines, safe for terminals, without secrets.

    Call it before cutting the texts: half a secret is not recognized.
    """
    return [" ".join(neutralise(redact(said).text).split()) for line in lines if (said := _words(line))]


def _summary(change: FileChange, lines: _Lines) -> str:
    said, gone = map(_quotes, lines)
    if said:
        return said[0] + (f" (+{len(said) - 1})" if len(said) > 1 else "")
    if change.after is None:
        return "moved to the archive" if change.path == ARCHIVE else "deleted"
    if gone:
        return f"without {gone[0]!r}" if len(gone) == 1 else f"{len(gone)} entries less"
    return "new" if change.before is None else "changed"


def _file_lines(change: FileChange, lines: _Lines, quoted: bool) -> list[str]:
    """Returns the lines of a commit message about one file: its path with the number of lines, then the first new
    lines, if they are `quoted`."""
    how = " (new)" if change.before is None else " (deleted)" if change.after is None else ""
    path = _printable(change.path)
    if change.path.startswith(CONVERSATIONS):
        return [f"- {path}{how}"]
    added, removed = lines
    quotes = _quotes(added) if quoted else []
    said = [f"  - {_cut(quote, LINE)}" for quote in quotes[:MOST_QUOTES]]
    said += [f"  - and {len(quotes) - MOST_QUOTES} more"] if len(quotes) > MOST_QUOTES else []
    return [f"- {path}{how} +{len(added)} -{len(removed)}", *said]


def _printable(path: str) -> str:
    """Returns a path with unprintable characters replaced. A user's file may have any name, and a line break in it
    could add a trailer to the message."""
    return "".join(one if one.isprintable() else "�" for one in path)


def _cut(text: str, longest: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
