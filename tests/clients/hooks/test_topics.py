"""Topics in a client's window: pushed with the prompt that brings them in, once; corrections each time."""

from __future__ import annotations

import pytest

from mcp_server.context.windows import PUSHED
from mcp_server.memory import Memory
from mcp_server.storage import logs
from tests.clients.hooks.boathouse import Open
from tests.clients.hooks.windows import pushed
from tests.topics.playbooks import TEA, write

pytestmark = pytest.mark.anyio

POT = "Warm the pot first."
CODE = (
    "---\ntriggers:\n  - {type: pattern, match: 'print \"', scope: output, correction_hint: Use Python 3}\n---\n"
    "# Code\n\nWrite tests.\n"
)


async def test_a_topic_comes_with_its_prompt_once_a_window_and_is_named_in_the_visible_line(
    memory: Memory, window: Open
) -> None:
    write(memory, "topics/tea.md", TEA)
    now = window()
    assert await now.prompt("how are the gardens doing?") == ""

    output = await now.hook("UserPromptSubmit", prompt="a cup of tea?")
    text = pushed(output)
    assert POT in text
    assert "labelled topic" in text
    assert output["systemMessage"] == f"memory: topic tea, {memory.tokens.count(text)} tokens"
    row = next(logs.newest_first(memory.files, PUSHED))["considered"][0]
    assert (row["slot"], row["included"], row["reason"]) == ("topics", True, "active: pattern “tea”")

    now.write("user", "a cup of tea?")
    now.write("assistant", "Gladly.")
    await now.hook("Stop", last_assistant_message="Gladly.")
    assert await now.prompt("more tea, please") == ""
    assert POT in await window("beside").prompt("tea")
    write(memory, "topics/tea.md", TEA.replace("Warm", "Chill"))
    assert "Chill the pot" in await now.prompt("and tea once more")


async def test_a_correction_comes_even_with_a_prompt_about_nothing(memory: Memory, window: Open) -> None:
    write(memory, "topics/code.md", CODE)
    now = window()
    await now.prompt("say hello in a script", 'Like this: print "hello"')
    text = await now.prompt("go on", "print('hello')")
    assert "- Use Python 3 (code)" in text
    assert "Write tests." in text
    assert await now.prompt("go on") == ""


async def test_a_topic_that_is_longer_than_an_injection_is_cut_and_not_sent_again(memory: Memory, window: Open) -> None:
    write(
        memory,
        "topics/tea.md",
        TEA + "".join(f"\nStep {number} of the long way to a good cup.\n" for number in range(99)),
    )
    now = window()
    text = await now.prompt("tea?")
    assert POT in text
    assert "are left out; read topics/tea.md]" in text
    assert memory.tokens.count(text) <= memory.settings.hooks.turn_tokens
    assert await now.prompt("tea again?") == ""


async def test_commands_and_paused_windows_get_no_topic(memory: Memory, window: Open) -> None:
    write(memory, "topics/tea.md", TEA)
    now = window()
    assert await now.prompt("/tea") == ""
    assert pushed(await now.hook("UserPromptSubmit", prompt="tea?", paused=True)) == ""
    assert POT in await now.prompt("tea?")
