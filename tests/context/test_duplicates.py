"""Near-duplicates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.context.slots.knowledge import Included, shingles

TEXT = "We decided on the fourth of May to keep the memory in markdown files under git, and to rebuild the index."


def test_a_longer_passage_that_only_shares_a_part_is_another() -> None:
    seen = Included()
    seen.add("a", shingles(TEXT))
    assert (
        seen.twin(shingles(f"{TEXT} Nobody objected, but Milan wants to see how large they become within one year."))
        is None
    )


def test_short_texts_are_one_only_if_equal() -> None:
    seen = Included()
    seen.add("a", shingles("Ana: yes"))
    assert seen.twin(shingles("Ana: Yes!")) == "a"
    assert seen.twin(shingles("Milan: yes")) is None


def test_a_text_without_words_is_like_nothing() -> None:
    seen = Included()
    seen.add("a", shingles("…"))
    assert seen.twin(shingles("!")) is None


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9),
    st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9),
)
def test_looking_up_finds_what_comparing_finds(one: list[str], other: list[str]) -> None:
    known, wanted = shingles(" ".join(one)), shingles(" ".join(other))
    seen = Included()
    seen.add("a", known)
    alike = bool(wanted) and len(wanted & known) / len(wanted | known) >= 0.8
    assert (seen.twin(wanted) == "a") == alike
