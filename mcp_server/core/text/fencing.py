"""Stored text made harmless: it is data, and nothing in it may pass for the host's own words.

Markers that clients and models give a meaning (`<system-reminder>`, `<|im_start|>`, `[INST]`, comment openers, role
headers such as `Human:` at the beginning of a line) are changed so that a person reads them as before and a program
does not know them. Characters that hide or reorder text are removed, control characters are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

_HIDDEN = (
    *range(0x200B, 0x200C),  # zero width space
    *range(0x200E, 0x2010),  # left-to-right and right-to-left marks
    *range(0x202A, 0x202F),  # embeddings and overrides
    *range(0x2060, 0x2070),  # word joiner, invisible operators, isolates, deprecated formatting
    0x061C,
    0x180E,
    0xFEFF,
    0xFFF9,
    0xFFFA,
    0xFFFB,
    *range(0xE0000, 0xE0080),  # tags: a second alphabet that nobody sees
)
_CHARACTERS: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
    **dict.fromkeys(_HIDDEN, ""),
    **dict.fromkeys((0x0B, 0x0C, 0x0D, 0x85, 0x2028, 0x2029), "\n"),  # they would begin a line as well
}


def _ranges(codes: Iterable[int]) -> str:
    """A character class. By ranges: characters beyond U+FFFF that stand in it one by one make it forty times slower."""
    runs = [[code for _, code in run] for _, run in groupby(enumerate(sorted(codes)), lambda pair: pair[1] - pair[0])]
    return "".join(f"{re.escape(chr(run[0]))}-{re.escape(chr(run[-1]))}" for run in runs)


_UNUSUAL = re.compile(f"[{_ranges(_CHARACTERS)}]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_TAGS = (
    r"system[-_]|command[-_]|local-command|checkpoint-data|user-prompt-submit-hook|function_|tool_"
    r"|invoke\b|parameter\b|antml:"
    r"|(?:system|assistant|human|user|developer|instructions?|thinking|start_of_turn|end_of_turn|bos|eos|s|sys)\s*>"
)
_SLASH = r"\s*+/?\s*+"  # possessive: with a way back, ten thousand blanks after one `<` would take minutes
_MARKER = re.compile(
    rf"<(?={_SLASH}(?:{_TAGS}))"  # host and chat-template tags
    r"|<(?=[|｜])|(?<=[|｜])>"  # <|im_start|> and its like
    rf"|<(?=<{_SLASH}SYS)"
    r"|<(?=!--)|(?<=--)>"  # comments: what compiled text is labelled with
    rf"|\[(?={_SLASH}INST\s*\])",
    re.IGNORECASE,
)
_ROLE = re.compile(
    r"^([ \t]*)(?=[*_#]{0,6}[ \t]{0,3}[*_]{0,3}"
    r"(?:Human|HUMAN|Assistant|ASSISTANT|System|SYSTEM|Developer|DEVELOPER)[*_]{0,3}[ \t]{0,3}[:：])",
    re.MULTILINE,
)


def printable(text: str) -> str:
    """`text` with its control characters shown, for a file that people print in a terminal."""
    return _CONTROL.sub(lambda match: _CHARACTERS[ord(match.group())], text.replace("\r\n", "\n"))


def neutralise(text: str) -> str:
    """`text`, safe to stand inside a prompt. Doing it twice is doing it once; plain text is returned as it is."""
    if not text.isascii() or not text.isprintable():
        text = _UNUSUAL.sub(lambda match: _CHARACTERS[ord(match.group())], text.replace("\r\n", "\n"))
    if ":" in text or "：" in text:  # roles first: the `>` that marks one may close a tag that was open before it
        text = _ROLE.sub(r"\1> ", text)
    if "<" in text or "[" in text or ">" in text:
        text = _MARKER.sub(_harmless, text)
    return text


def _harmless(match: re.Match[str]) -> str:
    return {"<": "‹", ">": "›", "[": "("}[match.group()]
