"""What compaction costs is measured on a conversation that is observed turn by turn."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.datasets import conversations
from benchmarks.live import PHASES, SESSION, measure_live, observe_all
from benchmarks.workbench import ASKER, Workbench
from mcp_server.app import open_memory
from mcp_server.conversations.sessions import session_turns
from mcp_server.recovery.recover import recover
from mcp_server.relevance.live_set import live_set
from tests.pressing import SUBJECTS, limited

pytestmark = pytest.mark.anyio


WORDS = ("herring", "lanterns", "gravel", "pepper", "cobalt", "thistle", "marble", "parsnips", "velvet", "chalk")


def conversation() -> dict[str, Any]:
    """Two friends, four sessions, a subject each, and a question about each."""
    talk: dict[str, Any] = {"speaker_a": "Mira", "speaker_b": "Oto"}
    for place, subject in enumerate(SUBJECTS, start=1):
        talk[f"session_{place}_date_time"] = f"1:56 pm on {place} May, 2023"
        talk[f"session_{place}"] = [
            {"speaker": "Mira" if n % 2 else "Oto", "dia_id": f"D{place}:{n}", "text": f"{subject}. Today: {word}."}
            for n, word in enumerate(WORDS, start=1)
        ]
    asked = [
        {"question": f"{subject}, and lanterns?", "answer": "", "evidence": [f"D{place}:2"], "category": 1}
        for place, subject in enumerate(SUBJECTS, start=1)
    ]
    return {"sample_id": "talk-1", "conversation": talk, "qa": asked}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([conversation()]), encoding="utf-8")
    return path


async def test_evidence_is_told_before_compaction_after_it_and_after_what_returns(bench: Workbench, file: Path) -> None:
    report = await measure_live(bench, file, 1000)
    assert (report.questions, report.conversations, report.limit) == (4, 1, 1000)
    assert set(report.contexts) == set(PHASES)
    where = report.where
    assert where.turns == 40 == where.live + where.shortened + where.cold
    assert where.cold > 0
    assert where.records == where.exact == where.cold + where.shortened
    assert report.live["before compaction"] == 1
    assert report.live["after it"] < report.live["after automatic recovery"]
    assert report.contexts["after automatic recovery"]["4096"] >= report.contexts["after it"]["4096"]


async def test_every_turn_of_a_long_conversation_is_live_or_comes_back_byte_for_byte(
    workspace: Path, file: Path
) -> None:
    """With CONTEXT_MANAGER_LOCOMO naming LoCoMo's own file, its first conversation too, at 4,000 live tokens."""
    given = os.environ.get("CONTEXT_MANAGER_LOCOMO")
    for place, (path, limit) in enumerate([(file, 1000), *([(Path(given), 4000)] if given else [])]):
        talk = conversations(path)[0]
        async with open_memory(workspace / str(place), limited(limit)) as memory:
            await observe_all(memory, talk)
            turns = {turn.number: turn for turn in await session_turns(memory, SESSION)}
            chunks = {chunk.turn: chunk for chunk in await live_set(memory, SESSION)}
            assert chunks.keys() == turns.keys()
            assert sum(chunk.tokens for chunk in chunks.values() if chunk.form != "cold") < 0.85 * limit
            away = {number for number, chunk in chunks.items() if chunk.form != "whole"}
            assert away
            records = {record.turn: record for record in memory.cold.of(SESSION)}
            assert records.keys() == away
            for number in away:
                back = await recover(memory, records[number].chunk_id, ASKER, apply=True)
                assert back.content is not None
                assert back.content.encode() == turns[number].content.encode()
            assert {chunk.form for chunk in await live_set(memory, SESSION)} == {"whole"}
