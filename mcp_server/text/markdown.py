"""The parts of a markdown file: its front matter as text and as YAML 1.2 values, its sections, and its wiki links.

Errors of YAML name the file and the line.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Container, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from functools import lru_cache
from typing import Any

from mcp_server.errors import Invalid
from mcp_server.text.words import fold

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_WORDS_OF_YAML = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
# In a JSON string these would end an HTML comment, be invalid UTF-8 or YAML, or be invisible.
_UNWRITABLE = re.compile(r"[<>\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def is_plain(text: str) -> bool:
    """Returns whether `text` needs no quotes: it cannot be taken for a number, a date, a list or a YAML keyword."""
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS_OF_YAML


def yaml_line(value: object) -> str:
    """Returns `value` on one line: a plain word if it is unambiguous, else JSON, which is YAML as well."""
    if isinstance(value, datetime):
        return moment_text(value).replace(".000Z", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and is_plain(value):
        return value
    return json_line(value, spaced=True)


def json_line(value: object, *, spaced: bool = False) -> str:
    """Returns `value` as JSON on one line that is valid UTF-8 and safe inside an HTML comment."""
    separators = (", ", ": ") if spaced else (",", ":")
    text = json.dumps(
        value,
        ensure_ascii=False,
        separators=separators,
        default=lambda other: moment_text(other) if isinstance(other, datetime) else str(other),
    )
    return _UNWRITABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def moment_text(moment: datetime) -> str:
    """Returns a time in UTC with milliseconds: 2026-02-16T18:45:00.000Z. One without a zone is taken as UTC."""
    return to_utc(moment).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def second_text(moment: datetime) -> str:
    """Returns a time in UTC in whole seconds: 2026-02-16T18:45:00Z."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def minute_text(moment: datetime) -> str:
    """Returns a time in UTC for people: 2026-02-16 18:45."""
    return f"{to_utc(moment):%Y-%m-%d %H:%M}"


def local_day(zone: tzinfo, moment: datetime) -> str:
    """Returns the date of a moment in a time zone: 2026-02-16."""
    try:
        return moment.astimezone(zone).date().isoformat()
    except OverflowError:  # at an end of the calendar
        return moment.date().isoformat()


def read_moment(value: object) -> datetime | None:
    """Returns a time, given as text or datetime, in UTC; None for anything else."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return to_utc(moment) if isinstance(moment, datetime) else None
    except (ValueError, OverflowError):  # OverflowError: its day in UTC lies before the year 1 or after 9999
        return None


def moment_of_field(value: object) -> datetime | None:
    """Returns a date or time of front matter in UTC; None for anything else. A time without a zone is UTC."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return read_moment(value.strip() if isinstance(value, str) else value)


def to_utc(moment: datetime) -> datetime:
    """Returns the same time in UTC; one without a zone is taken as UTC."""
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


LONGEST = 1_000_000
MOST_VALUES = 100_000
"""Values of one text, counted each time that an alias (`*name`) repeats them: ten lines can expand to billions."""

CACHED = 10_000
"""Parsed texts of up to this many characters are cached: several modules read a topic's fields, and each parse takes 5
ms."""

DEEPEST = 4
"""Greatest depth at which the lines of keys are recorded; no field of this project is deeper."""


def load(text: str, where: str, first_line: int = 1) -> dict[str, Any]:
    """Returns the fields of a YAML mapping; an empty text has none. `text` begins at line `first_line` of `where`.

    Raises Invalid naming file and line if the text is not valid YAML, is not a mapping, has a key twice, or expands to
    more than MOST_VALUES values by aliases.
    """
    return located(text, where, first_line)[0]


Step = str | int
"""A key of a mapping, or a position in a list."""

Lines = Mapping[tuple[Step, ...], int]
"""The line of every key and list entry, by the steps that lead to it."""


def located(text: str, where: str, first_line: int) -> tuple[dict[str, Any], Lines]:
    """Returns the fields as `load` does, and the line of every key and list entry."""
    parse = _parsed if len(text) <= CACHED else _parsed.__wrapped__
    fields, lines = parse(text, where, first_line)
    return deepcopy(fields), lines


