"""What the user marks stays: in `anchors.yaml`, in the scores, in the live set."""

from __future__ import annotations

import pytest

from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session, show_session
from mcp_server.errors import Invalid, NotFound, Refused
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge.anchor import anchor, anchored_ids, anchors, problems
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.relevance import clarity
from mcp_server.relevance.chunks import chunk_id
from mcp_server.relevance.live_set import live_set

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
    assert "it was so already" in (await anchor(memory, "claracore", True)).markdown
    assert not (await anchor(memory, "claracore", False)).on
    assert anchors(memory) == []


async def test_comments_that_a_person_wrote_survive(memory: Memory) -> None:
    memory.files.write_atomic("anchors.yaml", "# mine\nanchors:\n  # hot\n  - oven  # the big one\nmine: too\n")
    await anchor(memory, "boat", True)
    await anchor(memory, "oven", False)
    assert [one.item for one in anchors(memory)] == ["boat"]
    for kept in ("# mine\n", "# hot\n", "mine: too\n"):
        assert kept in memory.files.read_text("anchors.yaml")


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
    with pytest.raises(Invalid, match="line"):
        await anchor(memory, "boat", True)
    assert memory.files.read_text("anchors.yaml") == "anchors: [oven\n"


async def test_a_file_whose_anchors_are_no_list_is_left_alone(memory: Memory) -> None:
    memory.files.write_atomic("anchors.yaml", "anchors: 1\n")
    with pytest.raises(Invalid, match="by hand"):
        await anchor(memory, "boat", True)
    assert memory.files.read_text("anchors.yaml") == "anchors: 1\n"
