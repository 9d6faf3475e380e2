"""Files with comments are read as editors read them, and changed without losing a byte that is not ours."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.clients.installers import jsonc
from mcp_server.clients.installers.jsonc import parse
from mcp_server.errors import Invalid

ENTRY = {"command": "/opt/it's here/context-manager-mcp", "args": ["--workspace", "C:\\memory"]}
KEYS = st.sampled_from(["a", "b", "mcpServers", "hooks", "č\u2028", 'with "quotes"', "//", "x,y", ""])
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["// no", "/* no */", ",}"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A file as people leave it, and what it says."""
    value: dict[str, Any] = draw(st.dictionaries(KEYS, VALUES, max_size=4))
    for path in (("mcpServers",), ("hooks",)):
        if draw(st.booleans()):
            value[path[0]] = draw(st.dictionaries(KEYS, VALUES, max_size=3))
        else:
            value.pop(path[0], None)
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    odd = draw(st.booleans())
    gaps = ["", "", " ", newline, newline + "  ", "\t"]
    if odd:
        gaps += [
            f" // c{newline}",
            f"// , }} {newline}    ",
            "/* x */",
            f" /* {newline} ] */ ",
            f"{newline}/**/ {newline}",
        ]
    choice = st.sampled_from(gaps)

    def written(value: Any) -> str:
        if isinstance(value, dict | list) and not value:
            return ("{" + draw(choice) + "}") if isinstance(value, dict) else ("[" + draw(choice) + "]")
        if isinstance(value, dict):
            parts = [
                draw(choice) + json.dumps(key) + draw(choice) + ":" + draw(choice) + written(item) + draw(choice)
                for key, item in value.items()
            ]
            return "{" + ",".join(parts) + tail() + "}"
        if isinstance(value, list):
            return "[" + ",".join(draw(choice) + written(item) + draw(choice) for item in value) + tail() + "]"
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    def tail() -> str:
        return "," + draw(choice) if odd and draw(st.booleans()) else ""

    return draw(choice) + written(value) + draw(choice), value


@given(files(), st.sampled_from([("mcpServers", "ours"), ("ours",), ("hooks", "ours", "deep")]))
def test_adding_says_what_was_said_and_ours_and_keeps_every_byte(
    file: tuple[str, dict[str, Any]], path: tuple[str, ...]
) -> None:
    text, value = file
    after = jsonc.put(text, path, ENTRY, "file")
    expected: Any = json.loads(json.dumps(value))
    inner = expected
    for step in path[:-1]:
        inner = inner.setdefault(step, {})
    inner[path[-1]] = ENTRY
    read = parse(after, "file").root
    assert read is not None
    assert read.value == expected
    assert list(read.value) == list(expected)
    assert is_inside(text, after)
    assert jsonc.put(after, path, ENTRY, "file") == after


@given(files(), st.sampled_from([("mcpServers", "ours"), ("ours",)]))
def test_removing_what_was_added_says_again_what_was_said_and_keeps_the_comments(
    file: tuple[str, dict[str, Any]], path: tuple[str, ...]
) -> None:
    text, value = file
    after = jsonc.remove(jsonc.put(text, path, ENTRY, "file"), path, "file")
    read = parse(after, "file").root
    assert read is not None
    assert read.value == ({**value, "mcpServers": value.get("mcpServers", {})} if len(path) == 2 else value)
    assert not_space(text) == not_space(after) or "mcpServers" not in value


@given(files())
def test_any_member_can_be_removed_or_replaced_and_nothing_else_changes(file: tuple[str, dict[str, Any]]) -> None:
    text, value = file
    for key in value:
        rest = {name: item for name, item in value.items() if name != key}
        read = parse(jsonc.remove(text, (key,), "file"), "file").root
        assert read is not None
        assert read.value == rest
        read = parse(jsonc.put(text, (key,), ENTRY, "file"), "file").root
        assert read is not None
        assert read.value == {**value, key: ENTRY}


