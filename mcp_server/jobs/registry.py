"""The jobs of a memory, by name."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_server.jobs.scheduler import Job
from mcp_server.knowledge.condense import Period, condense
from mcp_server.knowledge.extract import extract_pending
from mcp_server.knowledge.prune_knowledge import prune_files
from mcp_server.memory import Memory


async def _hourly(memory: Memory) -> str:
    return f"{await extract_pending(memory)} conversations read"


async def _daily(memory: Memory) -> str:
    return await _condensed(memory, "daily")


async def _weekly(memory: Memory) -> str:
    said = await _condensed(memory, "weekly")
    moved = await prune_files(memory, dry_run=False)
    return f"{said}; {len(moved.of_fate('gone'))} files archived"


async def _monthly(memory: Memory) -> str:
    return await _condensed(memory, "monthly")


async def _condensed(memory: Memory, period: Period) -> str:
    done = await condense(memory, period)
    return "; ".join((f"{len(done.files)} file{'' if len(done.files) == 1 else 's'} changed", *done.notes))


JOBS: Mapping[str, Job] = {
    job.name: job
    for job in (
        Job(
            "extract-hourly",
            "closed conversations become knowledge, where lifecycle.extraction_trigger is hourly",
            lambda settings: "0 * * * *" if settings.lifecycle.extraction_trigger == "hourly" else None,
            _hourly,
        ),
        Job(
            "condense-daily",
            "closed conversations become knowledge",
            lambda settings: settings.lifecycle.condensation_schedule,
            _daily,
        ),
        Job(
            "condense-weekly",
            "MEMORY.md follows the other pages and keeps to its cap; unused files go to archive/",
            lambda settings: settings.lifecycle.pruning_schedule,
            _weekly,
        ),
        Job(
            "condense-monthly",
            "old journals and plans go to archive/, indexes are written anew",
            lambda settings: settings.lifecycle.monthly_schedule,
            _monthly,
        ),
    )
}
