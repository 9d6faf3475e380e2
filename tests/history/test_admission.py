"""What may go into a commit."""

from __future__ import annotations

import pytest

from mcp_server.history.commit_rules import Admission, is_sealed, warning

MEMORY = "knowledge/memory/MEMORY.md"
TRANSCRIPT = "raw/conversations/2026/02/16/1845-a-b.md"
SEALED = "---\nsession_id: a\nended: 2026-02-16T19:00:00Z\n---\n# T\n"
OPEN = SEALED.replace("2026-02-16T19:00:00Z", "null")
KEY = "ghp_" + "a1B2" * 9
MARKED = "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> other\n"


def refused(path: str, after: str | None, before: str | None = None, **rules: bool) -> str:
    return Admission(**rules).refusal(path, after, before) or ""


@pytest.mark.parametrize(
    ("lines", "is_refused", "is_warned"),
    [(180, False, False), (181, False, True), (220, False, True), (221, True, True)],
)
def test_core_memory_has_a_cap(lines: int, is_refused: bool, is_warned: bool) -> None:
    text = "- x\n" * lines

    assert bool(refused(MEMORY, text)) is is_refused
    assert bool(warning(MEMORY, text)) is is_warned
    assert not refused("knowledge/people/a.md", text)
    assert bool(refused(MEMORY, text.removesuffix("\n"))) is is_refused  # a last line without an end counts


def test_a_new_secret_stays_out_and_its_line_is_named() -> None:
    assert "line 2 holds a secret (github-token)" in refused("topics/a.md", f"a\n{KEY}\n", "a\n")
    assert not refused("topics/a.md", f"a\n{KEY}\nb\n", f"{KEY}\n")  # its owner has put it there
    assert not refused("topics/a.md", f"a\n{KEY}\n", None, redacted=True)


def test_an_unresolved_conflict_stays_out_but_a_conversation_may_quote_one() -> None:
    assert "line 2 begins an unresolved conflict" in refused(MEMORY, MARKED)
    assert not refused(TRANSCRIPT, OPEN + MARKED)
    assert not refused(MEMORY, "<<<<<<< HEAD\nno middle\n>>>>>>> x\n")
    assert not refused(MEMORY, MARKED.replace("\n", "\n  "))


def test_a_conversation_that_is_over_changes_only_to_be_forgotten() -> None:
    assert "changed" in refused(TRANSCRIPT, SEALED + "x", SEALED)
    assert "deleted" in refused(TRANSCRIPT, None, SEALED)
    assert not refused(TRANSCRIPT, SEALED + "x", SEALED, forgetting=True)
    assert not refused(TRANSCRIPT, SEALED, OPEN)
    assert not refused(TRANSCRIPT, SEALED, None)
    assert not refused(MEMORY, None, "x")


def test_only_a_transcript_with_an_end_is_sealed() -> None:
    assert is_sealed(TRANSCRIPT, SEALED)
    for path, text in ((TRANSCRIPT, OPEN), (TRANSCRIPT, "ended: 1"), (TRANSCRIPT, None), ("knowledge/a.md", SEALED)):
        assert not is_sealed(path, text)
    assert not is_sealed(TRANSCRIPT, OPEN + "\nended: 2026\n")


def test_a_name_that_is_a_secret_is_not_committed() -> None:
    path = f"knowledge/reference/ghp_{'a1B2c3D4' * 4}.md"
    assert "name" in (Admission().refusal(path, "x\n", None) or "")
    assert Admission().refusal(path, "y\n", "x\n") is None, "git has it already"
