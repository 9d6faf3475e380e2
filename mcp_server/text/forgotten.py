"""Recognizes texts that were deleted on request. Only their hashes are stored, never the texts.

Texts are compared by their letters and digits, without case, accents, spaces and punctuation. For
`The vault's code: 47-11!` a salted hash of `thevaultscode4711` is stored, with its length. The text is then found in
any longer text that has these words whole, in any spelling of case, spaces and punctuation. A paraphrase is not found,
nor a match that begins or ends inside a word. Somebody who has the hashes can confirm a guess of a short text.

Requests are applied in the order in which they were made. Text that arrives later is treated in the same way, so a
forgotten turn and its second import are equal.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zlib import crc32

from mcp_server.errors import Invalid
from mcp_server.model import ToolCall, Turn
from mcp_server.text.markdown import moment_text, read_moment
from mcp_server.text.words import fold

MARK = "[forgotten]"
"""Replaces a forgotten text, once a line."""

NAME = "forgotten"
"""Replaces a forgotten text in file names, keys and other names that cannot contain brackets."""

SHORTEST = 3
"""The least number of letters and digits of a text that is forgotten everywhere."""

CUT_AT_LEAST = 12
"""Fewest letters and digits of a text's beginning that are recognized where the text was cut off; half of the text, if
that is less."""

DIGEST = 10
_CJK = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff]"
# Scripts that put no spaces between words: each letter counts as a word.
_WORD = re.compile(rf"{_CJK}|(?:(?!{_CJK})[^\W_])+")
_SPACED_WORD = re.compile(r"[^\W_]+")
_ANY_CJK = re.compile(_CJK)
_CUT = re.compile(r"[^\S\n]*(?:…|\.\.\.)")
_CUT_NAME = re.compile(r"[^\S\n]*(?:…|\.\.\.|\Z|\n|(?:-\d+)?\.md\b)")
_LINE = re.compile(r"[^\n]*\S[^\n]*")


@dataclass(frozen=True, slots=True)
class Forgotten:
    """One request. All hashes are salted; `windows` and `cuts` are (number of characters, hash).

    `windows` are deleted in every text. `sessions` are whole conversations up to `at`, `turns` single turns, `paths`
    files, and `sources` the turns and transcripts that derived lines name as their sources. Two fields are not stored
    and only used while a request is carried out: `cuts` are beginnings of the text that are deleted where a text was
    cut off (before `…`, and at the end of names); `renames` are old and new names of files.
    """

    id: str
    at: datetime
    salt: bytes
    windows: frozenset[tuple[int, bytes]] = frozenset()
    sessions: frozenset[bytes] = frozenset()
    turns: frozenset[bytes] = frozenset()
    paths: frozenset[bytes] = frozenset()
    sources: frozenset[bytes] = frozenset()
    cuts: frozenset[tuple[int, bytes]] = frozenset()
    renames: tuple[tuple[str, str], ...] = ()

    # ------------------------------------------------------------ making a request

    def window(self, text: str) -> tuple[int, bytes]:
        """Returns the length and hash of a run of words. Raises Invalid for a text without letters or digits."""
        run = joined(text)
        if not run:
            raise Invalid(f"{text[:40]!r} has no letter or digit by which it could be recognized; forget another text")
        return len(run), self._window_hash(run)

    def session_hash(self, session: str) -> bytes:
        """Returns the hash of a conversation in `sessions`."""
        return self._hash("session", session)

    def turn_hash(self, turn: Turn, session: str) -> bytes:
        """Returns the hash of a turn in `turns`: of its conversation and its words."""
        said = [turn.content] if turn.content.strip() else [f"{c.name} {c.summary} {c.result}" for c in turn.tool_calls]
        text = "\n".join(said)
        return self._hash("turn", f"{session}\0{turn.role}\0{joined(text) or text.strip()}")

    def path_hash(self, path: str) -> bytes:
        """Returns the hash of a file in `paths`."""
        return self._hash("path", path)

    def source_hash(self, source: str, turn: int | None = None) -> bytes:
        """Returns the hash in `sources` of a transcript (its path or its session), or of one turn of it."""
        return self._hash("source", source if turn is None else f"{source}#{turn}")

    # ------------------------------------------------------------ applying it

    def clean(self, text: str, mark: str = MARK, *, names: bool = False) -> str:
        """Returns the text with its forgotten runs replaced by `mark`, once a line. Idempotent.

        `names`: the text is a name of a file or conversation, which may be cut off without an ellipsis.
        """
        for old, new in self.renames:
            text = text.replace(old, new)
        found = self.find(text, names=names)
        if not found:
            return text
        parts: list[str] = []
        position = 0
        for start, end in found:
            parts += (text[position:start], _LINE.sub(mark, text[start:end]))
            position = end
        return "".join((*parts, text[position:]))

    def name(self, text: str) -> str:
        """Returns a name cleaned as in `clean`, with `forgotten` without brackets."""
        return self.clean(text, NAME, names=True)

    def path(self, path: str) -> str:
        """Returns a path with each part cleaned."""
        return "/".join(self.name(part) for part in path.split("/"))

    def find(self, text: str, *, names: bool = False) -> list[tuple[int, int]]:
        """Returns the positions of forgotten runs in order, without overlap. A mark is never part of a run."""
        lengths = sorted({length for length, _ in self.windows | self.cuts}, reverse=True)
        if not lengths:
            return []
        cut = _CUT_NAME if names else _CUT
        return [span for first, piece in _pieces(text) for span in self._in_piece(text, first, piece, lengths, cut)]

    def holds(self, text: str, *, names: bool = False) -> bool:
        """Returns whether `clean` would change the text."""
        return any(old in text for old, _ in self.renames) or bool(self.find(text, names=names))

    def turn(self, turn: Turn, session: str) -> Turn:
        """Returns the turn with its forgotten passages masked, or masked as a whole if it was forgotten."""
        if (turn.at <= self.at and self.session_hash(session) in self.sessions) or (
            self.turns and self.turn_hash(turn, session) in self.turns
        ):
            calls = tuple(
                ToolCall(self.name(call.name), blank(call.summary), blank(call.result)) for call in turn.tool_calls
            )
            kept = (NAME,) * len(turn.attachments)  # no line is lost
            return replace(turn, content=blank(turn.content), tool_calls=calls, attachments=kept)
        if not self.windows and not self.renames:
            return turn
        calls = tuple(
            ToolCall(
                self.name(call.name),
                self.clean(call.summary),
                self.clean(call.result),
                tuple(self.path(file) for file in call.files),
            )
            for call in turn.tool_calls
        )
        return replace(
            turn,
            content=self._clean_by_stored(turn.content),
            name=None if turn.name is None else self._clean_by_stored(turn.name),
            turn_id=None if turn.turn_id is not None and self.find(turn.turn_id) else turn.turn_id,
            tool_calls=calls,
            attachments=tuple(self.path(path) for path in turn.attachments),
        )

    def _clean_by_stored(self, text: str) -> str:
        """Returns a text cleaned without `cuts` and `renames`. These are not stored, so a later import gives the same
        result."""
        return (replace(self, cuts=frozenset(), renames=()) if self.cuts or self.renames else self).clean(text)

    def covers(self, path: str) -> bool:
        """Returns whether the file itself is forgotten."""
        return bool(self.paths) and self.path_hash(path) in self.paths

    def derived(self, text: str) -> bool:
        """Returns whether a line has a forgotten turn or conversation as its source (`[src: TURN](/TRANSCRIPT)`)."""
        if not self.sources:
            return False
        for found in _SOURCE.finditer(text):
            name, number = (found["path"] or found["old"]).strip(), found["turn"] or found["at"]
            turn = int(number) if number else None
            hashes = {self.source_hash(name)} | ({self.source_hash(name, turn)} if turn is not None else set())
            if hashes & self.sources:
                return True
        return False

    def _in_piece(
        self, text: str, first: int, piece: str, lengths: Sequence[int], cut: re.Pattern[str]
    ) -> Iterator[tuple[int, int]]:
        starts, ends, offsets, run = _cut_into_words(piece)
        word_ending_at = {offset: index for index, offset in enumerate(offsets[1:])}
        first_bytes = {(length, digest[0]) for length, digest in self.windows | self.cuts}
        index = 0
        while index < len(starts):
            here = offsets[index]
            index += 1
            for length in lengths:
                last = word_ending_at.get(here + length)
                if last is None:
                    continue
                window = run[here : here + length]
                if (length, self._quick(window)) not in first_bytes:
                    continue
                hashed = (length, self._window_hash(window))
                end = first + ends[last]
                if hashed in self.windows or (hashed in self.cuts and cut.match(text, end)):
                    yield first + starts[index - 1], end
                    index = last + 1
                    break

    def _window_hash(self, run: str) -> bytes:
        """Returns the hash of a window. Its first byte is a checksum that is cheap to compute and excludes nearly all
        other texts."""
        return bytes((self._quick(run),)) + self._hash("window", run)[1:]

    def _quick(self, run: str) -> int:
        return crc32(run.encode("utf-8", "surrogatepass"), int.from_bytes(self.salt[:4], "big")) & 0xFF

    def _hash(self, kind: str, text: str) -> bytes:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=DIGEST, key=self.salt, person=kind.encode()).digest()

    # ------------------------------------------------------------ on disk

    def as_line(self) -> str:
        """Returns the request as a line of `forgotten.jsonl`."""
        return json.dumps(
            {
                "id": self.id,
                "at": moment_text(self.at),
                "salt": self.salt.hex(),
                "windows": [[length, digest.hex()] for length, digest in sorted(self.windows)],
                **{
                    name: [digest.hex() for digest in sorted(getattr(self, name))]
                    for name in ("sessions", "turns", "paths", "sources")
                    if getattr(self, name)
                },
            }
        )


_SOURCE = re.compile(
    r"\[src: (?:(?P<turn>\d{1,15})\]\(/(?P<path>[^()\s]+)\)|(?P<old>[^\]#\n]+)(?:#(?P<at>\d{1,15})[^\]\n]*)?\])"
)


def from_line(line: str) -> Forgotten:
    """Reads one line of `forgotten.jsonl`. Raises Invalid."""
    try:
        value = json.loads(line)
        at = read_moment(value["at"])
        if at is None:
            raise ValueError("`at` is not a time")
        sessions, turns, paths, sources = (
            frozenset(bytes.fromhex(digest) for digest in value.get(name, ()))
            for name in ("sessions", "turns", "paths", "sources")
        )
        salt = bytes.fromhex(value["salt"])
        if len(salt) > hashlib.blake2b.MAX_KEY_SIZE:
            raise ValueError("`salt` is too long")
        windows = hashes_of(value.get("windows", ()))
        if not all(digest for _, digest in windows):
            raise ValueError("a window without a hash")
        return Forgotten(str(value["id"]), at, salt, windows, sessions, turns, paths, sources)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid(f"not a valid line of forgotten.jsonl: {error}") from error


def hashes_of(listed: Iterable[Sequence[object]]) -> frozenset[tuple[int, bytes]]:
    """Returns windows from their JSON form: `[characters, hash as hex]`."""
    return frozenset((int(str(length)), bytes.fromhex(str(digest))) for length, digest in listed)


def clean(requests: Iterable[Forgotten], text: str) -> str:
    """Returns the text after every request, applied in order."""
    for request in requests:
        text = request.clean(text)
    return text


def clean_turn(requests: Iterable[Forgotten], turn: Turn, session: str) -> Turn:
    """Returns the turn after every request, applied in order."""
    for request in requests:
        turn = request.turn(turn, session)
    return turn


def joined(text: str) -> str:
    """Returns the letters and digits of a text, folded and joined."""
    return _cut_into_words(text)[3]


def blank(text: str) -> str:
    """Returns the text with every line that has words replaced by the mark; the number of lines stays."""
    return _LINE.sub(MARK, text)


def values(value: object, text: Callable[[str], str], name: Callable[[str], str]) -> object:
    """Returns a JSON value with every text in it cleaned by `text`, and every key by `name`."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {name(str(key)): values(inner, text, name) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [values(inner, text, name) for inner in value]
    return value