UNCLOSED = {
    "while scanning a quoted scalar": "the quotation mark that opens here is not closed",
    "while parsing a flow sequence": "the list that opens here with [ is not closed, or lacks a comma",
    "while parsing a flow mapping": "the mapping that opens here with { is not closed, or lacks a comma",
}
"""The likely error, by what the YAML parser was reading. The parser reports a position far behind the place of the
error."""

COLON = "mapping values are not allowed here"


@lru_cache(maxsize=256)
def _parsed(text: str, where: str, first_line: int) -> tuple[dict[str, Any], Lines]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    if len(text) > LONGEST:
        raise Invalid(f"{where}: line {first_line}: over {LONGEST:,} characters of YAML; is a closing `---` missing?")
    try:
        yaml = YAML(typ="safe", pure=True)
        node = yaml.compose(text)
        value = None if node is None else yaml.constructor.construct_document(node)
    except MarkedYAMLError as error:
        opened = UNCLOSED.get(str(error.context))
        mark = (error.context_mark if opened else None) or error.problem_mark or error.context_mark
        line = first_line + (mark.line if mark is not None else 0)
        what = opened or str(error.problem or error.context or "not valid YAML").split("\n")[0]
        what = "a value with a colon needs quotation marks" if what == COLON else what
        raise Invalid(f"{where}: line {line}: {what}") from error
    except Exception as error:  # a tag such as `!!bool x` makes the parser raise other errors
        what = (str(error) or type(error).__name__).splitlines()[0]
        raise Invalid(f"{where}: line {first_line}: not valid YAML: {what}") from error
    if "*" in text and _values_in(value, {}) > MOST_VALUES:
        raise Invalid(f"{where}: line {first_line}: aliases repeat more than {MOST_VALUES:,} values; write them out")
    if value is None:
        return {}, {}
    if not isinstance(value, dict):
        held = "a list" if isinstance(value, list) else "plain text" if isinstance(value, str) else repr(value)
        raise Invalid(f"{where}: line {first_line}: must be `name: value` lines, not {held}")
    lines: dict[tuple[Step, ...], int] = {}
    _note_lines(node, (), first_line, lines)
    return {str(key): entry for key, entry in value.items()}, lines


def _note_lines(node: Any, steps: tuple[Step, ...], first_line: int, lines: dict[tuple[Step, ...], int]) -> None:
    if len(lines) > MOST_VALUES or len(steps) > DEEPEST or not isinstance(node.value, list):
        return
    for place, entry in enumerate(node.value):
        pair = isinstance(entry, tuple)
        key, inner = entry if pair else (entry, entry)
        here = (*steps, str(key.value) if pair else place)
        lines[here] = first_line + key.start_mark.line
        _note_lines(inner, here, first_line, lines)


def _values_in(value: object, known: dict[int, int]) -> int:
    """Returns the number of values in a value, including itself; MOST_VALUES or more if it contains itself."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    if not inner:
        return 1
    if id(value) not in known:
        known[id(value)] = MOST_VALUES  # used if the value contains itself
        known[id(value)] = 1 + sum(_values_in(each, known) for each in inner)
    return known[id(value)]


_LINK = re.compile(r"\[\[([^\[\]|#\n]{1,200})(?:#([^\[\]|\n]{0,200}))?(?:\|([^\[\]\n]{0,200}))?\]\]")
_CODE = re.compile(
    r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)|(`+)(?!`)[^\n]*?(?<!`)\2(?!`)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link as written: the name that it points to, and a heading of that file."""

    name: str
    heading: str | None


def links(text: str) -> tuple[Link, ...]:
    """Returns the links of a text in order; links in code do not count."""
    if "[[" not in text:
        return ()
    code = [match.span() for match in _CODE.finditer(text)]
    found: list[Link] = []
    passed = 0
    for match in _LINK.finditer(text):
        while passed < len(code) and code[passed][1] <= match.start():
            passed += 1
        name = match.group(1).strip()
        if not name or (passed < len(code) and code[passed][0] <= match.start()):
            continue
        found.append(Link(name, (match.group(2) or "").strip() or None))
    return tuple(found)


def as_shown(text: str) -> str:
    """Returns a text with the label of each wiki link in its place: "atlas" for `[[atlas/context|atlas]]`."""
    return _LINK.sub(lambda link: (link[3] or link[1]).strip(), text) if "[[" in text else text


