"""Search as people and models see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.app import open_memory
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.errors import Invalid
from mcp_server.memory import Memory
from mcp_server.model import Hit, Passage, Project
from mcp_server.search.ranking import RankingWeights, newest_first
from mcp_server.search.search import SearchRequest, find, search, snippet, weights_of
from mcp_server.settings_file import read_settings
from mcp_server.storage.values import Depth

pytestmark = [pytest.mark.anyio, pytest.mark.both_engines]


def write(memory: Memory, path: str, text: str) -> None:
    memory.files.write_atomic(path, text)


@pytest.fixture
async def stored(memory: Memory) -> Memory:
    write(memory, "knowledge/people/ana.md", "# Ana\n\nAna plays the cello in Novi Sad.\n")
    write(memory, "knowledge/reference/tea.md", "# Tea\n\nGreen tea is steeped at 80 degrees.\n")
    write(memory, "knowledge/projects/apollo/notes.md", "# Apollo\n\nThe cello code lives here.\n")
    write(memory, "knowledge/reference/books/one.md", "# Imported\n\nA book about cello strings.\n")
    await memory.index.rebuild()
    return memory


async def test_a_hit_shows_where_it_is_and_why_it_came(stored: Memory) -> None:
    request = SearchRequest("who plays the cello?", scope="all")
    answer = await search(stored, replace(request, explain=True))
    first = answer.as_dict()["hits"][0]
    assert first["path"] == "knowledge/people/ana.md"
    assert (first["start"], first["end"]) == (1, 3)
    assert "cello" in first["snippet"]
    assert sum(first["terms"].values()) == pytest.approx(first["score"], abs=1e-5)
    assert "knowledge/people/ana.md:1-3" in answer.markdown
    assert "coverage" in answer.markdown
    assert "coverage" not in (await search(stored, request)).markdown


async def test_the_scope_is_the_project_and_what_is_global(stored: Memory) -> None:
    async def paths(request: SearchRequest) -> set[str]:
        return {hit.passage.path for hit in (await find(stored, request)).hits}

    apollo = Project("name:apollo", "apollo", frozenset({"name:apollo"}))
    assert len(await paths(SearchRequest("cello", scope="all"))) == 3
    assert len(await paths(SearchRequest("cello", project=apollo))) == 3
    assert "knowledge/projects/apollo/notes.md" not in await paths(SearchRequest("cello"))


async def test_a_shallow_search_weighs_fewer_passages_and_finds_the_same_first(memory: Memory) -> None:
    for number in range(40):
        write(memory, f"knowledge/reference/harbour/{number}.md", f"# Note {number}\n\nA harbour has {number} boats.\n")
    await memory.index.rebuild()
    usual = SearchRequest("the harbour with 17 boats", scope="all")
    shallow = replace(usual, depth=Depth(words=5, lines=5, meaning=5, around=2))
    found, fewer = await find(memory, usual), await find(memory, shallow)
    assert 5 <= fewer.considered <= 10 < found.considered
    assert fewer.hits[0].passage == found.hits[0].passage


async def test_imports_are_marked(stored: Memory) -> None:
    found = await find(stored, SearchRequest("book strings", scope="all"))
    assert [hit.imported for hit in found.hits][:1] == [True]


async def test_a_phrase_that_stands_nowhere_falls_back_to_its_words(stored: Memory) -> None:
    found = await find(stored, SearchRequest('"cello plays"', scope="all"))
    assert found.hits
    assert "word for word" in found.messages[0]
    assert not (await find(stored, SearchRequest('"cello plays"', scope="all", operators=False))).messages


async def test_dates_may_be_named_and_wrong_ones_are_explained(stored: Memory) -> None:
    assert (await find(stored, SearchRequest("cello", scope="all", until="2001"))).hits == ()
    assert (await find(stored, SearchRequest("cello", scope="all", since="2001"))).hits
    with pytest.raises(Invalid, match="since='soon'"):
        await find(stored, SearchRequest("cello", since="soon"))


async def test_what_does_not_fit_is_cut_and_said(stored: Memory) -> None:
    whole = await search(stored, SearchRequest("cello tea", scope="all"))
    tokens = stored.tokens.count(whole.markdown)
    assert len(whole.hits) == 4
    part = await search(stored, SearchRequest("cello tea", scope="all"), max_tokens=tokens - 1)
    assert 0 < len(part.hits) < 4
    assert "did not fit" in part.notes[-1]
    assert stored.tokens.count(part.markdown) <= tokens - 1
    none = await search(stored, SearchRequest("cello tea", scope="all"), max_tokens=20)
    assert none.hits == ()
    assert "larger max_tokens" in none.notes[0]


async def test_small_talk_finds_the_gate_closed_and_everything_does_if_the_setting_says_so(stored: Memory) -> None:
    assert not (await find(stored, SearchRequest("ok thanks", scope="all"))).gate.open
    assert (await find(stored, SearchRequest("cello in Novi Sad", scope="all"))).gate.open
    strict = stored.settings.model_copy(
        update={"search": stored.settings.search.model_copy(update={"gate_threshold": 1.5})}
    )
    assert not (await find(replace(stored, settings=strict), SearchRequest("cello", scope="all"))).gate.open


async def test_words_that_nothing_has_are_named_above_the_hits(stored: Memory) -> None:
    answer = await search(stored, SearchRequest("tea with quantum chromodynamics", scope="all"))
    assert answer.notes == ("no passage has the word 'quantum' or 'chromodynamics'",)
    assert answer.markdown.split("\n\n")[1] == f"[{answer.notes[0]}]"
    assert not (await search(stored, SearchRequest("cello in Novi Sad", scope="all"))).notes
    line = "- 2026-11-01: Decided: the insurance goes to Helvar. [src: raw/conversations/2026/11/01/0900-a-b.md#1]"
    write(stored, "knowledge/journal/2026-11-01.md", f"# 2026-11-01\n\n{line}\n")
    await stored.index.rebuild()
    answer = await search(stored, SearchRequest("quantum insurance", scope="all"))
    assert "Helvar" in answer.markdown
    assert answer.notes == ("no passage has the word 'quantum'",)


async def test_meaning_is_used_where_there_is_an_embedder(
    place: Path | str, clock: Any, new_id: Callable[[], str]
) -> None:
    async with open_memory(place, {}, clock=clock, new_id=new_id) as memory:
        write(memory, "knowledge/reference/a.md", "She bought an automobile yesterday.")
        write(memory, "knowledge/reference/b.md", "The soup needs salt.")
        await memory.index.rebuild()
        found = await find(memory, SearchRequest("vehicle", scope="all", mode="vector"))
        assert found.mode == "vector"
        paths = [hit.passage.path for hit in found.hits]
        assert paths.index("knowledge/reference/a.md") < paths.index("knowledge/reference/b.md")
        assert found.hits[0].cosine is not None


def test_weights_of_the_settings_share_out_words_and_meaning_and_still_sum_to_one() -> None:
    def weights(**values: Any) -> RankingWeights:
        return weights_of(read_settings({"search": values}, {}, "x"))

    usual = RankingWeights()
    assert weights() == usual
    words_only = weights(bm25_weight=1, vector_weight=0)
    assert words_only.meaning == 0
    assert words_only.coverage > usual.coverage
    assert weights(bm25_weight=0).meaning == pytest.approx(weights(vector_weight=1).meaning)
    assert weights(bm25_weight=0, vector_weight=0) == usual
    for changed in (words_only, weights(vector_weight=0.25), weights(bm25_weight=3, vector_weight=2)):
        assert sum(getattr(changed, name) for name in changed.__slots__) - usual.kept == pytest.approx(1)


@given(st.text(alphabet="ab cello\n", max_size=2_000))
def test_a_snippet_is_short_and_of_the_text(text: str) -> None:
    shown = snippet(text, ("cello",), 100)
    assert len(shown) <= 102
    assert shown.strip("…") in " ".join(text.split())


def test_a_snippet_shows_where_the_words_stand() -> None:
    assert "cello" in snippet("filler words " * 100 + "the cello stands here " + "filler words " * 100, ("cello",))


async def test_stored_names_are_harmless_in_the_line_above_a_hit(memory: Memory) -> None:
    write(memory, "knowledge/reference/<system-reminder>.md", "# <system-reminder>\n\nthe walrus sleeps\n")
    await memory.index.rebuild()
    shown = (await search(memory, SearchRequest("walrus"))).markdown
    assert "walrus" in shown
    assert "<system-reminder" not in shown


PATH = "raw/conversations/2026/11/02/0900-kiln.md"


PAGE = "knowledge/projects/kiln/context.md"


def hit(turn: int, text: str, path: str = PATH) -> Hit:
    line = f"- 2026-11-02: {text} [src: {path}#{turn}]"
    return Hit(Passage(PAGE, PAGE, 0, turn, turn, turn, line, "Facts", "project"), 1.0, {})


OLD = hit(3, "The kiln fires stoneware at 1240 degrees.")


OTHER = hit(5, "The glaze room closes at 18:00 on Fridays.")


NEW = hit(41, "Too hot: the kiln fires stoneware at 1210 degrees now.")


def test_a_newer_value_goes_before_the_older_one() -> None:
    assert newest_first((OLD, OTHER, NEW), "how hot does the kiln fire stoneware?") == (NEW, OLD, OTHER)


def test_hits_about_different_things_keep_their_order() -> None:
    assert newest_first((OLD, OTHER), "when does the glaze room close?") == (OLD, OTHER)


def turn(number: int, text: str, path: str = PATH, speaker: str = "") -> Hit:
    said = Passage(path, path, 0, number, number, number, text, "kiln", "conversation", turn=number, speaker=speaker)
    return Hit(said, 1.0, {})


STARTS = turn(3, "the ceremony starts at 14:00 in the garden")


MOVED = turn(41, "small change, the ceremony is at 15:30 then")


ASKED = "what time does the ceremony start?"


def test_a_newer_short_turn_goes_before_the_first_hit() -> None:
    assert newest_first((STARTS, OTHER, MOVED), ASKED) == (MOVED, STARTS, OTHER)


def test_a_hit_that_is_only_somewhat_likely_to_be_replaced_goes_behind() -> None:
    old, new = turn(3, "the printer in Perg prints the flyers"), turn(41, "we print 300 flyers in Perg on Monday")
    assert newest_first((old, new), "who prints the flyers?") == (new, old)


def test_the_agents_echo_replaces_nothing() -> None:
    said, echo = turn(4, "retries: two, ten minutes apart"), turn(6, "Two retries, ten minutes apart, for the texts.")
    asked = "how many retries do we make?"
    assert newest_first((said, echo), asked)[0] == echo
    hits = (said, replace(echo, passage=replace(echo.passage, role="agent")))
    assert newest_first(hits, asked) == hits


def test_a_newer_turn_far_behind_is_found_and_a_lower_hit_is_not_replaced() -> None:
    others = tuple(turn(50 + place, f"the oven has shelf number {place}") for place in range(70))
    assert newest_first((STARTS, *others, MOVED), ASKED)[0] == MOVED
    assert newest_first((*others, STARTS, MOVED), ASKED) == (*others, STARTS, MOVED)


def test_a_reply_a_question_another_person_and_a_question_about_the_past_reorder_nothing() -> None:
    reply = turn(4, "fine, the ceremony is at 14:00 sharp then, I tell the guests")
    question = turn(41, "was the ceremony moved to 15:30?")
    ana, ben = turn(3, STARTS.passage.text, speaker="Ana"), turn(41, MOVED.passage.text, speaker="Ben")
    for hits in ((STARTS, reply), (STARTS, question), (ana, ben)):
        assert newest_first(hits, ASKED) == hits
    assert newest_first((STARTS, MOVED), "what time did the ceremony start?") == (STARTS, MOVED)


def told(number: int, said: str, line: str, speaker: str) -> Hit:
    return replace(hit(number, f"{speaker}: {line}"), source=turn(number, said, speaker=speaker).passage)


async def test_the_name_and_the_day_that_an_extractor_adds_are_no_new_value() -> None:
    asked = "what event is Maria getting ready for at the shelter?"
    ready = told(3, "I'm busy at the shelter getting ready.", "I'm busy at the shelter on 25 May 2023.", "Maria")
    medal = told(41, "I helped at the shelter.", "I helped at the shelter on 9 August 2023.", "Maria")
    assert newest_first((ready, medal), asked) == (ready, medal)
    lines = (replace(ready, source=None), replace(medal, source=None))
    assert [one.passage for one in newest_first(lines, asked)] == [medal.passage, ready.passage]


async def test_a_line_and_its_turn_are_one_hit_that_knows_both(memory: Memory) -> None:
    at = datetime(2026, 11, 2, 9, tzinfo=UTC)
    said = "Oh, the blue kayak, I bought it yesterday in Split, and it was cheap, as far as kayaks go."
    spoken = ImportedTurn("user", said, at, "t1", "Ana"), ImportedTurn("user", "Where is it now?", at, "t2", "Ben")
    await record_session(memory, ImportedSession("kayak", spoken, "import:locomo", "Kayak"))
    (path,) = memory.transcripts.all()
    write(memory, "knowledge/people/ana.md", f"# Ana\n\n- 2026-11-01: Ana: Bought the blue kayak. [src: {path}#1]\n")
    await memory.index.rebuild()
    first, *others = (await find(memory, SearchRequest("blue kayak", scope="all"))).hits
    assert "Bought the blue kayak" in first.passage.text
    assert first.source is not None
    assert (first.source.turn, first.source.speaker) == (1, "Ana")
    assert not [one for one in others if "kayak" in one.passage.text]


async def test_a_question_that_was_asked_before_comes_behind_what_answers_it(memory: Memory) -> None:
    at = datetime(2026, 11, 2, 9, tzinfo=UTC)
    asked = ImportedTurn("user", "How wide is the door of the room?", at, "t1")
    told = ImportedTurn("user", "By the way, the room's door is 1.28 m wide, I measured it again.", at, "t2")
    other = ImportedTurn("user", "Is the door of the room locked at night?", at, "t3")
    for name, turn in (("first", told), ("second", asked), ("third", other)):
        await record_session(memory, ImportedSession(name, (turn,), "import:test", name))
    await memory.index.rebuild()
    hits = (await find(memory, SearchRequest("how wide is the door of the room", scope="all"))).hits
    assert [hit.passage.session for hit in hits] == ["first", "third", "second"]
