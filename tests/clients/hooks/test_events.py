"""What happens at each event of a client's hooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_server.actions import briefs, inject, pauses, sessions
from mcp_server.actions.observe import NewTurn, observe
from mcp_server.clients.hooks.events import handle
from mcp_server.core.model import COMPACTION, Caller
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.store import logs
from tests.clients.hooks.windows import ClaudeWindow, pushed
from tests.conftest import Clock

pytestmark = pytest.mark.anyio

FACT = "The spare boathouse key hangs behind the cellar door, next to the fuse box."
ASKED = "where is the spare boathouse key?"
LASTS = "The boats are painted in June."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "a work" / "boat house"
    place.mkdir(parents=True)
    (place / ".context-manager").write_text("boats\n", "utf-8")
    return place


Open = Callable[..., ClaudeWindow]


@pytest.fixture
def window(memory: Memory, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens windows of Claude Code on the memory."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))

    def opened(session: str = "now", place: Path | None = None) -> ClaudeWindow:
        return ClaudeWindow(memory, tmp_path / "claude" / "projects", place or folder, session)

    return opened


@pytest.fixture
async def told(memory: Memory, folder: Path) -> Memory:
    """Somebody told it where the key is, in an earlier conversation of the project."""
    caller = Caller(folder=str(folder))
    for number, (role, text) in enumerate(
        [
            ("user", FACT),
            ("agent", "I will remember that."),
            ("user", "We paint the hull in June."),
            ("agent", "Noted."),
            ("user", "Ana brings the brushes."),
            ("agent", "Good."),
            ("user", "The trailer has a flat tyre."),
            ("agent", "I put it on the list."),
        ]
    ):
        await observe(memory, NewTurn(role, text, "earlier", turn_id=str(number)), caller)
    await sessions.end_session(memory, "earlier")
    memory.files.write_atomic("knowledge/projects/boats/context.md", f"{LASTS}\n")
    await memory.index.refresh()
    return memory


def log(memory: Memory) -> list[dict[str, Any]]:
    return list(logs.newest_first(memory.files, inject.LOG))


async def said(memory: Memory, session: str) -> list[str]:
    return [turn.content for turn in await sessions.session_turns(memory, session)]


async def test_a_fact_of_an_earlier_session_comes_with_the_prompt_that_it_bears_on(told: Memory, window: Open) -> None:
    now = window()
    output = await now.hook("UserPromptSubmit", prompt=ASKED)
    assert FACT in pushed(output)
    assert output["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    assert output["systemMessage"] == f"memory: 1 passage, {told.tokens.count(pushed(output))} tokens"
    assert log(told)[0]["text"] == pushed(output)
    assert log(told)[0]["considered"][0]["reason"] == "relevant"


@pytest.mark.parametrize("beside", [0, 5])
async def test_a_fact_is_only_there_where_a_prompt_bears_on_it_however_much_was_said_beside_it(
    memory: Memory, window: Open, beside: int
) -> None:
    told = window("told")
    await told.start()
    for number in range(beside):
        await told.prompt(f"Rope number {number} is frayed.", "I see.")
    await told.prompt(FACT)
    await told.hook("SessionEnd", reason="other")
    await memory.index.refresh()
    assert "boathouse" not in memory.files.read_text(".local/brief/boats.md")
    other = window("other")
    assert "boathouse" not in await other.start() + await other.prompt("write a haiku about autumn leaves")
    assert FACT in await other.prompt(ASKED)


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


async def test_a_compaction_is_noticed_without_the_event_that_begins_the_new_window(told: Memory, window: Open) -> None:
    now = window()
    await now.start()
    assert FACT in await now.prompt(ASKED)
    await now.compact(start=False)
    assert FACT in await now.prompt(ASKED)


async def test_a_compaction_is_noticed_from_the_transcript_alone(told: Memory, window: Open) -> None:
    now = window()
    await now.start()
    assert FACT in await now.prompt(ASKED)
    now.line(type="system", subtype="compact_boundary", content="", compactMetadata={"trigger": "auto", "preTokens": 9})
    assert FACT in await now.prompt(ASKED)


async def test_own_turns_come_back_once_the_window_has_lost_them(told: Memory, window: Open) -> None:
    now = window()
    await now.prompt("The mooring at the north pier costs 340 euros a year.", "I see, 340 euros for the north pier.")
    await told.index.refresh()
    assert await now.prompt("what does the mooring at the north pier cost?") == ""
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


async def test_what_was_said_is_captured_and_the_hooks_own_text_is_not(told: Memory, window: Open) -> None:
    now = window()
    assert await now.prompt(ASKED, "Behind the cellar door.")
    await now.prompt("and the fuse box?", "Beside it.")
    await now.hook("SessionEnd", reason="other")
    assert await said(told, "now") == [ASKED, "Behind the cellar door.", "and the fuse box?", "Beside it."]
    row = await sessions.require(told, "now")
    assert (row.status, row.project, row.delivery or "add") == ("closed", "name:boats", "add")


async def test_lost_hooks_lose_nothing(told: Memory, window: Open) -> None:
    now = window()
    for number in range(10):
        now.write("user", f"Question number {number} about the boats.")
        now.write("assistant", f"Answer number {number}.")
    await now.hook("Stop", last_assistant_message="Answer number 9.")
    assert len(await said(told, "now")) == 20
    await now.hook("Stop", last_assistant_message="Answer number 9.")
    assert len(await said(told, "now")) == 20


async def test_without_a_transcript_the_fields_of_the_hooks_are_recorded(told: Memory, folder: Path) -> None:
    given = {"session_id": "bare", "transcript_path": "/nowhere/bare.jsonl", "cwd": str(folder)}
    await handle(told, "UserPromptSubmit", {**given, "prompt": "What is a bowline?"})
    await handle(told, "UserPromptSubmit", {**given, "prompt": "/compact"})
    await handle(told, "Stop", {**given, "last_assistant_message": "A knot."})
    await handle(told, "Stop", {"session_id": "bare", "last_assistant_message": "A loop."})
    assert await said(told, "bare") == ["What is a bowline?", "A knot.", "A loop."]


async def test_a_prompt_that_the_transcript_has_later_is_recorded_once(told: Memory, window: Open) -> None:
    now = window()
    await now.hook("UserPromptSubmit", prompt="What is a bowline?")  # Claude Code has not written its file yet
    assert await told.state.session("now") is None
    now.write("user", "What is a bowline?")
    now.write("assistant", "A knot.")
    await now.hook("Stop", last_assistant_message="A knot.")
    assert await said(told, "now") == ["What is a bowline?", "A knot."]


async def test_between_tools_it_is_captured_now_and_then(told: Memory, window: Open, clock: Clock) -> None:
    now = window()
    await now.prompt("Look at the hull.", "I am looking.")
    now.write("user", "Also at the mast.")
    assert await now.hook("PostToolUse", tool_name="Read") == {}
    assert len(await said(told, "now")) == 2
    clock.forward(minutes=1)
    assert await now.hook("PostToolUse", tool_name="Read") == {}
    assert len(await said(told, "now")) == 3


async def test_before_a_compaction_everything_is_on_disk(told: Memory, window: Open) -> None:
    now = window()
    now.write("user", "The hull is green.")
    assert await now.hook("PreCompact", trigger="auto") == {}
    assert await said(told, "now") == ["The hull is green."]


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


async def test_a_worktree_of_a_project_is_the_project(told: Memory, window: Open, tmp_path: Path) -> None:
    worktree = tmp_path / "boats-feature"
    worktree.mkdir()
    (worktree / ".context-manager").write_text("boats\n", "utf-8")
    now = window("feature", worktree)
    assert LASTS in await now.start()
    assert FACT in await now.prompt(ASKED)


async def test_another_project_gets_nothing_of_it(told: Memory, window: Open, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / ".context-manager").write_text("other\n", "utf-8")
    now = window("elsewhere", other)
    assert await now.start() == ""
    assert await now.prompt(ASKED) == ""


async def test_a_brief_that_the_command_has_printed_counts_as_sent(told: Memory, window: Open) -> None:
    first = window("one")
    await first.start()
    await briefs.refresh(told)
    text = told.files.read_text(".local/brief/boats.md")
    now = window("two")
    assert await now.hook("SessionStart", source="startup", printed=text) == {}
    assert log(told)[0]["text"] == text
    assert await now.start() == ""


async def test_a_window_that_began_without_a_server_is_taken_to_hold_the_brief(
    told: Memory, window: Open, folder: Path
) -> None:
    told.files.write_atomic("knowledge/memory/MEMORY.md", f"# Memory\n\n- {FACT}\n")
    await told.index.refresh()
    project = (await sessions.require(told, "earlier")).project
    assert project == "name:boats"
    await window("one").start()
    await briefs.refresh(told)
    output = await window("two").prompt(ASKED)
    assert "MEMORY.md" not in output
    assert "knowledge/memory" not in str(log(told)[0]["text"])


@pytest.mark.parametrize("how", ["everywhere", "project", "variable"])
async def test_a_pause_pushes_nothing_and_records_all_the_same(told: Memory, window: Open, how: str) -> None:
    now = window()
    if how != "variable":
        from mcp_server.actions.projects import project_of

        place = None if how == "everywhere" else await project_of(told, Caller(folder=str(now.folder)))
        await pauses.pause(told, place)
    fields: dict[str, Any] = {"paused": True} if how == "variable" else {}
    assert await now.start(**fields) == ""
    assert await now.hook("UserPromptSubmit", prompt=ASKED, **fields) == {}
    assert "paused" in log(told)[0]["why"]
    now.write("user", ASKED)
    await now.hook("Stop")
    assert await said(told, "now") == [ASKED]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"session_id": 7},
        {"session_id": "a\nb", "prompt": ASKED},
        {"session_id": "x" * 300, "prompt": ASKED},
        {"session_id": "s", "transcript_path": ["x"], "cwd": 3, "prompt": {"a": 1}, "source": None, "at": "soon"},
        {"session_id": "s", "transcript_path": "/etc/passwd", "cwd": "/no/such/place\0", "prompt": "\0"},
        {"session_id": "s", "printed": 5, "paused": "yes", "at": 1e300},
        {"session_id": "s", "at": True, "reason": [], "last_assistant_message": 5},
    ],
)
async def test_whatever_a_hook_says_nothing_breaks(memory: Memory, given: dict[str, object]) -> None:
    for event in ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "PreCompact", "PostCompact", "SessionEnd"):
        assert await handle(memory, event, given) == {}
    assert await handle(memory, "Somersault", given) == {}


async def test_what_goes_wrong_pushes_nothing(told: Memory, window: Open) -> None:
    await told.state.close()
    assert await window().hook("UserPromptSubmit", prompt=ASKED) == {}


async def test_a_late_end_does_not_close_a_session_that_was_resumed(told: Memory, window: Open, clock: Clock) -> None:
    now = window()
    ended_at = clock().timestamp()
    clock.forward(minutes=5)
    now.at = clock()
    await now.prompt("The hull is green.")
    clock.forward(minutes=5)
    await now.hook("SessionEnd", reason="other", at=ended_at)
    assert (await sessions.require(told, "now")).status == "open"
    await now.hook("SessionEnd", reason="other", at=clock().timestamp())
    assert (await sessions.require(told, "now")).status == "closed"


async def test_ending_what_was_never_begun_is_nothing(memory: Memory) -> None:
    assert await handle(memory, "SessionEnd", {"session_id": "ghost", "reason": "other"}) == {}
    with pytest.raises(NotFound):
        await sessions.require(memory, "ghost")


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
    assert "told where you left off" in log(told)[0]["why"]


async def test_with_nothing_before_there_is_nothing_to_go_on_with(memory: Memory, window: Open) -> None:
    assert await window("first").prompt("continue") == ""
    assert log(memory)[0]["decision"] == "nothing"


async def test_windows_are_forgotten_after_two_months(told: Memory, window: Open, clock: Clock) -> None:
    await window("old").start()
    clock.forward(days=59)
    await window("new").start()
    clock.forward(days=2)
    assert await inject.forget_old_windows(told) == 1
    assert not (await inject.window_of(told, "old")).brief
    assert (await inject.window_of(told, "new")).brief


async def test_tokens_may_be_switched_off_by_setting(window: Open, told: Memory) -> None:
    knobs = told.settings.hooks.model_copy(update={"turn_tokens": 0, "start_tokens": 0})
    object.__setattr__(told, "settings", told.settings.model_copy(update={"hooks": knobs}))
    now = window()
    assert await now.start() == ""
    assert await now.prompt(ASKED) == ""
    assert log(told)[0]["why"] == "hooks.turn_tokens is 0"


async def test_what_cannot_be_recorded_now_stays_in_the_queue(told: Memory, window: Open) -> None:
    now = window()
    now.write("user", "The hull is green.")
    now.transcript.unlink()
    now.transcript.mkdir()
    given = {"session_id": "now", "transcript_path": str(now.transcript), "at": 1.0}
    assert await handle(told, "SessionEnd", given) == {}


async def test_a_prompt_that_waits_for_its_transcript_is_kept_without_secrets(memory: Memory) -> None:
    given = {"session_id": "s1", "prompt": f"Deploy it with ghp_{'a1B2c3D4' * 4} please"}
    await handle(memory, "UserPromptSubmit", given)
    kept = await memory.state.get("prompts", "s1")
    assert kept == ["Deploy it with [redacted:github-token] please"]
