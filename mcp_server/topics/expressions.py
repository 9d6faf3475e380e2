r"""What must stand in a text for a regular expression to match there? So that most of them need not be asked.

`\b(?:pull|merge) requests?\b` matches only where " request" stands, `\b(email|inbox)\b` only where "email" or "inbox"
does. What is not surely understood (fuzzy matching, conditions, character codes) requires nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

MOST_PATTERNS = 8192


def matches(pattern: str, path: str) -> bool:
    """Does `path` match?"""
    return _compiled(pattern).fullmatch(path.replace("\\", "/")) is not None


def suffix(pattern: str) -> str:
    """The extension that every path of a pattern ends with (`.py`), lower case; empty if it is not sure."""
    found = re.search(r"\.[A-Za-z0-9]+$", pattern)
    return found[0].lower() if found else ""


_TOKEN = re.compile(r"(?<![^/])\*{2,}/|\*{2,}|\[[!^]?\]?[^\]]*\]|.", re.DOTALL)


@lru_cache(maxsize=MOST_PATTERNS)
def _compiled(pattern: str) -> re.Pattern[str]:
    """What stands between two stars is taken where it is first found, and nowhere else: whatever matches after a later
    one matches after that as well. Without it, ten stars in a pattern could take years."""
    pattern = pattern.replace("\\", "/").removeprefix("./")
    if "/" in pattern and not pattern.startswith("/"):
        pattern = f"**/{pattern}"
    chunks: list[tuple[str, list[str]]] = [("", [""])]  # the `**` before it, and what stands between its `*`
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
    """A character, `?`, or a class; what is no class stands for itself."""
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
    """Something that this reader does not surely understand."""


def folded(text: str) -> str:
    """A text as required literals are looked up in it: what is the same when case is ignored is the same here."""
    for letter, plain in _TURKISH.items():
        if letter in text:
            text = text.replace(letter, plain)
    return text.casefold()


def required(expression: str, flags: str = "") -> frozenset[str]:
    """Literals, folded, of which every text that matches holds at least one; none if nothing is surely required."""
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
    """One branch as it is read: the literal that runs on, and the sets of which one literal each is required."""

    run: str = ""
    wanted: list[frozenset[str]] = field(default_factory=list)

    def end_run(self) -> None:
        if self.run:
            self.wanted.append(frozenset((folded(self.run),)))
        self.run = ""

    def best(self) -> frozenset[str] | None:
        """The set whose shortest literal is the longest: it lets the fewest texts through."""
        self.end_run()
        return max(self.wanted, key=lambda literals: (min(map(len, literals)), -len(literals)), default=None)


@dataclass(slots=True)
class _Reader:
    """Reads an expression from `place` on. None as a result: nothing is required."""

    text: str
    place: int

    def alternatives(self) -> frozenset[str] | None:
        """Branches up to a closing bracket or the end: each must require something, or the whole requires nothing."""
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
        """Passes over a quantifier: whether there was one, and whether it allows none at all."""
        match = _QUANTIFIER.match(self.text, self.place)
        if match is None:
            if self._next() == "{":  # fuzzy matching, or a bracket that stands for itself
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
        end = start + 1  # a bracket right at the beginning stands for itself
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
