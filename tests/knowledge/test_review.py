"""Changes that the user must approve, and lines that contradict each other, of which the user keeps one."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Conflict, Invalid, NotFound, Refused
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.knowledge.review import approve, contradictions, reject, waiting
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.status.status import status
from tests.conftest import KEYWORDS_ONLY
from tests.knowledge.test_items import PAGE

pytestmark = pytest.mark.anyio

CALLER = Caller(client="an-agent")
USER = "knowledge/identity/USER.md"


async def propose(memory: Memory, content: str = "I like tea", **more: str) -> str:
    done = await remember(memory, NewFact(content, **({"kind": "identity"} | more)), CALLER)
    assert done.action == "waiting"
    assert done.proposal is not None
    return done.proposal


async def test_what_an_agent_writes_into_identity_waits_with_its_diff(memory: Memory) -> None:
    before = memory.files.read_text(USER)
    number = await propose(memory)
    (found,) = await waiting(memory)
    assert memory.files.read_text(USER) == before
    assert found.proposal.id == number
    assert found.proposal.by == "an-agent"
    assert "+- I like tea" in found.diff
    assert found.proposal.path == USER


async def test_an_approved_change_is_written_and_waits_no_more(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "I like tea", session="s"), CALLER)
    number = await propose(memory, session="s")
    done = await approve(memory, number)
    assert done.action == "appended"
    assert "## About me\n" in memory.files.read_text(USER)
    assert "- I like tea" in memory.files.read_text(USER)
    assert await waiting(memory) == []
    (path,) = memory.transcripts.find("s")
    assert f"> [knowledge:appended] {USER} — I like tea" in memory.files.read_text(path)


async def test_a_rejected_change_is_gone(memory: Memory) -> None:
    number = await propose(memory)
    assert (await reject(memory, number)).path == USER
    assert await waiting(memory) == []
    with pytest.raises(NotFound, match="there are: none"):
        await approve(memory, number)


async def test_topics_wait_too_and_are_made_with_a_head(memory: Memory) -> None:
    number = await propose(memory, "Mail: answer within a day", kind="topic")
    done = await approve(memory, number)
    text = memory.files.read_text("topics/mail.md")
    assert done.action == "created"
    assert text.startswith("---\ntype: topic\n")
    assert "# Mail\n\n## Notes\n\n- Mail: answer within a day\n" in text


async def test_a_file_that_changed_since_is_a_conflict(memory: Memory) -> None:
    number = await propose(memory)
    memory.files.write_atomic(USER, memory.files.read_text(USER) + "\nI am tall.\n")
    with pytest.raises(Conflict, match="has changed since"):
        await approve(memory, number)
    (found,) = await waiting(memory, number)
    assert found.changed
    await approve(memory, number, anyway=True)
    assert "I am tall." in memory.files.read_text(USER)
    assert "I like tea" in memory.files.read_text(USER)


async def test_two_proposals_for_one_file_are_both_written(memory: Memory) -> None:
    first, second = await propose(memory), await propose(memory, "I like coffee")
    await approve(memory, first)
    await approve(memory, second)
    assert "- I like tea\n- I like coffee\n" in memory.files.read_text(USER)


async def test_the_same_proposal_waits_once_and_what_is_known_does_not(memory: Memory) -> None:
    assert await propose(memory) == await propose(memory)
    await approve(memory, await propose(memory))
    assert (await remember(memory, NewFact("I like tea", "identity"), CALLER)).action == "kept"
    assert await waiting(memory) == []


async def test_what_waits_survives_a_restart_and_status_names_it(memory: Memory, place: Path | str) -> None:
    await propose(memory)
    async with open_memory(place, KEYWORDS_ONLY) as again:
        report = await status(again)
    assert any("1 change waits for your approval" in problem and USER in problem for problem in report.problems)


async def test_with_the_setting_off_it_is_written_at_once(place: Path | str) -> None:
    async with open_memory(place, {**KEYWORDS_ONLY, "CONTEXT_MANAGER_KNOWLEDGE__APPROVE": "false"}) as memory:
        done = await remember(memory, NewFact("I like tea", "identity"), CALLER)
        assert done.action == "appended"
        assert await waiting(memory) == []


@pytest.mark.folder_only
async def test_a_secret_is_refused_before_it_waits(memory: Memory) -> None:
    with pytest.raises(Refused, match="secret"):
        await propose(memory, "the key is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
    assert not (memory.disk.local / "pending").exists()


async def test_identity_goes_nowhere_else(memory: Memory) -> None:
    with pytest.raises(Invalid, match="belongs under"):
        await remember(memory, NewFact("x y", "identity", path="knowledge/reference/x.md"), CALLER)


@pytest.mark.folder_only
async def test_a_proposal_that_somebody_forged_writes_nowhere_else(memory: Memory) -> None:
    number = await propose(memory)
    path = memory.disk.local / "pending" / f"{number}.json"
    forged = json.loads(path.read_text()) | {"path": "knowledge/memory/MEMORY.md"}
    path.write_text(json.dumps(forged))
    (memory.disk.local / "pending" / "broken.json").write_text("{")
    (found,) = await waiting(memory)
    assert "is not a file" in found.problem
    with pytest.raises((Refused, Conflict)):
        await approve(memory, number, anyway=True)


async def test_an_edit_whose_text_is_gone_says_so(memory: Memory) -> None:
    number = await propose(memory, "One", action="edit", old_text="Short answers or long ones?")
    memory.files.write_atomic(USER, "# User\n")
    (found,) = await waiting(memory)
    assert "does not occur" in found.problem
    with pytest.raises(NotFound):
        await approve(memory, number, anyway=True)


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
