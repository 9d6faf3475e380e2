"""Doctor looks at everything that the workspace needs, and says what to do where something is wrong."""

from __future__ import annotations

import sqlite3
import sys

import pytest

from mcp_server.app import catch_up
from mcp_server.memory import Memory
from mcp_server.status import doctor
from mcp_server.status.doctor import Check, examine

pytestmark = pytest.mark.anyio


async def checks(memory: Memory) -> dict[str, Check]:
    return {check.name: check for check in await examine(memory)}


async def test_a_new_memory_is_in_order(memory: Memory) -> None:
    await catch_up(memory)
    found = await checks(memory)
    assert all(check.ok or not check.matters for check in found.values()), found
    assert "Python 3." in found["versions"].detail
    assert "SQLite 3." in found["versions"].detail
    assert found["space"].detail.endswith("GB free")


async def test_a_passage_that_the_index_lost_is_noticed(memory: Memory) -> None:
    memory.files.write_atomic("knowledge/people/ana.md", "# Ana\n\nAna sails.\n\n# Boat\n\nThe boat is blue.\n")
    await catch_up(memory)
    assert "files compared" in (await checks(memory))["index"].detail
    (index,) = (memory.disk.local / "index").glob("*.db")
    with sqlite3.connect(index) as connection:
        connection.execute("DELETE FROM knowledge_fts WHERE words LIKE '%sails%'")
    connection.close()
    found = (await checks(memory))["index"]
    assert not found.ok
    assert "knowledge/people/ana.md" in found.detail
    assert found.advice == "context-manager reset --index --apply"


async def test_every_broken_thing_has_advice(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.files.write_atomic("knowledge/people/ana.md", "---\ncreated: [broken\n---\n# Ana\n")
    monkeypatch.setattr(doctor, "LITTLE", 1 << 62)
    broken = {name: check for name, check in (await checks(memory)).items() if not check.ok and check.matters}
    assert {"space", "files", "index"} <= set(broken)
    assert all(check.advice for check in broken.values())
    assert "knowledge/people/ana.md" in broken["files"].detail


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
async def test_files_whose_names_cannot_be_used_are_named(memory: Memory) -> None:
    (memory.disk.root / "knowledge/people/Ana: notes.md").write_text("# Ana\n")
    found = (await checks(memory))["files"]
    assert not found.ok
    assert "Ana: notes.md" in found.detail
