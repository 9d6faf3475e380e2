"""Merging recognized entries with those of a language model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.checkpoints.enrichment import merge
from mcp_server.knowledge.duplicates import covered, is_duplicate, normalised

PIECES = st.sampled_from(
    [
        *(
            "Use",
            "use",
            "- ",
            "**Use**",
            "SQLite",
            "Postgres",
            "do not",
            "index",
            "ledger",
            "cache",
            "3",
            "5",
            "?",
            "č",
        ),
        *(
            "You're right,",
            "Hmm",
            "Decision:",
            "because of",
            "nightly",
            "instead of",
            "plan",
            "Keep",
            "one file",
            "the",
        ),
    ]
)
ENTRIES = st.lists(st.one_of(st.lists(PIECES, max_size=7).map(" ".join), st.text(max_size=12)), max_size=7)


def test_a_captured_decision_that_the_model_does_not_cover_is_kept() -> None:
    captured = ["Use WAL mode for the index", "use sqlite for the ledger", "Keep backups: every night"]
    enriched = ["Use SQLite for the ledger, since it is one file"]
    assert merge(captured, enriched) == [*enriched, "Use WAL mode for the index", "Keep backups: every night"]


def test_of_entries_that_say_the_same_the_fullest_is_kept_once() -> None:
    assert merge(["Use SQLite", "- use **SQLite**", "Use SQLite for the ledger rows"], []) == [
        "Use SQLite for the ledger rows"
    ]


@given(ENTRIES, ENTRIES)
def test_nothing_is_lost_that_nothing_kept_covers(captured: list[str], enriched: list[str]) -> None:
    merged = merge(captured, enriched)
    for entry in [*captured, *enriched]:
        assert not normalised(entry) or covered(entry, merged)
    for entry in captured:
        if normalised(entry) and not covered(entry, enriched):
            others = [other for other in captured if other != entry and is_duplicate(entry, other)]
            assert entry in merged or covered(entry, [one for one in merged if one in others])


@given(ENTRIES, ENTRIES)
def test_merging_twice_changes_nothing(captured: list[str], enriched: list[str]) -> None:
    merged = merge(captured, enriched)
    assert merge(merged, enriched) == merged
    assert merge(captured, merged) == merged
    assert merge(merged, []) == merged


@given(ENTRIES, ENTRIES, st.randoms(use_true_random=False))
def test_what_survives_does_not_depend_on_the_order_of_either_list(
    captured: list[str], enriched: list[str], chance: object
) -> None:
    shuffled, other = list(captured), list(enriched)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # Hypothesis gives a random.Random
    chance.shuffle(other)  # type: ignore[attr-defined]
    assert set(merge(shuffled, other)) == set(merge(captured, enriched))


@given(ENTRIES, ENTRIES)
def test_a_merged_entry_comes_from_one_of_the_lists_and_is_there_once(captured: list[str], enriched: list[str]) -> None:
    merged = merge(captured, enriched)
    assert set(merged) <= {*captured, *enriched}
    assert not any(is_duplicate(one, other) for one in merged for other in merged if one != other)
