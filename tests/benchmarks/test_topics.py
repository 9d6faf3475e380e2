"""The labeled set is valid, the bar is met on its held-out half, and the speed is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.topics import (
    HALVES,
    LEAST_PRECISION,
    LEAST_RECALL,
    MEASURED,
    SET,
    TIERS,
    labeled,
    made_up_topics,
    measure_topics,
    measure_topics_speed,
)
from benchmarks.workbench import Workbench
from mcp_server.cli.shell import plain
from mcp_server.errors import Invalid, NotFound
from tests.conftest import KEYWORDS_ONLY

TOPIC = "---\ntype: topic\ntriggers:\n  - {type: keywords, match: [soup]}\n---\n\nBoil water.\n"


def test_the_labeled_set_is_large_half_of_it_near_misses_and_split_in_two() -> None:
    messages = labeled(SET)
    assert len(list((SET / "topics").glob("*.md"))) >= 12
    assert len(messages) >= 300
    assert len({one.text for one in messages}) == len(messages)
    assert sum(bool(one.near) for one in messages) * 2 >= len(messages)
    for half in HALVES:
        assert sum(one.half == half for one in messages) > len(messages) / 3
    named = {name for one in messages for name in one.topics}
    assert named == {path.stem for path in (SET / "topics").glob("*.md")}
    assert all(one.near not in one.topics for one in messages)


@pytest.mark.anyio
async def test_the_right_topics_come_in_on_the_half_that_is_held_out() -> None:
    report = await measure_topics(Workbench({**KEYWORDS_ONLY, "CONTEXT_MANAGER_SEARCH__EMBEDDER": "wordllama"}))
    assert report.embedder == "wordllama"
    through = report.tiers[MEASURED][TIERS[2]]
    assert through.precision >= LEAST_PRECISION
    assert through.recall >= LEAST_RECALL
    for half in HALVES:
        matched, kept, gated = (report.tiers[half][tier] for tier in TIERS)
        assert matched.precision < kept.precision < gated.precision, "each tier sorts out more of what is wrong"
    tuned = {one.text for one in labeled(SET) if one.half == "tuning"}
    assert report.mistakes
    assert {one.text for one in report.mistakes} <= tuned, "nobody sees the errors of the other half"
    written = plain(report)
    assert written["tiers"][MEASURED][TIERS[2]]["precision"] == through.precision


@pytest.mark.anyio
async def test_speed_is_measured_over_many_topics_of_all_kinds(bench: Workbench) -> None:
    found = await measure_topics_speed(bench, topics=40, messages=5)
    assert (found.topics, found.triggers, found.messages) == (40, 5, 5)
    assert 0 < found.median_ms <= found.p95_ms
    assert 1 <= found.candidates <= 3, "each message names topics"
    assert found.changed_ms > 0
    assert made_up_topics(40) == made_up_topics(40)


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        ("messages: soup\n", "must be a list"),
        ("messages: [{topics: [soup]}]\n", "message 1 has no `text`"),
        ("messages: [{text: hi, topics: soup}]\n", "message 1: `topics` must be a list"),
        ("messages: [{text: hi, topics: [stew]}]\n", "no topic 'stew', which the message 'hi' names"),
    ],
)
@pytest.mark.anyio
async def test_a_set_that_is_none_says_what_is_wrong(
    bench: Workbench, tmp_path: Path, messages: str, wrong: str
) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "soup.md").write_text(TOPIC)
    with pytest.raises(NotFound, match="no labeled set"):
        await measure_topics(bench, tmp_path)
    (tmp_path / "messages.yaml").write_text(messages)
    with pytest.raises(Invalid, match=wrong):
        await measure_topics(bench, tmp_path)


@pytest.mark.anyio
async def test_a_set_with_a_broken_topic_is_refused(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "soup.md").write_text(TOPIC.replace("keywords", "keywrods"))
    (tmp_path / "messages.yaml").write_text("messages: [{text: hi}]\n")
    with pytest.raises(Invalid, match=r"topics/soup\.md: line 4"):
        await measure_topics(bench, tmp_path)
