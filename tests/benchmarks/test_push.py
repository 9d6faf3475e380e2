"""`push` sends prompts of later sessions and counts what arrives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import cli
from benchmarks.continuity import measure_continuity
from benchmarks.push import (
    ELSEWHERE,
    NEED,
    NOTHING,
    ONGOING,
    OTHERS,
    Outcome,
    Sent,
    measure_one,
    plans,
    prompt_sets,
    report,
    shipped_prompts,
)
from benchmarks.workbench import Workbench, mean
from mcp_server.errors import Invalid
from tests.pressing import SUBJECTS

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]

RULE = "From here on write all commit messages in English."


def conversation(name: str, port: int) -> dict[str, Any]:
    first = [
        {"role": "user", "content": RULE},
        {"role": "agent", "content": "Understood."},
        {"role": "user", "content": f"Decision: the staging database of {name} listens on port {port}."},
        {"role": "agent", "content": "Noted."},
    ]
    second = [
        {"role": "user", "content": "<system-reminder>nothing</system-reminder>", "by_program": True},
        {"role": "user", "content": "Is the staging database up?"},
        {"role": "agent", "content": "Yes."},
    ]
    return {
        "name": name,
        "sessions": [
            {"started": "2026-11-02T09:00:00Z", "turns": first},
            {"started": "2026-11-03T09:00:00Z", "turns": second},
        ],
        "decisions": [{"id": "D1", "text": "The port", "keywords": [str(port)], "superseded_by": None}],
        "rules": [{"id": "R1", "text": "English", "keywords": ["commit", "english"]}],
        "facts": [],
        "open_items": [],
        "prompts": [
            {"text": "Which port does our staging database use?", "needs": ["D1", "R1"]},
            {"text": "Explain a mutex.", "needs": []},
        ],
    }


@pytest.fixture
def labeled(tmp_path: Path) -> Path:
    path = tmp_path / "labeled.json"
    path.write_text(json.dumps([conversation("billing", 6544), conversation("ledger", 7711)]), encoding="utf-8")
    return path


@pytest.mark.usefixtures("few_shipped_prompts")
async def test_what_a_prompt_needs_is_counted_in_brief_and_push_and_in_the_baselines(
    bench: Workbench, labeled: Path
) -> None:
    billing, _ = plans([labeled])
    assert billing.foreign == ("Which port does our staging database use?",)
    outcome = await measure_one(bench, billing)
    sent = {kind: [one for one in outcome.prompts if one.kind == kind] for kind in (NEED, NOTHING, ONGOING, ELSEWHERE)}
    (need,) = sent[NEED]
    assert (need.share, need.compiled, need.plain) == (1, 1, 0.5)
    assert need.brief > 0
    assert [one.text for one in sent[ONGOING]] == ["Is the staging database up?"]
    assert [one.push for one in sent[ELSEWHERE]] == [0], "a session in another folder gets nothing of this project"
    assert len(sent[NOTHING]) == 1


@pytest.mark.usefixtures("few_shipped_prompts")
async def test_questions_of_public_sets_count_the_turns_that_answer_them(bench: Workbench, locomo_file: Path) -> None:
    plan = plans([locomo_file])[0]
    outcome = await measure_one(bench, plan)
    needed = [one for one in outcome.prompts if one.kind == NEED]
    assert len(needed) == len(plan.needing()) > 0
    assert any(one.share > 0 for one in needed)
    assert any(one.kind == OTHERS for one in outcome.prompts)


def test_figures_are_means_over_prompts_of_a_kind() -> None:
    prompts = (
        Sent(NEED, "a", 100, 50, share=1.0, compiled=1.0),
        Sent(NEED, "b", 100, 150, share=0.5, plain=1.0),
        Sent(NOTHING, "c", 100, 0),
    )
    found = report([Outcome("work", "billing", prompts, 1.0)]).kinds["work"]
    assert found["pushed"] == {"all": 1, "some": 2, "share": 0.75}
    assert found["best_turns"]["all"] == found["compiled"]["all"] == 1
    assert found["tokens"][NEED] == {"prompts": 2, "brief": 100, "push": 100}
    assert found["silent"] == {NEED: 0, NOTHING: 1}


def test_prompts_stand_in_named_sets() -> None:
    assert prompt_sets("# small talk\nok\n\nthanks\n# other\nfix the build\n") == {
        "small talk": ["ok", "thanks"],
        "other": ["fix the build"],
    }


def test_every_kind_of_unrelated_prompt_ships() -> None:
    sets = shipped_prompts()
    assert set(sets) >= {"small talk", "other projects", "near misses"}
    assert all(len(set(prompts)) == len(prompts) >= 30 for prompts in sets.values())


def test_the_command_refuses_a_file_that_holds_no_conversations(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    result = CliRunner().invoke(cli, ["push", str(path)])
    assert isinstance(result.exception, Invalid)
    assert "not a labeled conversation" in str(result.exception)


WORDS = ("herring", "lanterns", "gravel", "pepper", "cobalt", "thistle", "marble", "parsnips", "velvet", "chalk")


def planned_conversation() -> dict[str, Any]:
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
    path.write_text(json.dumps([planned_conversation()]), encoding="utf-8")
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
    report = await measure_continuity(bench, [path], 12_000, further=(0, 24))
    rows = {(row["further"], row["text"], row["what"]): row["share"] for row in report.held}
    assert {further for further, _, _ in rows} == {0, 24}
    assert rows[24, "resume", "labeled: rule"] == 1
    assert rows[24, "after a compaction", "labeled, baseline: rule"] == 0
