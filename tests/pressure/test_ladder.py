"""The ladder: what goes, in which order, and what never does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.pressure import ladder
from mcp_server.pressure.ladder import EXCERPT_TOKENS, LadderRules, Protected, Scored, newest
from mcp_server.relevance.chunks import ChunkScore, Decision, LiveChunk

RULES = LadderRules()
AT = datetime(2026, 3, 1, tzinfo=UTC)


def chunk(
    number: int,
    similarity: float,
    tokens: int = 1000,
    *,
    important: bool = False,
    system: bool = False,
    immune: int = 0,
) -> Scored:
    live = LiveChunk(f"c{number}", "message", number, 0, tokens, AT, important=important, system=system, immune=immune)
    return live, ChunkScore(similarity, 0, 0)


def protected(scored: list[Scored], *anchored: str) -> Protected:
    return Protected(newest([chunk for chunk, _ in scored], RULES), frozenset(anchored), exchange=3)


def curate(scored: list[Scored], *anchored: str, target: int = 0) -> list[Decision]:
    return ladder.curate(scored, target, protected(scored, *anchored), RULES)


def compact(scored: list[Scored], target: int, *anchored: str, large: int = 2000) -> list[Decision]:
    return ladder.compact(scored, target, protected(scored, *anchored), RULES, large)


def tail(start: int = 90) -> list[Scored]:
    """Five chunks that are kept for being the newest."""
    return [chunk(number, 0, 10) for number in range(start, start + 5)]


def actions(scored: list[Scored], target: int) -> dict[str, str]:
    return {decision.chunk.id: decision.action for decision in compact(scored, target)}


def test_curation_drops_what_is_at_or_below_the_cutoff() -> None:
    decided = {d.chunk.id: d.action for d in curate([chunk(1, 0.3), chunk(2, 0.31), *tail()])}
    assert decided["c1"] == "drop"
    assert decided["c2"] == "keep"
    assert all(decided[f"c{number}"] == "keep" for number in range(90, 95))


def test_curation_takes_the_lowest_scores_and_no_more_than_it_must() -> None:
    decided = {d.chunk.id: d.action for d in curate([chunk(1, 0.2), chunk(2, 0.1), *tail()], target=1500)}
    assert (decided["c1"], decided["c2"]) == ("keep", "drop")


def test_a_short_chunk_stays_when_a_long_one_of_about_the_same_score_makes_the_room() -> None:
    scored = [chunk(1, 0.19, 20), chunk(2, 0.2, 900), *tail()]
    assert [d.chunk.id for d in curate(scored, target=500) if d.action == "drop"] == ["c2"]
    assert actions([chunk(1, 0.29, 20), chunk(2, 0.3, 190), *tail()], 200) == {
        **{f"c{number}": "keep" for number in (1, *range(90, 95))},
        "c2": "drop",
    }


def test_important_anchored_system_and_just_recovered_chunks_are_never_dropped() -> None:
    guarded = [
        chunk(1, 0, important=True),
        chunk(2, 0),
        chunk(3, 0, system=True),
        chunk(4, 0, immune=4),
    ]
    assert all(d.action == "keep" for d in curate([*guarded, *tail()], "c2"))
    assert "drop" not in {d.action for d in compact([*guarded, *tail()], 0, "c2")}


def test_immunity_ends_with_its_exchange() -> None:
    assert curate([chunk(4, 0, immune=3), *tail()])[0].action == "drop"


def test_compaction_goes_step_by_step_and_no_further_than_it_must() -> None:
    tool = (LiveChunk("tool", "tool", 1, 1, 2000, AT, one_line=20), ChunkScore(0.6, 0, 0))
    scored = [tool, chunk(2, 0.4), chunk(3, 0.1), chunk(4, 0.2), chunk(5, 0.9, 3000), *tail()]
    everything = 2000 + 3000 + 3000 + 50

    def left(less: int) -> list[tuple[str, int]]:
        decisions = {d.chunk.id: (d.action, d.tokens) for d in compact(scored, everything - less)}
        return [decisions[name] for name in ("tool", "c5", "c2", "c3", "c4")]

    whole: list[tuple[str, int]] = [("keep", 2000), ("keep", 3000), *[("keep", 1000)] * 3]
    assert left(0) == whole
    assert left(1000) == [("one line", 20), *whole[1:]]
    assert left(2400) == [("one line", 20), ("excerpt", 2580), *whole[2:]]
    assert left(3400) == [("one line", 20), ("excerpt", 2000), ("summarise", 500), *whole[3:]]
    assert left(4400) == [("one line", 20), ("excerpt", 2000), ("summarise", 500), ("drop", 0), ("keep", 1000)]


def test_nothing_above_keep_goes_while_something_below_it_or_something_larger_remains() -> None:
    scored = [chunk(1, 0.9, 300), chunk(2, 0.6, 300), chunk(3, 0.1, 400), chunk(4, 1.0, 1500, important=True), *tail()]
    one = {d.chunk.id: (d.action, d.tokens) for d in compact(scored, 1000)}
    assert one == {**one, "c1": ("keep", 300), "c2": ("keep", 300), "c3": ("drop", 0), "c4": ("excerpt", 350)}
    two = {d.chunk.id: d.action for d in compact(scored, 500)}
    assert (two["c1"], two["c2"], two["c4"]) == ("excerpt", "drop", "excerpt")


def test_what_is_protected_but_too_long_becomes_an_excerpt_at_last() -> None:
    scored = [*(chunk(n, 1.0, 5000) for n in range(4)), chunk(4, 1.0, 100)]
    decisions = compact(scored, 2100, large=200)
    assert [d.tokens for d in decisions] == [500, 500, 500, 500, 100]
    assert [d.action for d in decisions] == ["excerpt"] * 4 + ["keep"]
    assert [d.tokens for d in compact(scored, 0)] == [EXCERPT_TOKENS] * 4 + [100]


def test_nobody_can_shorten_what_only_a_client_has() -> None:
    named = replace(chunk(1, 1.0, 5000)[0], kind="file", name="src/a.py"), ChunkScore(0, 0, 0)
    decisions = compact([named, *tail()], 100, "c1")
    assert decisions[0].action == "keep"
    assert compact([named, *tail()], 100)[0].action == "drop"


def test_what_nobody_could_compare_is_kept_by_curation_and_goes_last() -> None:
    scored = [chunk(1, 0), chunk(2, 0.4, 100), *tail()]
    unknown = replace(protected(scored), unknown=frozenset({"c1"}))
    assert ladder.curate(scored, 0, unknown, RULES)[0].why == "not indexed yet"
    one = {d.chunk.id: d.action for d in ladder.compact(scored, 1050, unknown, RULES, 2000)}
    assert (one["c1"], one["c2"]) == ("keep", "drop")


def test_the_limit_cuts_every_text_to_an_equal_part_and_system_messages_too() -> None:
    scored = [chunk(1, 0, 5000, system=True), chunk(2, 0, 3000, important=True), chunk(3, 0, 100)]
    decisions = ladder.limit(scored, 1100)
    assert [d.tokens for d in decisions] == [500, 500, 100]
    assert [d.tokens for d in ladder.limit(scored, 9000)] == [5000, 3000, 100]
    assert all(d.tokens >= ladder.LEAST_EXCERPT for d in ladder.limit(scored, 0))


def test_a_summary_is_never_summarised_again() -> None:
    summary = (LiveChunk("s", "message", 1, 0, 400, AT, form="summary"), ChunkScore(0.4, 0, 0))
    assert actions([summary, *tail()], 440)["s"] == "drop"


chunks = st.lists(
    st.tuples(st.floats(0, 0.9), st.integers(1, 3000), st.booleans(), st.booleans()), min_size=1, max_size=40
)


@given(chunks, st.integers(0, 40_000))
def test_a_decision_for_every_chunk_and_system_messages_untouched(
    drawn: list[tuple[float, int, bool, bool]], target: int
) -> None:
    scored = [chunk(n, s, t, important=i, system=y) for n, (s, t, i, y) in enumerate(drawn)]
    decisions = compact(scored, target)
    assert [d.chunk for d in decisions] == [one for one, _ in scored]
    assert all(d.action == "keep" for d in decisions if d.chunk.system)
    assert all(d.tokens <= d.chunk.tokens for d in decisions)
    fixed = sum(d.chunk.tokens for d in decisions if d.chunk.system)
    least = fixed + sum(min(EXCERPT_TOKENS, d.chunk.tokens) for d in decisions if not d.chunk.system)
    assert sum(d.tokens for d in decisions) <= max(target, least)
