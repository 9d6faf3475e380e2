"""Reads and edits JSON with comments and trailing commas, as editors keep it. All bytes outside an edit stay.

`parse` returns a tree of positions; `put`, `append` and `remove` change the text there. A path is a tuple of keys and,
in arrays, of indexes. New text uses the file's indentation and line ends.

Python's libraries for such files either lose comments, write the whole file anew, or run a JavaScript engine.
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
    """A value and its position: `text[start:end]`."""

    kind: str
    """`{`, `[`, or "" for a string, number or word."""
    start: int
    end: int = 0
    value: Any = None
    """The parsed value; the last of duplicate keys counts."""
    parts: list[Part] = field(default_factory=list)
    """The members of an object, or the items of an array."""
    comma: int | None = None
    """The position of the trailing comma, or None."""

    def at(self, step: str | int) -> Node | None:
        """Returns the last member of that name, which counts, or the item at that place; None if there is none."""
        found = self.parts[step : step + 1] if isinstance(step, int) else [one for one in self.parts if one.key == step]
        return found[-1].node if found else None


@dataclass(slots=True)
class Part:
    """A member of an object, or an item of an array, which has no `key`. `start` is where the key or item begins."""

    key: str | None
    start: int
    node: Node


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file. `root` is None if it has only space and comments."""

    text: str
    root: Node | None
    plain: bool
    """True if it is strict JSON, without comments and trailing commas."""
    odd_line: int = 0
    """The line of the first comment or trailing comma, or 0."""


def parse(text: str, where: str) -> Document:
    """Returns the parsed `text` of the file named `where`.

    Raises Invalid with file, line and reason if it is not JSON with comments and trailing commas.
    """
    return _Reader(text, where).document()


def read(text: str, where: str) -> Any:
    """Returns the content of the file named `where`, {} if it has none. Raises as `parse` does."""
    root = parse(text, where).root
    return {} if root is None else root.value


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
        if kind in ("{", "["):
            return self.container(Node(kind, start), depth)
        if kind not in ("string", "number", "word"):
            self.fail(start, "a value is missing" if kind != "end" else "it ends in the middle of a value")
        return Node("", start, end, json.loads(self.text[start:end]))

    def container(self, node: Node, depth: int) -> Node:
        closing = "}" if node.kind == "{" else "]"
        while self.tokens[self.next][0] != closing:
            kind, start, end = self.tokens[self.next]
            key = None
            if node.kind == "{":
                if kind != "string":
                    self.fail(start, 'a key in double quotes or "}" is missing' + (", it just ends" * (kind == "end")))
                key = json.loads(self.text[start:end])
                self.take()
                if self.take()[0] != ":":
                    self.fail(self.tokens[self.next - 1][1], 'a ":" is missing after the key')
            node.parts.append(Part(key, start, self.value(depth + 1)))
            kind, comma, _ = self.tokens[self.next]
            if kind == closing:
                break
            if kind != ",":
                self.fail(comma, f'a "," or "{closing}" is missing' + (", it just ends" * (kind == "end")))
            self.take()
            if self.tokens[self.next][0] == closing:
                node.comma = comma
                self.mark_odd(comma)
        node.end = self.take()[2]
        values = [part.node.value for part in node.parts]
        node.value = values if closing == "]" else {part.key: part.node.value for part in node.parts}
        return node

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


Path = tuple[str | int, ...]

_SPACE = " \t\r\n"
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_REST_OF_LINE = re.compile(r"[ \t]*(?:/\*[^\r\n]*?\*/[ \t]*)*(?://[^\r\n]*)?(?=\r?\n)")


def get(document: Document, path: Path) -> Node | None:
    """Returns the value at `path`, or None if there is none."""
    node = document.root
    for step in path:
        node = node.at(step) if node else None
    return node


def put(text: str, path: Path, value: Any, where: str) -> str:
    """Returns `text` with `value` at `path`: replaced, or added at the end of its object.

    Makes missing objects on the path, also in place of `null`. Raises Invalid with file and line if the file is broken,
    or if a value on the path is not an object.
    """
    document = parse(text, where)
    if document.root is None:
        begun = text if not text or text.endswith(("\n", "\r")) else text + newline_of(text)
        return (begun if begun.strip() else "") + _written(_nested(path, value), "", _Style(text)) + newline_of(text)
    node = document.root
    for depth, step in enumerate(path):
        if isinstance(step, str):
            if depth and node.value is None:  # `null` is an empty object
                return put(text, path[:depth], _nested(path[depth:], value), where)
            _must_be(node, "{", text, where, path[:depth])
        inner = node.at(step)
        if inner is None:
            assert isinstance(step, str), "only existing items are replaced"
            return _added(text, document.root, node, _nested(path[depth + 1 :], value), key=step)
        node = inner
    if node.value == value:
        return text
    written = _written(value, _indent_at(text, node.start), _Style(text, document.root))
    return text[: node.start] + written + text[node.end :]


def append(text: str, path: Path, value: Any, where: str) -> str:
    """Returns `text` with `value` as the last item of the array at `path`. Makes the array if there is none."""
    document = parse(text, where)
    node = get(document, path)
    if node is None or node.value is None:  # `null` is an empty list
        return put(text, path, [value], where)
    _must_be(node, "[", text, where, path)
    assert document.root is not None
    return _added(text, document.root, node, value)


