"""Contradictions that time does not settle are listed by `status`, with both sources and a command."""

from __future__ import annotations

import re
import shlex

import pytest

from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.knowledge.review import contradictions
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.status.status import status
from tests.knowledge.test_items import PAGE

pytestmark = pytest.mark.anyio
SRC = "[src: raw/conversations/2026/02/16/1845-s-talk.md#{}]"


def body(*said: str) -> str:
    lines = "\n".join(f"- 2026-02-16: {text} {SRC.format(n)}" for n, text in enumerate(said, 1))
    return f"# atlas\n\n## Key Decisions\n{lines}\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The backups are kept for 14 days.", "Backups are kept for 30 days."),
        ("The harbor tariff is public.", "The harbor tariff is not public."),
    ],
)
def test_two_values_of_one_thing_contradict_each_other(one: str, other: str) -> None:
    assert [(a.said, b.said) for a, b in contradictions(body(one, other))] == [(one, other)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The backups are kept for 14 days.", "The backups of the map are copied 30 times to the other harbor."),
        ("The backups are kept for 14 days.", "Backups are kept for 14 days and 2 hours."),
        ("The backups take 14 minutes.", "Backups take 30 GB."),
        ("Two pollers drain the queue.", "The queue is not part of the first release."),
    ],
)
def test_lines_about_two_things_do_not_contradict_each_other(one: str, other: str) -> None:
    assert contradictions(body(one, other)) == []


def test_replaced_lines_and_open_items_are_not_compared() -> None:
    page = body("The backups are kept for 14 days.").replace("Key Decisions", "Replaced decisions")
    assert contradictions(page + "\n## Key Decisions\n- Backups are kept for 30 days.\n") == []


async def test_status_names_both_sources_and_its_command_settles_it(memory: Memory) -> None:
    page = body("The backups are kept for 14 days.") + "- Backups are kept for 30 days.\n"
    memory.files.write_atomic(PAGE, f"---\ntype: project_context\nproject: atlas\n---\n\n{page}", new=True)
    (problem,) = [one for one in (await status(memory)).problems if "contradict" in one]
    assert "raw/conversations/2026/02/16/1845-s-talk.md#1" in problem
    assert "written by hand" in problem
    found = re.search(r"context-manager (remember .*) --supersedes (\S+), or", problem)
    assert found is not None
    _, content, _, kind, _, project = shlex.split(found[1])
    fact = NewFact(content=content, kind=kind, project=project, supersedes=found[2])
    await remember(memory, fact, Caller())
    assert not any("contradict" in one for one in (await status(memory)).problems)
    kept = memory.files.read_text(PAGE)
    assert "14 days" in kept.partition("## Replaced decisions")[2], "what was given up is kept in its section"
