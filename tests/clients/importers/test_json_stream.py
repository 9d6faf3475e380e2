"""JSON lists are read item by item, whatever their size and however they are cut into chunks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.clients.importers import exports
from mcp_server.clients.importers.exports import json_items
from mcp_server.errors import Invalid, NotFound

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(values, max_size=6), st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_any_list_comes_out_as_it_went_in_at_every_chunk_size(
    tmp_path: Path, items: list[Any], chunk: int, indent: int | None, escaped: bool
) -> None:
    path = tmp_path / "items.json"
    path.write_text(json.dumps(items, indent=indent, ensure_ascii=escaped), encoding="utf-8", errors="surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exports, "CHUNK", chunk)
        assert list(json_items(path)) == items


def test_a_file_with_one_object_is_one_item(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('\ufeff {"a": [1, 2]} ', encoding="utf-8")
    assert list(json_items(tmp_path / "one.json")) == [{"a": [1, 2]}]


@pytest.mark.parametrize("text", ['[{"a": 1}, {"a": ', '[{"a": 1}, {"b" 2}]' + " " * 100, '[{"a": 1}'])
def test_what_stands_before_a_broken_place_is_read_and_the_place_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    items = json_items(path)
    assert next(items) == {"a": 1}
    with pytest.raises(Invalid, match=r"broken\.json"):
        list(items)


@pytest.mark.parametrize("broken", ['{"a" 1}', '"a \\q"'])
def test_a_broken_file_is_refused_without_reading_it_to_its_end(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(f"[{broken}, " + '{"b": 2}, ' * 100_000 + "1]")
    read: list[int] = []
    with pytest.raises(Invalid, match="line 1"):
        list(json_items(path, read.append))
    assert read == [exports.CHUNK]


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes('["é"]'.encode("latin-1"))
    with pytest.raises(Invalid, match="not UTF-8"):
        list(json_items(tmp_path / "latin.json"))
    with pytest.raises(NotFound, match=r"nowhere\.json"):
        list(json_items(tmp_path / "nowhere.json"))
