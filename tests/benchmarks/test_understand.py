"""`understand` counts what a conversation settled and what was found of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import cli
from benchmarks.understand import load, measure_understanding
from mcp_server.errors import Invalid
from mcp_server.understanding.model import recognizer

RULE = "From here on write all commit messages in English."
TALK = [
    ("user", "Let's use Postgres 16 for the billing service instead of MySQL."),
    ("agent", "OK, I'll switch the billing service to Postgres 16."),
    ("user", RULE),
    ("agent", "Understood, noted."),
    ("user", "TODO: call Ana about the winter berth\nTODO: renew the certificate"),
    ("agent", "Noted."),
    ("user", "- [x] call Ana about the winter berth"),
    ("agent", "Good."),
]


def conversation(**more: Any) -> dict[str, Any]:
    turns = [{"role": role, "content": text} for role, text in TALK]
    sessions = [{"started": "2026-11-02T09:00:00Z", "turns": turns}]
    empty: dict[str, Any] = {"decisions": [], "rules": [], "facts": [], "open_items": []}
    return {"name": "billing", "sessions": sessions, **empty, **more}


LABELED = conversation(
    decisions=[
        {"text": "Postgres 16 for billing", "keywords": ["postgres 16", "billing"], "superseded_by": None},
        {"text": "Ship on Friday", "keywords": ["friday"], "superseded_by": "D9"},
    ],
    open_items=[
        {"text": "Call Ana", "keywords": ["ana", "berth"], "closed_at": [0, 6]},
        {"text": "Renew the certificate", "keywords": ["certificate"], "closed_at": None},
    ],
)


def written(folder: Path, *conversations: Any) -> Path:
    path = folder / "labeled.json"
    path.write_text(json.dumps(list(conversations)), encoding="utf-8")
    return path


def test_items_and_lines_are_counted_by_kind_and_state(tmp_path: Path) -> None:
    report = measure_understanding([written(tmp_path, LABELED)], recognizer()).as_dict()
    assert (report["conversations"], report["turns"]) == (1, 8)
    kinds = report["kinds"]
    assert kinds["decision"]["recall"] == {"right": 1, "of": 2, "share": 0.5}
    assert kinds["decision"]["precision"]["share"] == 1.0
    assert kinds["rule"]["recall"]["share"] is None, "none is labeled"
    assert kinds["rule"]["precision"]["share"] == 0.0, "and one was found"
    assert kinds["open"]["recall"]["share"] == kinds["open"]["precision"]["share"] == 1.0
    assert report["closed"] == {"right": 1, "of": 1, "share": 1.0}
    assert report["wrongly_closed"] == {"right": 0, "of": 1, "share": 0.0}
    assert report["superseded"]["of"] == 0, "it was not found"
    assert report["false_per_100_turns"] is None
    told = {(one["kind"], one["what"], one["text"]) for one in report["mistakes"]}
    assert told == {("decision", "missed", "Ship on Friday"), ("rule", "false", RULE)}


def test_every_item_is_false_in_a_conversation_without_labels(tmp_path: Path) -> None:
    report = measure_understanding([written(tmp_path, conversation(), LABELED)], recognizer())
    assert report.talk_turns == 8
    assert report.false_per_100 == {"decision": 12.5, "rule": 12.5, "open": 25.0}


def test_locomo_and_beam_count_as_conversations_that_hold_no_decisions(tmp_path: Path) -> None:
    said = [{"speaker": name, "text": text} for name, text in (("Ana", "Hi Bo!"), ("Bo", "Hi Ana, how was the lake?"))]
    locomo = {
        "sample_id": "conv-1",
        "conversation": {"session_1": said, "session_1_date_time": "1:56 pm on 8 May, 2023"},
    }
    (tmp_path / "locomo.json").write_text(json.dumps([locomo]), encoding="utf-8")
    asked = {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "What is a permutation? ->-> 1,1"}
    told = {"role": "assistant", "id": 1, "content": "An ordered choice: of 3 things there are 6."}
    (tmp_path / "beam" / "1").mkdir(parents=True)
    (tmp_path / "beam" / "1" / "chat.json").write_text(json.dumps([{"batch_number": 1, "turns": [[asked, told]]}]))
    (tmp_path / "beam" / "1" / "probing_questions.json").write_text("{}")
    (friends,), (lesson,) = load(tmp_path / "locomo.json"), load(tmp_path / "beam")
    assert friends.is_talk
    assert lesson.is_talk
    assert [turn.role for turn in friends.sessions[0]] == ["user", "agent"], "who speaks first counts as the user"
    assert lesson.sessions[0][0].content == "What is a permutation?", "nobody said the mark of the data set"


@pytest.mark.parametrize("broken", [{}, [1], {**LABELED, "rules": None}, {**LABELED, "sessions": [{"turns": []}]}])
def test_another_file_is_refused_by_name(tmp_path: Path, broken: Any) -> None:
    with pytest.raises(Invalid, match=r"labeled\.json is not a labeled conversation"):
        measure_understanding([written(tmp_path, broken)], recognizer())


def test_the_command_prints_figures_and_mistakes_and_writes_json(tmp_path: Path) -> None:
    path, out = written(tmp_path, LABELED), tmp_path / "out.json"
    done = CliRunner().invoke(cli, ["understand", str(path), "--show", "--json", str(out)])
    assert done.exit_code == 0, done.output
    assert "1 conversations, 8 turns" in done.output
    assert "billing: decision missed: Ship on Friday" in done.output
    assert json.loads(out.read_text("utf-8"))["closed"]["right"] == 1
