"""Matchers of triggers: path patterns, the literals of regular expressions, and the parts of a message.

The parts are words, links, a raised voice, and blocks of code. A fence's own language is used. For a fence without one,
and for indented code, the language whose typical constructs occur most often is used, if any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]  # private, and has no types
from typing import Any

from mcp_server.text.words import fold

MOST_PATTERNS = 8192


def matches(pattern: str, path: str) -> bool:
    """Returns whether a path matches a path pattern."""
    return _compiled(pattern).fullmatch(path.replace("\\", "/")) is not None


def suffix(pattern: str) -> str:
    """Returns the lower-case extension (`.py`) of every path that a pattern matches; empty if there is no such
    extension."""
    found = re.search(r"\.[A-Za-z0-9]+$", pattern)
    return found[0].lower() if found else ""


_TOKEN = re.compile(r"(?<![^/])\*{2,}/|\*{2,}|\[[!^]?\]?[^\]]*\]|.", re.DOTALL)


@lru_cache(maxsize=MOST_PATTERNS)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Returns the pattern as a regular expression. The text between two stars matches at its first occurrence only,
    which loses no match and avoids exponential backtracking."""
    pattern = pattern.replace("\\", "/").removeprefix("./")
    if "/" in pattern and not pattern.startswith("/"):
        pattern = f"**/{pattern}"
    chunks: list[tuple[str, list[str]]] = [("", [""])]  # the `**` before it, and the texts between its `*`
    for token in _TOKEN.findall(pattern):
        if token.startswith("**"):
            if chunks[-1] != (token, [""]):  # twice in a row is once
                chunks.append((token, [""]))
        elif token == "*":
            chunks[-1][1].append("")
        else:
            chunks[-1][1][-1] += _one(token)
    written = "" if "/" in pattern else r"(?>(?:.*/)?)"
    for place, (star, (first, *others)) in enumerate(chunks, start=1):
        skipped = r"(?:.*?/)??" if star.endswith("/") else r".*?" if star else ""
        last = place == len(chunks)  # has to reach the end of the path
        end = f"[^/]*{others.pop()}" if last and others else ""
        inside = "".join((skipped, first, *(f"(?>[^/]*?{one})" for one in others), end))
        written += inside if last else f"(?>{inside})"
    return re.compile(written, re.IGNORECASE | re.DOTALL)


def _one(token: str) -> str:
    """Returns the expression for a character, `?`, or a class; an invalid class matches itself."""
    if token == "?":
        return "[^/]"
    body = token[1:-1].removeprefix("!").removeprefix("^")
    if body:
        inside = re.sub(r"[\\\[\]&~|^]|-(?=-)", r"\\\g<0>", body)
        try:
            return re.compile(f"[{'' if body == token[1:-1] else '^/'}{inside}]").pattern
        except re.error:  # such as `[z-a]`
            pass
    return re.escape(token)


_TURKISH = {"İ": "i", "ı": "i"}
_FOREIGN = re.compile(r"\{(?!\d+(?:,\d*)?\}|,\d+\})|\[\^?\]?[^\]]*(?:\[|--|&&|~~|\|\|)")
"""Syntax that the package `regex` reads in another way than `re`, or may do so: fuzzy matching and nested classes."""


def folded(text: str) -> str:
    """Returns a text in the form in which required literals are searched: texts that differ only in case are equal."""
    for letter, plain in _TURKISH.items():
        if letter in text:
            text = text.replace(letter, plain)
    return text.casefold()


def required(expression: str, flags: str = "") -> frozenset[str]:
    """Returns folded literals of which every matching text contains at least one; empty if nothing is surely
    required, or if `re` does not understand the expression."""
    if _FOREIGN.search(expression):
        return frozenset()
    try:
        return _required(_parser.parse(expression, sum(getattr(re, flag.upper()) for flag in flags)))
    except (re.error, OverflowError, RecursionError):
        return frozenset()


def _required(parsed: Any) -> frozenset[str]:
    """Returns, of the required literals of a parsed sequence, those whose shortest is the longest, because they exclude
    the most texts."""
    found: list[frozenset[str]] = []
    run = ""  # the current run of literal characters
    for kind, value in parsed:
        if kind is _constants.LITERAL:
            run += chr(value)
            continue
        if kind in (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT):  # they match no characters
            continue
        found.append(frozenset((folded(run),)))
        run = ""
        if kind is _constants.SUBPATTERN:
            found.append(_required(value[-1]))
        elif kind in _REPEATS and value[0] > 0:
            found.append(_required(value[2]))
        elif kind is _constants.BRANCH:
            branches = [_required(branch) for branch in value[1]]
            found.append(frozenset().union(*branches) if all(branches) else frozenset())
    found.append(frozenset((folded(run),)))
    wanted = [literals for literals in found if literals and "" not in literals]
    return max(wanted, key=lambda literals: (min(map(len, literals)), -len(literals)), default=frozenset())


