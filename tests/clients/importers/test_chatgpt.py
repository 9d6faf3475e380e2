"""ChatGPT's export: a tree of messages, of which the branch that is shown becomes a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_server.clients.importers.chatgpt import session
from mcp_server.clients.importers.imported import Skipped
from mcp_server.clients.importers.run import import_path
from mcp_server.conversations.sessions import list_sessions, session_turns
from mcp_server.memory import Memory

pytestmark = pytest.mark.anyio
ID = "67aa0000-1111-4222-8333-000000000001"


def message(given: str, role: str, *parts: object, kind: str = "text", **fields: Any) -> dict[str, Any]:
    return {
        "id": given,
        "author": {"role": role, "name": fields.pop("name", None), "metadata": {}},
        "create_time": fields.pop("at", 1_740_000_000.5),
        "content": {"content_type": kind, "parts": list(parts)},
        "weight": 1.0,
        "recipient": "all",
        "metadata": {},
        **fields,
    }


def tree(*messages: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """A conversation in which each message follows the one before."""
    mapping: dict[str, Any] = {}
    parent = None
    for place, one in enumerate(messages):
        key = one["id"] if one else f"root-{place}"
        mapping[key] = {"id": key, "message": one, "parent": parent, "children": []}
        if parent is not None:
            mapping[parent]["children"].append(key)
        parent = key
    return {
        "id": ID,
        "conversation_id": ID,
        "title": "Kayaks",
        "create_time": 1_740_000_000.0,
        "mapping": mapping,
        "current_node": parent,
        **fields,
    }


def conversation() -> dict[str, Any]:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    spoken = {"content_type": "audio_transcription", "text": "and how long?"}
    code = {"content_type": "code", "language": "python", "text": "print(2 + 2)"}
    output = {"content_type": "execution_output", "text": "4"}
    made = tree(
        None,
        message("s", "system", "", weight=0),
        message("p", "user", "about me", kind="user_editable_context"),
        message("h", "user", "hidden", metadata={"is_visually_hidden_from_conversation": True}),
        message(
            "u1",
            "user",
            "Which colour?",
            picture,
            kind="multimodal_text",
            metadata={"attachments": [{"name": "boat.png"}]},
        ),
        message("r", "assistant", kind="thoughts"),
        {**message("c", "assistant", recipient="python"), "content": code},
        {**message("o", "tool", name="python"), "content": output},
        message("a1", "assistant", "Red.", at=None, metadata={"model_slug": "gpt-5"}),
        message("u2", "user", spoken, kind="multimodal_text"),
        message("w", "assistant", "not part of it", weight=0),
        message("a2", "assistant", "Four metres."),
        message("u3", "user", "", kind="text"),
        {**message("x", "assistant"), "content": {"content_type": "brand_new", "shape": 3}},
    )
    made["mapping"]["a1-old"] = {
        "id": "a1-old",
        "message": message("a1-old", "assistant", "Blue."),
        "parent": "o",
        "children": [],
    }
    return made


async def test_what_chatgpt_shows_becomes_a_session(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([conversation()]))
    report = await import_path(memory, path)
    assert (report.format, report.new_sessions, report.new_turns) == ("chatgpt", 1, 4)
    (row,) = await list_sessions(memory)
    assert (row.session, row.title, row.project) == (f"chatgpt-{ID}", "Kayaks", "")
    said = await session_turns(memory, row.session)
    assert [(turn.role, turn.content, turn.turn_id) for turn in said] == [
        ("user", "Which colour?\n\n[image]\n\n[attached: boat.png]", "u1"),
        ("agent", "Red.", "a1"),
        ("user", "and how long?", "u2"),
        ("agent", "Four metres.", "a2"),
    ]
    assert [(c.name, c.summary, c.result) for c in said[1].tool_calls] == [("python", "print(2 + 2)", "4")]
    assert memory.transcripts.read(row.path).head.model == "gpt-5"
    assert report.reasons == {
        "system message": 1,
        "custom instructions": 1,
        "hidden message": 1,
        "reasoning": 1,
        "message of weight 0": 1,
        "message without text": 1,
        "content of type brand_new": 1,
        "message on a branch that was left": 1,
    }


@pytest.mark.parametrize("lost", [None, "nowhere"])
def test_without_a_current_node_the_newest_leaf_is_taken(lost: str | None) -> None:
    made = tree(message("u", "user", "hi", at=1), message("a", "assistant", "new", at=3))
    made["mapping"]["old"] = {"message": message("old", "assistant", "old", at=2), "parent": "u", "children": []}
    made["current_node"] = lost
    (found,) = [piece for piece in session(made, 1) if not isinstance(piece, Skipped)]
    assert [turn.content for turn in found.turns] == ["hi", "new"]


def test_a_tree_that_bites_its_tail_comes_to_an_end() -> None:
    made = tree(message("u", "user", "hi"), message("a", "assistant", "yes"))
    made["mapping"]["u"]["parent"] = "a"
    (found,) = session(made, 1)
    assert not isinstance(found, Skipped)
    assert [turn.content for turn in found.turns] == ["hi", "yes"]


@pytest.mark.parametrize(
    "odd",
    [3, {}, {"mapping": []}, {"mapping": {"a": 3}}, {"mapping": {"a": {"message": {"author": 3, "content": "x"}}}}],
)
def test_what_is_no_conversation_is_left_out(odd: object) -> None:
    assert all(isinstance(piece, Skipped) for piece in session(odd, 7))


def test_calls_that_nothing_follows_are_a_turn() -> None:
    code = {"content_type": "code", "text": "print(1)"}
    made = tree(
        message("u", "user", "go"),
        {**message("c1", "assistant", recipient="python"), "content": code},
        {**message("c2", "assistant", recipient="browser"), "content": code},
        {**message("o", "tool", "found", name="elsewhere")},
        {**message("o2", "tool", "one", name="python")},
        {**message("o3", "tool", "late", name="python")},
        create_time=None,
        title=None,
    )
    pieces = list(session(made, 1))
    (found,) = [piece for piece in pieces if not isinstance(piece, Skipped)]
    assert found.title is None
    assert (found.turns[1].turn_id, found.turns[1].content) == ("c1", "")
    assert [(c.name, c.result) for c in found.turns[1].tool_calls] == [("python", "one"), ("browser", "found")]
    assert [piece.why for piece in pieces if isinstance(piece, Skipped)] == ["tool result without its call"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("It rains \ue200cite\ue202turn0search3\ue202turn1news0\ue201.", "It rains."),
        (
            'In \ue200entity\ue202["city","Graz","Austria"]\ue201 it does, '
            "see \ue200url\ue202the list\ue202turn0search1\ue201.",
            "In Graz it does, see the list.",
        ),
        ("\ue203So they say\ue204 \ue200filecite\ue202turn1file0\ue201, and \ue200never closed", None),
        ("\ue200entity\ue202[[[[\ue201 stays \ue200entity\ue202[1, 2]\ue201 whole", " stays whole"),
        ("a" + " \t" * 200_000 + "b", None),
    ],
)
def test_marks_for_footnotes_are_no_words(given: str, kept: str | None) -> None:
    (found,) = session(tree(message("a", "assistant", given)), 1)
    assert not isinstance(found, Skipped)
    assert not {"\ue200", "\ue201", "\ue202", "\ue203", "\ue204"} & set(found.turns[0].content)
    if kept is not None:
        assert found.turns[0].content == kept
    else:
        assert "So they say, and never closed" in found.turns[0].content or len(found.turns[0].content) == len(given)
