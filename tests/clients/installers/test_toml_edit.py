"""A TOML file gets our table, and loses it again, without a change to any other line."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.clients.installers import toml_edit
from mcp_server.errors import Invalid, Refused

TABLE = ("mcp_servers", "memory")
FIELDS: dict[str, Any] = {"command": "/opt/it's here/context-manager-mcp", "args": ["--workspace", 'C:\\"m"']}

BLOCKS = st.sampled_from(
    [
        'model = "gpt"',
        "# a comment with [brackets] and 'quotes\"",
        "",
        'note = """\n[mcp_servers.memory]\ncommand = "no"\n"""',
        "raw = '''\n[x]\n'''",
        'list = [\n  "a", # one ]\n  [1, 2],\n]',
        "when = 2026-01-01T10:00:00Z",
        "inline = { a = { b = '[c]' }, d = 1 }",
    ]
)
TABLES = st.sampled_from(
    [
        '[mcp_servers.a]\ncommand = "x" # mine\nargs = ["[", "]"]',
        '[mcp_servers.a.env]\nTOKEN = "}"',
        "[profiles.fast]\nmodel = 'x'\n\n# about the next one",
        '[[hooks]]\nname = "h"',
        '[projects."/home/me/a b"]\ntrust_level = "trusted"',
        '[mcp_servers."other one"]\nurl = "https://x"\n',
        "[mcp_servers]",
    ]
)


@st.composite
def files(draw: st.DrawFn) -> str:
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    blocks = draw(st.lists(BLOCKS, max_size=4, unique=True)) + draw(st.lists(TABLES, max_size=4, unique=True))
    text = "\n".join(blocks) + draw(st.sampled_from(["", "\n", "\n\n"]))
    text = text.replace("\n", newline)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        text = f'model = "x"{newline}'
    return text


@given(files())
def test_our_table_is_added_and_the_rest_stays_byte_for_byte(text: str) -> None:
    after = toml_edit.put(text, TABLE, FIELDS, "config.toml")
    said = tomllib.loads(text)
    assert after.startswith(text)
    assert tomllib.loads(after) == {**said, "mcp_servers": {**said.get("mcp_servers", {}), "memory": FIELDS}}
    assert toml_edit.put(after, TABLE, FIELDS, "config.toml") == after


@given(files(), files())
def test_our_table_is_changed_and_removed_wherever_it_stands(before: str, later: str) -> None:
    text = toml_edit.put(before, TABLE, FIELDS, "config.toml")
    newline = "\r\n" if "\r\n" in text else "\n"
    text += newline + "[mcp_servers.memory.env]" + newline + "A = 'b'" + newline
    tail = "\n".join(line for line in later.splitlines() if line.startswith("#")) + f"{newline}[after]{newline}z = 1"
    text += tail
    changed = toml_edit.put(text, TABLE, {"command": "/new", "args": []}, "config.toml")
    assert tomllib.loads(changed)["mcp_servers"]["memory"] == {"command": "/new", "args": [], "env": {"A": "b"}}
    assert changed.startswith(before)
    assert changed.endswith(tail)
    removed = toml_edit.remove(changed, TABLE, "config.toml")
    said = tomllib.loads(removed)
    assert {"mcp_servers": {}} | said == {"mcp_servers": {}} | tomllib.loads(before) | {"after": {"z": 1}}
    assert removed.endswith(tail)
    assert removed.startswith(before.rstrip())


def test_a_broken_file_is_refused_with_the_line() -> None:
    with pytest.raises(Invalid, match=r"config\.toml: line 2: .*fix the file"):
        toml_edit.read('a = 1\nb = "x\n', "config.toml")
    with pytest.raises(Invalid, match=r"config\.toml: line 1: .*fix the file"):
        toml_edit.read("a = ", "config.toml")


def test_a_table_written_inline_is_left_alone() -> None:
    text = 'mcp_servers = { other = { command = "x" } }\n'
    with pytest.raises(Refused, match="change it by hand"):
        toml_edit.put(text, TABLE, FIELDS, "config.toml")
    text = 'mcp_servers = { memory = { command = "x" } }\n'
    with pytest.raises(Refused, match="change it by hand"):
        toml_edit.put(text, TABLE, FIELDS, "config.toml")
    with pytest.raises(Refused, match="change it by hand"):
        toml_edit.remove(text, TABLE, "config.toml")


def test_a_missing_field_is_put_under_its_header_and_comments_stay() -> None:
    text = '[mcp_servers.memory] # ours\ncommand = "old" # why\n# then\n[b]\n'
    after = toml_edit.put(text, TABLE, FIELDS | {"command": "new"}, "config.toml")
    assert after == (
        '[mcp_servers.memory] # ours\nargs = ["--workspace", "C:\\\\\\"m\\""]\ncommand = "new" # why\n# then\n[b]\n'
    )
    assert toml_edit.remove(after, TABLE, "config.toml").strip().endswith("# why\n# then\n[b]")
    assert toml_edit.remove("a = 1\n", TABLE, "config.toml") == "a = 1\n"


def test_a_comment_at_the_end_of_the_file_stays() -> None:
    text = '[mcp_servers.memory]\ncommand = "old"\n\n# the end'
    assert toml_edit.remove(text, TABLE, "config.toml") == "\n# the end"
    assert toml_edit.put(text, TABLE, {"command": "new"}, "config.toml") == text.replace("old", "new")
