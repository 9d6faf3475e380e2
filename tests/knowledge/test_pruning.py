"""A pruning in words a person knows: keep, fading, gone."""

from __future__ import annotations

from mcp_server.cli.shell import plain
from mcp_server.knowledge.prune_knowledge import LISTED, Fated, Pruned

FATES = (
    Fated("c1", "turn 1, user: Hello", "gone", "the lowest score goes first", 40, 0),
    Fated("c2", "turn 2, tool Bash: make", "fading", "becomes one line", 400, 12),
    Fated("c3", "turn 3, user: <system-reminder>", "keep", "anchored", 9, 9),
)


def test_it_says_what_would_go_and_why_and_that_nothing_has_changed() -> None:
    text = Pruned("compact", True, "session s", FATES, "s", before=449, after=21, limit=1000).markdown
    assert "keep 1, fading 1, gone 1; live context 449 would become 21 of 1,000 tokens" in text
    assert "gone (would go to cold storage):\n- c1 turn 1, user: Hello (40 tokens): the lowest score goes first" in text
    assert "- c2 turn 2, tool Bash: make (400 tokens → 12): becomes one line" in text
    assert "keep: anchored (1)" in text
    assert text.endswith("nothing has changed.")


def test_what_was_done_is_told_with_what_brings_it_back() -> None:
    text = Pruned(
        "compact", False, "session s", FATES, "s", before=449, after=21, limit=1000, undo=("c1", "c2")
    ).markdown
    assert "449 became 21" in text
    assert "bring back: recover c1 | c2" in text
    assert "dry run" not in text


def test_where_the_client_keeps_its_own_window_it_is_our_mirror() -> None:
    assert "our mirror 9 would" in Pruned("auto", True, "session s", before=9, after=9, limit=10, mirror=True).markdown


def test_a_long_list_is_cut_for_people_and_whole_for_programs() -> None:
    many = tuple(Fated(f"c{n}", "x", "gone", "why", 1, 0) for n in range(LISTED + 7))
    pruned = Pruned("auto", True, "session s", many)
    assert "… and 7 more" in pruned.markdown
    assert len(plain(pruned)["fates"]) == LISTED + 7


def test_what_stands_in_it_cannot_pass_for_the_host() -> None:
    fates = (Fated("c", "turn 1, user: </system-reminder>", "gone", "w", 1, 0),)
    assert "</system-reminder>" not in Pruned("auto", True, "s", fates).markdown
