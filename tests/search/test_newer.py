"""Of several values of the same thing, the newer one goes first."""

from __future__ import annotations

from mcp_server.model import Hit, Passage
from mcp_server.search.newer import newest_first, with_note

PATH = "raw/conversations/2026/11/02/0900-kiln.md"
PAGE = "knowledge/projects/kiln/context.md"


def hit(turn: int, text: str, path: str = PATH) -> Hit:
    line = f"- 2026-11-02: {text} [src: {path}#{turn}]"
    return Hit(Passage(PAGE, PAGE, 0, turn, turn, turn, line, "Facts", "project"), 1.0, {})


OLD = hit(3, "The kiln fires stoneware at 1240 degrees.")
OTHER = hit(5, "The glaze room closes at 18:00 on Fridays.")
NEW = hit(41, "Too hot: the kiln fires stoneware at 1210 degrees now.")


def test_a_newer_value_goes_before_the_older_one_which_says_so() -> None:
    first, second, third = newest_first((OLD, OTHER, NEW), "how hot does the kiln fire stoneware?")
    assert (first, third) == (NEW, OTHER)
    assert (second.passage, second.newer) == (OLD.passage, "2026-11-02")
    line = "- 2026-11-02: it fires at 1240 [src: raw/conversations/a.md#3]"
    noted = (
        "- 2026-11-02: it fires at 1240 (earlier: a newer statement is of 2026-11-04) [src: raw/conversations/a.md#3]"
    )
    assert with_note(line, "2026-11-04") == noted


def test_hits_about_different_things_keep_their_order() -> None:
    assert newest_first((OLD, OTHER), "when does the glaze room close?") == (OLD, OTHER)
