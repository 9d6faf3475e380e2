"""Wiki links are found outside code and lead to the file a person means."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.text.markdown import linked, links, resolve

PATHS = (
    "knowledge/people/ana-kovac.md",
    "knowledge/people/_index.md",
    "knowledge/projects/atlas/context.md",
    "knowledge/projects/atlas/notes.md",
    "archive/people/ana-kovac.md",
)


def test_links_are_read_with_their_heading_and_label() -> None:
    found = links("See [[ana-kovac]] and [[Atlas#Stack|the map]].")

    assert [(link.name, link.heading, link.label) for link in found] == [
        ("ana-kovac", None, "ana-kovac"),
        ("Atlas", "Stack", "the map"),
    ]


def test_what_stands_in_code_is_no_link() -> None:
    text = "`[[a]]` and\n```sh\nif [[ -f x ]]; then\n```\n[[b]] ``x [[c]]``\n"

    assert [link.name for link in links(text)] == ["b"]


def test_a_link_leads_to_the_file_of_that_name() -> None:
    assert resolve("ana-kovac", PATHS) == "archive/people/ana-kovac.md"
    assert resolve("people/Ana Kovač", PATHS[:1]) == "knowledge/people/ana-kovac.md"
    assert resolve("knowledge/people/ana-kovac.md", PATHS) == "knowledge/people/ana-kovac.md"
    assert resolve("atlas", PATHS) == "knowledge/projects/atlas/context.md"
    assert resolve("nobody", PATHS) is None


NAMES = st.lists(st.sampled_from(["a", "B", "c d", "context", "_index", "people"]), min_size=1, max_size=4).map(
    "/".join
)


@given(st.lists(NAMES, max_size=4), st.lists(NAMES.map(lambda name: f"{name}.md"), max_size=8))
def test_many_names_lead_where_each_alone_does(names: list[str], paths: list[str]) -> None:
    assert linked(names, paths) == {found for name in names if (found := resolve(name, paths))}


@given(st.text(alphabet="[]|#`~\n ab", max_size=40))
def test_no_text_makes_it_fail(text: str) -> None:
    for link in links(text):
        assert text[link.start : link.end].startswith("[[")
