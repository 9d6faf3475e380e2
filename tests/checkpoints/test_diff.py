"""What would change between two states."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.checkpoints.kept import referring, resolved, sources
from mcp_server.checkpoints.restore import NOTHING, State, difference, line_changes
from mcp_server.context.inputs import Candidate, CompileInputs, LastSession
from mcp_server.knowledge.anchors import Anchor
from mcp_server.model import Hit, Passage, SourceFile, ToolCall, Turn

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
    assert difference(NOW, THEN) == (
        "anchors set again: flour\nanchors taken away: rye\nanchors changed: oven\n"
        "topics active again: selling\ntopics no longer active: baking\n"
        "live again: 2 chunks\nno longer live: 1 chunk\n"
        "knowledge: 3 files, +3 −3 lines\n"
        "  a.md: changed, +2 −1\n  gone.md: removed, +0 −2\n  new.md: added, +1 −0"
    )


def test_the_same_state_and_what_is_not_compared_change_nothing() -> None:
    assert difference(NOW, NOW) == NOTHING == "Nothing would change."
    assert difference(State((Anchor("oven", "item", "", "2026"),)), State((Anchor("oven", "item"),))) == NOTHING
    assert difference(State(knowledge={"a.md": "x"}), State()) == NOTHING, "knowledge is restored only if asked for"


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
    words = ("set again", "taken away"), ("active again", "no longer active"), ("live again", "no longer live")
    there, back = difference(one, other), difference(other, one)
    for came, went in words:
        for line in there.split("\n"):
            if came in line:
                assert line.replace(came, went) in back.split("\n")
    assert there.count(".md") == back.count(".md")
    assert difference(one, one) == NOTHING


@given(TEXTS, TEXTS)
def test_lines_that_came_minus_those_that_went_is_the_difference_in_length(before: str, after: str) -> None:
    added, removed = line_changes(before, after)
    assert added - removed == len(after.splitlines()) - len(before.splitlines())
    assert (added == removed == 0) == (before == after)


AT = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)
SESSION, OTHER = "raw/conversations/a.md", "raw/conversations/b.md"
MEMORY = "knowledge/memory/MEMORY.md"
words = st.text(max_size=120)


def passage(path: str, text: str, turn: int | None = None) -> Passage:
    ref = f"{path}#{turn or 1}"
    return Passage(path, ref, 0, 0, 1, 2, text, "t", "conversation" if turn else "memory", turn=turn)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[CompileInputs, dict[str, str], dict[str, Turn]]:
    """Compile inputs, the files and the turns that there are: some texts stand in them, some stand nowhere."""
    said = draw(st.lists(words, min_size=1, max_size=5))
    turns = tuple(
        Turn(number, "user", text, AT, tool_calls=(ToolCall("look", text[:9]),) if number == 2 else ())
        for number, text in enumerate(said, start=1)
    )
    known = {f"{path}#{turn.number}": turn for path in (SESSION, OTHER) for turn in turns}
    files = {MEMORY: draw(words) + "".join(said)}
    lost = draw(st.sets(st.sampled_from(sorted(known))))
    passages = [
        passage(path, turn.content[draw(st.integers(0, 9)) :], turn.number)
        for turn in turns
        for path in (SESSION, OTHER)
    ]
    passages.append(passage(MEMORY, draw(st.sampled_from([files[MEMORY], "not in it " * 9]))))
    value = CompileInputs(
        message=said[-1],
        budget=1_000,
        now=AT,
        local_date="2026-02-16",
        session="s",
        files=(SourceFile(MEMORY, files[MEMORY][3:]),),
        hits=tuple(Candidate(Hit(passage, 0.5, {"bm25": 0.5})) for passage in passages),
        turns=turns,
        last_session=LastSession(OTHER, "b", "2026-02-15", turns),
    )
    return value, files, {of: turn for of, turn in known.items() if of not in lost}


def ports(files: dict[str, str], turns: dict[str, Turn]) -> Any:
    def text_of(of: str) -> str | None:
        return turns[of].content if of in turns else files.get(of)

    def turn_of(of: str) -> Any:
        if of not in turns:
            return None
        return CompileInputs("", 0, AT, "", turns=(turns[of],)).to_json()["turns"][0]

    return text_of, turn_of


@given(inputs())
def test_what_is_referred_to_comes_back(drawn: tuple[CompileInputs, dict[str, str], dict[str, Turn]]) -> None:
    value, files, turns = drawn
    places = {turn.number: SESSION for turn in value.turns}
    text_of, turn_of = ports(files, turns)
    referred = referring(value.to_json(), text_of, turn_of, places)
    again = CompileInputs.from_json(resolved(referred, *ports(files, turns)))
    assert again == value
    assert again.digests() == value.digests()
    assert sources(referred) <= {*files, *turns}


def test_long_texts_are_not_stored_and_what_is_gone_changes_the_field() -> None:
    text = "The berth in Kotor costs three hundred euros a month, from October to April."
    turn = Turn(4, "user", text, AT)
    hits = (Candidate(Hit(passage(MEMORY, text), 1.0, {})),)
    value = CompileInputs(text, 1_000, AT, "2026-02-16", files=(SourceFile(MEMORY, text),), hits=hits, turns=(turn,))
    files, turns = {MEMORY: f"before {text} after"}, {f"{SESSION}#4": turn}
    text_of, turn_of = ports(files, turns)
    referred = referring(value.to_json(), text_of, turn_of, {4: SESSION})
    assert text not in str(referred)
    assert sources(referred) == {MEMORY, f"{SESSION}#4"}
    without_file = CompileInputs.from_json(resolved(referred, *ports({}, turns))).digests()
    assert {name for name, digest in value.digests().items() if without_file[name] != digest} == {"files", "hits"}
    without_turn = CompileInputs.from_json(resolved(referred, *ports(files, {}))).digests()
    assert {name for name, digest in value.digests().items() if without_turn[name] != digest} == {"message", "turns"}
