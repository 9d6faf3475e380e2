"""Topics come and go with what is said."""

from __future__ import annotations

import pytest

from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, append_turns, record_session
from mcp_server.conversations.observe import ContextChunk, NewTurn, observe
from mcp_server.errors import NotFound
from mcp_server.jobs.duties import keep_house
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.relevance import clarity
from mcp_server.storage.topics import ACTIVE
from mcp_server.topics import patterns, watch
from mcp_server.topics.gate_log import NAMESPACE
from mcp_server.topics.listing import list_topics, problems, switch
from mcp_server.topics.watch import first_tier_of_prompt, judge_prompt
from tests.conftest import Clock
from tests.topics.playbooks import TEA, context, say, write

pytestmark = pytest.mark.anyio
POT = "Warm the pot first."


async def active(memory: Memory, session: str = "s") -> dict[str, str]:
    view = await list_topics(memory, session)
    return {row.name: row.by for row in view.topics if row.state == "active"}


async def test_a_topic_leaves_three_exchanges_after_it_last_fired(memory: Memory) -> None:
    write(memory, "topics/tea.md", TEA)
    for said in ("some tea", "something else", "more tea"):
        await say(memory, said)
    for number in range(3):
        await say(memory, f"something else {number}")
        assert POT in await context(memory)
    await say(memory, "something else at last")
    assert POT not in await context(memory)
    assert (await list_topics(memory, "s")).topics[0].state == "waiting"


async def test_the_end_of_a_very_long_message_is_read(memory: Memory) -> None:
    write(memory, "topics/tea.md", TEA)
    await say(memory, "x " * watch.LONGEST_WATCHED + "some tea")
    assert await active(memory) == {"tea": "pattern “tea”"}


async def test_a_new_or_changed_file_counts_with_the_next_message(memory: Memory) -> None:
    await say(memory, "some tea")
    write(memory, "topics/tea.md", TEA)
    await say(memory, "some tea again")
    assert await active(memory) == {"tea": "pattern “tea”"}
    write(memory, "topics/tea.md", TEA.replace("Warm the pot", "Chill the pot"))
    assert "Chill the pot" in await context(memory)
    write(memory, "topics/tea.md", "---\nactivation: perhaps\n---\n")
    assert "pot" not in await context(memory)
    assert (await problems(memory))[0].startswith("topics/tea.md: line 2: `activation`")


async def test_an_agents_answer_sets_off_output_triggers_only_and_is_corrected_until_it_speaks_again(
    memory: Memory,
) -> None:
    write(
        memory,
        "topics/code.md",
        "---\ntriggers:\n  - {type: pattern, match: 'print [\"x]', scope: output, correction_hint: Use Python 3}\n"
        "activation: gated\n---\n\n# Code\n\nWrite tests.\n",
    )
    await say(memory, 'why does print "a" fail?')
    assert "Use Python 3" not in await context(memory)

    answer = await say(memory, 'Like this:\n\nprint "a"', "agent")

    assert "correction (code): Use Python 3" in answer.notes
    for _ in range(2):  # compiling consumes nothing
        assert "- Use Python 3 (code)" in await context(memory)
        assert "Write tests." in await context(memory)
    await say(memory, "go on")
    assert "- Use Python 3 (code)" in await context(memory)
    await say(memory, "print('a')", "agent")
    assert "Use Python 3" not in await context(memory)
    assert "Write tests." in await context(memory)  # the topic itself stays for its exchanges


async def test_files_of_tools_and_of_loaded_chunks_set_off_globs(memory: Memory) -> None:
    write(
        memory,
        "topics/sql.md",
        "---\ntriggers:\n  - {type: glob, match: '*.sql'}\nactivation: auto\n---\n# S\n\nIndex it.\n",
    )
    await say(memory, "I looked", "agent", files=("/p/src/a.py",))
    assert await active(memory) == {}
    await say(memory, "I changed it", "agent", files=("/p/db/schema.sql",))
    assert await active(memory) == {"sql": "glob “/p/db/schema.sql”"}
    loaded = NewTurn("user", "have a look", "t", chunks=(ContextChunk("file", "db/x.sql"),))
    await observe(memory, loaded, Caller())
    assert await active(memory, "t") == {"sql": "glob “db/x.sql”"}


