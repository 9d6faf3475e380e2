"""Cold storage: one record a chunk, found by chunk and by session."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import NotFound
from mcp_server.relevance.chunks import ColdRecord, read_record
from mcp_server.storage.live_sets import ColdStorage
from mcp_server.storage.local.files import WorkspaceFiles

RECORDED = datetime(2026, 2, 2, 22, 55, tzinfo=UTC)
RECORD = ColdRecord(
    chunk_id="c1",
    session_id="xyz 789/ž",
    timestamp=RECORDED,
    content="The oven\u2028fails.\n",
    tokens=1500,
    drop_reason="low_relevance",
    relevance_score=0.15,
    prompt_at_drop="journal search",
    recoverable_until=RECORDED + timedelta(days=30),
)


@pytest.fixture
def cold(files: WorkspaceFiles) -> ColdStorage:
    """Cold storage with one record."""
    cold = ColdStorage(files)
    cold.put_all([RECORD])
    return cold


def test_a_record_is_found_by_its_chunk_and_by_its_session(cold: ColdStorage) -> None:
    cold.put_all([replace(RECORD, chunk_id="c0", turn=7)])
    cold.put_all([replace(RECORD, chunk_id="c9", session_id="else")])
    assert cold.find("c1") == RECORD
    assert [record.chunk_id for record in cold.of("xyz 789/ž")] == ["c1", "c0"]
    assert len(list(cold.all())) == 3


def test_the_same_chunk_again_replaces_its_record(cold: ColdStorage) -> None:
    cold.put_all([replace(RECORD, drop_reason="asked")])
    assert [record.drop_reason for record in cold.of(RECORD.session_id)] == ["asked"]
    cold.remove_all([RECORD])
    cold.remove_all([RECORD])
    with pytest.raises(NotFound, match="cold-storage list"):
        cold.find("c1")


def test_files_that_hold_no_record_are_skipped(files: WorkspaceFiles, cold: ColdStorage) -> None:
    files.write_atomic(".local/cold-storage/x/broken.jsonl", "{not json\n")
    files.write_atomic(".local/cold-storage/x/list.jsonl", "[1]\n")
    assert list(cold.all()) == [RECORD]


@given(st.text(max_size=200), st.text(max_size=40))
def test_any_text_comes_back_byte_for_byte(content: str, prompt: str) -> None:
    said = replace(
        RECORD,
        content=content.encode("utf-8", "ignore").decode(),
        prompt_at_drop=prompt.encode("utf-8", "ignore").decode(),
    )
    line = said.as_line()
    assert line.count("\n") == 1
    assert read_record(line) == said


def test_many_records_are_written_and_deleted_together(files: WorkspaceFiles) -> None:
    cold = ColdStorage(files)
    many = [replace(RECORD, chunk_id=f"c{n}", session_id=f"s{n % 2}", turn=n) for n in range(6)]
    cold.put_all(many)
    assert cold.find("c3", "s1") == many[3]
    assert [record.turn for record in cold.of("s0")] == [0, 2, 4]
    cold.remove_all([*many[:5], *many[:2]])
    assert list(cold.all()) == [many[5]]
    with pytest.raises(NotFound):
        cold.find("c0", "s0")