def link_targets(known_paths: Iterable[str]) -> dict[str, str]:
    """Returns the files that links can mean, by name, for `resolve`.

    A name means the file with this path, else one whose path ends with it, else the `context` or `_index` of a folder
    that ends with it. Of several such files the one with the shortest path is meant, then the first by name.
    """
    best: dict[str, tuple[int, int, str]] = {}
    for path in known_paths:
        steps = _plain(path).split("/")
        ranks = {"/".join(steps[first:]): min(first, 1) for first in range(len(steps))}
        if steps[-1] in ("context", "-index"):
            ranks = {"/".join(steps[first:-1]): 2 for first in range(1, len(steps) - 1)} | ranks
        for name, rank in ranks.items():
            found = (rank, len(path), path)
            best[name] = min(best.get(name, found), found)
    return {name: path for name, (_, _, path) in best.items()}


def resolve(name: str, targets: Mapping[str, str]) -> str | None:
    """Returns the file among these `link_targets` that a link's name means; None if there is none. Ignores case,
    accents, spaces and a missing `.md`."""
    return targets.get(_plain(name))


def _plain(path: str) -> str:
    return re.sub(r"[\s_]+", "-", fold(path.strip().strip("/").removesuffix(".md")))


_BEGIN = re.compile(r"^<{7}(?: .*)?\r?$", re.MULTILINE)
_MIDDLE = re.compile(r"^={7}\r?$", re.MULTILINE)
_END = re.compile(r"^>{7}(?: .*)?\r?$", re.MULTILINE)


def marked_line(text: str) -> int | None:
    """Returns the line (from 1) at which an unresolved conflict of git begins; None if there is none.

    All three markers must begin a line, in their order. A conversation that quotes a conflict has them too, so use this
    only for files that people and agents edit.
    """
    if "<<<<<<<" not in text:  # most texts have none
        return None
    begin = _BEGIN.search(text)
    middle = _MIDDLE.search(text, begin.end()) if begin else None
    if begin is None or middle is None or _END.search(text, middle.end()) is None:
        return None
    return text.count("\n", 0, begin.start()) + 1


def may_be_marked(path: str) -> bool:
    """Returns whether conflict markers in this file mean a conflict. In transcripts they do not: a message may quote
    them."""
    return not path.startswith("raw/")


