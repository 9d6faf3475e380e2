"""`anchors.yaml` under our edits: what a person wrote stays."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_server.knowledge.anchors import HEADER, Anchor, read_anchors, with_entries, without_entries
from mcp_server.text.markdown import load

OVEN, BOAT = Anchor("oven", "item", "it must not burn", "2026-02-16"), Anchor("boat", "item")

BY_HAND = """\
# My anchors. Ask Ana before you change them.

anchors:   # what stays
  # the engine
  - item: claracore   # since the start
    kind: item
    # it pays our rent
    note: "the # one"

  - oven
  # files below
  - {item: knowledge/people/ana.md, kind: file}  # Ana
# the end
"""


def held(text: str) -> list[str]:
    return [anchor.item for anchor in read_anchors(load(text, "anchors.yaml"))[0]]


def test_a_new_file_says_what_it_is() -> None:
    text = with_entries("", [OVEN])
    assert text == HEADER + "anchors:\n  - {item: oven, kind: item, note: it must not burn, at: '2026-02-16'}\n"


def test_an_entry_comes_behind_the_last_and_every_other_line_stays() -> None:
    text = with_entries(BY_HAND, [BOAT])
    assert held(text) == ["claracore", "oven", "knowledge/people/ana.md", "boat"]
    assert text.replace("  - {item: boat, kind: item}\n", "") == BY_HAND


def test_an_entry_goes_with_its_comments_and_other_lines_stay() -> None:
    assert without_entries(BY_HAND, [0, 2]) == (
        "# My anchors. Ask Ana before you change them.\n\nanchors:   # what stays\n  # the engine\n"
        "  - oven\n  # files below\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "# nothing yet",
        "anchors:",
        "anchors: # none\n",
        "{mine: 1}\n",
        "{}\n",
        "anchors: [ ]  # none\nother: 1\n",
        "other:\n  - 1\n",
        "anchors:\n- oven\n",
        "anchors: [oven, {item: boat}]\n# end\n",
        'anchors:\n  -\n    item: "a: b"\n    note: >\n      folded\n      text # no comment\n\nother: x\n',
        "anchors:\r\n  - oven # hot\r\n# end\r\n",
        "---\nanchors:\n  - item: oven\n    note: |\n      one\n      two\n",
    ],
)
def test_whatever_way_it_is_written_an_entry_comes_and_goes(text: str) -> None:
    before, rest = held(text), {**load(text, "x"), "anchors": 0}
    added = with_entries(text, [Anchor("new thing", "item", 'a "note": #1', "2026-02-16")])
    assert held(added) == [*before, "new thing"]
    assert {**load(added, "x"), "anchors": 0} == rest
    assert all(comment in added for comment in ("# nothing yet", "# none", "# end", "# hot") if comment in text)
    assert added.count("\r\n") == (added.count("\n") if "\r\n" in text else 0)
    assert held(without_entries(added, [len(before)])) == before
    assert held(without_entries(added, range(len(before) + 1))) == []


written = (
    st.text(min_size=1, max_size=30)
    .map(lambda text: " ".join(text.split()))
    .filter(lambda text: bool(text) and text.isprintable())
)


@given(written, written)
@example("?0", "? ask Ana")
def test_any_name_and_note_read_back_as_they_were(item: str, note: str) -> None:
    text = with_entries("", [Anchor(item, "item", note)])
    (anchor,), wrong = read_anchors(load(text, "anchors.yaml"))
    assert (anchor.item, anchor.note, wrong) == (item, note, [])
    assert text.count("\n") == 3
