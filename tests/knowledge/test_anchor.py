"""Anchors: they are written to `anchors.yaml` without changing other lines, and their items stay in contexts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session, show_session
from mcp_server.errors import Invalid, NotFound, Refused
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge.anchor import anchor, anchored_ids, anchors, problems
from mcp_server.knowledge.anchors import (
    HEADER,
    Anchor,
    kind_of,
    names_one_of,
    read_anchors,
    with_entries,
    without_entries,
)
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.relevance import clarity
from mcp_server.relevance.chunks import chunk_id
from mcp_server.relevance.clarity_scores import anchored_since
from mcp_server.relevance.live_set import live_set
from mcp_server.text.markdown import load

pytestmark = pytest.mark.anyio
ASKS = Caller(explicit_sessions=True)


async def said(memory: Memory, *texts: str, session: str = "s") -> None:
    for text in texts:
        await observe(memory, NewTurn("user", text, session), ASKS)


async def protected(memory: Memory, session: str = "s") -> set[int]:
    """The turns whose chunks an anchor protects."""
    chunks = await live_set(memory, session)
    held = await anchored_ids(memory, session, chunks)
    return {chunk.turn for chunk in chunks if chunk.id in held}


async def test_an_anchored_item_stands_in_the_file_and_first_in_the_scores(memory: Memory) -> None:
    await said(memory, "ClaraCore and the oven and the oven", "the oven")
    done = await anchor(memory, "  ClaraCore ", True, "our engine")
    assert done.markdown == "item claracore: anchored"
    assert "{item: claracore, kind: item, note: our engine" in memory.files.read_text("anchors.yaml")
    first = (await clarity.judged(memory, "s")).verdicts[0]
    assert (first.item.id, first.item.anchored, first.terms["anchor"]) == ("claracore", True, 100)
    assert "(no change)" in (await anchor(memory, "claracore", True)).markdown
    assert not (await anchor(memory, "claracore", False)).on
    assert anchors(memory) == []


async def test_items_chunks_turns_and_whole_transcripts_protect_what_they_mean(memory: Memory) -> None:
    await said(memory, "the oven is hot", "the boat is blue", "run web_search", "our winter berth", "nothing else")
    assert await protected(memory) == set()
    await anchor(memory, "oven", True)
    await anchor(memory, chunk_id("s", "2.0"), True)
    await anchor(memory, "web_search", True)
    assert await protected(memory) == {1, 2, 3}
    await anchor(memory, "Winter Berth", True)
    await anchor(memory, "s#5", True)
    assert await protected(memory) == {1, 2, 3, 4, 5}
    for item in ("oven", "web_search", "winter berth", chunk_id("s", "2.0"), "s#5"):
        await anchor(memory, item, False)
    assert await protected(memory) == set()
    (path,) = (await show_session(memory, "s")).paths
    await anchor(memory, path, True)
    assert await protected(memory) == {1, 2, 3, 4, 5}


async def test_a_turn_of_an_earlier_transcript_of_the_session_can_be_anchored(memory: Memory) -> None:
    await said(memory, "the oven is hot")
    await end_session(memory, "s")
    await said(memory, "the boat is blue")
    assert (await anchor(memory, "s#1", True)).anchor.kind == "passage"
    first, _ = (await show_session(memory, "s")).paths
    assert anchors(memory)[0].item == f"{first}#1"


async def test_what_is_not_there_is_refused_and_the_nearest_named(memory: Memory) -> None:
    await said(memory, "hello")
    with pytest.raises(NotFound):
        await anchor(memory, "knowledge/people/nobody.md", True)
    with pytest.raises(NotFound):
        await anchor(memory, "c0123456789a", True)
    with pytest.raises(NotFound, match="no turn 9"):
        await anchor(memory, "s#9", True)
    await anchor(memory, "claracore", True)
    with pytest.raises(NotFound, match="did you mean 'claracore'"):
        await anchor(memory, "claracor", False)
    for bad in ("", " \n ", "x" * 501, "bell\x07"):
        with pytest.raises(Invalid):
            await anchor(memory, bad, True)


async def test_a_file_of_the_clients_own_is_an_item_and_one_of_ours_a_file(memory: Memory) -> None:
    assert (await anchor(memory, "docs/readme.md", True)).anchor.kind == "item"
    assert (await anchor(memory, "knowledge/identity/SOUL.md", True)).anchor.kind == "file"


async def test_a_secret_is_no_anchor_and_no_note(memory: Memory) -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    with pytest.raises(Refused):
        await anchor(memory, secret, True)
    with pytest.raises(Refused):
        await anchor(memory, "oven", True, f"key {secret}")
    assert not memory.files.exists("anchors.yaml")


async def test_what_is_forgotten_leaves_the_anchors_too_and_the_file_stays_readable(memory: Memory) -> None:
    await said(memory, "the plan is called zebra tango")
    await anchor(memory, "zebra tango", True, "the plan is called zebra tango")
    await anchor(memory, "oven", True)
    await forget(memory, ForgetTarget(text="zebra tango"))
    assert "zebra" not in memory.files.read_text("anchors.yaml")
    assert "oven" in [one.item for one in anchors(memory)]
    await anchor(memory, "boat", True)


async def test_a_broken_file_holds_nothing_stops_nothing_and_is_named(memory: Memory) -> None:
    await said(memory, "the oven")
    memory.files.write_atomic("anchors.yaml", "anchors: [oven\n")
    assert anchors(memory) == []
    assert "anchors.yaml: line" in problems(memory)[0]
    await said(memory, "the oven again")
    for text, why in (("anchors: [oven\n", "line"), ("anchors: 1\n", "by hand")):
        memory.files.write_atomic("anchors.yaml", text)
        with pytest.raises(Invalid, match=why):
            await anchor(memory, "boat", True)
        assert memory.files.read_text("anchors.yaml") == text


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ("ClaraCore", "item"),
        ("SOUL.md", "item"),
        ("c0123456789a", "chunk"),
        ("knowledge/people/ana.md", "file"),
        ("raw/conversations/2026/02/16/1845-s-x.md#7", "passage"),
        ("ses_a1b2#7", "item"),  # which session that is, the action finds out
    ],
)
def test_what_is_anchored_is_known_by_its_shape(item: str, kind: str) -> None:
    assert kind_of(item) == kind


def test_entries_by_hand_may_be_words_and_broken_ones_are_named() -> None:
    held, wrong = read_anchors({"anchors": ["oven", {"item": "boat", "kind": "nonsense", "at": "2026-01-02"}, {}, 3]})
    assert [(one.item, one.kind, one.place) for one in held] == [("oven", "item", 0), ("boat", "item", 1)]
    assert ["entry 3" in sentence or "entry 4" in sentence for sentence in wrong] == [True, True]
    assert "must be a list" in read_anchors({"anchors": "oven"})[1][0]
    now = datetime(2026, 3, 1, tzinfo=UTC)
    assert anchored_since(held, now) == {"oven": now, "boat": datetime(2026, 1, 2, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("text", "item", "named"),
    [
        ("the Oven is hot", "oven", True),
        ("ovens are hot", "oven", False),
        ("see focus-core", "core", False),
        ("run web_search", "tool:web_search", True),
        ("our Winter Berth, please", "winter berth", True),
        ("winter and berth", "winter berth", False),
        ("čamac je tu", "camac", True),
        ("", "oven", False),
    ],
)
def test_a_text_names_an_item_as_a_whole(text: str, item: str, named: bool) -> None:
    assert names_one_of(text, {item}) is named


OVEN, BOAT = Anchor("oven", "item", "it must not burn", "2026-02-16"), Anchor("boat", "item")

BY_HAND = """\
# My anchors. Ask Ana before you change them.

