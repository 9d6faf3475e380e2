"""Compile inputs with references: fetched again they are what they were; only what stands elsewhere is referred to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.checkpoints.stored_inputs import referring, resolved, sources
from mcp_server.context.inputs import Candidate, CompileInputs, LastSession
from mcp_server.model import Hit, Passage, SourceFile, ToolCall, Turn

AT = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)
SESSION, OTHER = "raw/conversations/a.md", "raw/conversations/b.md"
MEMORY = "knowledge/memory/MEMORY.md"

words = st.text(max_size=120)


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
        Passage(
            path,
            f"{path}#{turn.number}",
            0,
            0,
            1,
            2,
            turn.content[draw(st.integers(0, 9)) :],
            "t",
            "conversation",
            turn=turn.number,
        )
        for turn in turns
        for path in (SESSION, OTHER)
    ]
    passages.append(
        Passage(
            MEMORY, f"{MEMORY}#1", 0, 0, 1, 2, draw(st.sampled_from([files[MEMORY], "not in it " * 9])), "t", "memory"
        )
    )
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
    passage = Passage(MEMORY, f"{MEMORY}#1", 0, 0, 1, 2, text, "t", "memory")
    value = CompileInputs(
        text,
        1_000,
        AT,
        "2026-02-16",
        files=(SourceFile(MEMORY, text),),
        hits=(Candidate(Hit(passage, 1.0, {})),),
        turns=(turn,),
    )
    files, turns = {MEMORY: f"before {text} after"}, {f"{SESSION}#4": turn}
    text_of, turn_of = ports(files, turns)
    referred = referring(value.to_json(), text_of, turn_of, {4: SESSION})
    assert text not in str(referred)
    assert sources(referred) == {MEMORY, f"{SESSION}#4"}
    without_file = CompileInputs.from_json(resolved(referred, *ports({}, turns))).digests()
    assert {name for name, digest in value.digests().items() if without_file[name] != digest} == {"files", "hits"}
    without_turn = CompileInputs.from_json(resolved(referred, *ports(files, {}))).digests()
    assert {name for name, digest in value.digests().items() if without_turn[name] != digest} == {"message", "turns"}