async def test_what_the_user_switches_stays_as_it_is(memory: Memory) -> None:
    write(memory, "topics/tea.md", TEA.replace("auto", "manual"))
    await say(memory, "some tea")
    assert await active(memory) == {}

    done = await switch(memory, "Tea", "s", on=True)
    assert done.changed
    assert not (await switch(memory, "tea", "s", on=True)).changed
    for number in range(5):
        await say(memory, f"something else {number}")
    assert await active(memory) == {"tea": "you"}
    assert (await list_topics(memory, "s")).topics[0].left is None

    write(memory, "topics/tea.md", TEA)
    await switch(memory, "tea", "s", on=False)
    await say(memory, "tea, tea, tea")
    assert await active(memory) == {}
    assert (await list_topics(memory, "s")).topics[-1].state in ("off", "waiting")
    assert "**active**" not in (await list_topics(memory, "s")).markdown
    assert (await switch(memory, "tea", "s", on=True)).changed
    with pytest.raises(NotFound, match=r"no topic 'tee'; did you mean 'tea'\? \(topics list\)"):
        await switch(memory, "tee", "s", on=True)
    write(memory, "topics/broken.md", "---\nname: [broken\n---\n")
    with pytest.raises(NotFound, match=r"no topic 'broken': topics/broken.md: line 2: the list that opens here"):
        await switch(memory, "broken", "s", on=True)
    with pytest.raises(NotFound, match="no session 'nobody'"):
        await switch(memory, "tea", "nobody", on=True)


async def test_one_conversation_knows_nothing_of_anothers_topics(memory: Memory) -> None:
    write(memory, "topics/tea.md", TEA)
    await say(memory, "some tea")
    await say(memory, "hello", session="other")
    assert await active(memory, "other") == {}
    assert POT not in await context(memory, "other")


async def test_a_message_that_nobody_observed_gets_its_topics_and_leaves_no_trace(memory: Memory) -> None:
    write(memory, "topics/tea.md", TEA)
    await say(memory, "hello")
    assert POT in await context(memory, None, "a cup of tea?")
    assert POT in await context(memory, "s", "a cup of tea?")
    assert await active(memory) == {}
    assert POT not in await context(memory)


async def test_subscriptions_links_and_people_come_with_a_topic(memory: Memory) -> None:
    write(memory, "knowledge/procedures/brewing.md", "---\ntype: procedure\n---\n# Brewing\n\nFour minutes.\n")
    write(
        memory,
        "knowledge/reference/leaves.md",
        "# Leaves\n\n## Green\n\nAt 70 degrees.\n\n## Black\n\nAt 95 degrees.\n",
    )
    write(memory, "knowledge/people/ana-kovac.md", "# Ana\n\nTakes milk.\n")
    write(memory, "knowledge/people/milan.md", "# Milan\n\nTakes none.\n")
    subscribed = "['[[brewing]]', gone.md, .local/state.db, ../x]"
    front = f"triggers:\n  - {{type: mention}}\nactivation: auto\nsubscriptions: {subscribed}"
    write(memory, "topics/tea.md", f"---\n{front}\n---\n# Tea\n\nSee [[leaves#Green]].\n")

    await say(memory, "tea for Ana Kovac")
    compiled = await compile_context(memory, CompileRequest(session="s", budget=4000), Caller())

    section = compiled.text[compiled.text.index("<!-- topic:") :].partition("<!-- knowledge")[0]
    for text in ("Four minutes.", "At 70 degrees.", "Takes milk."):
        assert text in section
    for text in ("At 95 degrees", "Takes none"):
        assert text not in section
    missing = {one.source for one in compiled.receipt.considered if "there is no such file" in one.reason}
    assert missing == {"gone.md", ".local/state.db", "../x"}


async def test_the_words_of_active_topics_join_the_search_but_do_not_open_the_gate(memory: Memory) -> None:
    write(memory, "topics/tea.md", TEA)
    write(memory, "knowledge/reference/kitchen.md", "# Kitchen\n\nThe kettle stands on the left shelf of the larder.\n")
    write(memory, "knowledge/reference/shop.md", "# Shop\n\nThe larder of the shop sells leaves on Mondays.\n")
    await memory.index.refresh()
    await say(memory, "where in the larder is what I need for tea?")
    compiled = await compile_context(memory, CompileRequest(session="s"), Caller())
    assert compiled.inputs.hits[0].hit.passage.path == "knowledge/reference/kitchen.md"
    await say(memory, "ok, thanks")
    quiet = await compile_context(memory, CompileRequest(session="s"), Caller())
    assert quiet.inputs.topics
    assert quiet.inputs.gate is not None
    assert not quiet.inputs.gate.open


async def test_what_an_active_topic_names_is_essential_to_clarity(memory: Memory) -> None:
    write(memory, "topics/tea.md", TEA.replace("Warm the pot", "Warm the TeaPot with brew_tea"))
    await say(memory, "the TeaPot and the ClockTower")
    assert not any(one.essential for one in (await clarity.judged(memory, "s")).verdicts)
    await say(memory, "some tea and the kettle, the kettle")
    essential = {one.item.id for one in (await clarity.judged(memory, "s")).verdicts if one.essential}
    assert "teapot" in essential
    assert "clocktower" not in essential


