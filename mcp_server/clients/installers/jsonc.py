"""Reads and edits JSON with comments and trailing commas, as editors keep it. All bytes outside an edit stay.

`parse` replaces comments and trailing commas with blanks, which keeps all positions, and parses the result with `json`.
`put`, `append` and `remove` change the text. A path is a tuple of keys and, in arrays, of indexes. New text uses the
file's indentation and line ends.

Existing Python libraries for such files lose comments, rewrite the whole file, or need a JavaScript engine.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from mcp_server.errors import Invalid

Path = tuple[str | int, ...]

_SPACE = " \t\r\n"
_NO_SPACE = re.compile(r"[^ \t\r\n]")
_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|(?P<comment>//[^\r\n]*|/\*.*?\*/)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"(?:{_STRING}|[^\s\"\[{{,:]++)\s*(?P<comma>,(?=\s*[}}\]]))?", re.DOTALL)
_REST_OF_LINE = re.compile(r"[ \t]*(?:/\*[^\r\n]*?\*/[ \t]*)*(?://[^\r\n]*)?(?=\r?\n)")
_STEP = re.compile(r'^(?:(\t)|( +))\s*"', re.MULTILINE)
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Node:
    """A value at `text[start:end]`. `key` is its name or index in its container, which begins at `begin`."""

    key: str | int
    begin: int
    start: int
    end: int
    value: Any


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file. `plain` is its text with blanks in place of comments and trailing commas.

    `root` is None if it has only space and comments. `odd_line` is the line of the first comment or trailing comma; it
    is 0 for strict JSON.
    """

    text: str
    plain: str
    commas: tuple[int, ...]
    """The positions of the trailing commas."""
    root: Node | None
    odd_line: int

    def parts(self, node: Node) -> list[Node]:
        """Returns the members of an object, or the items of an array, in the order of the file."""
        found: list[Node] = []
        at = self._next(node.start + 1)
        while isinstance(node.value, dict | list) and self.plain[at] not in "}]":
            begin, key = at, len(found)
            if isinstance(node.value, dict):
                key, at = _decode(self.plain, at)
                at = self._next(self.plain.index(":", at) + 1)
            value, end = _decode(self.plain, at)
            found.append(Node(key, begin, at, end, value))
            at = self._next(end)
            if self.plain[at] == ",":
                at = self._next(at + 1)
        return found

    def comma(self, node: Node, last: Node) -> int | None:
        """Returns the position of the trailing comma after the last part of a container, or None."""
        return next((at for at in self.commas if last.end <= at < node.end), None)

    def _next(self, at: int) -> int:
        """Returns the position of the next character that is no space; the text's end if there is none."""
        found = _NO_SPACE.search(self.plain, at)
        return found.start() if found else len(self.plain)


def parse(text: str, where: str) -> Document:
    """Returns the parsed `text` of the file named `where`.

    Raises Invalid with file, line and reason if it is not JSON with comments and trailing commas.
    """
    odd: list[int] = []

    def blank(found: re.Match[str]) -> str:
        if not found["comment"]:
            return found[0]
        odd.append(found.start())
        return re.sub(r"[^\r\n]", " ", found[0])

    plain = _COMMENT.sub(blank, text)
    commas = [found.start("comma") for found in _TRAILING_COMMA.finditer(plain) if found["comma"]]
    for at in commas:
        plain = f"{plain[:at]} {plain[at + 1 :]}"
    root = None
    if plain.strip(_SPACE):
        try:
            start = len(plain) - len(plain.lstrip(_SPACE))
            root = Node("", start, start, len(plain.rstrip(_SPACE)), json.loads(plain))
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}: {error.msg}"
            raise Invalid(f"{where}: {place}; fix the file and try again") from None
        except RecursionError:
            raise Invalid(f"{where}: line 1, column 1: nested too deeply; fix the file and try again") from None
    odd_line = text.count("\n", 0, min(odd + commas)) + 1 if odd or commas else 0
    return Document(text, plain, tuple(commas), root, odd_line)


def read(text: str, where: str) -> Any:
    """Returns the content of the file named `where`, {} if it has none. Raises as `parse` does."""
    root = parse(text, where).root
    return {} if root is None else root.value


def get(document: Document, path: Path) -> Node | None:
    """Returns the value at `path`, or None if there is none. The last of duplicate keys counts."""
    node = document.root
    for step in path:
        found = [part for part in document.parts(node) if part.key == step] if node else []
        node = found[-1] if found else None
    return node


def put(text: str, path: Path, value: Any, where: str) -> str:
    """Returns `text` with `value` at `path`: replaced, or added at the end of its object.

    Makes missing objects on the path, also in place of `null`. Raises Invalid with file and line if the file is broken,
    or if a value on the path is not an object.
    """
    document = parse(text, where)
    if document.root is None:
        begun = text if not text or text.endswith(("\n", "\r")) else text + newline_of(text)
        return (begun if begun.strip() else "") + _written(_nested(path, value), "", text) + newline_of(text)
    node = document.root
    for depth, step in enumerate(path):
        if isinstance(step, str):
            if depth and node.value is None:  # `null` is an empty object
                return put(text, path[:depth], _nested(path[depth:], value), where)
            _must_be(dict, node, text, where, path[:depth])
        inner = get(document, path[: depth + 1])
        if inner is None:
            assert isinstance(step, str), "only existing items are replaced"
            return _added(document, node, _nested(path[depth + 1 :], value), key=step)
        node = inner
    if node.value == value:
        return text
    return text[: node.start] + _written(value, _indent_at(text, node.start), text) + text[node.end :]


