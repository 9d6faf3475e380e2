"""Helpers of the triggers: they match path patterns, find the literals that a regular expression requires, and find the
words, links, signs of a raised voice and fenced code blocks of a message.
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
    chunks: list[tuple[str, list[str]]] = [("", [""])]  # each: the `**` before it, and its texts between single `*`
    for token in _TOKEN.findall(pattern):
        if token.startswith("**"):
            if chunks[-1] != (token, [""]):  # `**/**/` means `**/`
                chunks.append((token, [""]))
        elif token == "*":
            chunks[-1][1].append("")
        else:
            chunks[-1][1][-1] += _token_regex(token)
    written = "" if "/" in pattern else r"(?>(?:.*/)?)"
    for place, (star, (first, *others)) in enumerate(chunks, start=1):
        skipped = r"(?:.*?/)??" if star.endswith("/") else r".*?" if star else ""
        last = place == len(chunks)  # the last chunk must reach the end of the path
        end = f"[^/]*{others.pop()}" if last and others else ""
        inside = "".join((skipped, first, *(f"(?>[^/]*?{one})" for one in others), end))
        written += inside if last else f"(?>{inside})"
    return re.compile(written, re.IGNORECASE | re.DOTALL)


def _token_regex(token: str) -> str:
    """Returns the regular expression for a character, `?`, or a class. An invalid class is matched as plain text."""
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
"""Syntax that the package `regex` interprets differently from `re`, or may in a later version: fuzzy matching and
nested classes."""


def folded(text: str) -> str:
    """Returns a text without differences of case. Required literals are searched in this form."""
    for letter, plain in _TURKISH.items():
        if letter in text:
            text = text.replace(letter, plain)
    return text.casefold()


def required(expression: str, flags: str = "") -> frozenset[str]:
    """Returns folded literals; every matching text contains at least one of them. Returns an empty set if no such
    literals are known, or if `re` does not understand the expression."""
    if _FOREIGN.search(expression):
        return frozenset()
    try:
        return _required(_parser.parse(expression, sum(getattr(re, flag.upper()) for flag in flags)))
    except (re.error, OverflowError, RecursionError):
        return frozenset()


def _required(parsed: Any) -> frozenset[str]:
    """Returns required literals of a parsed sequence. Several parts of it may require literals: returns the set whose
    shortest literal is longest, because it excludes the most texts."""
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
    """Yields the links of a text in order, without the punctuation and brackets of the sentence around them."""
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
    """Yields the host of a link and the domains above it; a site of a trigger may be any of them."""
    host = url.host.removeprefix("www.")
    while host:
        yield host
        host = host.partition(".")[2]


def host_of(site: str) -> str:
    """Returns the host that a site names, in lower case; empty if it has a wildcard."""
    host = site.split("://", 1)[-1].partition("/")[0].lower().removeprefix("www.")
    return "" if "*" in host or "?" in host or "[" in host else host


def leads_to(url: Url, site: str) -> bool:
    """Returns whether a link is on a site. `github.com` matches the host and its subdomains; `github.com/*/*/pull/`
    also requires this beginning of the path. `*` matches within one part of the path."""
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
    """Yields the positions (start, end) of signs of a raised voice: runs of `!`, words in capitals, words of alarm."""
    if "!" in text:
        yield from (match.span() for match in _RUN.finditer(text) if len(match[0]) >= _LEAST_RUN)
    for match in _WORDS.finditer(text):
        words = match[0].replace(",", " ").split()
        shouted = len(words) >= _LEAST_SHOUTED and 2 * sum(len(word) > 3 for word in words) >= len(words)
        if shouted or any(word.strip("'’") in ALARM for word in words):
            yield match.span()


_FENCE = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)\n.*?(?:^ {0,3}(?P=fence)[`~]*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)

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
"""Other names of languages, as people write them after a code fence."""


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A block of code at characters `start` to `end` of a message; `language` is lower case, empty if the fence names
    none."""

    language: str
    start: int
    end: int


def plain(language: str) -> str:
    """Returns the canonical name of a language: `python` for `py`."""
    lower = language.strip().lower()
    return ALIASES.get(lower, lower)


def blocks(text: str) -> Iterator[CodeBlock]:
    """Yields the fenced blocks of a message in order."""
    if "```" not in text and "~~~" not in text:
        return
    for match in _FENCE.finditer(text):
        named = re.match(r"[\w+#.-]+", match["info"].strip("{} ."))
        yield CodeBlock(plain(named[0]) if named else "", *match.span())
