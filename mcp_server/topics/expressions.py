r"""The patterns that users write: path patterns, and the literals that a regular expression requires.

A path pattern (`*.py`, `docs/**/*.md`, `src/[ab]?.ts`) without a slash matches the file's name; one with slashes the
end of the path, or the whole path if it begins with a slash. `*` and `?` stay within a folder, `**` does not; `**/` at
the start of a name matches any folders or none. Backslashes count as slashes, and case is ignored.

Required literals let most regular expressions be skipped: `\b(?:pull

merge) requests?\b` can match only a text with " request". Syntax that the reader does not surely understand (fuzzy
matching, conditions, character codes) requires nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

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
_GAPS = frozenset("dwsDWS")
_EMPTY = frozenset("bBAZ")
_BLANKS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_QUANTIFIER = re.compile(r"(?:([?*+])|\{(\d*)(?:,(\d*))?\})[?+]?")
_FLAGS = re.compile(r"\(\?[ims]+\)")
_OPENING = re.compile(r"\((?:\?(?::|>|P?<(?![=!])\w+>|[ims]+:))?(?!\?)")
_LOOKING = re.compile(r"\(\?<?[=!]")


class _Unclear(Exception):
    """Syntax that the reader does not surely understand."""


def folded(text: str) -> str:
    """Returns a text in the form in which required literals are searched: texts that differ only in case are equal."""
    for letter, plain in _TURKISH.items():
        if letter in text:
            text = text.replace(letter, plain)
    return text.casefold()


def required(expression: str, flags: str = "") -> frozenset[str]:
    """Returns folded literals of which every matching text contains at least one; empty if nothing is surely
    required."""
    if "x" in flags:
        return frozenset()
    start = _FLAGS.match(expression)
    reader = _Reader(expression, start.end() if start else 0)
    try:
        found = reader.alternatives()
        return found if found is not None and reader.place == len(expression) else frozenset()
    except (_Unclear, RecursionError):
        return frozenset()


@dataclass(slots=True)
class _Sequence:
    """A branch while it is read: the current run of literal characters, and sets of which one literal each is
    required."""

    run: str = ""
    wanted: list[frozenset[str]] = field(default_factory=list)

    def end_run(self) -> None:
        if self.run:
            self.wanted.append(frozenset((folded(self.run),)))
        self.run = ""

    def best(self) -> frozenset[str] | None:
        """Returns the set whose shortest literal is the longest: it excludes the most texts."""
        self.end_run()
        return max(self.wanted, key=lambda literals: (min(map(len, literals)), -len(literals)), default=None)


@dataclass(slots=True)
class _Reader:
    """Reads an expression from `place` on. A result of None means that nothing is required."""

    text: str
    place: int

    def alternatives(self) -> frozenset[str] | None:
        """Reads branches up to a closing bracket or the end. Requires nothing if one branch requires nothing."""
        branches = [self.sequence()]
        while self._next() == "|":
            self.place += 1
            branches.append(self.sequence())
        known = [one for one in branches if one]
        return frozenset().union(*known) if len(known) == len(branches) else None

    def sequence(self) -> frozenset[str] | None:
        read = _Sequence()
        while (c := self._next()) not in ("", "|", ")"):
            if c == "(":
                self._group(read)
            elif c == "[":
                self._class()
                self._optional()
                read.end_run()
            elif c == ".":
                self.place += 1
                self._optional()
                read.end_run()
            elif c in "^$":
                self.place += 1
            elif c in "?*+{":
                raise _Unclear
            elif c == "\\":
                self._escape(read)
            else:
                self.place += 1
                self._literal(read, c)
        return read.best()

    def _next(self) -> str:
        return self.text[self.place : self.place + 1]

    def _literal(self, read: _Sequence, c: str) -> None:
        quantified, optional = self._optional()
        if not optional:
            read.run += c
        if quantified:
            read.end_run()

    def _optional(self) -> tuple[bool, bool]:
        """Skips a quantifier; returns whether there was one, and whether it allows zero repetitions."""
        match = _QUANTIFIER.match(self.text, self.place)
        if match is None:
            if self._next() == "{":  # fuzzy matching, or a literal bracket
                raise _Unclear
            return False, False
        self.place = match.end()
        if match[1]:
            return True, match[1] in "?*"
        return True, not match[2] or int(match[2]) == 0

    def _group(self, read: _Sequence) -> None:
        looking = _LOOKING.match(self.text, self.place)
        opening = looking or _OPENING.match(self.text, self.place)
        if opening is None:
            raise _Unclear
        self.place = opening.end()
        inside = self.alternatives()
        if self._next() != ")":
            raise _Unclear
        self.place += 1
        _, optional = self._optional()
        if looking:
            return
        read.end_run()
        if inside and not optional:
            read.wanted.append(inside)

    def _class(self) -> None:
        start = self.place + 1 + (self.text[self.place + 1 : self.place + 2] == "^")
        end = start + 1  # a bracket right at the beginning is literal
        if self.text[start : start + 1] == "\\":
            end += 1
        while (c := self.text[end : end + 1]) != "]":
            if c in ("", "["):
                raise _Unclear
            end += 2 if c == "\\" else 1
        if "[" in self.text[start:end]:
            raise _Unclear
        self.place = end + 1

    def _escape(self, read: _Sequence) -> None:
        c = self.text[self.place + 1 : self.place + 2]
        self.place += 2
        if c in _EMPTY and c:
            return
        if c in _GAPS and c:
            self._optional()
            read.end_run()
        elif c in _BLANKS:
            self._literal(read, _BLANKS[c])
        elif c and not c.isalnum():
            self._literal(read, c)
        else:
            raise _Unclear
