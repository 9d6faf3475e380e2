from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import ERAS, Mode, call, connected, refused, say

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ERAS)
async def test_a_message_is_on_disk_when_the_answer_comes_and_its_first_line_is_the_handle(
    tmp_path: Path, mode: Mode
) -> None:
    async with connected(tmp_path, mode=mode) as client:
        answer = await call(client, "observe", role="user", content="The launch is on Tuesday.")
        (transcript,) = (tmp_path / "raw").rglob("*.md")
        assert "The launch is on Tuesday." in transcript.read_text()
        assert answer.startswith("session: ses_")


async def test_a_secret_never_reaches_the_disk(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    async with connected(tmp_path) as client:
        answer = await call(client, "observe", role="user", content=f"my token is {secret}")
    assert "redacted" in answer
    assert secret not in next((tmp_path / "raw").rglob("*.md")).read_text()


async def test_kind_is_fixed_by_the_first_call_that_names_it(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await say(client, "Hello", session="s", kind="shared")
        assert "already" in await refused(client, "observe", role="user", content="Hm", session="s", kind="main")


async def test_one_call_can_bring_the_compiled_context_along(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        answer = await call(client, "observe", role="user", content="Hello", session="s", return_context=True)
        assert answer.startswith("session: s\n")
        assert await call(client, "compile_context", session="s") in answer


async def test_everything_a_turn_can_carry_is_accepted(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        answer = await call(
            client,
            "observe",
            role="assistant",
            content="Done.",
            session="s",
            name="Claude",
            at="2026-05-04T10:00:00+02:00",
            project="Atlas",
            kind="main",
            delivery="add",
            model="claude",
            channel="chat",
            important=True,
            tool_calls=[{"name": "Edit", "summary": "fix", "result": "ok", "params": {"a": 1}, "files": ["a.py"]}],
            chunks=[{"type": "file", "id": "a.py", "tokens": 10, "tags": ["x"], "mtime": "2026-05-04T10:00:00Z"}],
            context_tokens=12_000,
        )
    assert answer.startswith("session: s")
    assert "2026/05/04/0800-s-" in str(next((tmp_path / "raw").rglob("*.md")))
