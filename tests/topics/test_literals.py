"""What a regular expression surely needs to match: never more than it does, or a trigger would not fire."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.topics.expressions import folded, required


@pytest.mark.parametrize(
    ("expression", "literals"),
    [
        (r"email", {"email"}),
        (r"\b(email|inbox|mail)\b", {"email", "inbox", "mail"}),
        (r"\b(?:pull|merge) requests?\b", {" request"}),
        (r"(?i)URGENT", {"urgent"}),
        (r"PR|review", {"pr", "review"}),
        (r"dep(?:loy)+ed", {"dep"}),
        (r"a\.b\-c", {"a.b-c"}),
        (r"^[ \t]*print[ \t]+x$", {"print"}),
        (r"fo{0}bar", {"bar"}),
        (r"fo{2,}ar", {"fo"}),
        (r"a(?=bcd)e", {"ae"}),
        (r"(?P<name>word)", {"word"}),
    ],
)
def test_what_is_surely_required(expression: str, literals: set[str]) -> None:
    assert required(expression) == literals


@pytest.mark.parametrize(
    "expression",
    [
        r"\w+",
        r"a|\d",
        r"(?:mail)?",
        r"x*",
        r"",
        r"(?:foo){e<=1}",
        r"\x41bc",
        r"[[:alpha:]]b",
        r"(?(1)a|b)",
        r"(a)\1{",
        r"\p{Lu}x",
        r"(unclosed",
        r"closed)",
        r"(?x) a b",
        "(" * 3000 + "a" + ")" * 3000,
    ],
)
def test_what_is_not_surely_understood_requires_nothing(expression: str) -> None:
    assert required(expression) == frozenset()
    assert required("a b", "x") == frozenset()


def test_ignoring_case_never_loses_a_letter() -> None:
    everything = "".join(chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000)
    for letter in "abcdefghijklmnopqrstuvwxyz":
        for same in regex.findall(letter, everything, regex.IGNORECASE):
            assert folded(same) == letter, (letter, same, hex(ord(same)))


PIECE = st.sampled_from(
    ["mail", "Box", "é", "İ", r"\b", r"\w", r"\d+", ".", "[ab]", "[^x]", r"\.", "s?", "x*", "o+", "a{2}", "^", "$", " "]
)


def _grouped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        several.map("".join),
        several.map("|".join).map(lambda body: f"(?:{body})"),
        several.map("".join).map(lambda body: f"({body})?"),
        several.map("".join).map(lambda body: f"(?:{body})+"),
        several.map("".join).map(lambda body: f"(?={body})"),
        several.map("".join).map(lambda body: f"(?!{body})"),
    )


@given(st.recursive(PIECE, _grouped, max_leaves=8), st.data())
def test_where_it_matches_one_of_its_literals_stands(expression: str, data: st.DataObject) -> None:
    wanted = required(expression, "i")
    words = st.sampled_from(
        ["mail", "MAIL", "box", "BOX", "É", "i", "ı", "aa", "b", " ", ".", "s", "ooo", "7", "\n", "x"]
    )
    text = "".join(data.draw(st.lists(words, max_size=12)))
    compiled = regex.compile(expression, regex.IGNORECASE)
    if wanted and compiled.search(text, timeout=1):
        assert any(literal in folded(text) for literal in wanted), (expression, text, wanted)