def cut_short(text: str, run: str, *, names: bool = False) -> set[str]:
    """Returns the beginnings of `run` that were cut off in `text` and are long enough to be recognized. Titles, file
    names and summaries are cut, sometimes within a forgotten text. `names` as in `clean`."""
    found: set[str] = set()
    for first, piece in _pieces(text):
        _, ends, offsets, whole = _cut_into_words(piece)
        for place in (_CUT_NAME if names else _CUT).finditer(text, first, first + len(piece)):
            last = bisect_right(ends, place.start() - first)
            if last == 0 or ends[last - 1] != place.start() - first:
                continue
            for index in range(last - 1, -1, -1):
                tail = whole[offsets[index] : offsets[last]]
                if len(tail) >= len(run):
                    break
                if len(tail) >= min(CUT_AT_LEAST, len(run) / 2) and run.startswith(tail):
                    found.add(tail)
    return found


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yields the texts between marks with their positions."""
    position = 0
    while (following := text.find(MARK, position)) >= 0:
        yield position, text[position:following]
        position = following + len(MARK)
    yield position, text[position:]


def _cut_into_words(text: str) -> tuple[list[int], list[int], list[int], str]:
    """Returns the start and end of each word, its offset in the run (and the offset of the end), and the run."""
    starts: list[int] = []
    ends: list[int] = []
    offsets = [0]
    parts: list[str] = []
    word = _SPACED_WORD if text.isascii() or not _ANY_CJK.search(text) else _WORD
    for match in word.finditer(text):
        said = match.group()
        folded = said.lower() if said.isascii() else "".join(c for c in fold(said) if c.isalnum())
        folded = folded.replace("dj", "d")  # file names have dj for đ
        if folded:
            starts.append(match.start())
            ends.append(match.end())
            offsets.append(offsets[-1] + len(folded))
            parts.append(folded)
    return starts, ends, offsets, "".join(parts)