@dataclass(frozen=True, slots=True)
class SplitText:
    """A file's front matter and body. `raw` is the text between the fences, empty without any; `head` is all of the
    text before the body, with the fences; `body` begins at line `body_line`."""

    raw: str
    body: str
    body_line: int
    head: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text up to the next heading of any level: lines `start` to `end`, the heading among them.

    `trail` names the headings above it, the outermost first. Text before the first heading has level 0 and no title.
    """

    level: int
    title: str
    trail: tuple[str, ...]
    start: int
    end: int
    text: str


_FENCE_LINE = re.compile(r"^(?:---|\.\.\.)[ \t\r]*$", re.MULTILINE)

_COMMENT = re.compile(r"^[ \t]*<!--.*?-->([^\n]*)", re.MULTILINE | re.DOTALL)


def without_comments(text: str) -> str:
    """Returns the text with the comments blanked that have lines of their own; the number of lines stays the same. The
    text after the last `-->` is not searched, because each `<!--` in it would cost a search to the end."""
    last = text.rfind("-->")
    if last < 0:
        return text
    end = text.find("\n", last) if "\n" in text[last:] else len(text)
    return _COMMENT.sub(_blanked, text[:end]) + text[end:]


def _blanked(comment: re.Match[str]) -> str:
    """Returns the line ends of a comment; a comment with words after it is returned unchanged."""
    return comment[0] if comment[1].strip() else "\n" * comment[0].count("\n")


def split_front_matter(text: str) -> SplitText:
    """Returns the text between two `---` lines at the beginning of a file, and the rest. Without both lines, all of the
    text is body."""
    nothing = SplitText("", text, 1)
    start = 1 if text.startswith("\ufeff") else 0
    first = text.find("\n", start)
    if first < 0 or text[start:first].rstrip(" \t\r") != "---":
        return nothing
    closing = _FENCE_LINE.search(text, first + 1)
    if closing is None:
        return nothing
    end = text.find("\n", closing.end())
    after = len(text) if end < 0 else end + 1
    # A last line without a line feed still ends the front matter: the body would begin with the line after it.
    body_line = text.count("\n", 0, after) + (1 if end >= 0 else 2)
    return SplitText(text[first + 1 : closing.start()], text[after:], body_line, text[:after])


_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t](.*))?")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
_CODE_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_NO_PARAGRAPH = re.compile(r" {0,3}(?:[-*+>|]|\d{1,9}[.)](?:\s|$)|<)|    |\t")


def sections(body: str, first_line: int = 1) -> tuple[Section, ...]:
    """Returns the sections of a markdown body whose first line is line `first_line` of its file.

    ATX (`## Title`) and setext (underlined) headings count, except in fenced code and in HTML comments.
    """
    lines = body.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    headings = _headings(lines)
    starts = [index for index, _, _ in headings]
    found: list[Section] = []
    open_titles: list[tuple[int, str]] = []
    first = starts[0] if starts else len(lines)
    if any(line.strip() for line in lines[:first]):
        found.append(Section(0, "", (), first_line, first_line + first - 1, "\n".join(lines[:first])))
    ends = [*starts[1:], len(lines)][: len(starts)]
    for (start, level, title), end in zip(headings, ends, strict=True):
        while open_titles and open_titles[-1][0] >= level:
            open_titles.pop()
        trail = tuple(above for _, above in open_titles)
        open_titles.append((level, title))
        text = "\n".join(lines[start:end])
        found.append(Section(level, title, trail, first_line + start, first_line + end - 1, text))
    return tuple(found)


def _headings(lines: list[str]) -> list[tuple[int, int, str]]:
    """Returns the index of the first line, the level and the title of every heading."""
    found: list[tuple[int, int, str]] = []
    fence = ""
    in_comment = False
    paragraph: int | None = None  # where the paragraph that may turn out to be a setext heading began
    for index, raw in enumerate(lines):
        line = raw.removesuffix("\r")
        if in_comment:
            in_comment = "-->" not in line
            continue
        code = _CODE_FENCE.fullmatch(line)
        if fence:
            if code and code.group(1).startswith(fence) and not code.group(2).strip():
                fence = ""
            continue
        if code and not (code.group(1)[0] == "`" and "`" in code.group(2)):
            fence, paragraph = code.group(1), None
        elif line.lstrip(" ").startswith("<!--"):
            in_comment, paragraph = "-->" not in line, None
        elif heading := _HEADING.fullmatch(line):
            found.append((index, len(heading.group(1)), _title(heading.group(2) or "")))
            paragraph = None
        elif paragraph is not None and (under := _UNDERLINE.fullmatch(line)):
            title = " ".join(part.strip() for part in lines[paragraph:index])
            found.append((paragraph, 1 if under.group(1)[0] == "=" else 2, title))
            paragraph = None
        elif not line.strip():
            paragraph = None
        elif paragraph is None and not _NO_PARAGRAPH.match(line):
            # A lazy continuation of a list item or quote does not begin a paragraph.
            above = lines[index - 1].strip() if index else ""
            paragraph = index if not above or (found and found[-1][0] == index - 1) else None
    return found


def _title(written: str) -> str:
    """Returns the words of an ATX heading without the `#`s that may close it. (A pattern is slow on runs of blanks.)"""
    title = written.strip()
    unclosed = title.rstrip("#")
    return unclosed.rstrip() if not unclosed or unclosed[-1] in " \t" else title


def difference(before: str | None, after: str | None, path: str) -> str:
    """Returns the change of a file as a unified diff; None stands for no file."""
    old, new = (path if text is not None else "/dev/null" for text in (before, after))
    was, becomes = ((text or "").splitlines() for text in (before, after))
    return "\n".join(difflib.unified_diff(was, becomes, old, new, n=1, lineterm=""))


def without_lines(text: str, numbers: Container[int]) -> str:
    """Returns a text without the lines of these numbers, counted from 1. If there are blank lines above and below the
    removed lines, one of them stays."""
    kept: list[str] = []
    is_gap = False
    for number, line in enumerate(text.split("\n"), 1):
        if number in numbers:
            is_gap = bool(kept) and not kept[-1].strip()
        else:
            kept += [] if is_gap and not line.strip() else [line]
            is_gap = False
    return "\n".join(kept)
