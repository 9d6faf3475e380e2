"""The context that is pushed into a window at each event of a client's hooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_server.clients.hooks import listener, offline
from mcp_server.clients.hooks.events import handle, work
from mcp_server.context import briefs, windows
from mcp_server.context.push_policy import SENT_BEFORE
from mcp_server.conversations import sessions
from mcp_server.conversations.projects import project_of
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Caller
from mcp_server.storage.local.state import LocalState
from tests.clients.hooks.boathouse import ASKED, FACT, FACTS, LASTS, Open, log, said
from tests.clients.hooks.windows import pushed
from tests.conftest import project_folder

pytestmark = pytest.mark.anyio


async def test_a_fact_of_an_earlier_session_comes_with_the_prompt_that_it_bears_on(told: Memory, window: Open) -> None:
    now = window()
    output = await now.hook("UserPromptSubmit", prompt=ASKED)
    assert FACT in pushed(output)
    assert output["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    passages = sum(one["included"] for one in log(told)[0]["considered"])
    counted = f"{passages} passage{'s' if passages > 1 else ''}"
    assert output["systemMessage"] == f"memory: {counted}, {told.tokens.count(pushed(output))} tokens"
    assert log(told)[0]["text"] == pushed(output)
    assert log(told)[0]["considered"][0]["reason"] == "relevant"


@pytest.mark.parametrize("beside", [0, 5])
async def test_a_fact_of_another_window_is_there_and_comes_once_however_much_was_said_beside_it(
    memory: Memory, window: Open, beside: int
) -> None:
    told = window("told")
    await told.start()
    for number in range(beside):
        await told.prompt(f"Rope number {number} is frayed.", "I see.")
    await told.prompt(FACT)
    await told.hook("SessionEnd", reason="other")
    await memory.index.refresh()
    other = window("other")
    brief = await other.start()
    assert "boathouse" not in await other.prompt("write a haiku about autumn leaves")
    assert (brief + await other.prompt(ASKED)).count(FACT) == 1


async def test_what_has_nothing_to_do_with_it_gets_nothing(told: Memory, window: Open) -> None:
    now = window()
    for prompt in ("ok", "thanks", "/clear", "write a haiku about autumn leaves", "", "!ls", "🎉"):
        assert await now.prompt(prompt) == ""
        assert log(told)[0]["decision"] == "nothing"
        assert log(told)[0]["why"]


async def test_nothing_is_pushed_twice_into_one_window_and_again_into_another(told: Memory, window: Open) -> None:
    now = window()
    assert FACT in await now.prompt(ASKED)
    assert await now.prompt(ASKED) == ""
    assert "window has it" in log(told)[0]["why"]
    assert FACT in await window("beside").prompt(ASKED)


async def test_after_a_compaction_it_may_be_pushed_again_and_the_brief_is(told: Memory, window: Open) -> None:
    now = window()
    assert LASTS in await now.start()
    assert FACT in await now.prompt(ASKED)
    brief = await now.compact()
    assert LASTS in brief
    assert await now.start("compact") == "", "one brief a window"
    assert FACT in await now.prompt(ASKED)
    turns = await sessions.session_turns(told, "now")
    assert [turn.name for turn in turns if turn.role == "system"] == [COMPACTION]
    assert await now.prompt(ASKED) == ""


async def test_a_compaction_is_noticed_without_its_events(told: Memory, window: Open) -> None:
    now = window()
    await now.start()
    assert FACT in await now.prompt(ASKED)
    await now.compact(start=False)  # the event that begins the new window is missing
    assert FACT in await now.prompt(ASKED)
    now.compact_without_events()  # only the transcript has it
    assert FACT in await now.prompt(ASKED)


async def test_own_turns_come_back_once_the_window_has_lost_them(told: Memory, window: Open) -> None:
    now = window()
    await now.prompt("The mooring at the north pier costs 340 euros a year.", "I see, 340 euros for the north pier.")
    await told.index.refresh()
    assert await now.prompt("what does the mooring at the north pier cost?") == ""
    for errand in ("call the painter", "buy two ropes", "wash the deck"):  # the compaction tells the last exchanges
        await now.prompt(errand, "All right.")
    await now.compact()
    await told.index.refresh()
    assert "340 euros" in await now.prompt("what does the mooring at the north pier cost?")


async def test_a_resumed_window_holds_what_it_was_sent(told: Memory, window: Open) -> None:
    now = window()
    assert await now.start()
    assert FACT in await now.prompt(ASKED)
    await now.hook("SessionEnd", reason="other")
    assert await now.start("resume") == ""
    assert await now.prompt(ASKED) == ""
    assert await window("never-seen").start("resume") != ""


async def test_clear_ends_the_session_and_the_next_begins_clean(told: Memory, window: Open) -> None:
    now = window("before")
    await now.start()
    assert FACT in await now.prompt(ASKED)
    await now.prompt("thanks")
    await now.prompt("and the oars?", "Above the boat.")
    await now.hook("SessionEnd", reason="clear")
    assert (await sessions.require(told, "before")).status == "closed"
    after = window("after")
    assert "Above the boat." not in await after.start("clear")
    assert "Above the boat." in await after.prompt("where were we?"), (
        "the last conversation is the one that was cleared"
    )
    assert FACT in await after.prompt(ASKED)


async def test_subagents_get_nothing(told: Memory, window: Open) -> None:
    now = window()
    for event, fields in (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": ASKED}),
        ("Stop", {"last_assistant_message": "x"}),
        ("SessionEnd", {}),
    ):
        assert await now.hook(event, agent_id="a1", agent_type="Explore", **fields) == {}
    assert log(told) == []
    assert await told.state.session("now") is None


async def test_after_its_first_answer_a_folder_finds_its_brief_on_disk(
    memory: Memory, window: Open, tmp_path: Path
) -> None:
    folder = project_folder(tmp_path / "other", "other")
    first = window("first", folder)
    await first.prompt(FACT)
    index = json.loads((memory.disk.local / "brief" / "index.json").read_text("utf-8"))
    assert index[str(folder)]["brief"] == briefs.file_of(await project_of(memory, Caller(folder=str(folder))))
    assert index[str(folder)]["brief"] != briefs.GLOBAL_FILE


async def test_another_project_gets_nothing_of_it(told: Memory, window: Open, tmp_path: Path) -> None:
    now = window("elsewhere", project_folder(tmp_path / "other", "other"))
    assert await now.start() == ""
    assert await now.prompt(ASKED) == ""


async def test_a_brief_that_the_command_has_printed_counts_as_sent(told: Memory, window: Open) -> None:
    first = window("one")
    await first.start()
    await briefs.refresh(told)
    text = told.files.read_text(".local/brief/boats.md")
    now = window("two")
    offline.enqueue(str(told.disk.local), "SessionStart", {"session_id": "two", "source": "startup", "printed": text})
    assert await now.start() == "", "the report counts before the queue is worked off"
    printed = log(told)[1]
    assert printed["text"] == text
    assert "no server was running" in printed["why"]
    assert await listener.drain(told, work) == 1
    assert len([record for record in log(told) if record["session"] == "two"]) == 2, "a report is counted once"


async def test_a_fact_of_a_brief_that_was_not_printed_comes_with_the_first_three_prompts_that_ask_for_it(
    memory: Memory, window: Open
) -> None:
    await window("one").start()
    for fact, _, _ in FACTS:
        await remember(memory, NewFact(fact, "fact"), Caller())
    await memory.index.refresh()
    await briefs.refresh(memory)  # the file is newer than what a hook could have printed at the window's start
    for number, (_, asked, key) in enumerate(FACTS):
        assert key in memory.files.read_text(".local/brief/global.md")
        now = window(f"window-{number}")
        assert key in await now.prompt(asked), log(memory)[0]["considered"][:2]
    later = window("later")
    told_so_far = ""
    for _, asked, key in FACTS[:3]:
        told_so_far += await later.prompt(asked)
        assert key in told_so_far


async def test_text_printed_before_a_compaction_is_pushed_again_after_it(told: Memory, window: Open) -> None:
    now = window()
    report = {"session_id": "now", "printed": FACT}
    entry = Path(offline.enqueue(str(told.disk.local), "UserPromptSubmit", report))
    kept = entry.read_bytes()
    assert FACT not in await now.prompt(ASKED)
    assert SENT_BEFORE in [one["reason"] for one in log(told)[0]["considered"]]
    await now.compact()
    entry.write_bytes(kept)  # a queue that was slow, or a process that ended in it
    assert FACT in await now.prompt(ASKED)


async def test_the_log_says_sent_before_even_for_weak_candidates(told: Memory, window: Open) -> None:
    now = window()
    assert FACT in await now.prompt(ASKED)
    await now.prompt("is the key of the cellar in the fuse box?")
    assert log(told)[0]["considered"][0]["reason"] == SENT_BEFORE


@pytest.mark.parametrize("how", ["everywhere", "project", "variable"])
async def test_a_pause_pushes_nothing_and_records_all_the_same(told: Memory, window: Open, how: str) -> None:
    now = window()
    if how != "variable":
        from mcp_server.conversations.projects import project_of

        place = None if how == "everywhere" else await project_of(told, Caller(folder=str(now.folder)))
        await windows.pause(told, place)
    fields: dict[str, Any] = {"paused": True} if how == "variable" else {}
    assert await now.start(**fields) == ""
    assert await now.hook("UserPromptSubmit", prompt=ASKED, **fields) == {}
    assert "paused" in log(told)[0]["why"]
    now.write("user", ASKED)
    await now.hook("Stop")
    assert await said(told, "now") == [ASKED]


ODD_INPUTS: tuple[dict[str, object], ...] = (
    {},
    {"session_id": 7},
    {"session_id": "a\nb", "prompt": ASKED},
    {"session_id": "x" * 300, "prompt": ASKED},
    {"session_id": "s", "transcript_path": ["x"], "cwd": 3, "prompt": {"a": 1}, "source": None, "at": "soon"},
    {"session_id": "s", "transcript_path": "/etc/passwd", "cwd": "/no/such/place\0", "prompt": "\0"},
    {"session_id": "s", "printed": 5, "paused": "yes", "at": 1e300},
    {"session_id": "s", "at": True, "reason": [], "last_assistant_message": 5},
)


async def test_whatever_a_hook_says_nothing_breaks(memory: Memory) -> None:
    events = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "PreCompact", "PostCompact", "SessionEnd")
    for given in ODD_INPUTS:
        for event in (*events, "Somersault"):
            assert await handle(memory, event, given) == {}, (event, given)


async def test_what_goes_wrong_pushes_nothing(told: Memory, window: Open) -> None:
    assert isinstance(told.state, LocalState)
    await told.state.close()
    assert await window().hook("UserPromptSubmit", prompt=ASKED) == {}


async def test_a_first_prompt_that_only_asks_to_go_on_gets_the_end_of_the_conversation_before(
    told: Memory, window: Open
) -> None:
    first = window("first")
    assert "flat tyre" in await first.prompt("ok, where were we?", "At the trailer.")
    assert await first.prompt("continue") == "", "that is its own conversation"
    await first.prompt("We chose the green paint.", "Green it is.")
    await first.hook("SessionEnd", reason="prompt_input_exit")
    second = window("second")
    output = await second.hook("UserPromptSubmit", prompt="continue")
    assert "Green it is." in pushed(output)
    tokens = told.tokens.count(pushed(output))
    assert tokens <= 400
    assert output["systemMessage"] == f"memory: where you left off, {tokens} tokens"
    assert log(told)[0]["text"] == pushed(output)
    assert await second.hook("UserPromptSubmit", prompt="continue") == {}, "it was told"
    assert "the end of the previous conversation" in log(told)[0]["why"]


async def test_a_long_prompt_is_logged_without_the_beginning_of_a_secret(told: Memory, window: Open) -> None:
    token = f"eyJ{'hbGciOiJIUzI1NiJ9'}.{'eyJhIjoi' * 200}.{'c2lnbmF0' * 5}"
    await window().prompt(f"Why is {token} refused at the boathouse?")
    assert "refused" not in log(told)[0]["prompt"]
    assert "eyJ" not in log(told)[0]["prompt"]
    assert log(told)[0]["prompt"].startswith("Why is")


async def test_with_nothing_before_there_is_nothing_to_go_on_with(memory: Memory, window: Open) -> None:
    assert await window("first").prompt("continue") == ""
    assert log(memory)[0]["decision"] == "nothing"


async def test_tokens_may_be_switched_off_by_setting(window: Open, told: Memory) -> None:
    knobs = told.settings.hooks.model_copy(update={"turn_tokens": 0, "start_tokens": 0})
    object.__setattr__(told, "settings", told.settings.model_copy(update={"hooks": knobs}))
    now = window()
    assert await now.start() == ""
    assert await now.prompt(ASKED) == ""
    assert log(told)[0]["why"] == "hooks.turn_tokens is 0"


async def test_the_advisor_speaks_with_a_prompt_from_70_percent_on_once_for_each_phase(
    memory: Memory, window: Open, folder: Path
) -> None:
    now = window()
    for name in ("ledger", "oven"):
        now.write("user", f"Read the {name}.")
        now.tool("Read", {"file_path": f"{folder}/src/{name}.py"}, "x = 1\n" * 200)
        now.write("assistant", "Done.", tokens=150_000)
    await now.hook("Stop", last_assistant_message="Done.")
    said = await now.hook("UserPromptSubmit", prompt=f"What is in the ledger of {folder.name}?")
    advice = pushed(said)
    assert "Context at 75%" in advice
    assert "src/oven.py" in advice
    assert "src/ledger.py" not in advice, "its name is in the prompt; the project's name is no file's"
    assert memory.tokens.count(advice[advice.index("Context at") :]) <= 150
    assert "Context at 75%" in said["systemMessage"]
    assert "\n" not in said["systemMessage"]
    again = await now.hook("UserPromptSubmit", prompt="And in the oven?")
    assert "Context at" not in pushed(again)


async def test_the_advisor_takes_sizes_and_descriptions_from_what_the_clients_transcript_says_was_read(
    memory: Memory, window: Open, folder: Path
) -> None:
    now = window()
    files = {
        "docs/rye.md": "     1→# Sourdough and its hydration\n     2→" + "rye " * 9_000,
        "src/oven.py": '     1→"""Heats the stone."""\n     2→' + "x = 1\n" * 500,
        "notes/list.txt": "flour\n" * 300,
    }
    for name, text in files.items():
        now.write("user", f"Read {name}.")
        now.tool("Read", {"file_path": f"{folder}/{name}"}, text)
        now.write("assistant", "Done.", tokens=170_000)
    await now.hook("Stop", last_assistant_message="Done.")
    advice = pushed(await now.hook("UserPromptSubmit", prompt="What about the hydration?"))
    assert f"notes/list.txt: 12 points, {memory.tokens.count(files['notes/list.txt']):,} tokens" in advice
    (state,) = (json.loads(path.read_text()) for path in (memory.disk.local / "advisor").glob("*.json"))
    items = {item["path"]: item for item in state["items"]}
    for name, text in files.items():
        assert items[name]["estimated_tokens"] == memory.tokens.count(text)
    assert items["docs/rye.md"]["score"]["relevance"] == 8, "its heading speaks of hydration, its name does not"
    assert items["src/oven.py"]["score"]["relevance"] < 8
