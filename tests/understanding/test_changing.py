"""What takes the place of something said before."""

from __future__ import annotations

import pytest

from mcp_server.understanding.cues import overtaken, supersedes

STREAMS = "Redis streams for the retry queue, on the Redis that ops runs for lantern."
OAUTH = "The GLS v2 client uses OAuth, and its token lives for 3600 seconds."


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("No Redis: the user and their team use Postgres for the retry queue instead.", STREAMS),
        ("The retry queue is no longer on Redis.", STREAMS),
        ("The retry queue moved from Redis to Postgres.", STREAMS),
        ("The legal team wants 30 days instead of 14.", "Scans older than 14 days can be dropped."),
        ("Moved: we release 2.8 on Tuesday November 24.", "The release of lantern 2.8 is planned for November 20."),
    ],
)
def test_a_line_takes_back_what_it_names(newer: str, older: str) -> None:
    assert supersedes(newer, older)
    assert overtaken([older, newer]) == {0}
    assert overtaken([newer, older]) == frozenset(), "what is said later is so"


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("The retry queue holds eight tries, and Redis is watched.", STREAMS),
        ("No Redis: sessions of the web shop are kept in Postgres instead.", "Ops already runs a Redis."),
        ("The user and their team changed the GLS v2 client to httpx.", OAUTH),
        ("The GLS v2 client uses httpx instead of requests.", OAUTH),
        ("Moved: the standup is at nine.", OAUTH),
    ],
)
def test_what_only_speaks_of_the_same_takes_nothing_back(newer: str, older: str) -> None:
    assert not supersedes(newer, older)