def remove(text: str, path: Path, where: str) -> str:
    """Returns `text` without the value at `path` and its key; unchanged if there is none."""
    document = parse(text, where)
    parent, node = get(document, path[:-1]), get(document, path)
    if parent is None or node is None:
        return text
    step = path[-1]
    if isinstance(step, int):
        return _without(text, parent, node.start)
    same = [part for part in parent.parts if part.key == step]
    text = _without(text, parent, same[-1].start)
    return remove(text, path, where) if len(same) > 1 else text  # the last of duplicate keys counts


class _Style:
    """The file's layout: one step of indentation, and the line end."""

    def __init__(self, text: str, root: Node | None = None) -> None:
        self.newline = newline_of(text)
        self.step = "  "
        if root is not None:
            for part in root.parts:
                indent = _indent_at(text, part.start)
                if indent and _first_on_line(text, part.start):
                    self.step = "\t" if indent[0] == "\t" else indent
                    break


def _added(text: str, root: Node, node: Node, value: Any, key: str | None = None) -> str:
    """Returns `text` with one more member or item at the end of `node`."""
    style = _Style(text, root)
    parts = [(part.start, part.node.end) for part in node.parts]
    label = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    closing = node.end - 1
    if not parts:
        inside = text[node.start + 1 : closing]
        outer = _indent_at(text, node.start)
        indent = outer + style.step
        if inside.strip():  # comments only: the new member comes after them
            last = node.start + 1 + len(inside.rstrip(_SPACE))
            tail = text[last:closing]
            end = tail if "\n" in tail else style.newline + outer
            piece = style.newline + indent + label + _written(value, indent, style)
            return text[:last] + piece + end + text[closing:]
        piece = style.newline + indent + label + _written(value, indent, style) + style.newline + outer
        return text[: node.start + 1] + piece + text[closing:]
    first, (_, last_end) = parts[0][0], parts[-1]
    if "\n" not in text[node.start : node.end]:  # keep it on one line
        written = label + json.dumps(value, ensure_ascii=False)
        if node.comma is not None:
            return text[: node.comma + 1] + " " + written + text[node.comma + 1 :]
        return text[:last_end] + ", " + written + text[last_end:]
    indent = _indent_at(text, first)
    piece = style.newline + indent + label + _written(value, indent, style)
    after = last_end if node.comma is None else node.comma + 1
    rest = _REST_OF_LINE.match(text, after, closing)
    at = rest.end() if rest else after
    if node.comma is not None:
        return text[:at] + piece + "," + text[at:]
    ending = "" if rest or "\n" in text[after:closing] else style.newline + _indent_at(text, node.start)
    return text[:last_end] + "," + text[last_end:at] + piece + ending + text[at:]


def _without(text: str, parent: Node, start: int) -> str:
    """Returns `text` without the part of `parent` that begins at `start`, its comma, and its line if it is then empty.

    All comments stay: they are the user's.
    """
    index = next(place for place, part in enumerate(parent.parts) if part.start == start)
    end = parent.parts[index].node.end
    if index + 1 < len(parent.parts):
        comma = _comma(text, end)
        return _cut(text, start, comma + 1, keep=text[end:comma])
    if parent.comma is not None:  # a trailing comma: the previous part keeps its own
        return _cut(text, start, parent.comma + 1, keep=text[end : parent.comma])
    if index == 0:
        if not (text[parent.start + 1 : start] + text[end : parent.end - 1]).strip(_SPACE):
            return text[: parent.start + 1] + text[parent.end - 1 :]  # it was the only part
        return _cut(text, start, end)
    comma = _comma(text, parent.parts[index - 1].node.end)
    if not text[comma + 1 : start].strip(" \t"):  # on the previous part's line: remove `, "a": 1`
        return text[:comma] + text[end:]
    cut = _cut(text, start, end)
    return cut[:comma] + cut[comma + 1 :]


def _cut(text: str, start: int, end: int, keep: str = "") -> str:
    """Returns `text` without `text[start:end]`, except `keep`, and without its lines if nothing else is on them."""
    rest_end = len(text) if (newline := text.find("\n", end)) < 0 else newline + 1
    if keep.strip(_SPACE):
        return text[:start] + keep + text[end:]
    if _first_on_line(text, start) and not text[end:rest_end].strip(_SPACE):
        return text[: _line_start(text, start)] + text[rest_end:]
    return text[:start] + text[end:].lstrip(" \t")


def _comma(text: str, at: int) -> int:
    """Returns the place of the comma after a part that ends at `at`, skipping comments."""
    while text[at] != ",":
        comment = _COMMENT.match(text, at)
        at = comment.end() if comment else at + 1
    return at


def _written(value: Any, indent: str, style: _Style) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=style.step).split("\n")
    return (style.newline + indent).join(lines)


def _nested(path: Path, value: Any) -> Any:
    for step in reversed(path):
        value = {step: value}
    return value


def _must_be(node: Node, kind: str, text: str, where: str, path: Path) -> None:
    if node.kind != kind:
        line = text.count("\n", 0, node.start) + 1
        name = ".".join(map(str, path)) or "the document"
        wanted = "an object ({…})" if kind == "{" else "a list ([…])"
        raise Invalid(f"{where}: line {line}: {name} is not {wanted}; mend the file and try again")


def newline_of(text: str) -> str:
    """Returns the line end that a text has, judged by its first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _first_on_line(text: str, at: int) -> bool:
    return not text[_line_start(text, at) : at].strip(" \t")


def _indent_at(text: str, at: int) -> str:
    line = text[_line_start(text, at) : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
