"""Front matter: checked with file, line and field; changed one field at a time, every other byte as it was."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import Invalid
from mcp_server.text.markdown import load, split_front_matter
from mcp_server.topics.front_matter import check, with_field


def test_known_fields_are_understood_and_unknown_ones_kept() -> None:
    front = "type: journal\ndate: 2026-02-16\nsessions: [ses_a, ses_b]\nmood: good\nupdated: 2026-02-16\n"
    checked = check(f"---\n{front}---\n\n## Day\n", "knowledge/journal/2026-02-16.md")
    assert checked.fields["mood"] == "good"
    assert checked.known.updated == datetime(2026, 2, 16, tzinfo=UTC)
    assert getattr(checked.known, "date", None) == date(2026, 2, 16)
    assert (checked.body, checked.body_line, checked.warnings) == ("\n## Day\n", 8, ())


def test_a_file_without_front_matter_is_fine_and_an_unknown_type_is_a_warning() -> None:
    assert check("# Notes\n", "x.md").body == "# Notes\n"
    (warning,) = check("---\n# hello\ntype: recipe\n---\n", "knowledge/reference/soup.md").warnings
    assert warning.startswith("knowledge/reference/soup.md: line 3: type 'recipe' is not one of identity, memory,")


@pytest.mark.parametrize(
    ("front", "says"),
    [
        ("type: identity\nrole: king", r"a/x\.md: line 3: `role`: .*'soul', 'user', 'rules' or 'tools'.*'king'"),
        ("type: identity", r"a/x\.md: line 1: `role`: field required"),
        ("type: memory\n\nline_count: many", r"a/x\.md: line 4: `line_count`: .*'many'"),
        ("updated: yesterday", r"a/x\.md: line 2: `updated`"),
        ("tags: [a, [b]]", r"a/x\.md: line 2: `tags\.1`"),
        ("type: [", r"a/x\.md: line [23]: "),
        ("a: 1\na: 2", r"a/x\.md: line 3: found duplicate key"),
        ("- a\n- b", r"a/x\.md: line 2: must be `name: value`"),
        ("type: topic\npriority: urgent", r"a/x\.md: line 3: `priority`"),
        ("a: " + "[" * 600, r"a/x\.md: line \d"),
    ],
)
def test_a_bad_field_is_named_with_file_and_line(front: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        check(f"---\n{front}\n---\nbody\n", "a/x.md")


def test_one_field_changes_and_every_other_byte_stays() -> None:
    front = "# mine\ntype:   memory   # core\nupdated: 2026-01-01 # by hand\nline_count: 3\n"
    text = f"---\n{front}---\n\n# Memory  \n".replace("\n", "\r\n")
    changed = with_field(with_field(text, "updated", "2026-02-16T18:00:00Z"), "line_count", 8)
    assert changed == text.replace("2026-01-01", '"2026-02-16T18:00:00Z"').replace("line_count: 3", "line_count: 8")


def test_a_missing_field_is_added_and_a_list_in_lines_becomes_one_line() -> None:
    assert with_field("---\ntype: memory\n---\nx", "line_count", 1) == "---\ntype: memory\nline_count: 1\n---\nx"
    assert with_field("---\n---\nx", "a", "b") == "---\na: b\n---\nx"
    assert with_field("x\n", "a", "b") == "---\na: b\n---\n\nx\n"
    changed = with_field("---\ntags:\n  - a\n  - b\ntype: x\n---\n", "tags", ["a", "c d"])
    assert changed == '---\ntags: ["a", "c d"]\ntype: x\n---\n'


FIELDS = st.dictionaries(
    st.sampled_from(["type", "updated", "a-b", "mood"]),
    st.text(max_size=6) | st.integers() | st.lists(st.integers()),
    max_size=4,
)


@given(FIELDS, st.sampled_from(["updated", "line_count"]), st.text(max_size=8) | st.integers(), st.text(max_size=10))
def test_setting_a_field_sets_that_field_alone(fields: dict[str, object], name: str, value: object, body: str) -> None:
    text = "---\ntype: x\n---\n" + body
    for key, entry in fields.items():
        text = with_field(text, key, entry)
    before = load(split_front_matter(text).raw, "x")
    changed = with_field(text, name, value)
    found = split_front_matter(changed)
    assert found.body == body
    assert load(found.raw, "x") == {**before, name: value}
    assert with_field(changed, name, value) == changed


@pytest.mark.parametrize(
    "text",
    [
        "a: !!bool x",
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in pairwise("abcdefgh")),
        "a: &a [*a]",
    ],
    ids=["a tag that the parser trips over", "aliases of aliases", "a list that holds itself"],
)
def test_yaml_made_to_hurt_is_refused_in_words(text: str) -> None:
    with pytest.raises(Invalid, match=r"^x\.md: line 1: "):
        load(text, "x.md")


def test_an_alias_is_read() -> None:
    assert load("a: &a [1, 2]\nb: *a", "x.md") == {"a": [1, 2], "b": [1, 2]}
