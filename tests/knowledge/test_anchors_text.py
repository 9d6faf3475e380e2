"""`anchors.yaml` under our edits: what a person wrote stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.knowledge.anchors import HEADER, Anchor, entry, read_anchors, with_entry, without_entries
from mcp_server.text.markdown import load

OVEN = Anchor("oven", "item", "it must not burn", "2026-02-16")

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
    text = with_entry("", OVEN)
    assert text == HEADER + 'anchors:\n  - {item: oven, kind: item, note: it must not burn, at: "2026-02-16"}\n'
    assert held(text) == ["oven"]


def test_an_entry_comes_behind_the_last_and_every_other_line_stays() -> None:
    text = with_entry(BY_HAND, Anchor("boat", "item"))
    assert held(text) == ["claracore", "oven", "knowledge/people/ana.md", "boat"]
    assert text.replace("  - {item: boat, kind: item}\n", "") == BY_HAND


def test_an_entry_goes_with_its_comments_and_every_other_line_stays() -> None:
    text = without_entries(BY_HAND, [0, 2])
    assert held(text) == ["oven"]
    assert text == (
        "# My anchors. Ask Ana before you change them.\n\nanchors:   # what stays\n  # the engine\n"
        "\n  - oven\n  # files below\n# the end\n"
    )


def test_the_last_entry_goes_and_the_next_one_comes() -> None:
    empty = without_entries(with_entry("", OVEN), [0])
    assert held(empty) == []
    assert held(with_entry(empty, OVEN)) == ["oven"]


@pytest.mark.parametrize(
    "text",
    [
        "# nothing yet",
        "anchors:",
        "anchors: # none\n",
        "anchors: []\n",
        "anchors: [ ]  # none\nother: 1\n",
        "other:\n  - 1\n",
        "anchors:\n- oven\n",
        "anchors:\n    - oven",
        "anchors: [oven, {item: boat}]\n# end\n",
        "anchors: [oven, # hot\n  boat]\n",
        'anchors:\n  -\n    item: "a: b"\n    note: >\n      folded\n      text # no comment\n\nother: x\n',
        "anchors:\r\n  - oven # hot\r\n# end\r\n",
        "---\nanchors:\n  - item: oven\n    note: |\n      one\n      two\n",
    ],
)
def test_whatever_way_it_is_written_an_entry_comes_and_goes(text: str) -> None:
    before, rest = held(text), {**load(text, "x"), "anchors": 0}
    added = with_entry(text, Anchor("new thing", "item", 'a "note": #1', "2026-02-16"))
    assert held(added) == [*before, "new thing"]
    assert {**load(added, "x"), "anchors": 0} == rest
    assert [line for line in comments(text) if line not in added] == []
    back = without_entries(added, [len(before)])
    assert held(back) == before
    assert [line for line in comments(text) if line not in back] == []
    gone = without_entries(text, range(len(before)))
    assert held(gone) == []
    assert [line for line in comments(text) if line not in gone and line != "# hot"] == []


def comments(text: str) -> list[str]:
    return [found for found in ("# nothing yet", "# none", "# end", "# hot") if found in text]


written = (
    st.text(min_size=1, max_size=30)
    .map(lambda text: " ".join(text.split()))
    .filter(lambda text: bool(text) and text.isprintable())
)


@given(written, written)
def test_any_name_and_note_read_back_as_they_were(item: str, note: str) -> None:
    (anchor,), wrong = read_anchors(load(with_entry("", Anchor(item, "item", note)), "anchors.yaml"))
    assert (anchor.item, anchor.note, wrong) == (item, note, [])
    assert "\n" not in entry(anchor)
