"""No value of another shape, anywhere in an export or a transcript, keeps the rest from being read."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.clients.importers import chatgpt, claude_ai
from mcp_server.clients.importers.imported import Skipped
from mcp_server.clients.importers.reading import Cursor, batches
from mcp_server.conversations.imports import ImportedSession
from tests.clients.importers import claude_code_files, test_chatgpt, test_claude_ai

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 3.5, 10**30, float("nan"), float("inf"), "", " ", "\0", "x\ud800y", "a" * 300),
    *("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00", "2024-13-99T99:99"),
    *([], {}, [None], [[[]]], {"type": "text", "text": 5}),
)
CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(ODD)), min_size=1, max_size=4)

Changes = list[tuple[float, Any]]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every key of every object and every position of every list, with what holds it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def changed(value: Any, changes: Changes) -> Any:
    """A copy of which some values are others."""
    value = copy.deepcopy(value)
    for share, odd in changes:
        found = list(places(value))
        holder, key = found[int(share * len(found))]
        holder[key] = copy.deepcopy(odd)
    return value


@pytest.mark.parametrize(
    ("read", "conversation"),
    [(chatgpt.session, test_chatgpt.conversation()), (claude_ai.session, test_claude_ai.export()[0])],
    ids=["chatgpt", "claude-ai"],
)
@given(changes=CHANGES)
def test_a_conversation_of_an_export(
    read: Callable[[object, int], Iterator[ImportedSession | Skipped]], conversation: Any, changes: Changes
) -> None:
    for piece in read(changed(conversation, changes), 1):
        assert isinstance(piece, Skipped) or all(turn.at.tzinfo and turn.turn_id for turn in piece.turns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("transcripts")


@given(changes=CHANGES)
def test_the_lines_of_a_transcript(folder: Path, changes: Changes) -> None:
    whole = claude_code_files.everything().write(folder / "whole").read_text("utf-8").splitlines()
    lines = changed([json.loads(line) for line in whole], changes)
    path = folder / "odd.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    found = [said for batch in batches(path, Cursor(), Counter(), final=True) for said in batch.said]
    assert all(said.turn.at.tzinfo and said.turn.turn_id for said in found)


@pytest.mark.parametrize(
    ("read", "conversation", "path", "odd"),
    [
        (chatgpt.session, test_chatgpt.conversation(), ("mapping", "a1", "message", "content", "content_type"), {}),
        (claude_ai.session, test_claude_ai.export()[0], ("created_at",), "9999-12-31T23:59:59-23:59"),
    ],
)
def test_what_once_stopped_a_whole_import(
    read: Callable[[object, int], Iterator[ImportedSession | Skipped]],
    conversation: Any,
    path: tuple[str, ...],
    odd: Any,
) -> None:
    conversation = copy.deepcopy(conversation)
    holder = conversation
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = odd
    assert any(isinstance(piece, ImportedSession) for piece in read(conversation, 1))


def test_an_answer_that_stops_for_no_known_reason(tmp_path: Path) -> None:
    whole = claude_code_files.everything().write(tmp_path).read_text("utf-8").splitlines()
    lines = [json.loads(line) for line in whole]
    for line in lines:
        if line.get("type") == "assistant":
            line["message"]["stop_reason"] = {"why": []}
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    found = [said for batch in batches(tmp_path / "odd.jsonl", Cursor(), Counter(), final=True) for said in batch.said]
    assert any(said.turn.role == "agent" for said in found)
