"""Neutralizes stored text: it is data, and a model must not take any part of it for the host's own words.

Markers that clients and models give a meaning (`<system-reminder>`, `<|im_start|>`, `[INST]`, comment openers, role
headers such as `Human:` at the beginning of a line) and all closing tags are changed: people can still read them, but
programs do not recognize them. The search uses the text's skeleton, so that invisible characters and letters of other
scripts cannot hide a marker. Characters that hide or reorder text are removed; control characters are shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The characters with Unicode's property Default_Ignorable_Code_Point, for a character class."""

_UNUSUAL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"  # control characters, line ends, lone surrogates
    "\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # hide or reorder text
    "\U000e0000-\U000e007f]"  # tags: an invisible alphabet
)
_JOINING = re.compile(
    rf"(?<![\x00-\x7f{IGNORABLE}])[\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d]"  # selects a character's form
    r"|(?<=[0-9#*])\ufe0f(?=\u20e3)"  # keycaps
    rf"|(?:(?<![\x00-\x7f{IGNORABLE}])|(?<=[^\x00-\x7f{IGNORABLE}]\ufe0f))[\u200c\u200d](?![\x00-\x7f{IGNORABLE}]|\Z)"
    rf"|(?P<hidden>[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d])"
)
"""Joiners and variation selectors: those that emoji and some scripts need, and `hidden` others, which can hide text."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LINE_ENDS = "\x0b\x0c\r\x85\u2028\u2029"

_TAGS = (
    r"system[-_]|command[-_]|local-command|checkpoint-data|user-prompt-submit-hook|function_|tool_"
    r"|invoke\b|parameter\b|antml:"
    r"|(?:system|assistant|human|user|developer|instructions?|thinking|start_of_turn|end_of_turn|bos|eos|s|sys)\s*>"
)
_SLASH = r"\s*+/?\s*+"  # possessive: backtracking over ten thousand blanks would take minutes
_MARKER = re.compile(
    rf"<(?={_SLASH}(?:{_TAGS}))"  # host and chat-template tags
    r"|<(?=\s*+/\s*+(?:[^\W\d]|>))"  # closing tags: one may close the tag that a client puts around stored text
    r"|<(?=[|｜])|(?<=[|｜])>"  # such as <|im_start|>
    rf"|<(?=<{_SLASH}SYS)"
    r"|<(?=!--)|(?<=--)>"  # comments: the labels of compiled text
    rf"|\[(?={_SLASH}INST\s*\])",
    re.IGNORECASE,
)
_ROLE = re.compile(
    r"^([ \t]*)(?=[*_#]{0,6}[ \t]{0,3}[*_]{0,3}"
    r"(?:Human|HUMAN|Assistant|ASSISTANT|System|SYSTEM|Developer|DEVELOPER)[*_]{0,3}[ \t]{0,3}[:：])",
    re.MULTILINE,
)

_INVISIBLE = re.compile(f"[{IGNORABLE}]+")
# Without `pathlib` or `os`: a hook without a server imports this file, and has a few milliseconds.
with open(f"{__file__.rpartition('text')[0]}data/look_alikes.json", encoding="utf-8") as _file:  # noqa: PTH123
    _LOOKS = json.load(_file)
"""Characters that look like ASCII (Unicode TR 39 and NFKC): `look_alikes` of one character, and `ligatures` of several
letters. Written by `tests/text/update_look_alikes.py` from the library `disarm` (MIT license)."""

_FOLDED = str.maketrans(
    {look: plain for plain, looks in _LOOKS["look_alikes"].items() for look in looks} | _LOOKS["ligatures"]
)


def printable(text: str) -> str:
    """Returns `text` with visible control characters, for a file that people print in a terminal."""
    return _CONTROL.sub(_replacement, text.replace("\r\n", "\n"))


def _replacement(match: re.Match[str]) -> str:
    """Returns the replacement of an unusual character: a line feed, a visible sign, or nothing."""
    character = match[0]
    if character in _LINE_ENDS:
        return "\n"
    if character < " ":
        return chr(0x2400 + ord(character))
    if character == "\x7f":
        return "\u2421"
    return "\ufffd" if character < "\xa0" or "\ud800" <= character <= "\udfff" else ""


def neutralise(text: str) -> str:
    """Returns `text`, safe for use in a prompt. Idempotent; text without markers is returned unchanged."""
    if not text.isascii() or not text.isprintable():
        text = _UNUSUAL.sub(_replacement, text.replace("\r\n", "\n"))
        text = _JOINING.sub(lambda match: "" if match["hidden"] else match.group(), text)
    plain, positions = skeleton(text)
    if ":" in plain:  # roles first: the `>` inserted before one may close an open tag
        roles = [_position(match.end(1), positions) for match in _ROLE.finditer(plain)]
        if roles:
            text = _replaced(text, {place: f"> {text[place]}" for place in roles})
            plain, positions = skeleton(text)
    if "<" in plain or "[" in plain or ">" in plain:
        found = {_position(match.start(), positions): _HARMLESS[match.group()] for match in _MARKER.finditer(plain)}
        if found:
            text = _replaced(text, found)
    return text


def neutralise_values(data: Mapping[str, object], keep: Collection[str]) -> dict[str, object]:
    """Returns JSON values with neutralized strings, at any depth. Strings under the keys `keep` stay as they are."""
    return {key: _neutralised(key, value, keep) for key, value in data.items()}


def _neutralised(key: str, value: object, keep: Collection[str]) -> object:
    if isinstance(value, str):
        return value if key in keep else neutralise(value)
    if isinstance(value, Mapping):
        return neutralise_values(value, keep)
    if isinstance(value, list | tuple):
        return [_neutralised(key, inner, keep) for inner in value]
    return value


_HARMLESS = {"<": "‹", ">": "›", "[": "("}


def _position(place: int, positions: list[int] | None) -> int:
    return place if positions is None else positions[place]


def _replaced(text: str, new: Mapping[int, str]) -> str:
    """Returns the text with other characters at these positions."""
    characters = list(text)
    for place, character in new.items():
        characters[place] = character
    return "".join(characters)


def visible(text: str) -> tuple[str, list[int] | None]:
    """Returns the text without invisible characters, and the position of each other one; None if all are visible."""
    if text.isascii() or not _INVISIBLE.search(text):
        return text, None
    kept: list[int] = []
    position = 0
    for match in _INVISIBLE.finditer(text):
        kept.extend(range(position, match.start()))
        position = match.end()
    kept.extend(range(position, len(text)))
    return _INVISIBLE.sub("", text), kept


def skeleton(text: str) -> tuple[str, list[int] | None]:
    """Returns the text as a reader sees it, and the position in the text of each of its characters.

    Invisible characters are removed and look-alikes of ASCII are replaced, so that a comparison finds `<ѕystem>` with a
    Cyrillic letter (Unicode TR 39). The positions are None if they are the same as in the text.
    """
    if text.isascii():
        return text, None
    seen, positions = visible(text)
    folded = seen.translate(_FOLDED)
    if len(folded) == len(seen):
        return folded, positions
    kept = range(len(text)) if positions is None else positions
    return folded, [
        position for character, position in zip(seen, kept, strict=True) for _ in character.translate(_FOLDED)
    ]
