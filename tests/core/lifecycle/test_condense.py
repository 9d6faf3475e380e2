"""What of a week lasts, what leaves MEMORY.md, and what an index says."""

from __future__ import annotations

from datetime import date

from mcp_server.core.lifecycle import indexes
from mcp_server.core.lifecycle.condense import ACTIVE, candidates, cold, over_budget, picked, replaced, stale, without
from mcp_server.core.lifecycle.lines import Source
from mcp_server.core.lifecycle.memory_pruning import leaving
from mcp_server.core.text.entries import entries

SRC = "[src: raw/conversations/2026/02/16/1845-s-talk.md#1]"
DAY = "2026-02-16"


def journal(*lines: str) -> str:
    return f"## {DAY}\n\n### Atlas\n" + "".join(f"- {line} {SRC}\n" for line in lines) + "- by hand, all of it\n"


def test_decisions_and_lessons_come_first_then_what_holds_most() -> None:
    body = journal(
        "Ana walked.", "Ana opened a bakery in Novi Sad with Marko on 3 May 2026.", "Decision: keep Postgres 15."
    )
    decision, event = candidates([(DAY, body)], [])
    assert (decision.section, decision.text) == ("Key Decisions", "keep Postgres 15.")
    assert (event.section, event.day) == (ACTIVE, DAY)
    assert event.entry == f"- {DAY}: Ana opened a bakery in Novi Sad with Marko on 3 May 2026. {SRC}"


def test_what_is_known_is_no_candidate() -> None:
    body = journal("Decision: keep Postgres 15 for billing.")
    assert candidates([(DAY, body)], ["keep postgres 15 for billing"]) == []


STREAMS = "Redis streams for the retry queue, on the Redis of lantern."
SKIP_LOCKED = "No Redis: they use Postgres with SKIP LOCKED for the retry queue instead."


def test_what_a_later_line_of_the_project_takes_back_is_no_candidate() -> None:
    bucket = "the token bucket is per carrier, 200 a minute."
    monday = f"### harbor\n- Decision: {STREAMS} {SRC}\n- Decision: {bucket} {SRC}\n"
    tuesday = f"### harbor\n- Decision: {SKIP_LOCKED} {SRC}\n"
    texts = [one.text for one in candidates([("2026-02-16", monday), ("2026-02-17", tuesday)], [])]
    assert sorted(texts) == [SKIP_LOCKED, bucket]
    elsewhere = tuesday.replace("harbor", "atlas")
    assert STREAMS in [one.text for one in candidates([("2026-02-16", monday), ("2026-02-17", elsewhere)], [])]
    legal = "### harbor\n- Legal wants 30 days instead of 14 in Ljubljana. " + SRC
    old = f"### harbor\n- Scans of Novi Sad older than 14 days can be dropped. {SRC}\n{legal}\n"
    assert [one.text[:5] for one in candidates([(DAY, old)], [])] == ["Legal"]


def test_among_the_lines_of_others_a_line_names_its_project() -> None:
    body = f"### harbor\n- Decision: {STREAMS} {SRC}\n"
    (named,) = candidates([(DAY, body)], [], {"harbor"})
    assert named.entry == f"- {DAY}: harbor: {STREAMS} {SRC}"
    (other,) = candidates([(DAY, body)], [], {"lantern"})
    assert other.entry == f"- {DAY}: {STREAMS} {SRC}"


def test_a_line_that_comes_in_sends_away_the_derived_one_that_it_takes_back() -> None:
    old = f"- 2026-02-09: harbor: {STREAMS}"
    memory = f"## Key Decisions\n{old} {SRC}\n{old}\n{old.replace('harbor', 'lantern')} {SRC}\n"
    chosen = candidates([(DAY, f"### harbor\n- Decision: {SKIP_LOCKED} {SRC}\n")], [], {"harbor", "lantern"})
    (gone,) = replaced(memory, chosen)
    assert gone.entry.text == f"{old} {SRC}"
    assert gone.why == f"no longer so since {DAY}"


def test_a_model_chooses_by_number_and_only_what_is_there() -> None:
    assert picked("3, 1", 3, 2) == [2, 0]
    assert picked("1, 2, 3", 3, 2) == [0, 1]
    assert picked("7", 3, 2) is None
    assert picked("none of them", 3, 2) is None


def test_a_journal_over_its_budget_loses_the_derived_lines_that_hold_least() -> None:
    body = journal("Ana walked.", "Decision: keep it.", "Ana opened a bakery in Novi Sad with Marko.")
    (left,) = over_budget(body, 110, 100)
    assert "walked" in left.entry.text
    everything = without(body, over_budget(body, 10_000, 0))
    assert "by hand" in everything
    assert "[src" not in everything


