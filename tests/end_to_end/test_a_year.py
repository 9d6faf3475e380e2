"""A simulated year: days of talk, journals, what agents remember; the jobs run at their times. Nothing that was said is
lost, and nothing grows over its cap.

`CM_DAYS=365` for the whole year (`-s` shows time and size); by default a short one, in which journals leave sooner.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from mcp_server.app import catch_up, open_memory
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.history.committing import commit_changes, tag_days
from mcp_server.jobs.scheduler import JOBS, run_due
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.search.search import SearchRequest, find
from mcp_server.text.destinations import MEMORY
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.gitting import git

pytestmark = pytest.mark.anyio

DAYS = int(os.environ.get("CM_DAYS", "10"))
FIRST = datetime(2026, 1, 24, 9, 0, tzinfo=UTC)  # the fewest days, too, see a month end
CAP, REFUSED = 200, 220
RETENTION = 90 if DAYS > 150 else 5
ENVIRON = {
    **KEYWORDS_ONLY,
    "CONTEXT_MANAGER_WORKSPACE__TIMEZONE": "UTC",
    "CONTEXT_MANAGER_LIFECYCLE__JOURNAL_RETENTION_DAYS": str(RETENTION),
}
SYLLABLES = ("ba", "ke", "lo", "mi", "ru", "sa", "ti", "vo", "ze", "du")


def word(day: int) -> str:
    """A word of its own for a day, which no other day says."""
    return "q" + "".join(SYLLABLES[int(digit)] for digit in f"{day:03d}") + "x"


async def lived(memory: Memory, clock: Clock, day: int) -> None:
    """One day: a conversation with a decision, every other day a fact that an agent remembers."""
    name = f"day-{day}"
    talk = (
        ("user", f"I decided to store the {word(day)} records in Postgres, because one dump holds everything."),
        ("agent", "Good. I will write the migration."),
        ("user", f"I visited the harbour of Rijeka with Marko, who builds the {word(day)} boat."),
        ("agent", "That sounds like a fine day."),
    )
    for number, (role, text) in enumerate(talk):
        await observe(memory, NewTurn(role, text, session=name, turn_id=f"{name}.{number}"), Caller())
        clock.forward(minutes=5)
    if day % 2:
        await remember(memory, NewFact(f"The {word(day)} press runs on Tuesdays only", "fact"), Caller())
    await sessions.end_session(memory, name)
    await commit_changes(memory)
    clock.forward(hours=15)  # past midnight: what is planned for the evening and the night is due
    for ran in await run_due(memory, JOBS):
        assert ran.ok, ran
    await commit_changes(memory)
    await tag_days(memory)
    clock.now = FIRST + timedelta(days=day)


async def test_caps_hold_the_archive_fills_and_everything_is_found(workspace: Path, clock: Clock) -> None:
    clock.now = FIRST
    began = time.perf_counter()
    async with open_memory(workspace, ENVIRON, clock=clock) as memory:
        await run_due(memory, JOBS)  # sees its schedules for the first time
        for day in range(1, DAYS + 1):
            await lived(memory, clock, day)
            lines = memory.files.read_text(MEMORY).count("\n")
            assert lines <= REFUSED, f"day {day}"
        assert memory.files.read_text(MEMORY).count("\n") <= CAP + 5, "the weekly pruning holds the cap"
        await catch_up(memory)
        today = date.fromisoformat(memory.local_date(clock.now))
        journals = [stat.path for stat in memory.files.walk("knowledge/journal/")]
        oldest = min(date.fromisoformat(path.rsplit("/", 1)[-1].removesuffix(".md")) for path in journals)
        assert (today - oldest).days <= RETENTION + 31, "journals leave once a month"
        assert list(memory.files.walk("archive/journal/"))
        for day in range(1, DAYS + 1):
            found = await find(memory, SearchRequest(word(day), scope="all", limit=10))
            assert any(word(day) in hit.passage.text for hit in found.hits), f"day {day} is not found"
            if day % 2:
                assert any("press runs" in hit.passage.text for hit in found.hits), f"the fact of day {day}"
    daily, weekly = (git(workspace, "tag", "--list", f"memory/{kind}/*").split() for kind in ("daily", "weekly"))
    assert len(daily) >= DAYS - 2
    assert len(weekly) >= max(1, DAYS // 7 - 1)
    assert git(workspace, "status", "--porcelain") == ""
    size = sum(path.stat().st_size for path in (workspace / ".git").rglob("*") if path.is_file())
    commits = git(workspace, "rev-list", "--count", "HEAD").strip()
    print(f"\n{DAYS} days in {time.perf_counter() - began:.0f} s: {commits} commits, .git {size / 1e6:.1f} MB")
