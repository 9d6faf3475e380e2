"""Forgotten text is taken out of a file, and the places are told."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

from mcp_server.forgetting.cleaning import Place, cleaned
from mcp_server.text.forgotten import Forgotten


def test_the_places_in_a_long_file_are_told_soon() -> None:
    empty = Forgotten("fgt_1", datetime(2026, 2, 16, tzinfo=UTC), b"salt")
    request = replace(empty, windows=frozenset({empty.window("the code is 4711")}))
    lines = [line for number in range(20_000) for line in (f"line {number}", "")]
    lines[30_000] = lines[10] = "- The code is 4711."
    lines[39_000] = "Ana says: the code is 4711."

    begun = time.process_time()
    found = cleaned("knowledge/reference/long.md", "\n".join(lines).encode(), request)

    assert found.places == (Place(11, "removed"), Place(30_001, "removed"), Place(39_001, "marked"))
    assert time.process_time() - begun < 10