_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)


_WORD = re.compile(r"['’](?:s|t|d|m|re|ve|ll)\b|(?:[^\W_][\u0300-\u036f]*)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Spoken:
    """Folded words in order, without the endings of contractions; word `i` is at characters `spans[i]`."""

    words: Sequence[str]
    spans: Sequence[tuple[int, int]]


def spoken(text: str) -> Spoken:
    """Returns the words of a message."""
    found = [match for match in _WORD.finditer(text) if match[0][0] not in "'’" or match.start() == 0]
    words = [match[0].lower() if match[0].isascii() else fold(match[0]) for match in found]
    return Spoken(words, [match.span() for match in found])


_URL = re.compile(r"\b(?:https?://|www\.)[^\s<>\"'`|\\^{}]+", re.IGNORECASE)
_TRAILING = ".,;:!?*_…"


@dataclass(frozen=True, slots=True)
class Url:
    """A link as written, at characters `start` to `end`; `host` in lower case without port, `path` with its query."""

    text: str
    host: str
    path: str
    start: int
    end: int


def urls(text: str) -> Iterator[Url]:
    """Yields the links of a text in order, without punctuation and brackets that close a sentence around them."""
    if "://" not in text and "www." not in text.lower():
        return
    for match in _URL.finditer(text):
        said = match[0].rstrip(_TRAILING)
        while said and said[-1] in ")]" and said.count(said[-1]) > said.count("(["[")]".index(said[-1])]):
            said = said[:-1].rstrip(_TRAILING)
        rest = said.split("://", 1)[-1]
        host, slash, path = rest.partition("/")
        host = host.rpartition("@")[2].partition(":")[0].partition("?")[0].partition("#")[0].lower()
        if "." in host or host == "localhost":
            yield Url(said, host, slash + path, match.start(), match.start() + len(said))


def hosts(url: Url) -> Iterator[str]:
    """Yields the hosts that a site can name for a link: its own host, and the domains above it."""
    host = url.host.removeprefix("www.")
    while host:
        yield host
        host = host.partition(".")[2]


def host_of(site: str) -> str:
    """Returns the host that a site names, in lower case; empty if it has a wildcard."""
    host = site.split("://", 1)[-1].partition("/")[0].lower().removeprefix("www.")
    return "" if "*" in host or "?" in host or "[" in host else host


def leads_to(url: Url, site: str) -> bool:
    """Returns whether a link is on a site. `github.com` means the host and its subdomains, `github.com/*/*/pull/` also
    the beginning of the path; `*` matches within one step."""
    host, slash, path = site.split("://", 1)[-1].partition("/")
    host = host.lower().removeprefix("www.")
    here = url.host.removeprefix("www.")
    if not (here == host or here.endswith(f".{host}") or fnmatchcase(here, host)):
        return False
    if not slash:
        return True
    wanted = path.strip("/").lower().split("/") if path.strip("/") else []
    steps = re.split(r"[?#]", url.path, maxsplit=1)[0].strip("/").lower().split("/")
    return len(steps) >= len(wanted) and all(fnmatchcase(step, want) for step, want in zip(steps, wanted, strict=False))


_RUN = re.compile(r"[!?]*![!?]*")
_WORDS = re.compile(r"\b[A-Z][A-Z'’]*\b(?:[ ,]+\b[A-Z][A-Z'’]*\b)*")
_LEAST_RUN = 3
_LEAST_SHOUTED = 3

ALARM = frozenset(
    ("URGENT", "URGENTLY", "ASAP", "EMERGENCY", "IMMEDIATELY", "HELP", "SOS", "CRITICAL", "DRINGEND", "SOFORT", "HITNO")
)


def marks(text: str) -> Iterator[tuple[int, int]]:
    """Yields the places (start, end) of a raised voice: runs of `!`, words in capitals, words of alarm."""
    if "!" in text:
        yield from (match.span() for match in _RUN.finditer(text) if len(match[0]) >= _LEAST_RUN)
    for match in _WORDS.finditer(text):
        words = match[0].replace(",", " ").split()
        shouted = len(words) >= _LEAST_SHOUTED and 2 * sum(len(word) > 3 for word in words) >= len(words)
        if shouted or any(word.strip("'’") in ALARM for word in words):
            yield match.span()


_FENCE = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)\n(?P<body>.*?)(?:^ {0,3}(?P=fence)[`~]*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_INDENTED = re.compile(r"(?:\A|(?<=\n)[ \t]*\n)(?P<body>(?:(?: {4}|\t)[^\n]*\S[^\n]*(?:\n|\Z)){2,})")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")

ALIASES: Mapping[str, str] = {
    alias: name
    for name, aliases in {
        "python": "py python2 python3 py3",
        "javascript": "js jsx mjs node",
        "typescript": "ts tsx",
        "shell": "sh bash zsh console",
        "rust": "rs",
        "go": "golang",
        "cpp": "c++ cc",
        "c": "h",
        "csharp": "cs c#",
        "ruby": "rb",
        "kotlin": "kt",
        "yaml": "yml",
        "html": "htm",
        "sql": "postgres postgresql mysql sqlite",
    }.items()
    for alias in aliases.split()
}
"""Other names of languages after a fence."""

_MARKS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(marks, re.MULTILINE)
    for name, marks in {
        "python": r"^\s*(?:def \w+\(.*:\s*$|class \w+.*:\s*$|(?:from [\w.]+ )?import [\w., ]+$|elif .*:|print[ (]"
        r"|@\w+|if __name__|except\b.*:|with .+ as \w+:)",
        "javascript": r"^\s*(?:const |let |var |function[ *(]|export |import .+ from ['\"]|module\.exports)|=>"
        r"|console\.log",
        "typescript": r"^\s*(?:interface \w+|type \w+ =|enum \w+|(?:public|private|readonly) \w+)|: (?:string|number"
        r"|boolean)\b",
        "java": r"^\s*(?:public|private|protected) (?:static |final )*(?:class|void|int|String)\b|System\.out\.",
        "go": r"^\s*(?:package \w+$|func [\w(]|import \()|:= |fmt\.",
        "rust": r"^\s*(?:fn \w+|pub fn|use [\w:]+;|impl\b|let mut )|println!|-> Result<",
        "c": r"^\s*#include\s*<\w+\.h>|^\s*(?:int|void|char) \w+\(.*\)\s*\{|printf\(",
        "cpp": r"^\s*#include\s*<\w+>|std::|cout <<|^\s*template\s*<",
        "csharp": r"^\s*using [\w.]+;|Console\.Write|^\s*namespace \w+",
        "ruby": r"^\s*(?:def \w+[^:]*$|require ['\"]|end$|puts )",
        "php": r"<\?php|^\s*\$\w+ = |echo \$",
        "shell": r"^\s*(?:#!.*sh$|\$ \w|sudo |export \w+=|if \[|fi$|done$|cd |git |npm |pip |curl )",
        "sql": r"^\s*(?:(?i:select)\b.+(?i:from)\b|(?i:insert into|update \w+ set|create table|delete from"
        r"|alter table)\b)",
        "html": r"^\s*<(?:!DOCTYPE|html|div|head|body|p|span|a)\b",
        "css": r"^\s*[.#]?[\w-]+\s*\{\s*$|^\s*[\w-]+:\s*[^;{]+;\s*$",
        "json": r"^\s*[\[{]\s*$|^\s*\"[^\"]+\":\s",
        "yaml": r"^\s*[\w-]+:(?:\s|$)",
    }.items()
}


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A block of code at characters `start` to `end` of a message; `language` is lower case, empty if unknown."""

    language: str
    start: int
    end: int


def blocks(text: str) -> tuple[CodeBlock, ...]:
    """Returns the fenced and indented blocks of a message in order."""
    fenced = list(_fenced(text))
    return tuple(sorted((*fenced, *_indented(text, fenced)), key=lambda block: block.start))


def plain(language: str) -> str:
    """Returns the canonical name of a language: `python` for `py`."""
    lower = language.strip().lower()
    return ALIASES.get(lower, lower)


def _fenced(text: str) -> Iterator[CodeBlock]:
    if "```" not in text and "~~~" not in text:
        return
    for match in _FENCE.finditer(text):
        named = re.match(r"[\w+#.-]+", match["info"].strip("{} ."))
        yield CodeBlock(plain(named[0]) if named else _guessed(match["body"]), *match.span())


def _indented(text: str, fenced: Sequence[CodeBlock]) -> Iterator[CodeBlock]:
    if "\n    " not in text and "\n\t" not in text and not text.startswith(("    ", "\t")):
        return
    for match in _INDENTED.finditer(text):
        if any(block.start <= match.start("body") < block.end for block in fenced):
            continue
        before = text[: match.start()].rstrip().rpartition("\n")[2]
        if _LIST_ITEM.match(before) or _LIST_ITEM.match(match["body"]):
            continue  # the further paragraphs of a list are indented, too
        language = _guessed(match["body"])
        if language:
            yield CodeBlock(language, *match.span("body"))


def _guessed(body: str) -> str:
    counted = {name: sum(1 for _ in marks.finditer(body)) for name, marks in _MARKS.items()}
    best = max(counted, key=lambda name: counted[name])
    return best if counted[best] else ""
