"""Where bytes lie in a text that was decoded as UTF-8 with `surrogateescape`, counted without a second copy of it."""

from __future__ import annotations

STEP = 1 << 16
"""Characters that are encoded at once."""


def size_in_bytes(text: str, start: int, end: int) -> int:
    """The size of text[start:end] in bytes."""
    if text.isascii():
        return max(0, end - start)
    return sum(len(_encoded(text, at, min(at + STEP, end))) for at in range(start, end, STEP))


def after_bytes(text: str, start: int, size: int) -> int | None:
    """Where the text goes on `size` bytes after `start`; None if it is not so long. A character that the bytes end
    within belongs to them."""
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
