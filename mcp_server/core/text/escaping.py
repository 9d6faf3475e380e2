"""Any text inside a transcript: written so that nothing in it looks like structure, and read back exactly."""

from __future__ import annotations

import re


def escape(text: str) -> str:
    """Any text as it may stand in the body of a block."""
    return _LOOKS_LIKE_OURS.sub(r"\\", _UNWRITABLE.sub(_as_code, text))


def unescape(text: str) -> str:
    """What `escape` was given."""
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
    """`text` on one line, without the characters of `also`."""
    text = _UNWRITABLE.sub(_as_code, text)
    for character in "\n" + also:
        text = text.replace(character, f"\\u{{{ord(character):x}}}")
    return text


def unescape_line(text: str) -> str:
    """What `escape_line` was given."""
    return _CODE.sub(_from_code, text)
