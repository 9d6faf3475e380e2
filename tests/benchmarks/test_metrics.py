"""The measures agree with their definitions."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import server_process, speed
from benchmarks.datasets import DerivedLine, KnownTurn, Question, conversations, inside, repeats, units_of
from benchmarks.injection import area_under_curve
from benchmarks.retrieval import measure_retrieval, ndcg_at, ranked_turns, recall_at, scores
from benchmarks.speed import Measured, curve, measure_speed
from benchmarks.workbench import Workbench, made_up_sessions, mean, percentile
from mcp_server.context.sections import Considered, Receipt
from mcp_server.errors import Invalid, NotFound
from mcp_server.model import Hit, Passage
from mcp_server.relevance.clarity_scores import MOST_CANDIDATES, MOST_ITEMS
from tests.benchmarks import data
from tests.preloaded import programs

ids = st.sampled_from("abcdefghij")


def test_recall_is_the_share_of_the_evidence_that_was_found() -> None:
    assert recall_at(["a", "x", "b", "y"], {"a", "b", "c"}, 3) == pytest.approx(2 / 3)
    assert recall_at(["a", "x", "b", "y"], {"a", "b", "c"}, 2) == pytest.approx(1 / 3)


def test_ndcg_has_binary_gains_and_a_logarithmic_discount() -> None:
    found = 1 / math.log2(2) + 1 / math.log2(4)
    best = 1 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    assert ndcg_at(["a", "x", "b"], {"a", "b", "c"}, 10) == pytest.approx(found / best)


def test_more_evidence_than_places_can_still_be_perfect() -> None:
    assert ndcg_at(list("abc"), set("abcdef"), 3) == pytest.approx(1)


def test_an_id_that_comes_twice_counts_once() -> None:
    assert ndcg_at(["a", "a", "b"], {"a", "b"}, 10) == pytest.approx(1)


@given(st.lists(ids, max_size=15), st.sets(ids, min_size=1), st.integers(1, 12))
def test_measures_lie_between_nothing_and_everything(ranked: list[str], gold: set[str], k: int) -> None:
    assert 0 <= recall_at(ranked, gold, k) <= 1
    assert 0 <= ndcg_at(ranked, gold, k) <= 1 + 1e-9


def test_the_nearest_rank_is_a_percentile() -> None:
    assert percentile([5, 1, 3, 2, 4], 0.5) == 3
    assert percentile(range(1, 101), 0.95) == 95
    assert percentile([7], 0.95) == 7
    assert percentile([], 0.95) == 0


def test_the_mean_of_nothing_is_zero() -> None:
    assert mean([]) == 0


values = st.lists(st.integers(0, 5).map(float), max_size=8)


@given(values, values)
def test_auc_is_the_share_of_pairs_in_order(positive: list[float], negative: list[float]) -> None:
    pairs = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative]
    assert area_under_curve(positive, negative) == pytest.approx(mean(pairs) if pairs else 0.5)


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
@pytest.mark.usefixtures("fast_notes")
async def test_evidence_is_found_and_compiled_also_as_lines_of_knowledge(
    bench: Workbench, locomo_file: Path, tmp_path: Path
) -> None:
    report = await measure_retrieval(bench, locomo_file)
    assert (report.conversations, report.questions, report.embedder) == (2, 4, "none")
    assert report.scores["overall"]["recall@5"] > 0
    assert set(report.scores) == {"overall", "macro", "1", "4"} == set(report.baseline)
    assert report.contexts["template"]["8192"]["inside"] == report.contexts["full"]["8192"]["inside"] > 0
    assert report.contexts["template"]["8192"]["whole"] == report.contexts["template"]["8192"]["inside"]
    assert report.latency_ms["search"]["p95"] >= report.latency_ms["search"]["p50"] > 0
    one = tmp_path / "one.json"
    one.write_text(json.dumps(data.locomo()))  # both conversations are the same
    known = await measure_retrieval(bench, one, knowledge=True)
    assert known.questions == report.questions / 2
    assert known.scores["overall"]["recall@5"] >= report.scores["overall"]["recall@5"]
    assert known.contexts["template"]["8192"]["inside"] >= report.contexts["template"]["8192"]["inside"]


@pytest.mark.anyio
async def test_a_chat_with_an_assistant_works_alike(bench: Workbench, beam_folder: Path) -> None:
    report = await measure_retrieval(bench, beam_folder)
    assert (report.conversations, report.questions) == (1, 2)
    assert set(report.scores) == {"overall", "macro", "information_extraction", "knowledge_update"}


def test_made_up_conversations_are_the_same_each_time_and_as_many_as_asked() -> None:
    assert list(made_up_sessions(250)) == list(made_up_sessions(250))
    assert [len(session.turns) for session in made_up_sessions(250)] == [100, 100, 50]
    assert len({session.session_id for session in made_up_sessions(250)}) == 3


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (Measured("x", "ms", 10, 21, 9, 20), False),
        (Measured("x", "ms", 10, 21, 9, 20, deciding="median"), True),
        (Measured("x", "1/s", 10, 10, 1, 20, at_least=True), False),
        (Measured("x", "ms", 10, 21, 9, None), None),
    ],
)
def test_a_bar_is_met_by_the_figure_that_decides(row: Measured, met: bool | None) -> None:
    assert row.met is met
    assert row.as_dict()["met"] is met


@pytest.mark.anyio
async def test_every_bar_is_measured(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = "STARTS OBSERVED QUERIES CHANGES SERVERS PLAIN_QUERIES HOOKS PAGE_VISITS TOPICS MESSAGES"
    for name in counts.split():
        monkeypatch.setattr(speed, name, 1)
    monkeypatch.setattr(speed, "POINTS", (10, 20))
    monkeypatch.setattr(server_process, "WARM", 0)
    monkeypatch.setattr(sys, "executable", str(programs() / "python"))  # how long imports take is no matter here
    report = await measure_speed(bench, 100)
    assert [point.exchanges for point in report.curve] == [10, 20]
    assert report.passages >= 100
    plain = ("first answer after start", "observe, durable", "search, warm")
    words = " ".join(row.what for row in report.rows)
    for what in (
        "first answer",
        "observe",
        "search",
        "compile",
        "page: State",
        "index build",
        "changed file",
        "topics",
        "memory, one server",
        "hook",
    ):
        assert what in words
    assert all(row.median > 0 for row in report.rows)
    assert all(row.plain for row in report.rows if row.what in plain)


def test_what_claritys_tracker_holds_does_not_grow_with_the_exchanges() -> None:
    early, late = curve((600, 1_200))  # the first is full
    assert (early.exchanges, late.exchanges) == (600, 1_200)
    for point in (early, late):
        assert point.items <= MOST_ITEMS
        assert point.candidates <= MOST_CANDIDATES
    assert late.state_bytes < 1.1 * early.state_bytes
    assert late.exchange_us > 0


def test_locomo_questions_name_existing_turns_however_their_ids_are_written(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(data.locomo()))
    (conversation,) = conversations(tmp_path / "talk.json")
    assert conversation.name == "talk-1"
    assert conversation.questions == (
        Question("Where was the kayak bought?", frozenset({"D1:1"}), "4"),
        Question("What colour is it, who plays?", frozenset({"D1:2", "D2:1"}), "1"),
    )


def test_beam_questions_leave_out_abstention_and_flatten_their_ids(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "chat.json").write_text(json.dumps(data.beam()))
    (tmp_path / "1" / "probing_questions.json").write_text(json.dumps(data.probing_questions()))
    (conversation,) = conversations(tmp_path)
    assert conversation.questions == (
        Question("How many hives?", frozenset({"1", "2"}), "knowledge_update"),
        Question("Which queen is gone?", frozenset({"3"}), "information_extraction"),
    )


def test_locomo_sessions_have_dates_speakers_and_the_captions_of_pictures(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(data.locomo()))
    first, second = conversations(tmp_path / "talk.json")[0].sessions
    assert (first.session_id, second.session_id) == ("talk-1-session_1", "talk-1-session_2")
    assert first.title == "Mira and Oto, 8 May 2023"
    assert [(t.role, t.name, t.turn_id) for t in first.turns] == [("user", "Mira", "D1:1"), ("user", "Oto", "D1:2")]
    assert first.turns[0].at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert first.turns[0].at < first.turns[1].at < datetime(2023, 5, 8, 13, 57, tzinfo=UTC)
    assert first.turns[1].content == "Show me! [image: a red kayak on a lawn]"


def test_locomo_sessions_are_ordered_by_number_and_one_without_a_date_is_a_day_later(tmp_path: Path) -> None:
    turns = [{"speaker": "Mira", "dia_id": "D2:1", "text": "Hello."}]
    talk = {"session_10": turns, "session_2": turns, "session_2_date_time": "9:00 am on 2 June, 2023"}
    asked = [{"question": "Who?", "evidence": ["D2:1"]}]
    (tmp_path / "talk.json").write_text(json.dumps([{"sample_id": "x", "conversation": talk, "qa": asked}]))
    sessions = conversations(tmp_path)[0].sessions
    assert [session.session_id for session in sessions] == ["x-session_2", "x-session_10"]
    assert sessions[1].turns[0].at == datetime(2023, 6, 3, 9, tzinfo=UTC)


@pytest.mark.parametrize("document", [data.beam(), [{"plan-1": data.beam()}]], ids=["batches", "batches in plans"])
def test_each_batch_of_beam_is_a_session_with_the_days_of_its_anchors(tmp_path: Path, document: Any) -> None:
    (tmp_path / "chat.json").write_text(json.dumps(document))
    (tmp_path / "probing_questions.json").write_text(json.dumps(data.probing_questions()))
    first, second = conversations(tmp_path / "chat.json")[0].sessions
    assert first.session_id.removesuffix("batch-1") == second.session_id.removesuffix("batch-2")
    assert [(turn.role, turn.turn_id) for turn in first.turns] == [("user", "0"), ("agent", "1"), ("user", "2")]
    assert [turn.turn_id for turn in second.turns] == ["3", "6"], "without an unknown role and an empty message"
    assert first.turns[0].at == datetime(2024, 3, 15, 12, tzinfo=UTC)
    assert first.turns[0].at < first.turns[1].at < first.turns[2].at
    assert second.turns[0].at == datetime(2024, 4, 2, 12, tzinfo=UTC)


def test_a_data_set_that_is_none_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing at"):
        conversations(tmp_path / "nowhere")
    with pytest.raises(Invalid, match="no conversations with questions"):
        conversations(tmp_path)
    (tmp_path / "chat.json").write_text(json.dumps(data.beam()))
    with pytest.raises(NotFound, match="probing_questions"):
        conversations(tmp_path)
    (tmp_path / "probing_questions.json").write_text("{")
    with pytest.raises(Invalid, match="not JSON"):
        conversations(tmp_path)
    for name, text in (("talk.json", '[{"sample_id": "x", "conversation": {}, "qa": []}]'), ("note.md", "# Note")):
        (tmp_path / name).write_text(text)
        with pytest.raises(Invalid, match="no conversations with questions"):
            conversations(tmp_path / name)


TURN = KnownTurn("t1", "raw/a.md#1", "Ana: I only take window seats on trains.")


LINE = {"knowledge/people/user.md#7": DerivedLine("- Only takes window seats.", frozenset({TURN.unit}))}


def receipt(*considered: Considered) -> Receipt:
    return Receipt("", 1000, 10, "add", "", "", (), 0, considered, {}, None)


def test_a_turn_counts_with_its_words_its_part_or_a_line_that_was_derived_from_it() -> None:
    found = Considered("raw/a.md:3-3", "knowledge", "raw/a.md", True, "relevant", unit=TURN.unit)
    line = Considered(
        "knowledge/people/user.md:7-7", "knowledge", "", True, "relevant", unit="knowledge/people/user.md#7"
    )
    always = "## Preferences\n- Only takes  window seats.\n"
    assert inside([TURN], f"history\n{TURN.shown}\n", units_of(receipt())) == {"t1"}
    assert inside([TURN], "window seats …", units_of(receipt(found))) == {"t1"}
    assert inside([TURN], "", units_of(receipt(line)), LINE) == {"t1"}
    assert inside([TURN], always, units_of(receipt()), LINE) == {"t1"}


def test_what_is_not_in_the_context_does_not_count() -> None:
    out = Considered("raw/a.md:3-3", "knowledge", "raw/a.md", False, "no room", unit=TURN.unit)
    assert inside([TURN], "- Only takes aisle seats.", units_of(receipt(out)), LINE) == frozenset()
    assert inside([TURN], "- Only takes window seats.", units_of(receipt(out))) == frozenset()


def test_a_line_says_what_a_turn_says_if_most_of_its_words_are_the_turns() -> None:
    assert repeats("- 2026-05-08: Ana: I take window seats on trains in May 2026.", TURN.shown)
    assert not repeats("- Ana: The night train to Split has no seats left.", TURN.shown)
    assert not repeats("- 2026", TURN.shown)


def test_a_hit_on_a_line_counts_once_as_the_turn_that_it_repeats() -> None:
    def hit(unit: str, turn: int | None = None) -> Hit:
        said = "t1" if turn else None
        return Hit(Passage(unit, unit, 0, 1, 1, 1, "", "", "memory", turn=turn, turn_id=said), 1.0, {})

    hits = [hit("knowledge/other.md#3"), hit("knowledge/people/user.md#7"), hit(TURN.unit, 1)]
    assert ranked_turns(hits, {TURN.unit: "t1"}, LINE) == ["knowledge/other.md#3", "t1"]
    assert ranked_turns(hits, {TURN.unit: "t1"}, {}) == ["knowledge/other.md#3", "knowledge/people/user.md#7", "t1"]
