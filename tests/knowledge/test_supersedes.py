"""`remember` with `supersedes`: the old line is replaced, and the answer says which."""

from __future__ import annotations

import pytest

from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.errors import Invalid
from mcp_server.knowledge.extract import extract, refresh
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.text.destinations import ARCHIVE, MEMORY
from tests.conftest import Clock
from tests.knowledge.test_extract import end
from tests.knowledge.test_items import FIRST, PAGE, RULE, VAULT, section
from tests.knowledge.test_live import say
from tests.understanding.talks import HELLO

pytestmark = pytest.mark.anyio
CALLER = Caller()
NEW = "Secrets are in the cloud's own secret store; Vault is gone."


def new(content: str, kind: str, supersedes: str | None = None, session: str | None = None) -> NewFact:
    return NewFact(content, kind, project="atlas", supersedes=supersedes, session=session)


@pytest.mark.parametrize(
    ("wanted", "is_open"), [(VAULT, True), ("Vault with the AppRole login", False)], ids=["open", "ended"]
)
async def test_a_recognized_decision_is_replaced_by_a_remembered_one_and_stays_replaced(
    memory: Memory, clock: Clock, wanted: str, is_open: bool
) -> None:
    await say(memory, clock, "first", *HELLO, *FIRST)
    if is_open:
        await refresh(memory)
    else:
        await end(memory, "first")
    done = await remember(memory, new(NEW, "decision", wanted, "first"), CALLER)
    assert f"replaced: {VAULT} (it is now in 'Replaced decisions' of {PAGE})" in done.notes

    def check() -> None:
        assert NEW in section(memory, "Key Decisions")
        assert VAULT not in section(memory, "Key Decisions")
        assert section(memory, "Replaced decisions") == [f"{VAULT} (replaced 2026-02-16 on request)"]

    check()
    (row,) = [row for row in memory.files.read_text(PAGE).splitlines() if VAULT in row]
    assert row.count("[src: ") == 2, "the turn that stated it, and the one that replaced it"
    assert row.rpartition(" [src: ")[2].startswith("16](/raw/")
    if is_open:
        await say(memory, clock, "first", "Decision: dates are ISO dates", "Noted.", start=2 + len(FIRST))
        await refresh(memory)
        check()
        await end(memory, "first")
    check()
    await extract(memory, anew=True)
    check()
    text = (await compile_context(memory, CompileRequest("where are secrets?", project="atlas"), Caller())).text
    assert NEW in text


async def test_a_line_is_named_by_its_place(memory: Memory) -> None:
    await remember(memory, new("Use Redis for the queue", "decision"), CALLER)
    line = memory.files.read_text(PAGE).splitlines().index("- 2026-02-16: Use Redis for the queue") + 1
    await remember(memory, new("Postgres holds the queue", "decision", f"{PAGE}:{line}"), CALLER)
    assert section(memory, "Key Decisions") == ["Postgres holds the queue"]
    assert section(memory, "Replaced decisions") == ["Use Redis for the queue (replaced 2026-02-16 on request)"]


async def test_the_answer_says_that_a_replaced_line_says_more(memory: Memory) -> None:
    await remember(memory, new("Nives' brother is called Tomaž. Her left hand misses two fingers.", "fact"), CALLER)
    done = await remember(memory, new("Nives' brother is called Matija", "fact", "brother is called Tomaž"), CALLER)
    assert "if another sentence of it is still true, remember that sentence again" in done.notes[-1]
    done = await remember(memory, new("Nives' brother is called Luka", "fact", "brother is called Matija"), CALLER)
    assert "sentence" not in done.notes[-1]


async def test_a_rule_takes_the_place_of_a_recognized_one(memory: Memory, clock: Clock) -> None:
    await say(memory, clock, "first", *HELLO, *FIRST)
    await end(memory, "first")
    german = "Commit messages are in German from now on."
    await remember(memory, new(german, "rule", "write all commit messages in English"), CALLER)
    assert section(memory, "Rules") == [german]
    assert section(memory, "Replaced rules") == [f"{RULE} (replaced 2026-02-16 on request)"]
    text = (await compile_context(memory, CompileRequest("commit this", project="atlas"), Caller())).text
    assert german in text
    assert f"- {RULE}" not in text.partition("Rules:")[2].partition("<!--")[0]


