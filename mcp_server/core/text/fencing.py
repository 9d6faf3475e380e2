"""Makes stored text harmless: it is data, and nothing in it may pass for the host's own words.

Markers that clients and models give a meaning (`<system-reminder>`, `<|im_start|>`, `[INST]`, comment openers, role
headers such as `Human:` at the beginning of a line) and all closing tags are changed: a person reads them as before, a
program does not recognize them. Markers are searched for in the text's skeleton, so invisible characters and letters
of other scripts do not hide them. Characters that hide or reorder text are removed, control characters are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from mcp_server.core.text.skeleton import IGNORABLE, skeleton

_HIDDEN = (
    *range(0x200B, 0x200C),  # zero width space
    *range(0x200E, 0x2010),  # left-to-right and right-to-left marks
    *range(0x202A, 0x202F),  # embeddings and overrides
    *range(0x2060, 0x2070),  # word joiner, invisible operators, isolates, deprecated formatting
    0x00AD,  # soft hyphen
    0x034F,  # combining grapheme joiner
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
_JOINING = re.compile(
    rf"(?<![\x00-\x7f{IGNORABLE}])[\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d]"  # picks the form of one character
    r"|(?<=[0-9#*])\ufe0f(?=\u20e3)"  # keycaps
    rf"|(?:(?<![\x00-\x7f{IGNORABLE}])|(?<=[^\x00-\x7f{IGNORABLE}]\ufe0f))[\u200c\u200d](?![\x00-\x7f{IGNORABLE}]|\Z)"
    rf"|(?P<hidden>[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d])"
)
"""Joiners and variation selectors: those that emoji and some scripts need, and (`hidden`) those that can carry text."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_TAGS = (
    r"system[-_]|command[-_]|local-command|checkpoint-data|user-prompt-submit-hook|function_|tool_"
    r"|invoke\b|parameter\b|antml:"
    r"|(?:system|assistant|human|user|developer|instructions?|thinking|start_of_turn|end_of_turn|bos|eos|s|sys)\s*>"
)
_SLASH = r"\s*+/?\s*+"  # possessive: with a way back, ten thousand blanks after one `<` would take minutes
_MARKER = re.compile(
    rf"<(?={_SLASH}(?:{_TAGS}))"  # host and chat-template tags
    r"|<(?=\s*+/\s*+(?:[^\W\d]|>))"  # closing tags: one of them may close what a client puts around stored text
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
    """Returns `text`, safe to be part of a prompt. Doing it twice is doing it once; plain text is returned as it is."""
    if not text.isascii() or not text.isprintable():
        text = _UNUSUAL.sub(lambda match: _CHARACTERS[ord(match.group())], text.replace("\r\n", "\n"))
        text = _JOINING.sub(lambda match: "" if match["hidden"] else match.group(), text)
    plain, positions = skeleton(text)
    if ":" in plain:  # roles first: the `>` that marks one may close a tag that was open before it
        quoted = _inserted(text, "> ", [_position(match.end(1), positions) for match in _ROLE.finditer(plain)])
        if quoted != text:
            text = quoted
            plain, positions = skeleton(text)
    if "<" in plain or "[" in plain or ">" in plain:
        found = [(_position(match.start(), positions), _HARMLESS[match.group()]) for match in _MARKER.finditer(plain)]
        if found:
            characters = list(text)
            for position, harmless in found:
                characters[position] = harmless
            text = "".join(characters)
    return text


_HARMLESS = {"<": "‹", ">": "›", "[": "("}


def _position(place: int, positions: list[int] | None) -> int:
    return place if positions is None else positions[place]


def _inserted(text: str, mark: str, places: list[int]) -> str:
    parts: list[str] = []
    before = 0
    for place in places:
        parts += (text[before:place], mark)
        before = place
    return "".join([*parts, text[before:]])