@given(files(), st.integers(0, 2))
def test_lists_grow_at_the_end_and_lose_one(file: tuple[str, dict[str, Any]], place: int) -> None:
    text, value = file
    for key, items in value.items():
        if isinstance(items, list):
            after = jsonc.append(text, (key,), ENTRY, "file")
            read = parse(after, "file").root
            assert read is not None
            assert read.value == {**value, key: [*items, ENTRY]}
            assert is_inside(text, after)
            if place < len(items):
                read = parse(jsonc.remove(text, (key, place), "file"), "file").root
                assert read is not None
                assert read.value == {**value, key: items[:place] + items[place + 1 :]}


@given(st.text(alphabet='{}[]:,"/*\\ \n1-eatrufls', max_size=30))
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    try:
        said = json.loads(text)
    except json.JSONDecodeError:
        said = None
    try:
        document = parse(text, "settings.json")
    except Invalid as refused:
        refusal = str(refused)
    else:
        assert said is None or (document.root is not None and document.root.value == said)
        return
    assert said is None
    assert re.match(r"settings\.json: line \d+, column \d+: .*; fix the file", refusal, re.DOTALL)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', 3, "Expecting ',' delimiter"),
        ('{"a": }', 1, "Expecting value"),
        ('{"a": 1', 1, "Expecting ',' delimiter"),
        ("{'a': 1}", 1, "double quotes"),
        ('{"a": "x\ny"}', 1, "Invalid control character"),
        ("{}\n/* open", 2, "Extra data"),
        ("{} {}", 1, "Extra data"),
        ("[" * 100_000, 1, "nested too deeply"),
    ],
)
def test_a_broken_file_is_refused_with_the_line(text: str, line: int, what: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse(text, "mcp.json")
    assert f"mcp.json: line {line}," in str(refused.value)
    assert what in str(refused.value)


def test_comments_and_trailing_commas_are_noticed() -> None:
    assert parse('{"a": [1, 2]}', "f").odd_line == 0
    assert parse('{\n "a": 1, // one\n}', "f").odd_line == 2
    assert parse('{\n "a": 1,\n}', "f").odd_line == 2


def test_a_list_where_an_object_should_be_is_refused() -> None:
    with pytest.raises(Invalid, match=r"mcp\.json: line 2: mcpServers is not an object"):
        jsonc.put('{\n"mcpServers": []}', ("mcpServers", "x"), 1, "mcp.json")
    with pytest.raises(Invalid, match="the document is not an object"):
        jsonc.put("[]", ("mcpServers", "x"), 1, "mcp.json")
    with pytest.raises(Invalid, match="hooks is not an object"):
        jsonc.append('{"hooks": 3}', ("hooks", "Stop"), 1, "settings.json")
    with pytest.raises(Invalid, match=r"hooks.Stop is not a list"):
        jsonc.append('{"hooks": {"Stop": {}}}', ("hooks", "Stop"), 1, "settings.json")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "s": {\n    "m": 1\n  }\n}\n'),
        ("// mine\n", '// mine\n{\n  "s": {\n    "m": 1\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "m": 1\n  }\n}'),
        ('{"s": {"a": 0}}\n', '{"s": {"a": 0, "m": 1}}\n'),
        ('{\n\t"s": {\n\t\t"a": 0\n\t}\n}', '{\n\t"s": {\n\t\t"a": 0,\n\t\t"m": 1\n\t}\n}'),
        ('{\r\n  "a": 0 // x\r\n}', '{\r\n  "a": 0, // x\r\n  "s": {\r\n    "m": 1\r\n  }\r\n}'),
        (
            '{\n    "s": {\n        "a": 0, // why\n    },\n}',
            '{\n    "s": {\n        "a": 0, // why\n        "m": 1,\n    },\n}',
        ),
        ('{\n  "s": {\n    // "old": 1\n  }\n}', '{\n  "s": {\n    // "old": 1\n    "m": 1\n  }\n}'),
    ],
)
def test_what_is_added_looks_like_the_rest(before: str, after: str) -> None:
    assert jsonc.put(before, ("s", "m"), 1, "f") == after


def is_inside(before: str, after: str) -> bool:
    """True if `after` is `before` with something put in: no byte was lost or moved, but the space in an empty `{ }`."""
    rest = iter(after)
    return all(character in rest for character in re.sub(r"([{\[])[ \t\r\n]+([}\]])", r"\1\2", before))


def not_space(text: str) -> str:
    return re.sub(r"[ \t\r\n]", "", text)