async def test_a_prompt_that_a_hook_tells_of_is_judged_once(memory: Memory) -> None:
    write(memory, "topics/tea.md", TEA)
    await say(memory, "hello")
    await judge_prompt(memory, "s", "some tea", first_tier_of_prompt(memory, "some tea"))
    await judge_prompt(memory, "s", "some tea", first_tier_of_prompt(memory, "some tea"))
    assert await active(memory) == {"tea": "pattern “tea”"}
    write(memory, "topics/tea.md", TEA.replace("btea", "bcoffee"))
    assert (await say(memory, "some  tea")).notes == ()
    await judge_prompt(memory, "s", "some  tea", first_tier_of_prompt(memory, "some  tea"))  # recorded by now
    for number in range(3):
        await say(memory, f"something else {number}")
    assert "tea" in await active(memory)
    await say(memory, "the end")
    assert await active(memory) == {}


async def test_a_live_capture_is_watched_and_a_sealed_import_is_not(memory: Memory, clock: Clock) -> None:
    write(memory, "topics/tea.md", TEA)
    turns = [ImportedTurn("user", "some tea", clock.now, "1"), ImportedTurn("agent", "Yes.", clock.now, "2")]
    await append_turns(memory, ImportedSession("live", tuple(turns), "import:x"))
    assert await active(memory, "live") == {"tea": "pattern “tea”"}
    later = tuple(ImportedTurn("user", f"else {number}", clock.now, f"e{number}") for number in range(9))
    await append_turns(memory, ImportedSession("live", later, "import:x"))
    assert await active(memory, "live") == {}
    await record_session(memory, ImportedSession("old", tuple(turns), "import:x"))
    assert await active(memory, "old") == {}


async def test_a_catastrophic_pattern_costs_its_limit_and_is_named_until_it_is_mended(memory: Memory) -> None:
    bad = "---\ntriggers:\n  - {type: pattern, match: '^(a|a)*$'}\nactivation: auto\n---\n# Bad\n"
    write(memory, "topics/bad.md", bad)
    write(memory, "topics/tea.md", TEA)
    said = await say(memory, "a" * 60 + "! tea")
    assert said.recorded
    assert await active(memory) == {"tea": "pattern “tea”"}
    (problem,) = await problems(memory)
    assert problem.startswith("topics/bad.md: line 3: the pattern '^(a|a)*$' was cut off after 20 ms")
    assert {row.name: row.problem for row in (await list_topics(memory)).topics}["bad"] == problem
    write(memory, "topics/bad.md", bad.replace("(a|a)*", "a*"))
    assert await problems(memory) == ()


async def test_watching_that_fails_does_not_lose_the_turn(memory: Memory) -> None:
    write(memory, "topics/tea.md", TEA)
    await say(memory, "hello")
    # A state that refuses what was read back: another program has written nonsense into it.
    await memory.state.put("topics", "s", {"topics": "nonsense"})
    assert (await say(memory, "some tea")).recorded
    assert await active(memory) == {"tea": "pattern “tea”"}


async def test_long_after_its_end_a_conversations_topics_are_forgotten(memory: Memory, clock: Clock) -> None:
    from mcp_server.conversations.sessions import end_session

    write(memory, "topics/tea.md", TEA)
    await say(memory, "some tea")
    await end_session(memory, "s")
    for days, kept in ((0, ["s"]), (memory.settings.context.recoverable_for_days + 1, [])):
        clock.forward(days=days)
        await keep_house(memory)
        assert [await memory.state.keys_of(namespace) for namespace in (ACTIVE, NAMESPACE)] == [kept, kept]


GERMAN = (
    "---\ntriggers:\n  - {type: language, languages: [de]}\nactivation: auto\n---\n\n# German\n\nAnswer in German.\n"
)
SLOW = "---\ntriggers:\n  - {type: pattern, match: '^(.|.)*$'}\nactivation: auto\n---\n\n# Slow\n\nWait.\n"


async def test_a_pattern_fires_on_the_message_for_which_the_language_library_is_loaded(memory: Memory) -> None:
    patterns._identifier.cache_clear()  # as in a process that has just started
    write(memory, "topics/german.md", GERMAN)
    write(memory, "topics/tea.md", TEA.replace("activation: auto", "activation: auto\npriority: critical"))
    said = await say(memory, "How about a cup of tea?")
    assert said.notes == ("topics now active: tea (pattern “tea”)",)


async def test_a_pattern_skipped_for_lack_of_time_is_retried_logged_and_named(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        write(memory, f"topics/slow{number}.md", SLOW)
    write(memory, "topics/tea.md", TEA.replace("'\\btea\\b'", r"'\b[s-u][d-f][ab]\b'"))
    slow = "x" * 60 + "\n tea"

    said = await say(memory, slow)

    assert "topics now active: tea (pattern “tea”)" in said.notes  # tried again
    stopped = [note for note in said.notes if "was cut off" in note]
    assert len(stopped) == 5
    assert stopped[0].startswith("topics/slow0.md: line 3: the pattern")

    for number in range(20):
        write(memory, f"topics/slow{number}.md", SLOW)
    said = await say(memory, slow + " again")
    skipped = [note for note in said.notes if "was skipped" in note]
    assert skipped
    assert all("it is tried first next time" in note for note in skipped)
    assert all(note in caplog.text for note in skipped)
