"""Items are shortened to their likeliest clauses, and together to a number of tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.context.condense import Entry, condensed, telegraphic
from mcp_server.tokens import Meter

PARTITIONS = (
    "That was a long week for all of us here. I'd partition `tracking_events` by month, and drop a partition when it "
    "is older than 120 days, because that is instant. (amended: Make it 180 days rather than 120.)"
)


def meter() -> Meter:
    return Meter(lambda text: -(-len(text) // 4))


def test_the_clauses_with_names_numbers_and_verbs_are_kept_and_small_talk_goes() -> None:
    (line,) = condensed([Entry(PARTITIONS)], 35, meter())
    assert "partition `tracking_events` by month" in line
    assert line.endswith("(amended: Make 180 days rather than 120.)")
    assert "week" not in line


def test_an_amended_proposal_is_never_shown_without_the_amendment() -> None:
    for tokens in range(5, 80):
        (line,) = condensed([Entry(PARTITIONS)], tokens, meter())
        assert "120 days" not in line or "180" in line


def test_with_room_enough_all_words_stay() -> None:
    assert condensed([Entry(PARTITIONS)], 200, meter()) == [f"- {PARTITIONS}"]


def test_a_doubtful_item_gives_way_to_a_sure_one() -> None:
    doubtful = Entry("Let's have a nice day together", probability=0.3)
    sure = Entry("Let's keep the ledger in SQLite")
    assert condensed([doubtful, sure], 9, meter()) == ["", "- Let's keep the ledger in SQLite"]


def test_negations_conditions_and_code_survive_without_the_words_around_them() -> None:
    assert telegraphic("It is not in the env files unless `the.key` is there") == "not env files unless `the.key` there"
    assert telegraphic("the") == "the"


@given(
    st.lists(st.builds(Entry, st.text(max_size=300), st.just(1.0), st.floats(0, 1)), max_size=20), st.integers(0, 300)
)
def test_the_lines_never_take_more_than_the_tokens(entries: list[Entry], tokens: int) -> None:
    lines = condensed(entries, tokens, meter())
    assert len(lines) == len(entries)
    assert sum(map(meter().line, filter(None, lines))) <= tokens
