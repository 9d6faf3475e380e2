"""Reads the items of a JSON array one after the other, without holding the file in memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from mcp_server.errors import Invalid, NotFound, Unavailable

CHUNK = 64 * 1024
CUT_SHORT = 16
"""An error so near to the end of what was read may only mean that the rest is still to come."""

CUT_NUMBER = 2
"""So much may follow a number that goes on: `1` and `e+` of `1e+5`."""

LARGEST_ITEM = 256 * 1024 * 1024
"""Characters of one item; a larger one is no conversation, but would fill the memory."""

_UNFINISHED = ("Unterminated string", "Invalid \\", "Expecting value: end")
_BETWEEN = " \t\r\n,"


def json_items(path: Path, at: Callable[[int], None] = lambda _: None) -> Iterator[Any]:
    """The items of the array in `path` (a file with one object yields that object); memory holds one item at a time.

    `at` is told how many bytes have been read.

    Raises:
        NotFound, Unavailable: there is no such file, or it cannot be read.
        Invalid: the file is not UTF-8 or not JSON; what came before the broken place has been yielded.
    """
    try:
        with path.open("rb") as file:
            yield from items_in(file, str(path), at)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}; give the path of a file that exists") from None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}; check its permissions") from None


def items_in(file: IO[bytes], where: str, at: Callable[[int], None] = lambda _: None) -> Iterator[Any]:
    """As `json_items`, of an open file that is called `where`. Raises Invalid as above."""
    try:
        yield from _Reader(where, _chunks(file, at)).items()
    except UnicodeDecodeError as error:
        raise Invalid(f"{where} is not UTF-8 ({error.reason}); convert it first") from None


def _chunks(file: IO[bytes], at: Callable[[int], None]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        at(file.tell())
        yield chunk


class _Reader:
    """A window on the text of a file that grows at its end and is let go of at its start."""

    def __init__(self, path: str, chunks: Iterator[bytes]) -> None:
        self._path = path
        self._chunks = chunks
        self._text = ""
        self._place = 0
        self._line = 1
        self._ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()

    def items(self) -> Iterator[Any]:
        opening = self._next_character()
        if opening != "[":
            yield self._item()
            return
        self._place += 1
        while (character := self._next_character()) != "]":
            if not character:
                raise Invalid(f"{self._path}: the list is not closed; the file seems to be cut short")
            yield self._item()

    def _more(self, wanted: int) -> None:
        """Reads on until `wanted` more characters are there, letting go of what was consumed."""
        self._line += self._text.count("\n", 0, self._place)
        parts, have = [self._text[self._place :]], 0
        self._place = 0
        while have < wanted and not self._ended:
            chunk = next(self._chunks, b"")
            self._ended = not chunk
            parts.append(self._decoder.decode(chunk, final=self._ended))
            have += len(parts[-1])
        self._text = "".join(parts)

    def _next_character(self) -> str:
        while True:
            while self._place < len(self._text):
                if self._text[self._place] not in _BETWEEN:
                    return self._text[self._place]
                self._place += 1
            if self._ended:
                return ""
            self._more(CHUNK)

    def _item(self) -> Any:
        decoder = json.JSONDecoder()
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._place)
                if self._ended or isinstance(value, dict | list | str) or end < len(self._text) - CUT_NUMBER:
                    self._place = end
                    return value
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith(_UNFINISHED) or error.pos >= len(self._text) - CUT_SHORT
                if self._ended or not unfinished:
                    line = self._line + error.lineno - 1
                    raise Invalid(f"{self._path}, line {line}: not JSON ({error.msg}); mend the file") from None
            except RecursionError:
                raise Invalid(f"{self._path}, line {self._line}: JSON nested too deeply") from None
            if len(self._text) - self._place > LARGEST_ITEM:
                size = f"{LARGEST_ITEM // 1024**2} MB"
                raise Invalid(f"{self._path}, line {self._line}: an item of more than {size}; split the file")
            self._more(max(CHUNK, len(self._text) - self._place))
