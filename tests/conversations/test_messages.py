"""Which messages a person wrote, and which ones clients and this memory injected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.context.compiler import compile_inputs
from mcp_server.context.inputs import CompileInputs
from mcp_server.conversations.authorship import is_injected, is_real_user
from mcp_server.model import SourceFile
from tests.checkpoints.injected import ALL, INJECTED, NOW


@pytest.mark.parametrize(
    "text",
    [
        "Hello, can you help me with the oven?",
        "The checkpoint is wrong, why?",
        "What does `system-reminder` mean?",
        "memory: how does it work?",
        "Context at a glance, please",
        "My context: I bake bread",
        "I said: this summary covers nothing",
        "API Error: 500, what now?",
        "<div>my html</div>",
    ],
)
def test_a_persons_own_words_pass(text: str) -> None:
    assert is_real_user("user", text)
    assert not is_real_user("agent", text)
    assert not is_real_user("system", text)


@pytest.mark.parametrize("text", ALL, ids=lambda text: str(text)[:30])
def test_what_a_program_injected_does_not(text: str) -> None:
    assert is_injected(text)
    assert not is_real_user("user", text)


@pytest.mark.parametrize("text", ["", " \n", "\ufeff\u200b", "\x00"])
def test_nothing_visible_is_nothing_said(text: str) -> None:
    assert not is_real_user("user", text)


@given(st.integers(128, 4_000), st.text(max_size=200))
def test_a_compiled_context_is_never_taken_for_a_persons_words(budget: int, memory: str) -> None:
    files = (SourceFile("knowledge/memory/MEMORY.md", f"# Memory\n\n- likes tea\n{memory}"),)
    inputs = CompileInputs("hello", budget, NOW, "2026-03-01", files=files)
    assert is_injected(compile_inputs(inputs, lambda text: len(text) // 4).text)


@given(INJECTED)
def test_injected_messages_are_distinguished_from_those_of_a_person(text: str) -> None:
    assert is_injected(text)


@given(st.text())
def test_any_text_may_be_a_message(text: str) -> None:
    assert is_real_user("user", text) in (True, False)