anchors:   # what stays
  # the engine
  - item: claracore   # since the start
    kind: item
    # it pays our rent
    note: "the # one"

  - oven
  # files below
  - {item: knowledge/people/ana.md, kind: file}  # Ana
# the end
"""


def held(text: str) -> list[str]:
    return [anchor.item for anchor in read_anchors(load(text, "anchors.yaml"))[0]]


def test_a_new_file_explains_itself_and_an_existing_file_keeps_its_other_lines() -> None:
    entry = "anchors:\n  - {item: oven, kind: item, note: it must not burn, at: '2026-02-16'}\n"
    assert with_entries("", [OVEN]) == HEADER + entry
    text = with_entries(BY_HAND, [BOAT])
    assert held(text) == ["claracore", "oven", "knowledge/people/ana.md", "boat"]
    assert text.replace("  - {item: boat, kind: item}\n", "") == BY_HAND
    assert without_entries(BY_HAND, [0, 2]) == (  # an entry goes with its comments
        "# My anchors. Ask Ana before you change them.\n\nanchors:   # what stays\n  # the engine\n"
        "  - oven\n  # files below\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "# nothing yet",
        "anchors:",
        "anchors: # none\n",
        "{mine: 1}\n",
        "{}\n",
        "anchors: [ ]  # none\nother: 1\n",
        "other:\n  - 1\n",
        "anchors:\n- oven\n",
        "anchors: [oven, {item: boat}]\n# end\n",
        'anchors:\n  -\n    item: "a: b"\n    note: >\n      folded\n      text # no comment\n\nother: x\n',
        "anchors:\r\n  - oven # hot\r\n# end\r\n",
        "---\nanchors:\n  - item: oven\n    note: |\n      one\n      two\n",
    ],
)
def test_whatever_way_it_is_written_an_entry_comes_and_goes(text: str) -> None:
    before, rest = held(text), {**load(text, "x"), "anchors": 0}
    added = with_entries(text, [Anchor("new thing", "item", 'a "note": #1', "2026-02-16")])
    assert held(added) == [*before, "new thing"]
    assert {**load(added, "x"), "anchors": 0} == rest
    assert all(comment in added for comment in ("# nothing yet", "# none", "# end", "# hot") if comment in text)
    assert added.count("\r\n") == (added.count("\n") if "\r\n" in text else 0)
    assert held(without_entries(added, [len(before)])) == before
    assert held(without_entries(added, range(len(before) + 1))) == []


written = (
    st.text(min_size=1, max_size=30)
    .map(lambda text: " ".join(text.split()))
    .filter(lambda text: bool(text) and text.isprintable())
)


@given(written, written)
@example("?0", "? ask Ana")
def test_any_name_and_note_read_back_as_they_were(item: str, note: str) -> None:
    text = with_entries("", [Anchor(item, "item", note)])
    (anchor,), wrong = read_anchors(load(text, "anchors.yaml"))
    assert (anchor.item, anchor.note, wrong) == (item, note, [])
    assert text.count("\n") == 3