async def test_a_heading_leaves_with_its_last_line_and_comes_back_in_its_place(memory: Memory) -> None:
    def headings() -> list[str]:
        return [row for row in memory.files.read_text(PAGE).splitlines() if row.startswith("## ")]

    await remember(memory, new("Flour is ordered on Mondays.", "decision"), CALLER)
    await remember(memory, new("Call the mason about the crack.", "open"), CALLER)
    await remember(memory, new("The mason came.", "fact", "Call the mason about the crack."), CALLER)
    text = memory.files.read_text(PAGE)
    memory.files.write_atomic(PAGE, f"{text}\n## Mine\n\nThe oven smokes.\n", text)
    assert headings() == ["## Key Decisions", "## Facts", "## Closed items", "## Mine"]
    await remember(memory, new("Call the mason about the roof.", "open"), CALLER)
    assert headings() == ["## Key Decisions", "## Facts", "## Open items", "## Closed items", "## Mine"]


async def test_a_superseded_fact_moves_from_memory_to_the_archive(memory: Memory) -> None:
    await remember(memory, NewFact("Ana lives in Zurich", "fact", project="global"), CALLER)
    moved = NewFact("Ana moved to Lisbon", "fact", project="global", supersedes="Ana lives in Zurich")
    done = await remember(memory, moved, CALLER)
    assert done.notes[-1].startswith("replaced: Ana lives in Zurich")
    assert "Zurich" not in memory.files.read_text(MEMORY)
    assert "Ana lives in Zurich (replaced 2026-02-16 on request)" in memory.files.read_text(ARCHIVE)


async def test_the_state_on_top_of_a_page_is_that_of_its_lines_at_once(memory: Memory, clock: Clock) -> None:
    await say(memory, clock, "first", *HELLO, *FIRST, "Decision: dates are ISO dates", "Noted.")
    await end(memory, "first")
    assert "> - Last decision: Dates are ISO dates" in memory.files.read_text(PAGE)
    assert "decided: Dates are ISO dates" in memory.files.read_text(MEMORY)
    await remember(memory, new("Dates are unix times", "decision", "dates are ISO dates", "first"), CALLER)
    assert "> - Next: " in memory.files.read_text(PAGE)
    assert "ISO dates" not in memory.files.read_text(MEMORY)


async def test_a_line_is_named_by_words_inside_it_whatever_signs_are_around_them(memory: Memory) -> None:
    await remember(memory, new("Entry? (answer: We sell tickets, 15 euros, children free.)", "decision"), CALLER)
    done = await remember(memory, new("Entry is free", "decision", "We sell tickets, 15 euros"), CALLER)
    assert done.notes[-1].startswith("replaced: Entry?")
    assert section(memory, "Key Decisions") == ["Entry is free"]


async def test_if_nothing_matches_the_closest_lines_are_named_and_the_fact_is_kept(memory: Memory) -> None:
    await remember(memory, new("Use Redis for the queue", "decision"), CALLER)
    done = await remember(memory, new("Nightly builds run at 3", "decision", "the queue of the printer"), CALLER)
    assert "nothing was replaced: no line matches 'the queue of the printer'" in done.notes[-1]
    assert "Use Redis for the queue" in done.notes[-1]
    assert section(memory, "Key Decisions") == ["Use Redis for the queue", "Nightly builds run at 3"]
    again = await remember(memory, new("Nightly builds run at 3", "decision", "Use Redis for the queue"), CALLER)
    assert section(memory, "Key Decisions") == ["Nightly builds run at 3"]
    assert again.notes[-1].startswith("replaced: Use Redis for the queue")


async def test_an_open_item_is_closed_by_what_was_done(memory: Memory, clock: Clock) -> None:
    await say(memory, clock, "first", *HELLO, "To do: ask Ana for the key of the boathouse", "Noted.")
    await end(memory, "first")
    (task,) = section(memory, "Open items")
    await remember(memory, new("Order the winter tarpaulin", "open"), CALLER)
    assert set(section(memory, "Open items")) == {task, "Order the winter tarpaulin"}
    assert "key of the boathouse" in memory.files.read_text(MEMORY), "the next step of the project"
    done = await remember(memory, new("Ana's key is on the board.", "fact", "key of the boathouse", "first"), CALLER)
    assert f"done: {task} (it is now in 'Closed items' of {PAGE})" in done.notes
    await remember(memory, new("The tarpaulin is there.", "fact", "Order the winter tarpaulin"), CALLER)

    def check() -> None:
        assert section(memory, "Open items") == []
        closed = ("Order the winter tarpaulin (done 2026-02-16 on request)", f"{task} (done 2026-02-16 on request)")
        assert sorted(section(memory, "Closed items")) == sorted(closed)

    check()
    await extract(memory, anew=True)
    check()


