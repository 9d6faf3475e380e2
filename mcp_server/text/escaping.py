"""Escapes text for a transcript, so that nothing in it looks like structure and all of it is read back exactly."""

from __future__ import annotations

import re

STEP = 1 << 16
"""Characters that are encoded at once."""


def size_in_bytes(text: str, start: int, end: int) -> int:
    """Returns the size of text[start:end] in bytes."""
    if text.isascii():
        return max(0, end - start)
    return sum(len(_encoded(text, at, min(at + STEP, end))) for at in range(start, end, STEP))


def after_bytes(text: str, start: int, size: int) -> int | None:
    """Returns the position `size` bytes after `start`; None if the text is shorter. A character in which the bytes end
    is included."""
    if text.isascii():
        return start + size if start + size <= len(text) else None
    for at in range(start, len(text), STEP):
        piece = _encoded(text, at, at + STEP)
        if len(piece) >= size:
            return at + len(piece[:size].decode("utf-8", "surrogateescape"))
        size -= len(piece)
    return None if size else len(text)


def _encoded(text: str, start: int, end: int) -> bytes:
    return text[start:end].encode("utf-8", "surrogateescape")


def escape(text: str) -> str:
    """Returns the text in the form for the body of a block."""
    return _LOOKS_LIKE_OURS.sub(r"\\", _UNWRITABLE.sub(_as_code, text))


def unescape(text: str) -> str:
    """Returns the original of an escaped text."""
    if "\\" not in text:
        return text
    return _CODE.sub(_from_code, _ESCAPED_LINE.sub("", text))


_UNWRITABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]|\\(?=u\{)")
_LOOKS_LIKE_OURS = re.compile(r"^(?=\\*(?:## |> \[|<!--))", re.MULTILINE)
_ESCAPED_LINE = re.compile(r"^\\(?=\\*(?:## |> \[|<!--))", re.MULTILINE)
_CODE = re.compile(r"\\u\{([0-9a-f]{1,6})\}")


def _as_code(match: re.Match[str]) -> str:
    return f"\\u{{{ord(match.group()):x}}}"


def _from_code(match: re.Match[str]) -> str:
    value = int(match.group(1), 16)
    return chr(value) if value <= 0x10FFFF else match.group()


def escape_line(text: str, also: str = "") -> str:
    """Returns the text on one line, without the characters of `also`."""
    text = _UNWRITABLE.sub(_as_code, text)
    for character in "\n" + also:
        text = text.replace(character, f"\\u{{{ord(character):x}}}")
    return text


def unescape_line(text: str) -> str:
    """Returns the original of an escaped line."""
    return _CODE.sub(_from_code, text)
