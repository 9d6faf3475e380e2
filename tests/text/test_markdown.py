"""Front matter, sections, comments and links of markdown."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import Invalid
from mcp_server.text.markdown import link_targets, links, load, resolve, sections, split_front_matter, without_comments


def test_front_matter_is_split_off_with_its_lines_but_not_a_rule_or_an_unclosed_fence() -> None:
    found = split_front_matter("---\ntype: memory\n---\n\n# Title\n")
    assert (found.raw, found.body, found.body_line) == ("type: memory\n", "\n# Title\n", 4)
    for text in ("---\nno end\n", "# Title\n---\na\n---\n", "", "---", "text"):
        assert split_front_matter(text).body == text
        assert split_front_matter(text).body_line == 1


@given(st.text(alphabet="-.\n\r a:\ufeff", max_size=40))
def test_the_body_is_always_the_end_of_the_text(text: str) -> None:
    found = split_front_matter(text)
    assert text.endswith(found.body)
    assert found.raw in text


def test_sections_know_their_lines_and_the_headings_above_them() -> None:
    found = sections("intro\n\n# A\ntext\n## B ##\nmore\n\n# C\n", 10)
    assert [(s.level, s.title, s.trail, s.start, s.end) for s in found] == [
        (0, "", (), 10, 11),
        (1, "A", (), 12, 13),
        (2, "B", ("A",), 14, 16),
        (1, "C", (), 17, 17),
    ]
    assert found[2].text == "## B ##\nmore\n"


def test_underlined_headings_count_but_not_rules_code_or_comments() -> None:
    code = "# A\n```py\n# no\n```\n~~~\n# no\n```\n~~~\n<!-- x\n# no\n-->\n`` a ``\n# B\n\n    # no\n#no\n"
    assert [s.title for s in sections(code)] == ["A", "B"]
    lines = "Title\n=====\ntext\n\nTwo\nlines\n---\n\n- item\n---\n\n---\n> quote\n---\n"
    assert [(s.level, s.title, s.start) for s in sections(lines)] == [(1, "Title", 1), (2, "Two lines", 5)]


@given(st.text(alphabet="#=-~` \n\rab<!>", max_size=60), st.integers(1, 50))
def test_sections_cover_every_line_that_says_something(body: str, first: int) -> None:
    found = sections(body, first)
    lines = body.split("\n")
    covered = {number for section in found for number in range(section.start, section.end + 1)}
    assert all(first + index in covered for index, line in enumerate(lines) if line.strip())
    assert "\n".join(section.text for section in found) in body


def test_a_heading_full_of_blanks_costs_no_time() -> None:
    begun = time.process_time()
    (section,) = sections("# a" + " " * 50_000 + "b")
    assert section.title.startswith("a ")
    assert time.process_time() - begun < 5


def test_a_comment_with_words_behind_it_takes_nothing_with_it_that_follows() -> None:
    assert without_comments("<!-- a --> words\nmore\n<!-- b\n-->\n") == "<!-- a --> words\nmore\n\n\n"
    begun = time.process_time()
    open_ones = "<!-- open\n" * 20_000 + "--> x\n-->\n"
    assert without_comments(open_ones) == open_ones
    assert time.process_time() - begun < 5


PATHS = (
    "knowledge/people/ana-kovac.md",
    "knowledge/people/_index.md",
    "knowledge/projects/atlas/context.md",
    "knowledge/projects/atlas/notes.md",
    "archive/people/ana-kovac.md",
)


def test_links_are_read_with_their_heading_but_not_inside_code() -> None:
    found = links("See [[ana-kovac]] and [[Atlas#Stack|the map]].")
    assert [(link.name, link.heading) for link in found] == [("ana-kovac", None), ("Atlas", "Stack")]
    text = "`[[a]]` and\n```sh\nif [[ -f x ]]; then\n```\n[[b]] ``x [[c]]``\n"
    assert [link.name for link in links(text)] == ["b"]


def test_a_link_leads_to_the_file_of_that_name() -> None:
    targets = link_targets(PATHS)
    assert resolve("ana-kovac", targets) == "archive/people/ana-kovac.md"
    assert resolve("people/Ana Kovač", link_targets(PATHS[:1])) == "knowledge/people/ana-kovac.md"
    assert resolve("knowledge/people/ana-kovac.md", targets) == "knowledge/people/ana-kovac.md"
    assert resolve("atlas", targets) == "knowledge/projects/atlas/context.md"
    assert resolve("nobody", targets) is None


NAMES = st.lists(st.sampled_from(["a", "B", "c d", "context", "_index", "people"]), min_size=1, max_size=4).map(
    "/".join
)


@given(NAMES, st.lists(NAMES.map(lambda name: f"{name}.md"), max_size=8))
def test_of_several_files_the_one_with_the_shortest_path_is_meant(name: str, paths: list[str]) -> None:
    wanted = plain(name)
    fitting = []
    for path in paths:
        ends = (f"/{wanted}/context", f"/{wanted}/-index")
        is_meant = (plain(path) == wanted, plain(path).endswith(f"/{wanted}"), plain(path).endswith(ends))
        fitting += [(is_meant.index(True), len(path), path)] if any(is_meant) else []
    assert resolve(name, link_targets(paths)) == (min(fitting)[2] if fitting else None)


def plain(name: str) -> str:
    return name.lower().replace(" ", "-").replace("_", "-").removesuffix(".md")


@given(st.text(alphabet="[]|#`~\n ab", max_size=40))
def test_no_text_makes_it_fail(text: str) -> None:
    for link in links(text):
        assert link.name in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('a: 1\nb: "no end\nc: 2\nd: 3\n', "line 2: the quotation mark that opens here is not closed"),
        ("a: 1\nb: [no, end\nc: 2\n", "line 2: the list that opens here with ["),
        ("a: 1\nb: {no: end\n\n", "line 2: the mapping that opens here with {"),
        ("a: 1\nb: Senj: the harbor\n", "line 2: a value with a colon needs quotation marks"),
    ],
)
def test_an_error_in_yaml_names_the_likely_cause_where_it_is(text: str, said: str) -> None:
    with pytest.raises(Invalid) as error:
        load(text, "x.md")
    assert said in str(error.value)