async def test_two_lines_that_match_are_both_named_and_none_is_replaced(memory: Memory) -> None:
    for text in (
        "Orders wait for the nightly run; this is in Redis",
        "Sessions of the web shop live in Redis; it is in Redis",
    ):
        await remember(memory, new(text, "decision"), CALLER)
    done = await remember(memory, new("Postgres for everything", "decision", "is in Redis"), CALLER)
    assert "2 lines match" in done.notes[-1]
    assert len(section(memory, "Key Decisions")) == 3


async def test_what_is_recognized_and_remembered_is_told_once(memory: Memory, clock: Clock) -> None:
    fact = "The Atlas release is due on 3 June 2026."
    await say(memory, clock, "first", *HELLO, *FIRST, fact, "Noted.", "and the export?", "A CSV file.")
    await refresh(memory)
    assert section(memory, "Facts") == [fact]
    for content, kind in ((VAULT, "decision"), (RULE, "rule"), (fact, "fact")):
        await remember(memory, new(content, kind, session="first"), CALLER)

    def check() -> None:
        everything = memory.files.read_text(PAGE) + memory.files.read_text(MEMORY)
        assert [everything.count(text) for text in (VAULT, RULE, fact)] == [1, 1, 1]

    check()
    await end(memory, "first")
    check()


async def test_supersedes_needs_a_text_and_append(memory: Memory) -> None:
    with pytest.raises(Invalid, match="supersedes"):
        await remember(memory, new("x", "decision", " "), CALLER)


async def test_every_line_that_says_the_old_thing_is_replaced_and_a_longer_one_is_named(memory: Memory) -> None:
    old = "The cache is Redis on host alba."
    longer = f"Deploys are on Tuesday afternoons only. {old} Ken is on call in March."
    for fact, kind in ((old, "fact"), (longer, "decision")):
        await remember(memory, NewFact(fact, kind, project="global"), CALLER)
    await remember(memory, new(old, "decision"), CALLER)
    done = await remember(memory, new("The cache is Valkey on host bora.", "decision", old), CALLER)
    assert section(memory, "Key Decisions") == ["The cache is Valkey on host bora."]
    assert f"\n- 2026-02-16: {old}\n" not in memory.files.read_text(MEMORY)
    assert [note.partition(":")[0] for note in done.notes[-3:]] == [
        "replaced",
        "also replaced",
        "a longer line says the same and was kept",
    ]
    assert "Deploys are on Tuesday" in done.notes[-1]
    few = await remember(memory, new("Deploys are on Friday.", "decision", "on call"), CALLER)
    assert "nothing was replaced" in few.notes[-1], "two words of a long line do not name it"
    assert "Deploys are on Tuesday" in few.notes[-1]


async def test_what_is_replaced_is_found_on_the_page_of_another_person_too(memory: Memory) -> None:
    def on_call(who: str, supersedes: str | None = None) -> NewFact:
        return NewFact(f"{who} is on call this quarter", "person", project="global", supersedes=supersedes)

    await remember(memory, NewFact("The bucket is in Frankfurt", "fact", project="global"), CALLER)
    await remember(memory, on_call("Ken Adeyemi"), CALLER)
    done = await remember(memory, on_call("Priya Raman", "Ken Adeyemi is on call this quarter"), CALLER)
    assert done.notes[-1].startswith("replaced: Ken Adeyemi is on call this quarter")
    assert "on call" not in memory.files.read_text("knowledge/people/ken-adeyemi.md")
    assert "is on call" in memory.files.read_text("archive/people/ken-adeyemi.md").partition("## Replaced facts")[2]
    done = await remember(memory, on_call("Ana Kovač", "the boiler of the boathouse"), CALLER)
    assert done.notes[-1] == "nothing was replaced: no line matches 'the boiler of the boathouse'"
