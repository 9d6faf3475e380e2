"""A secret that was stored before it was recognized is found, and can be taken out everywhere."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.forgetting.forget import forget, plan_forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.memory import Memory
from mcp_server.status.doctor import examine_secrets
from tests.forgetting.vault import CALLER
from tests.gitting import git
from tests.holding import holding, in_git
from tests.text.secret_samples import BY_CONTEXT, BY_FORM

pytestmark = pytest.mark.anyio

RNG = random.Random(7)
KEY = BY_FORM["notion"](RNG)
COMMAND, PASSWORD = BY_CONTEXT["mysql-p"](RNG)


async def stored_before(memory: Memory, workspace: Path) -> str:
    """Stores a key and a password as an older version did: in a transcript, in knowledge, in a log and in git."""
    await observe(memory, NewTurn("user", "Our key is KEYKEY, and I ran COMMAND.", session="old"), CALLER)
    (path,) = memory.transcripts.find("old")
    file = workspace / path
    file.chmod(0o644)
    file.write_text(file.read_text("utf-8").replace("KEYKEY", KEY).replace("COMMAND", COMMAND), "utf-8")
    memory.files.write_atomic("knowledge/reference/setup.md", f"# Setup\n\n- NOTION={KEY}\n- garden\n")
    memory.files.write_atomic(".local/logs/context/injection.jsonl", f'{{"text": "{KEY}"}}\n')
    git(workspace, "add", "--force", path, "knowledge")
    git(workspace, "commit", "--quiet", "--no-verify", "-m", "before")
    return path


async def test_doctor_names_the_places_of_stored_secrets_and_not_the_secrets(memory: Memory, workspace: Path) -> None:
    assert (await examine_secrets(memory)).ok
    path = await stored_before(memory, workspace)

    check = await examine_secrets(memory)

    assert not check.ok
    for place in (
        f"{path}:",
        "knowledge/reference/setup.md:3 (",
        ".local/logs/context/injection.jsonl:1 (",
        "(password)",
    ):
        assert place in check.detail
    assert KEY not in check.detail
    assert PASSWORD not in check.detail
    assert "forget --secrets" in check.advice


async def test_the_tokens_of_our_own_servers_are_not_reported_as_stored_secrets(memory: Memory) -> None:
    memory.files.write_atomic(".local/http-token", f"{KEY}\n")
    memory.files.write_atomic(".local/webhook-token", f"{KEY}\n")
    assert (await examine_secrets(memory)).ok


async def test_forgetting_secrets_removes_them_from_files_and_git(memory: Memory, workspace: Path) -> None:
    path = await stored_before(memory, workspace)
    planned = await plan_forget(memory, ForgetTarget(secrets=True))
    assert {copy.path for copy in planned.copies} >= {path, "knowledge/reference/setup.md"}
    assert holding(workspace, KEY)

    receipt = await forget(memory, ForgetTarget(secrets=True), history=True)

    assert receipt.left == ()
    for secret in (KEY, PASSWORD):
        assert holding(workspace, secret) == []
        assert in_git(workspace, secret) == []
    assert "garden" in memory.files.read_text("knowledge/reference/setup.md")
    assert "mysql" in "".join(memory.files.read_text(found) for found in memory.transcripts.find("old"))
    assert (await examine_secrets(memory)).ok


async def test_a_secret_only_in_the_history_is_found(memory: Memory, workspace: Path) -> None:
    memory.files.write_atomic("knowledge/reference/setup.md", f"# Setup\n\n{KEY}\n")
    git(workspace, "add", "--force", "knowledge")
    git(workspace, "commit", "--quiet", "--no-verify", "-m", "before")
    memory.files.write_atomic("knowledge/reference/setup.md", "# Setup\n")

    check = await examine_secrets(memory)
    assert "git object" in check.detail

    await forget(memory, ForgetTarget(secrets=True), history=True)
    assert in_git(workspace, KEY) == []
