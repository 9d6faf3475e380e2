"""The benchmark asks real questions of a real workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.datasets import Question
from benchmarks.retrieval import measure_retrieval, scores
from benchmarks.workbench import Workbench
from mcp_server.errors import Invalid


def test_scores_are_overall_macro_and_per_category() -> None:
    asked = [
        (Question("a", frozenset({"1"}), "easy"), ["1", "2"]),
        (Question("b", frozenset({"1"}), "easy"), ["1"]),
        (Question("c", frozenset({"9"}), "hard"), ["1"]),
    ]
    table = scores(asked)
    assert table["overall"]["recall@5"] == pytest.approx(2 / 3)
    assert table["macro"]["recall@5"] == pytest.approx(1 / 2)
    assert table["easy"] == {"recall@5": 1, "recall@10": 1, "recall@20": 1, "ndcg@10": 1, "questions": 2}
    assert table["hard"]["ndcg@10"] == 0


@pytest.mark.anyio
async def test_evidence_in_a_small_conversation_is_found_and_compiled(bench: Workbench, locomo_file: Path) -> None:
    report = await measure_retrieval(bench, locomo_file)
    assert (report.conversations, report.questions, report.embedder) == (2, 4, "none")
    assert report.scores["overall"]["recall@5"] > 0
    assert set(report.scores) == {"overall", "macro", "1", "4"} == set(report.baseline)
    assert report.contexts["template"]["8192"]["inside"] == report.contexts["full"]["8192"]["inside"] > 0
    assert report.contexts["template"]["8192"]["whole"] == report.contexts["template"]["8192"]["inside"]
    assert report.latency_ms["search"]["p95"] >= report.latency_ms["search"]["p50"] > 0


@pytest.mark.anyio
async def test_a_chat_with_an_assistant_works_alike(bench: Workbench, beam_folder: Path) -> None:
    report = await measure_retrieval(bench, beam_folder)
    assert (report.conversations, report.questions) == (1, 2)
    assert set(report.scores) == {"overall", "macro", "information_extraction", "knowledge_update"}


@pytest.mark.anyio
async def test_a_data_set_without_questions_is_refused(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text('[{"sample_id": "x", "conversation": {}, "qa": []}]')
    with pytest.raises(Invalid, match="no conversations with questions"):
        await measure_retrieval(bench, tmp_path / "talk.json")


@pytest.mark.anyio
async def test_a_line_of_knowledge_counts_as_the_turns_that_it_names(bench: Workbench, locomo_file: Path) -> None:
    plain = await measure_retrieval(bench, locomo_file)
    known = await measure_retrieval(bench, locomo_file, knowledge=True)
    assert known.questions == plain.questions
    assert known.scores["overall"]["recall@5"] >= plain.scores["overall"]["recall@5"] > 0
    assert known.contexts["template"]["8192"]["inside"] >= plain.contexts["template"]["8192"]["inside"]
