"""What triggers find in a message: code, links, a raised voice, paths, and literals of patterns."""

from __future__ import annotations

import time
from functools import cache

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.topics import matchers
from mcp_server.topics.matchers import folded, matches, required


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("```python\nprint(1)\n```", ["python"]),
        ("```py\nx\n```\nand\n~~~js\ny\n~~~", ["python", "javascript"]),
        ("```\ndef f(x):\n    return x\n```", [""]),
        ("```{.rust}\nx\n```", ["rust"]),
        ("```sql\nSELECT 1", ["sql"]),
        ("Look:\n\n    const a = 1\n    let b = 2\n\nDone.", []),
        ("inline `code` only", []),
        ("no code at all", []),
    ],
)
def test_blocks_of_code_and_their_languages(text: str, languages: list[str]) -> None:
    assert [block.language for block in matchers.blocks(text)] == languages
    assert all(text[block.start : block.end].strip() for block in matchers.blocks(text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://github.com/a/b/pull/3.", ["https://github.com/a/b/pull/3"]),
        ("(https://en.wikipedia.org/wiki/Tea_(drink))", ["https://en.wikipedia.org/wiki/Tea_(drink)"]),
        ("<http://localhost:80/x> and www.example.org!", ["http://localhost:80/x", "www.example.org"]),
        ("http://nothing and https:// too", []),
        ("mail me at ana@example.org", []),
    ],
)
def test_links_end_where_the_sentence_goes_on(text: str, found: list[str]) -> None:
    assert [url.text for url in matchers.urls(text)] == found
    assert [text[url.start : url.end] for url in matchers.urls(text)] == found


@pytest.mark.parametrize(
    ("link", "site", "leads"),
    [
        ("https://github.com/a/b", "github.com", True),
        ("https://GitHub.com/a/b", "github.com", True),
        ("https://api.github.com/x", "github.com", True),
        ("https://notgithub.com/x", "github.com", False),
        ("https://github.com.evil.example/x", "github.com", False),
        ("https://evil.example/github.com/a/b/pull/1", "github.com/*/*/pull/", False),
        ("https://github.com@evil.example/", "github.com", False),
        ("https://github.com/a/b/pull/3?x=1", "github.com/*/*/pull/", True),
        ("https://github.com/a/b/issues/3", "github.com/*/*/pull/", False),
        ("https://www.example.org", "https://example.org", True),
        ("https://shop.example.org", "*.example.org", True),
    ],
)
def test_a_site_is_a_host_and_the_beginning_of_a_path(link: str, site: str, leads: bool) -> None:
    (url,) = matchers.urls(link)
    assert matchers.leads_to(url, site) is leads


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("This is broken!!!", 1),
        ("What?! Why?!?!", 1),
        ("Great! Thanks!!", 0),
        ("URGENT: call back", 1),
        ("WHY DOES NOTHING WORK HERE", 1),
        ("The JSON API of NASA", 0),
        ("HTML, CSS, SQL, XML", 0),
        ("urgent, please", 0),
    ],
)
def test_a_raised_voice_is_heard_and_abbreviations_are_not(text: str, marks: int) -> None:
    assert len(list(matchers.marks(text))) == marks


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "src/deep/app.py", True),
        ("*.py", "app.pyc", False),
        ("*.PY", "App.py", True),
        ("docs/*.md", "/home/ana/project/docs/a.md", True),
        ("docs/*.md", "docs/deep/a.md", False),
        ("docs/**/*.md", "docs/deep/er/a.md", True),
        ("docs/**/*.md", "docs/a.md", True),
        ("/etc/*.conf", "/etc/app.conf", True),
        ("/etc/*.conf", "/home/etc/app.conf", False),
        ("src\\*.ts", "src/a.ts", True),
        ("test_?.[ch]", "x/test_1.c", True),
        ("test_?.[!ch]", "x/test_1.c", False),
        ("src/**", "src/a/b", True),
        ("a[", "a[", True),
    ],
)
def test_path_patterns(pattern: str, path: str, matches: bool) -> None:
    assert matchers.matches(pattern, path) is matches
    if matches and matchers.suffix(pattern):
        assert path.lower().endswith(matchers.suffix(pattern))


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
        (r"fo{2,}ar", {"ar"}),
        (r"a(?=bcd)e", {"ae"}),
        (r"(?P<name>word)", {"word"}),
        (r"mail|mailbox", {"mail"}),
        (r"\x41bc", {"abc"}),
        (r"(?x) a b", {"ab"}),
    ],
)
def test_what_is_surely_required(expression: str, literals: set[str]) -> None:
    assert required(expression) == literals


@pytest.mark.parametrize(
    "expression",
    [
        "",
        *(r"\w+", r"a|\d", r"(?:mail)?", r"x*", r"(?:foo){e<=1}", r"[[:alpha:]]b", r"[a--b]c", r"(?(1)a|b)"),
        *(r"(a)\1{", r"\p{Lu}x", r"(unclosed", r"closed)"),
        "(" * 3000 + "a" + ")" * 3000,
    ],
)
def test_what_is_not_surely_understood_requires_nothing(expression: str) -> None:
    assert required(expression) == frozenset()


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