def append(text: str, path: Path, value: Any, where: str) -> str:
    """Returns `text` with `value` as the last item of the array at `path`. Makes the array if there is none."""
    document = parse(text, where)
    node = get(document, path)
    if node is None or node.value is None:  # `null` is an empty list
        return put(text, path, [value], where)
    _must_be(list, node, text, where, path)
    return _added(document, node, value)


def remove(text: str, path: Path, where: str) -> str:
    """Returns `text` without the value at `path` and its key; unchanged if there is none."""
    document = parse(text, where)
    parent, node = get(document, path[:-1]), get(document, path)
    if parent is None or node is None:
        return text
    again = isinstance(path[-1], str) and sum(part.key == path[-1] for part in document.parts(parent)) > 1
    text = _without(document, parent, node)
    return remove(text, path, where) if again else text  # the last of duplicate keys counts


def _added(document: Document, node: Node, value: Any, key: str | None = None) -> str:
    """Returns the text with one more member or item at the end of `node`."""
    text, parts = document.text, document.parts(node)
    newline, outer = newline_of(text), _indent_at(text, node.start)
    label = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    closing = node.end - 1
    if not parts:
        indent = outer + _step(text)
        piece = newline + indent + label + _written(value, indent, text)
        inside = text[node.start + 1 : closing].rstrip(_SPACE)  # comments: the new member comes after them
        last = node.start + 1 + len(inside)
        rest = text[last:closing] if inside and "\n" in text[last:closing] else newline + outer
        return text[:last] + piece + rest + text[closing:]
    end, comma = parts[-1].end, document.comma(node, parts[-1])
    if "\n" not in text[node.start : node.end]:  # keep it on one line
        written = label + json.dumps(value, ensure_ascii=False)
        if comma is not None:
            return text[: comma + 1] + " " + written + text[comma + 1 :]
        return text[:end] + ", " + written + text[end:]
    indent = _indent_at(text, parts[0].begin)
    piece = newline + indent + label + _written(value, indent, text)
    after = end if comma is None else comma + 1
    rest_of_line = _REST_OF_LINE.match(text, after, closing)
    at = rest_of_line.end() if rest_of_line else after
    if comma is not None:
        return text[:at] + piece + "," + text[at:]
    ending = "" if rest_of_line or "\n" in text[after:closing] else newline + outer
    return text[:end] + "," + text[end:at] + piece + ending + text[at:]


def _without(document: Document, parent: Node, node: Node) -> str:
    """Returns the text without `node`, a part of `parent`, its comma, and its line if it is then empty.

    All comments stay: they are the user's.
    """
    text, plain, parts = document.text, document.plain, document.parts(parent)
    index, begin, end = parts.index(node), node.begin, node.end
    trailing = document.comma(parent, parts[-1])
    if index + 1 < len(parts) or trailing is not None:  # after a trailing comma, the previous part keeps its own
        comma = plain.index(",", end) if index + 1 < len(parts) else trailing or end
        return _cut(text, begin, comma + 1, keep=text[end:comma])
    if index == 0:
        if not (text[parent.start + 1 : begin] + text[end : parent.end - 1]).strip(_SPACE):
            return text[: parent.start + 1] + text[parent.end - 1 :]  # it was the only part
        return _cut(text, begin, end)
    comma = plain.index(",", parts[index - 1].end)
    if not text[comma + 1 : begin].strip(" \t"):  # on the previous part's line: remove `, "a": 1`
        return text[:comma] + text[end:]
    cut = _cut(text, begin, end)
    return cut[:comma] + cut[comma + 1 :]


def _cut(text: str, start: int, end: int, keep: str = "") -> str:
    """Returns `text` without `text[start:end]`, except `keep`, and without its lines if nothing else is on them."""
    rest_end = len(text) if (newline := text.find("\n", end)) < 0 else newline + 1
    if keep.strip(_SPACE):
        return text[:start] + keep + text[end:]
    line_start = _line_start(text, start)
    if not (text[line_start:start] + text[end:rest_end]).strip(_SPACE):
        return text[:line_start] + text[rest_end:]
    return text[:start] + text[end:].lstrip(" \t")


def _written(value: Any, indent: str, text: str) -> str:
    """Returns `value` as JSON in the layout of the file's `text`."""
    lines = json.dumps(value, ensure_ascii=False, indent=_step(text)).split("\n")
    return (newline_of(text) + indent).join(lines)


def _step(text: str) -> str:
    """Returns one step of a file's indentation, by its first indented key."""
    found = _STEP.search(text)
    return found[1] or found[2] if found else "  "


def _nested(path: Path, value: Any) -> Any:
    for step in reversed(path):
        value = {step: value}
    return value


def _must_be(kind: type, node: Node, text: str, where: str, path: Path) -> None:
    if not isinstance(node.value, kind):
        line = text.count("\n", 0, node.start) + 1
        name = ".".join(map(str, path)) or "the document"
        wanted = "an object ({…})" if kind is dict else "a list ([…])"
        raise Invalid(f"{where}: line {line}: {name} is not {wanted}; fix the file and try again")


def newline_of(text: str) -> str:
    """Returns the line end that a text has, judged by its first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _indent_at(text: str, at: int) -> str:
    line = text[_line_start(text, at) : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
