"""A checkpoint's file: readable, and read back exactly, whatever was said."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.checkpoints.document import Checkpoint, Reason, page, parse, render
from mcp_server.errors import Invalid
from mcp_server.knowledge.anchors import Anchor, AnchorKind
from mcp_server.model import ToolCall
from mcp_server.relevance.chunks import Gauges
from mcp_server.text.yaml import load
from tests.text.test_transcript import ANY_TEXT, JSON_TEXT, MOMENTS

AT = datetime(2026, 2, 16, 18, 45, 3, 120_000, tzinfo=UTC)
WHOLE = Checkpoint(
    id="ckp_4f0c11",
    session="ses_a1b2c3d4",
    at=AT,
    turn=80,
    project="git:example.org/bakery",
    reason="compaction",
    note="before the oven",
    thread="Began with: an oven\nLast asked: how hot?",
    decisions=("Use SQLite for the ledger", "Keep A | B"),
    replaced=("Use a text file",),
    rules=("no emoji",),
    open_items=("call Ana",),
    next_step="call Ana",
    facts=("the port is 5433",),
    last_tool_call=ToolCall("edit", "ledger.py", "ok", ("src/ledger.py",)),
    files=("src/ledger.py", "README.md"),
    topics=("baking",),
    anchors=(Anchor("database", "item", "keep", "2026-02-16"), Anchor("c4f0c11aa22b", "chunk")),
    gauges=Gauges(81_000, 200_000, 90_000),
    live=("c1", "c2"),
    cold=("c3",),
    compile_inputs={"budget": 8192, "files": [{"path": "a.md", "blob": "1f"}]},
    compiled_sha256="ab" * 32,
    knowledge_tree="cd" * 20,
    state={"clarity": {"items": {}}},
)

TEXTS = st.lists(ANY_TEXT, max_size=3).map(tuple)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JSON_TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.none() | st.dictionaries(JSON_TEXT, JSON, max_size=3)
COUNTS = st.integers(0, 10**7)
CHECKPOINTS = st.builds(
    Checkpoint,
    id=JSON_TEXT,
    session=JSON_TEXT,
    at=MOMENTS,
    turn=COUNTS,
    project=JSON_TEXT,
    reason=st.sampled_from(get_args(Reason)),
    note=JSON_TEXT,
    thread=ANY_TEXT,
    decisions=TEXTS,
    replaced=TEXTS,
    rules=TEXTS,
    open_items=TEXTS,
    next_step=ANY_TEXT,
    facts=TEXTS,
    last_tool_call=st.none() | st.builds(ToolCall, ANY_TEXT, ANY_TEXT, ANY_TEXT, TEXTS),
    files=TEXTS,
    topics=TEXTS,
    anchors=st.lists(
        st.builds(Anchor, ANY_TEXT, st.sampled_from(get_args(AnchorKind)), ANY_TEXT, ANY_TEXT), max_size=3
    ).map(tuple),
    gauges=st.none() | st.builds(Gauges, COUNTS, st.integers(1, 10**7), st.none() | COUNTS),
    live=TEXTS,
    cold=TEXTS,
    compile_inputs=OBJECTS,
    compiled_sha256=st.none() | JSON_TEXT,
    knowledge_tree=st.none() | JSON_TEXT,
    state=OBJECTS,
)


@given(CHECKPOINTS)
def test_a_checkpoint_is_read_back_exactly(checkpoint: Checkpoint) -> None:
    text = render(checkpoint)
    assert parse(text) == checkpoint
    assert parse(text.encode().decode().replace("\n", "\r\n")) == checkpoint, "a checkout with other line ends"


@given(CHECKPOINTS)
def test_no_text_looks_like_structure(checkpoint: Checkpoint) -> None:
    known = set(re.findall(r"^#.*$", render(WHOLE), re.MULTILINE))
    for line in render(checkpoint).split("\n"):
        assert not line.startswith("#") or line.startswith("# Checkpoint ") or line in known


def test_a_person_can_read_it() -> None:
    text = render(WHOLE)
    assert (
        "# Checkpoint before compaction, 2026-02-16 18:45 UTC\n\nAfter turn 80, live context at 40% of 200,000" in text
    )
    assert "## Thread\n> Began with: an oven\n> Last asked: how hot?\n" in text
    assert "## Decisions\n- Use SQLite for the ledger\n- Keep A | B\n" in text
    assert "## Rules\n- no emoji\n\n## Open items\n- call Ana\n\n## Next step\n> call Ana\n" in text
    assert "## Last tool call\n- edit | ledger.py | ok\n  - src/ledger.py\n" in text
    assert "## Anchors\n- database | item | 2026-02-16 | keep\n- c4f0c11aa22b | chunk\n" in text
    assert parse(text) == WHOLE


def test_the_page_has_under_eighty_lines_and_nothing_for_programs() -> None:
    many = tuple(f"item {number}" for number in range(60))
    full = replace(
        WHOLE, decisions=many, replaced=many, rules=many, open_items=many, facts=many, files=many, live=many, cold=many
    )
    shown = page(full)
    assert len(shown.splitlines()) < 80
    assert "```json" not in shown
    assert "Live chunks" not in shown
    assert "- item 59\n" in shown
    assert parse(page(WHOLE)).decisions == WHOLE.decisions


def test_a_checkpoint_of_the_previous_format_is_read_with_its_state() -> None:
    old = render(WHOLE).replace(
        "\n## Last tool", "\n## Key exchanges\n### Turn 3\nUser:\n> which oven?\n\n## Last tool"
    )
    assert parse(old) == WHOLE


def test_what_is_empty_has_no_section() -> None:
    bare = Checkpoint("ckp_1", "ses_1", AT, 0)
    assert "##" not in render(bare)
    assert parse(render(bare)) == bare
    kept = replace(bare, compile_inputs={}, state={})
    assert parse(render(kept)) == kept, "nothing and an empty object are not the same"


def test_what_a_person_changes_in_it_is_read_as_far_as_it_goes() -> None:
    text = render(WHOLE).replace("- database | item", "- database | wrong kind").replace("- call Ana", "- call Ana\n-")
    text = text.replace("## Decisions\n", "## Decisions\n\na remark\n").replace(
        "## Anchors\n", "## Anchors\n- 1|2\nx\n"
    )
    text = text.replace("- c4f0c11aa22b | chunk", "- a | b | c | d | e")
    read = parse(text)
    assert read.decisions == WHOLE.decisions
    assert read.open_items == ("call Ana", "")
    assert read.anchors[-1].kind == "item"
    assert parse(render(WHOLE).replace("- edit | ledger.py | ok", "none")).last_tool_call is None


def test_a_front_matter_that_we_did_not_write_needs_a_yaml_parser() -> None:
    text = render(WHOLE).replace("turn: 80", "turn:   80  # the last")
    with pytest.raises(Invalid, match="no checkpoint"):
        parse(text)
    assert parse(text, "x.md", load) == WHOLE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema: context-manager/checkpoint", "schema: other", "ckp.md: no checkpoint"),
        ("version: 1", "version: 2", "newer than 1"),
        ("version: 1", "version: true", "`version` must be a number"),
        ("turn: 80", "turn: -1", "`turn` must be a number"),
        ("turn: 80\n", "", "`turn` must be a number"),
        ("at: 2026-02-16T18:45:03.120Z", "at: soon", "`at` must be a time"),
        ("reason: compaction", "reason: boredom", "`reason` must be one of asked"),
        ("id: ckp_4f0c11", "id: [1]", "`id` must be text"),
        ("session: ses_a1b2c3d4\n", "", "`session` must be text"),
        ('"budget": 8192', '"budget" 8192', "JSON block is broken"),
        ("\n```\n\n## State", "\n## State", "JSON block is broken"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str) -> None:
    text = render(WHOLE)
    assert old in text
    with pytest.raises(Invalid, match=re.escape(message)):
        parse(text.replace(old, new), "ckp.md")


def test_any_other_text_is_no_checkpoint() -> None:
    for text in ("", "# hello", "---\n---\n", "---\na: b\n---\n"):
        with pytest.raises(Invalid, match="no checkpoint"):
            parse(text)
