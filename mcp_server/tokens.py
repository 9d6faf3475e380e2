"""Counts the tokens of texts with a vocabulary that ships with the package, so that nothing is downloaded.

Loading it takes about 0.3 s and 45 MB. It is loaded at the first count and shared by all counters of the process. A
`Meter` counts each text of a compilation once; `shared_out` divides a budget among the parts of a context.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from mcp_server.errors import Unavailable

if TYPE_CHECKING:
    import tiktoken


Count = Callable[[str], int]
"""Returns the tokens of a text, at least 0; `count("")` is 0."""

UNLIMITED_BYTES = 1 << 62
MOST_CHARACTERS_PER_TOKEN = 16
"""A text with more characters per token of a `Room` than this cannot fit, so it is not counted."""


class Meter:
    """Counts tokens and caches the result for each text."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._known: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        tokens = self._known.get(text)
        if tokens is None:
            tokens = self._known[text] = self._count(text)
        return tokens

    def line(self, text: str) -> int:
        """Returns the tokens of a line with its line end. Tokens end at line ends, so the sum over lines is exact."""
        return self(text + "\n")


@dataclass(frozen=True, slots=True)
class Room:
    """The tokens and bytes that rendered text may take."""

    tokens: int
    bytes: int = UNLIMITED_BYTES

    def holds(self, text: str, meter: Meter) -> bool:
        """Returns whether a text with its line end fits. Texts that are certainly too long are not counted."""
        if len(text) > self.tokens * MOST_CHARACTERS_PER_TOKEN or len(text) > self.bytes:
            return False
        return len(text.encode("utf-8", "replace")) <= self.bytes and meter.line(text) <= self.tokens

    def less(self, text: str, meter: Meter) -> Room:
        """Returns the room that is left after `text`."""
        return Room(
            max(0, self.tokens - meter.line(text)), max(0, self.bytes - len(text.encode("utf-8", "replace")) - 1)
        )


def shared_out(needs: Sequence[int], room: int) -> list[int]:
    """Returns `room` divided among the needs: small needs are met in full, large ones get equal parts.

    >>> shared_out([10, 500, 300], 210)
    [10, 100, 100]
    """
    parts = [0] * len(needs)
    left = max(0, room)
    for done, position in enumerate(sorted(range(len(needs)), key=lambda index: (needs[index], index))):
        parts[position] = min(needs[position], left // (len(needs) - done))
        left -= parts[position]
    return parts


# The vocabulary's digest and pattern, from tiktoken_ext/openai_public.py.
VOCABULARY = "o200k_base"
_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PATTERN = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{_CONTRACTION}",
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

EXACT_CHARACTERS = 1_000_000
"""Characters of a text that are counted exactly; the rest of a longer one is counted by an upper bound."""
_REMEMBERED_CHARACTERS = 2_000  # longest text whose count is cached: a line or a passage
_BY_LINES = 200_000  # characters up to which a text is counted by its lines; more would displace the whole cache
_WINDOW = 64  # characters for each token that are read first when truncating: English has 4 to 5, runs of spaces more

# A million whitespace characters in a row overflow the stack of tiktoken's regular expression engine, which panics
# (seen with tiktoken 0.14).
_LONG_BLANK = re.compile(r"(?<!\s)\s{50000,}")
# No token continues over a line feed unless a blank or a slash follows: see the pattern.
_SAFE_CUT = re.compile(r"\n(?=[^\s/])")

_LOADING = threading.Lock()
"""Held while a thread loads the vocabulary."""


class TokenCounter:
    """Counts the tokens of texts, and truncates texts. Thread-safe. Counts names of special tokens as ordinary text."""

    vocabulary = VOCABULARY

    def __init__(self) -> None:
        self._count_small = functools.lru_cache(maxsize=8192)(self._count)

    def count(self, text: str) -> int:
        """Returns the number of tokens: exact up to EXACT_CHARACTERS, except for long blanks; above, an upper bound."""
        if len(text) <= _REMEMBERED_CHARACTERS:
            return self._count_small(text)
        if len(text) <= _BY_LINES:
            ends = [*(match.end() for match in _SAFE_CUT.finditer(text)), len(text)]
            return sum(map(self._count_piece, map(text.__getitem__, map(slice, [0, *ends], ends))))
        if len(text) <= EXACT_CHARACTERS:
            return self._count(text)
        cut = 0
        for match in _SAFE_CUT.finditer(text, 0, EXACT_CHARACTERS):
            cut = match.end()
        return self._count(text[:cut]) + _most_tokens(text[cut:])

    def truncate(self, text: str, tokens: int) -> str:
        """Returns the longest beginning of `text`, in whole characters, that has at most `tokens` tokens by `count`."""
        if tokens <= 0:
            return ""
        window = min(len(text), tokens * _WINDOW + _WINDOW)
        head = text[:window]
        blank = _LONG_BLANK.search(head)
        if blank is not None:  # nothing after it would be read
            head = head[: blank.start() + 1]
        if len(head) == len(text) and self.count(text) <= tokens:
            return text
        encoding = self._encoding()
        ids = encoding.encode_ordinary(head[:EXACT_CHARACTERS])[:tokens]
        while ids:
            # A character may have several tokens: drop an incomplete one at the end.
            cut = encoding.decode_bytes(ids).decode("utf-8", errors="ignore")
            cut = head[: len(cut)]  # a lone surrogate was counted as U+FFFD, which is also one character
            if self.count(cut) <= tokens:  # a cut text may have other tokens at its end
                return cut
            ids.pop()
        return ""

    def _count_piece(self, text: str) -> int:
        return self._count_small(text) if len(text) <= _REMEMBERED_CHARACTERS else self._count(text)

    def _count(self, text: str) -> int:
        blank = _LONG_BLANK.search(text)
        if blank is None:
            return len(self._encoding().encode_ordinary(text))
        total = 0
        position = 0
        for blank in _LONG_BLANK.finditer(text):
            total += len(self._encoding().encode_ordinary(text[position : blank.start()])) + _most_tokens(blank.group())
            position = blank.end()
        return total + len(self._encoding().encode_ordinary(text[position:]))

    def _encoding(self) -> tiktoken.Encoding:
        with _LOADING:
            return _load()


def _most_tokens(text: str) -> int:
    """Returns an upper bound of the number of tokens: the number of bytes."""
    return len(text.encode("utf-8", errors="replace")) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


@functools.cache
def _load() -> tiktoken.Encoding:
    try:
        import lzma

        import tiktoken
    except ImportError as error:
        raise Unavailable(
            f"tokens cannot be counted: {error}; reinstall context-manager-mcp with its dependencies"
        ) from error
    packed = files("mcp_server.data").joinpath(f"{VOCABULARY}.tiktoken.xz").read_bytes()
    raw = lzma.decompress(packed)
    if hashlib.sha256(raw).hexdigest() != _SHA256:
        raise Unavailable(f"the bundled vocabulary {VOCABULARY} is damaged; reinstall context-manager-mcp")
    ranks = {}
    for line in raw.splitlines():
        token, _, rank = line.partition(b" ")
        ranks[binascii.a2b_base64(token)] = int(rank)
    encoding = tiktoken.Encoding(VOCABULARY, pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # the encoding keeps these 25 MB only for pickling; it counts with its own copy
    return encoding
