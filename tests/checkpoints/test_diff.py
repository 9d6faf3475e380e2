"""What would change between two states."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.checkpoints.restore_plan import (
    Difference,
    Names,
    PathChange,
    State,
    difference,
    difference_text,
    line_changes,
)
from mcp_server.knowledge.anchors import Anchor

NOW = State(
    (Anchor("oven", "item", "hot"), Anchor("rye", "item")),
    ("baking",),
    ("c1", "c2"),
    {"a.md": "one\ntwo\nthree\n", "gone.md": "x\ny\n", "same.md": "same\n"},
)
THEN = State(
    (Anchor("oven", "item", "very hot"), Anchor("flour", "item")),
    ("selling",),
    ("c2", "c3", "c4"),
    {"a.md": "one\n2\nthree\nfour\n", "new.md": "n\n", "same.md": "same\n"},
)


def test_what_would_change_is_named_and_counted() -> None:
    found = difference(NOW, THEN)
    assert found.anchors == Names(("flour",), ("rye",))
    assert found.changed_anchors == ("oven",)
    assert found.topics == Names(("selling",), ("baking",))
    assert found.live == Names(("c3", "c4"), ("c1",))
    assert found.paths == (
        PathChange("a.md", "changed", 2, 1),
        PathChange("gone.md", "removed", 0, 2),
        PathChange("new.md", "added", 1, 0),
    )


def test_a_person_can_read_it() -> None:
    assert difference_text(difference(NOW, THEN)) == (
        "anchors set again: flour\nanchors taken away: rye\nanchors changed: oven\n"
        "topics active again: selling\ntopics no longer active: baking\n"
        "live again: 2 chunks\nno longer live: 1 chunk\n"
        "knowledge: 3 files, +3 −3 lines\n"
        "  a.md: changed, +2 −1\n  gone.md: removed, +0 −2\n  new.md: added, +1 −0"
    )


def test_long_lists_end_in_a_count() -> None:
    many = State(topics=tuple(f"t{n:02}" for n in range(25)), knowledge={f"{n:02}.md": "x" for n in range(22)})
    said = difference_text(difference(State(knowledge={}), many))
    assert "t19 and 5 more" in said
    assert said.endswith("19.md: added, +1 −0\n  and 2 files more")


def test_the_same_state_and_what_is_not_compared_change_nothing() -> None:
    assert difference_text(difference(NOW, NOW)) == "Nothing would change."
    assert difference(State(anchors=(Anchor("oven", "item", "", "2026"),)), State((Anchor("oven", "item"),))).empty
    assert difference(State(knowledge={"a.md": "x"}), State()).empty, "knowledge is restored only if asked for"


def test_an_empty_file_that_comes_or_goes_is_a_change() -> None:
    assert difference(State(knowledge={}), State(knowledge={"a.md": ""})).paths == (PathChange("a.md", "added", 0, 0),)


TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "a", "\r\n"]), max_size=8).map("".join)
STATES = st.builds(
    State,
    st.lists(st.builds(Anchor, st.sampled_from("abc"), st.just("item"), st.sampled_from("xy")), max_size=3).map(tuple),
    st.lists(st.sampled_from("abc"), max_size=3).map(tuple),
    st.lists(st.sampled_from("abc"), max_size=3).map(tuple),
    st.dictionaries(st.sampled_from("abc"), TEXTS, max_size=3),
)


@given(STATES, STATES)
def test_the_way_back_is_the_way_there_turned_round(one: State, other: State) -> None:
    there, back = difference(one, other), difference(other, one)
    assert (there.anchors.added, there.topics.added, there.live.added) == (
        back.anchors.removed,
        back.topics.removed,
        back.live.removed,
    )
    assert [path.path for path in there.paths] == [path.path for path in back.paths]
    assert difference(one, one) == Difference()
    assert there.empty == (difference_text(there) == "Nothing would change.")


@given(TEXTS, TEXTS)
def test_lines_that_came_minus_those_that_went_is_the_difference_in_length(before: str, after: str) -> None:
    added, removed = line_changes(before, after)
    assert added - removed == len(after.splitlines()) - len(before.splitlines())
    assert (added == removed == 0) == (before == after)
