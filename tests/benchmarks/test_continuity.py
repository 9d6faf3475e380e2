"""Pressure is measured on a conversation that is observed turn by turn, continuity on a labeled one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.continuity import measure_continuity
from benchmarks.workbench import Workbench, mean
from tests.pressing import SUBJECTS

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


async def test_the_live_share_drops_and_the_evidence_are_counted(bench: Workbench, file: Path) -> None:
    report = await measure_continuity(bench, [file], 1000)
    found = report.pressure["locomo"]
    figures = found.as_dict()
    assert (found.turns, figures["questions"]) == (40, 4)
    assert found.dropped > 0
    assert 0.3 < max(found.shares) < 0.5
    assert found.exact.right == found.exact.of > 0
    kept = {place: mean(shares) for place, shares in found.evidence.items()}
    assert kept["whole in the live context after recovery"] >= kept["baseline: the last tokens"]


async def test_what_a_text_holds_of_a_labeled_conversation_is_counted_after_further_turns(
    bench: Workbench, tmp_path: Path
) -> None:
    turns = [
        {"role": "user", "content": "From now on, never use emoji in commit messages."},
        {"role": "agent", "content": "Understood: no emoji in commit messages."},
        {"role": "user", "content": "Let's use PostgreSQL for the queue."},
        {"role": "agent", "content": "Done: the queue is in PostgreSQL now."},
    ]
    decision = {"id": "D1", "text": "PostgreSQL", "settled_at": [0, 2], "keywords": ["postgresql"]}
    rule = {"id": "R1", "text": "No emoji.", "said_at": [0, 0], "keywords": ["emoji"]}
    labeled = {
        "name": "queue",
        "sessions": [{"started": "2026-11-02T09:00:00Z", "turns": turns}],
        **{"decisions": [{**decision, "superseded_by": None}], "rules": [rule], "open_items": [], "facts": []},
    }
    path = tmp_path / "queue.json"
    path.write_text(json.dumps(labeled), encoding="utf-8")
    report = await measure_continuity(bench, [path], 12_000)
    rows = {(row["further"], row["text"], row["what"]): row["share"] for row in report.held}
    assert {further for further, _, _ in rows} == {0, 40, 200}
    assert rows[200, "resume", "labeled: rule"] == 1
    assert rows[200, "after a compaction", "labeled, baseline: rule"] == 0
