"""Checkpoints are made when they should, hold what is there, and old automatic ones go."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.app import catch_up, open_memory
from mcp_server.checkpoints import stored
from mcp_server.checkpoints.checkpoint import make, sweep
from mcp_server.checkpoints.document import Checkpoint, Reason, page, parse, render
from mcp_server.checkpoints.kept import verify
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import Conflict, Invalid, NotFound
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge.anchors import Anchor, AnchorKind
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, ToolCall
from mcp_server.pressure.cold import expire
from mcp_server.pressure.prune import prune
from mcp_server.relevance.chunks import Gauges
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.gitting import git
from tests.pressing import SMALL, USER, grow, hold, talk
from tests.text.test_transcript import ANY_TEXT, JSON_TEXT, MOMENTS

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]

ANSWER = (
    "The berth in Kotor is free from October to April, and the crane is not. " * 8
    + "\n\nI'd go with the berth in Kotor for the winter: it is cheap, and close to the crane."
)


async def spoken(memory: Memory) -> None:
    """A short conversation in which something is settled."""
    for role, content in (
        ("user", "Which berth should the boat have in winter?\n\nTODO: paint the hull"),
        ("agent", ANSWER),
        ("user", "yes, go with that"),
    ):
        await observe(memory, NewTurn(role, content, "s", delivery="replace"), USER)
    call = ToolCall("look_up", "crane in Kotor", "none before May", ("docs/kotor.md",))
    await observe(memory, NewTurn("agent", "Looked for a crane.", "s", tool_calls=(call,)), USER)


async def test_a_checkpoint_says_where_the_conversation_stands_and_is_read_back_as_it_was_made(memory: Memory) -> None:
    await spoken(memory)
    made = await make(memory, "s", "asked", "before\nthe journey")
    assert await stored.read(memory, made.id) == made
    assert (made.turn, made.reason, made.note) == (4, "asked", "before the journey")
    assert made.thread.startswith("Began with: Which berth should the boat")
    *_, decision = made.decisions
    assert decision.endswith("close to the crane.")
    assert made.open_items == ("paint the hull",)
    assert made.last_tool_call == ToolCall("look_up", "crane in Kotor", "none before May", ("docs/kotor.md",))
    assert len(made.live) == 5
    text = memory.files.read_text(f"checkpoints/s/{made.id}.md")
    assert "# Checkpoint on demand, 2026-02-16 18:45 UTC" in text
    assert ANSWER[:100] not in text.partition("## Compile inputs")[2], "texts are referred to"


async def test_its_inputs_compile_to_what_a_client_got(memory: Memory) -> None:
    await spoken(memory)
    await catch_up(memory)
    sent = await compile_context(memory, CompileRequest(session="s"), USER)
    made = await make(memory, "s", "asked")
    assert made.compiled_sha256 == sent.sha256
    checked = await verify(memory, made)
    assert checked.matches
    assert checked.sha256 == sent.sha256
    memory.files.write_atomic("knowledge/memory/MEMORY.md", "# Memory\n\n- another one altogether\n")
    assert (await verify(memory, made)).matches, "what the knowledge is now does not matter"


async def test_what_is_forgotten_elsewhere_is_named_as_the_input_that_differs(memory: Memory) -> None:
    fact = "the code of the boat house is nine seven three zephyr"
    await observe(memory, NewTurn("user", f"Remember that {fact}, please.", "first"), USER)
    await observe(memory, NewTurn("user", "Which number opens the boat house, I wonder?", "s"), USER)
    await catch_up(memory)
    made = await make(memory, "s", "asked")
    assert (await verify(memory, made)).matches
    assert fact not in memory.files.read_text(f"checkpoints/s/{made.id}.md")
    await forget(memory, ForgetTarget(text=fact))
    checked = await verify(memory, await stored.read(memory, made.id))
    assert (checked.matches, checked.differing) == (False, ("hits",))
    assert checked.sentence == "compiling its inputs gives another context than then; what differs: hits"


async def test_a_turn_that_is_forgotten_is_in_no_part_of_its_checkpoints(memory: Memory) -> None:
    await spoken(memory)
    await observe(memory, NewTurn("user", "Decision: Lend the dinghy to Zoran for the whole summer.", "s"), USER)
    await observe(memory, NewTurn("user", "TODO: ask Zoran about the dinghy and its oars", "s"), USER)
    made = await make(memory, "s", "asked")
    assert "Zoran" in " ".join((*made.decisions, *made.open_items))
    for turn in (5, 6):
        await forget(memory, ForgetTarget(turn=f"s#{turn}"))
    left = await stored.read(memory, made.id)
    assert "Zoran" not in memory.files.read_text(f"checkpoints/s/{made.id}.md")
    assert left.decisions == tuple(one for one in made.decisions if "Zoran" not in one)
    assert (left.live, left.turn) == (made.live, made.turn)


async def test_a_checkpoint_without_a_session_names_the_nearest(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "Hello boat", "harbour"), USER)
    with pytest.raises(NotFound, match="did you mean 'harbour'"):
        await make(memory, "harbor", "asked")
    made = await make(memory, "harbour", "asked")
    with pytest.raises(NotFound, match=f"did you mean '{made.id}'"):
        await stored.read(memory, made.id[:-1])


@pytest.mark.folder_only
async def test_a_secret_in_the_knowledge_or_the_note_is_not_in_it(memory: Memory, workspace: Path) -> None:
    secret = "sk-ant-api03-" + "Ab3dEf6hIj" * 9
    await observe(memory, NewTurn("user", "Hello boat", "s"), USER)
    memory.files.write_atomic("knowledge/key.md", f"key: {secret}\n")
    made = await make(memory, "s", "asked", f"with {secret}")
    assert [path for path, _ in made.left_out] == ["knowledge/key.md"]
    assert secret not in memory.files.read_text(f"checkpoints/s/{made.id}.md")
    assert "knowledge/key.md" not in git(
        workspace, "ls-tree", "-r", "--name-only", f"refs/memory/checkpoints/{made.id}"
    )


async def test_one_is_made_before_the_context_is_compacted_and_holds_what_was_live(
    place: Path | str, clock: Clock
) -> None:
    async with open_memory(place, SMALL, clock=clock) as memory:
        await grow(memory)
        made = [head for head in await stored.listed(memory, "s") if head.reason == "compaction"]
        assert made
        assert len({head.turn for head in made}) == len(made), "one a relief"
        first = await stored.read(memory, made[-1].id)
        assert (first.cold, len(first.live)) == ((), first.turn)
        assert first.gauges
        assert first.gauges.live >= 0.5


async def test_one_is_made_where_the_client_compacts_unless_a_hook_did_it_just_before(memory: Memory) -> None:
    await hold(memory, [NewTurn("user", "Hello boat", "s"), NewTurn("agent", "Hello you", "s")])
    summary = NewTurn("system", "What was said: hello.", "s", name=COMPACTION)
    await observe(memory, summary, USER)
    assert [head.reason for head in await stored.listed(memory, "s")] == ["compaction"]
    await make(memory, "s", "hook")
    await observe(memory, NewTurn("system", "What was said: hello again.", "s", name=COMPACTION), USER)
    assert [head.reason for head in await stored.listed(memory, "s")] == ["hook", "compaction"]


async def test_one_is_made_when_compaction_is_asked_for(place: Path | str, clock: Clock) -> None:
    async with open_memory(place, KEYWORDS_ONLY, clock=clock) as memory:
        await hold(memory, talk(20))
        await prune(memory, "compact", "s", True, USER)
        assert await stored.listed(memory, "s") == []
        await prune(memory, "compact", "s", False, USER)
        assert [head.reason for head in await stored.listed(memory, "s")] == ["compaction"]


@pytest.mark.folder_only
async def test_one_is_made_at_the_end_and_committed_with_the_conversation(memory: Memory, workspace: Path) -> None:
    await spoken(memory)
    ended = await end_session(memory, "s")
    (head,) = await stored.listed(memory, "s")
    assert (head.reason, head.turn) == ("end", 4)
    assert len((await stored.read(memory, head.id)).live) == 5, "the context as it was before it was put away"
    assert sorted(git(workspace, "show", "--name-only", "--format=", str(ended.committed)).split()) == [
        head.path,
        ended.path,
    ]


@pytest.mark.folder_only
async def test_a_disk_that_refuses_a_checkpoint_stops_neither_compaction_nor_end(memory: Memory) -> None:
    await spoken(memory)
    memory.files.write_atomic("checkpoints", "a file where a folder should be")
    summary = NewTurn("system", "What was said: hello.", "s", name=COMPACTION)
    assert (await observe(memory, summary, USER)).recorded
    assert (await end_session(memory, "s")).committed
    assert await stored.listed(memory) == []


@pytest.mark.folder_only
async def test_the_newest_automatic_ones_stay_and_all_that_were_asked_for(workspace: Path, clock: Clock) -> None:
    env = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_CHECKPOINTS__KEEP": "2"}
    async with open_memory(workspace, env, clock=clock) as memory:
        await spoken(memory)
        asked = await make(memory, "s", "asked")
        made = []
        for number in range(4):
            clock.forward(minutes=1)
            memory.files.write_atomic("knowledge/n.md", f"number {number}\n")
            made.append(await make(memory, "s", "hook"))
        kept = [head.id for head in await stored.listed(memory)]
        assert kept == [made[3].id, made[2].id, asked.id]
        refs = git(workspace, "for-each-ref", "--format=%(refname)", "refs/memory/checkpoints/").split()
        assert refs == sorted(f"refs/memory/checkpoints/{number}" for number in kept)


@pytest.mark.folder_only
async def test_trees_without_a_checkpoint_are_swept_away(memory: Memory, workspace: Path) -> None:
    await spoken(memory)
    first, second = await make(memory, "s", "asked"), await make(memory, "s", "asked")
    memory.files.remove(f"checkpoints/s/{first.id}.md")
    assert await sweep(memory) == 1
    assert await sweep(memory) == 0
    refs = git(workspace, "for-each-ref", "--format=%(refname)", "refs/memory/checkpoints/").split()
    assert refs == [f"refs/memory/checkpoints/{second.id}"]
    held = memory.locks.share("checkpoints")
    assert held
    memory.files.remove(f"checkpoints/s/{second.id}.md")
    assert await sweep(memory) == 0, "somebody is just making one"
    held.release()
    assert await sweep(memory) == 1


async def test_cold_records_that_an_asked_checkpoint_names_do_not_expire(place: Path | str, clock: Clock) -> None:
    async with open_memory(place, SMALL, clock=clock) as memory:
        await grow(memory)
        named = await make(memory, "s", "asked")
        assert named.cold
        await grow(memory, "other")
        clock.forward(days=31)
        assert await expire(memory) > 0
        assert {record.chunk_id for record in memory.cold.all() if record.form == "cold"} == set(named.cold)


async def test_two_who_rewrite_one_do_not_lose_each_others_words(memory: Memory) -> None:

    await spoken(memory)
    made = await make(memory, "s", "asked")
    richer = replace(made, decisions=(*made.decisions, "Keep the old mainsail"))
    await stored.rewrite(memory, made, richer)
    assert await stored.read(memory, made.id) == richer
    with pytest.raises(Conflict):
        await stored.rewrite(memory, made, replace(made, note="late"))


async def test_a_broken_file_is_passed_over_in_lists(memory: Memory) -> None:
    await spoken(memory)
    made = await make(memory, "s", "asked")
    memory.files.write_atomic("checkpoints/s/ckp_00.md", "no front matter\n")
    memory.files.write_atomic("checkpoints/s/ckp_01.md", "---\nschema: other\n---\n")
    assert [head.id for head in await stored.listed(memory)] == [made.id]
    latest = await stored.latest(memory, "s")
    assert latest
    assert latest.id == made.id
    assert await stored.latest(memory, "other") is None


AT = datetime(2026, 2, 16, 18, 45, 3, 120_000, tzinfo=UTC)

WHOLE = Checkpoint(
    id="ckp_4f0c11",
    session="ses_a1b2c3d4",
    at=AT,
    turn=80,
    project="git:example.org/bakery",
    reason="compaction",
    note="before the oven",
    thread="Began with: an oven\nLast asked: how hot?",
    decisions=("Use SQLite for the ledger", "Keep A | B"),
    replaced=("Use a text file",),
    rules=("no emoji",),
    open_items=("call Ana",),
    next_step="call Ana",
    facts=("the port is 5433",),
    last_tool_call=ToolCall("edit", "ledger.py", "ok", ("src/ledger.py",)),
    files=("src/ledger.py", "README.md"),
    topics=("baking",),
    anchors=(Anchor("database", "item", "keep", "2026-02-16"), Anchor("c4f0c11aa22b", "chunk")),
    gauges=Gauges(81_000, 200_000, 90_000),
    live=("c1", "c2"),
    cold=("c3",),
    compile_inputs={"budget": 8192, "files": [{"path": "a.md", "blob": "1f"}]},
    compiled_sha256="ab" * 32,
    knowledge_tree="cd" * 20,
    state={"clarity": {"items": {}}},
)

TEXTS = st.lists(ANY_TEXT, max_size=3).map(tuple)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JSON_TEXT, inner, max_size=3),
    max_leaves=8,
)

OBJECTS = st.none() | st.dictionaries(JSON_TEXT, JSON, max_size=3)
COUNTS = st.integers(0, 10**7)

CHECKPOINTS = st.builds(
    Checkpoint,
    **dict.fromkeys(("id", "session", "project", "note"), JSON_TEXT),
    at=MOMENTS,
    turn=COUNTS,
    reason=st.sampled_from(get_args(Reason)),
    **dict.fromkeys(("thread", "next_step"), ANY_TEXT),
    **dict.fromkeys(
        ("decisions", "replaced", "rules", "open_items", "facts", "files", "topics", "live", "cold"), TEXTS
    ),
    last_tool_call=st.none() | st.builds(ToolCall, ANY_TEXT, ANY_TEXT, ANY_TEXT, TEXTS),
    anchors=st.lists(
        st.builds(Anchor, ANY_TEXT, st.sampled_from(get_args(AnchorKind)), ANY_TEXT, ANY_TEXT), max_size=3
    ).map(tuple),
    gauges=st.none() | st.builds(Gauges, COUNTS, st.integers(1, 10**7), st.none() | COUNTS),
    **dict.fromkeys(("compile_inputs", "state"), OBJECTS),
    **dict.fromkeys(("compiled_sha256", "knowledge_tree"), st.none() | JSON_TEXT),
)

HEADINGS = set(re.findall(r"^##.*$", render(WHOLE), re.MULTILINE))


@given(CHECKPOINTS)
def test_a_checkpoint_is_read_back_exactly_and_no_text_looks_like_structure(checkpoint: Checkpoint) -> None:
    text = render(checkpoint)
    assert parse(text) == checkpoint
    assert parse(text.encode().decode().replace("\n", "\r\n")) == checkpoint, "a checkout with other line ends"
    assert {line for line in text.split("\n") if line.startswith("#")} - HEADINGS == {
        next(line for line in text.split("\n") if line.startswith("# Checkpoint "))
    }


def test_a_person_can_read_it() -> None:
    text = render(WHOLE)
    assert (
        "# Checkpoint before compaction, 2026-02-16 18:45 UTC\n\nAfter turn 80, live context at 40% of 200,000" in text
    )
    assert "## Thread\n> Began with: an oven\n> Last asked: how hot?\n" in text
    assert "## Decisions\n- Use SQLite for the ledger\n- Keep A | B\n" in text
    assert "## Rules\n- no emoji\n\n## Open items\n- call Ana\n\n## Next step\n> call Ana\n" in text
    assert "## Last tool call\n- edit | ledger.py | ok\n  - src/ledger.py\n" in text
    assert "## Anchors\n- database | item | 2026-02-16 | keep\n- c4f0c11aa22b | chunk\n" in text
    assert parse(text) == WHOLE


def test_the_page_has_under_eighty_lines_and_nothing_for_programs() -> None:
    many = tuple(f"item {number}" for number in range(60))
    full = replace(
        WHOLE, decisions=many, replaced=many, rules=many, open_items=many, facts=many, files=many, live=many, cold=many
    )
    shown = page(full)
    assert len(shown.splitlines()) < 80
    assert "```json" not in shown
    assert "Live chunks" not in shown
    assert "- item 59\n" in shown
    assert parse(page(WHOLE)).decisions == WHOLE.decisions


def test_a_checkpoint_of_the_previous_format_is_read_with_its_state() -> None:
    old = render(WHOLE).replace(
        "\n## Last tool", "\n## Key exchanges\n### Turn 3\nUser:\n> which oven?\n\n## Last tool"
    )
    assert parse(old) == WHOLE


def test_what_is_empty_has_no_section() -> None:
    bare = Checkpoint("ckp_1", "ses_1", AT, 0)
    assert "##" not in render(bare)
    assert parse(render(bare)) == bare
    kept = replace(bare, compile_inputs={}, state={})
    assert parse(render(kept)) == kept, "nothing and an empty object are not the same"


def test_what_a_person_changes_in_it_is_read_as_far_as_it_goes() -> None:
    text = render(WHOLE).replace("- database | item", "- database | wrong kind").replace("- call Ana", "- call Ana\n-")
    text = text.replace("## Decisions\n", "## Decisions\n\na remark\n").replace(
        "## Anchors\n", "## Anchors\n- 1|2\nx\n"
    )
    text = text.replace("- c4f0c11aa22b | chunk", "- a | b | c | d | e")
    read = parse(text)
    assert read.decisions == WHOLE.decisions
    assert read.open_items == ("call Ana", "")
    assert read.anchors[-1].kind == "item"
    assert parse(render(WHOLE).replace("- edit | ledger.py | ok", "none")).last_tool_call is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema: context-manager/checkpoint", "schema: other", "ckp.md: not a checkpoint"),
        ("version: 1", "version: 2", "newer than 1"),
        ("version: 1", "version: true", "`version` must be a number"),
        ("turn: 80", "turn: -1", "`turn` must be a number"),
        ("turn: 80\n", "", "`turn` must be a number"),
        ("at: 2026-02-16T18:45:03.120Z", "at: soon", "`at` must be a time"),
        ("reason: compaction", "reason: boredom", "`reason` must be one of asked"),
        ("id: ckp_4f0c11", "id: [1]", "`id` must be text"),
        ("session: ses_a1b2c3d4\n", "", "`session` must be text"),
        ('"budget": 8192', '"budget" 8192', "JSON block is broken"),
        ("\n```\n\n## State", "\n## State", "JSON block is broken"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str) -> None:
    text = render(WHOLE)
    assert old in text
    with pytest.raises(Invalid, match=re.escape(message)):
        parse(text.replace(old, new), "ckp.md")
