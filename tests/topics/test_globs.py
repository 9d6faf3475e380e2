"""Path patterns mean what they do in a shell, and none of them takes long."""

from __future__ import annotations

import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.topics.expressions import matches


def plainly(pattern: str, path: str) -> bool:
    """The same, tried in every way there is."""

    @cache
    def rest(at: int, here: int) -> bool:
        if at == len(pattern):
            return here == len(path)
        if pattern.startswith("**", at):
            after = at + 2
            if pattern.startswith("/", after) and pattern[at - 1 : at] in ("", "/"):
                after += 1
                ends = [here, *(place + 1 for place in range(here, len(path)) if path[place] == "/")]
            else:
                ends = list(range(here, len(path) + 1))
            return any(rest(after, place) for place in ends)
        if pattern[at] == "*":
            following = path.find("/", here) if "/" in path[here:] else len(path)
            return any(rest(at + 1, place) for place in range(here, following + 1))
        if here == len(path):
            return False
        same = path[here] != "/" if pattern[at] == "?" else path[here] == pattern[at]
        return same and rest(at + 1, here + 1)

    if "/" not in pattern:
        path = path.rpartition("/")[2]
    elif not pattern.startswith("/"):
        pattern = f"**/{pattern}"
    return rest(0, 0)


@given(
    st.lists(st.sampled_from(["a", "b", "/", "?", "*", "/**/", "**/", "/**", "a**b"]), min_size=1, max_size=8),
    st.text("ab/", min_size=1, max_size=14),
)
def test_a_pattern_matches_what_it_says(pieces: list[str], path: str) -> None:
    pattern = "".join(pieces)
    while "***" in pattern:
        pattern = pattern.replace("***", "**")
    assert matches(pattern, path) == plainly(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("[ab]*.py", "x/b1.py"), ("[!a].py", "b.py"), ("[a-c].py", "B.py"), ("[]a].py", "].py"), ("*.[ch]", "a\\b.h")],
)
def test_classes_match_one_of_their_characters(pattern: str, path: str) -> None:
    assert matches(pattern, path)
    assert not matches(pattern, "z/zz")


@pytest.mark.parametrize(
    "pattern", ["[z-a].py", "[!].py", "[.py", "[a&&b--c].py", "[[:alpha:]].py", "[^]x].py", "[--a]"]
)
def test_what_is_no_class_stands_for_itself_and_breaks_nothing(pattern: str) -> None:
    assert not matches(pattern, "src/module.py")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("**/" * 12 + "x.py", "a/" * 300), ("*a" * 40 + "b", "a" * 3000), ("**a" * 20 + "b", "a/a" * 500)],
)
def test_no_pattern_takes_long(pattern: str, path: str) -> None:
    begun = time.process_time()
    assert not matches(pattern, path)
    assert time.process_time() - begun < 2
