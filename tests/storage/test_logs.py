"""Logs: one line a record, the newest first, bounded."""

from __future__ import annotations

import pytest

from mcp_server.memory import Memory
from mcp_server.storage import logs

pytestmark = pytest.mark.anyio


async def test_records_come_back_newest_first_and_torn_lines_do_not(memory: Memory) -> None:
    assert list(logs.newest_first(memory.files, "test")) == []
    for number in range(3):
        logs.append(memory.files, "test", {"number": number, "text": "čaj\u2028\ud800"})
    place = memory.disk.root / f"{logs.FOLDER}/test.jsonl"
    with place.open("ab") as file:
        file.write(b'{"number": 9\n[1]\n')
    found = list(logs.newest_first(memory.files, "test"))
    assert [record["number"] for record in found] == [2, 1, 0]
    assert found[0]["text"] == "čaj\u2028\ud800"
    assert place.stat().st_mode & 0o077 == 0


async def test_a_full_log_makes_room_and_keeps_the_one_before(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 1_000)
    for number in range(100):
        logs.append(memory.files, "test", {"number": number, "text": "x" * 80})
    numbers = [record["number"] for record in logs.newest_first(memory.files, "test")]
    assert numbers[0] == 99
    assert numbers == list(range(99, 99 - len(numbers), -1))
    assert 10 <= len(numbers) <= 25
    assert len(list((memory.disk.root / logs.FOLDER).iterdir())) <= 2
