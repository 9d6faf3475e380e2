"""JSON as editors keep it, with comments and trailing commas: what it says, and where each part of it stands.

No library was found that changes such a file and leaves every other byte alone; so this reads it into a tree of
positions, and `jsonc_edit` changes the text at those positions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

from mcp_server.errors import Invalid

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<comment>//[^\r\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*")
    |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.])
    |(?P<word>true|false|null)(?!\w)
    |(?P<mark>[{}\[\],:])""",
    re.VERBOSE | re.DOTALL,
)
_DEEPEST = 200


@dataclass(slots=True)
class Node:
    """A value and its place: `text[start:end]`. Objects have `members`, arrays have `items`, others neither."""

    kind: str
    """`{`, `[`, or "" for a string, number or word."""
    start: int
    end: int = 0
    value: Any = None
    """The parsed value; of two members of one name the last counts, as everywhere."""
    members: list[Member] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    comma: int | None = None
    """Where the trailing comma stands, if there is one."""

    def parts(self) -> list[tuple[int, int]]:
        """The places of its members (with their keys) or items."""
        return [(member.start, member.value.end) for member in self.members] or [(i.start, i.end) for i in self.items]

    def member(self, key: str) -> Member | None:
        """The member of that name that counts: the last."""
        return next((member for member in reversed(self.members) if member.key == key), None)


@dataclass(slots=True)
class Member:
    """A key of an object and its value; `start` is where the key begins."""

    key: str
    start: int
    value: Node


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file. `root` is None if there is nothing but space and comments in it."""

    text: str
    root: Node | None
    plain: bool
    """True if it is JSON in the strict sense: no comments, no trailing commas."""
    odd_line: int = 0
    """The line of the first comment or trailing comma, where there is one."""


def parse(text: str, where: str) -> Document:
    """Reads `text`, the content of the file named `where`.

    Raises Invalid with file, line and what was expected if it is no JSON, comments and trailing commas allowed.
    """
    return _Reader(text, where).document()


class _Reader:
    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self.where = where
        self.odd: int | None = None
        self.tokens: list[tuple[str, int, int]] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                self.fail(at, _unreadable(text, at))
            kind = found.lastgroup or ""
            if kind == "comment":
                self.mark_odd(at)
            elif kind != "space":
                self.tokens.append((kind if kind != "mark" else found.group(), at, found.end()))
            at = found.end()
        self.tokens.append(("end", len(text), len(text)))
        self.next = 0

    def document(self) -> Document:
        root = None
        if self.tokens[0][0] != "end":
            root = self.value(0)
            if self.tokens[self.next][0] != "end":
                self.fail(self.tokens[self.next][1], "something stands after the end of the document")
        odd_line = 0 if self.odd is None else self.text.count("\n", 0, self.odd) + 1
        return Document(self.text, root, self.odd is None, odd_line)

    def value(self, depth: int) -> Node:
        kind, start, end = self.take()
        if depth > _DEEPEST:
            self.fail(start, "it is nested too deeply")
        if kind == "{":
            return self.object(Node("{", start), depth)
        if kind == "[":
            return self.array(Node("[", start), depth)
        if kind not in ("string", "number", "word"):
            self.fail(start, "a value is missing" if kind != "end" else "it ends in the middle of a value")
        return Node("", start, end, json.loads(self.text[start:end]))

    def object(self, node: Node, depth: int) -> Node:
        while True:
            kind, start, end = self.take()
            if kind == "}":
                break
            if kind != "string":
                self.fail(start, 'a key in double quotes or "}" is missing' + (", it just ends" * (kind == "end")))
            node.comma = None
            if self.take()[0] != ":":
                self.fail(self.tokens[self.next - 1][1], 'a ":" is missing after the key')
            node.members.append(Member(json.loads(self.text[start:end]), start, self.value(depth + 1)))
            if self.ended(node, "}"):
                break
        node.end = self.tokens[self.next - 1][2]
        node.value = {member.key: member.value.value for member in node.members}
        return node

    def array(self, node: Node, depth: int) -> Node:
        while True:
            if self.tokens[self.next][0] == "]":
                self.take()
                break
            node.comma = None
            node.items.append(self.value(depth + 1))
            if self.ended(node, "]"):
                break
        node.end = self.tokens[self.next - 1][2]
        node.value = [item.value for item in node.items]
        return node

    def ended(self, node: Node, closing: str) -> bool:
        """Takes what follows a member: a comma, and then perhaps the end all the same, or the end."""
        kind, start, _ = self.take()
        if kind == closing:
            return True
        if kind != ",":
            self.fail(start, f'a "," or "{closing}" is missing' + (", it just ends" * (kind == "end")))
        if self.tokens[self.next][0] == closing:
            node.comma = start
            self.mark_odd(start)
        return False

    def take(self) -> tuple[str, int, int]:
        token = self.tokens[self.next]
        self.next = min(self.next + 1, len(self.tokens) - 1)
        return token

    def mark_odd(self, at: int) -> None:
        self.odd = at if self.odd is None else min(at, self.odd)

    def fail(self, at: int, what: str) -> NoReturn:
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        raise Invalid(f"{self.where}: line {line}, column {column}: {what}; mend the file and try again")


def _unreadable(text: str, at: int) -> str:
    if text.startswith("/*", at):
        return "a comment begins here and never ends"
    if text[at] == '"':
        return "a string begins here and is broken or never ends"
    if text[at] == "'":
        return "strings stand in double quotes"
    return f"{text[at]!r} is not JSON"
