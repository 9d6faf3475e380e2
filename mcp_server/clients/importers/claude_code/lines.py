"""The lines of a file that somebody may be writing to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

LONGEST = 64 * 1024 * 1024
"""Bytes of a line; a longer one is passed over, so that memory stays bounded."""

TORN = "last line cut short"
_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One line: bytes `start` to `end`, and its fields; None with a reason `why` it has none.

    A line at the end of the file that is cut short has `why` TORN: whoever writes it may not be done.
    """

    start: int
    end: int
    fields: Mapping[str, Any] | None
    why: str = ""


def lines(file: BinaryIO, start: int) -> Iterator[Line]:
    """Every line from byte `start` on, where one begins; empty lines are left out."""
    file.seek(start)
    while raw := file.readline(LONGEST):
        end = start + len(raw)
        if len(raw) == LONGEST and not raw.endswith(b"\n"):
            raw = b""
            while (more := file.readline(_PIECE)) and not more.endswith(b"\n"):
                end += len(more)
            if not more:
                yield Line(start, end, None, TORN)
                return
            end += len(more)
            yield Line(start, end, None, f"line over {LONGEST // 1024**2} MB")
        elif raw.strip():
            fields, why = _fields(raw)
            if fields is None and not raw.endswith(b"\n"):
                yield Line(start, end, None, TORN)
                return
            yield Line(start, end, fields, why)
        start = end


def _fields(raw: bytes) -> tuple[Mapping[str, Any] | None, str]:
    try:
        found = json.loads(raw.decode("utf-8", "replace"))
    except RecursionError:
        return None, "line nested too deeply"
    except ValueError:
        return None, "line that is not JSON"
    return (found, "") if isinstance(found, dict) else (None, "line that is not an object")
