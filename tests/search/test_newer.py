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


def turn(number: int, text: str, path: str = PATH, speaker: str = "") -> Hit:
    said = Passage(path, path, 0, number, number, number, text, "kiln", "conversation", turn=number, speaker=speaker)
    return Hit(said, 1.0, {})


STARTS = turn(3, "the ceremony starts at 14:00 in the garden")
MOVED = turn(41, "small change, the ceremony is at 15:30 then")
ASKED = "what time does the ceremony start?"


def test_a_newer_short_turn_goes_before_the_first_hit() -> None:
    first, second, third = newest_first((STARTS, OTHER, MOVED), ASKED)
    assert (first, third) == (MOVED, OTHER)
    assert (second.passage, second.newer) == (STARTS.passage, "2026-11-02")


def test_a_newer_turn_far_behind_is_found_and_a_lower_hit_is_not_replaced() -> None:
    others = tuple(turn(50 + place, f"the oven has shelf number {place}") for place in range(70))
    assert newest_first((STARTS, *others, MOVED), ASKED)[0] == MOVED
    assert newest_first((*others, STARTS, MOVED), ASKED) == (*others, STARTS, MOVED)


def test_a_reply_a_question_another_person_and_a_question_about_the_past_reorder_nothing() -> None:
    reply = turn(4, "fine, the ceremony is at 14:00 sharp then, I tell the guests")
    question = turn(41, "was the ceremony moved to 15:30?")
    ana, ben = turn(3, STARTS.passage.text, speaker="Ana"), turn(41, MOVED.passage.text, speaker="Ben")
    for hits in ((STARTS, reply), (STARTS, question), (ana, ben)):
        assert newest_first(hits, ASKED) == hits
    assert newest_first((STARTS, MOVED), "what time did the ceremony start?") == (STARTS, MOVED)