def test_what_is_not_active_any_more_leaves_and_what_is_by_hand_stays() -> None:
    body = f"## {ACTIVE}\n- 2025-01-01: old {SRC}\n- 2025-01-01: old, by hand\n- 2026-02-10: new {SRC}\n"
    assert [left.entry.text for left in stale(body, date(2026, 2, 16))] == [f"- 2025-01-01: old {SRC}"]


def test_old_plans_and_of_a_long_file_what_happened_longest_ago_go_cold() -> None:
    plans = f"## Plans\n- 2025-01-01: sail {SRC}\n- 2026-01-01: row {SRC}\n- 2025-01-01: by hand\n"
    assert [left.entry.text for left in cold(plans, "2025-06-01")] == [f"- 2025-01-01: sail {SRC}"]
    work = f"## In progress\n- 2025-01-02: rig {SRC}\n## Blockers\n- 2025-01-03: fog {SRC}\n- 2026-01-03: ice {SRC}\n"
    assert [left.entry.date for left in cold(work, "2025-06-01")] == ["2025-01-02", "2025-01-03"]
    rows = [f"- 2026-01-{day:02}: walk {number} {SRC}\n" for number in range(101) for day in (3, 1, 2)]
    left = cold("## About\n- 2020-01-01: by hand\n## What happened\n" + "".join(rows), "2025-06-01")
    assert [one.entry.date for one in left] == ["2026-01-01"] * 3


def memory_body() -> str:
    return (
        "## Key Decisions\n"
        f"- 2026-02-03: keep Postgres 15 for the billing tables {SRC}\n"
        f"- 2026-02-04: the bakery opens at six on Mondays {SRC}\n"
        "- 2026-02-05: the bakery opens at six on Mondays\n"
        "- 2026-01-01: written by hand, long ago\n"
        f"## {ACTIVE}\n"
        f"- 2025-10-01: a trip to Rijeka {SRC}\n"
        f"- 2026-02-06: something else altogether {SRC}\n"
    )


def test_pruning_goes_in_four_steps_and_no_further_than_it_must() -> None:
    body, specific = memory_body(), ["keep postgres 15 for the billing tables"]

    def gone(count: int) -> list[str]:
        return [left.entry.date for left in leaving(body, count, specific, date(2026, 2, 16))]

    assert gone(0) == []
    assert gone(1) == ["2026-02-03"]
    assert gone(2) == ["2026-02-03", "2026-02-04"]
    assert gone(3) == ["2026-02-03", "2026-02-04", "2025-10-01"]
    assert gone(4) == ["2026-02-03", "2026-02-04", "2025-10-01", "2026-01-01"]


def test_spared_entries_stay() -> None:
    body = memory_body()
    spared = frozenset(one.start for one in entries(body))
    assert leaving(body, 5, [], date(2026, 2, 16), spared) == []


def test_an_index_names_everybody_once_and_leaves_what_is_by_hand() -> None:
    source = Source("raw/conversations/2026/02/16/1845-s-talk.md", 1)
    body = indexes.rewritten(
        "# People\n\n- [[bo]] — my own words\n", {"[[ana]]": ("bees", source), "[[bo]]": ("x", source)}
    )
    assert body == f"# People\n\n- [[bo]] — my own words\n- [[ana]] — bees {SRC}\n"
    assert indexes.rewritten(body, {"[[ana]]": ("bees", source)}) == body
    assert indexes.rewritten(body, {}) == "# People\n\n- [[bo]] — my own words\n"


def test_a_description_is_the_line_that_says_what_comes_up_again_and_again() -> None:
    said = (
        "Ana bought bread.",
        "Ana painted the boats in the harbour.",
        "Ana sold boats.",
        "Ana swims in the harbour.",
    )
    body = "## What happened\n" + "".join(f"- 2026-02-01: {text} {SRC}\n" for text in said)
    found = indexes.description([body])
    assert found is not None
    assert found[0] == "Ana painted the boats in the harbour."


def test_of_lines_with_nothing_in_common_it_is_the_one_of_the_first_section_that_holds_most() -> None:
    body = f"## What happened\n- 2026-02-01: Ana ran. {SRC}\n"
    body += f"## About\n- 2026-02-01: Ana is. {SRC}\n- Ana keeps bees in Oslo. {SRC}\n"
    found = indexes.description([body])
    assert found is not None
    assert found[0] == "Ana keeps bees in Oslo."
    assert indexes.description(["## About\n- by hand\n"]) is None
