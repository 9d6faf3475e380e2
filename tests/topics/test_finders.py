"""What triggers look at in a message: code, links, raised voices, paths."""

from __future__ import annotations

import pytest

from mcp_server.topics import expressions, message_parts


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("```python\nprint(1)\n```", ["python"]),
        ("```py\nx\n```\nand\n~~~js\ny\n~~~", ["python", "javascript"]),
        ("```\ndef f(x):\n    return x\n```", ["python"]),
        ("```{.rust}\nx\n```", ["rust"]),
        ("```sql\nSELECT 1", ["sql"]),
        ("Look:\n\n    const a = 1\n    let b = 2\n\nDone.", ["javascript"]),
        ("- item\n\n    further words of the item\n    and more of them\n", []),
        ("Some words,\n\n    just indented prose\n    without any mark\n", []),
        ("inline `code` only", []),
        ("no code at all", []),
    ],
)
def test_blocks_of_code_and_their_languages(text: str, languages: list[str]) -> None:
    assert [block.language for block in message_parts.blocks(text)] == languages
    for block in message_parts.blocks(text):
        assert block.text.strip() in text[block.start : block.end]


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
    assert [url.text for url in message_parts.urls(text)] == found
    assert [text[url.start : url.end] for url in message_parts.urls(text)] == found


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
    (url,) = message_parts.urls(link)
    assert message_parts.leads_to(url, site) is leads


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
    assert len(list(message_parts.marks(text))) == marks


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
    assert expressions.matches(pattern, path) is matches
    if matches and expressions.suffix(pattern):
        assert path.lower().endswith(expressions.suffix(pattern))
