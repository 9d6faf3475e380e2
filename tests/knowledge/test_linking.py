"""Links between pages: a line links the people, projects and procedures that it names, and a page lists its links."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from mcp_server.app import catch_up
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.knowledge.condense import condense
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.summaries import relinked
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.text.markdown import link_targets, links, load, resolve, sections, split_front_matter, without_comments
from mcp_server.text.passages import of_knowledge
from tests.conftest import Clock
from tests.knowledge.test_items import FIRST, PAGE, SECOND, snapshot, talk

pytestmark = pytest.mark.anyio
TALK = "raw/conversations/2026/02/16/1845-s-talk.md"
SRC = f"[src: 1](/{TALK})"
ANA, BO, OVEN = "knowledge/people/ana-kovac.md", "knowledge/people/bo-lund.md", "knowledge/procedures/clean-the-oven.md"
LOOM = "knowledge/projects/loom/context.md"
ASK = "From here on ask Ana Kovač before you change the tariff of the loom-shop."


def pages(line: str) -> dict[str, str]:
    return {
        PAGE: f"# atlas\n\n## Facts\n- 2026-02-16: {line} {SRC}\n- Ana, by hand.\n",
        LOOM: "# loom\n\n## Facts\n",
        ANA: "# Ana Kovač\n\n## About\n- Our cartographer, see [[bo-lund]].\n",
        BO: "# Bo Lund\n",
        OVEN: "# Clean the oven\n",
    }


def test_a_line_links_the_people_projects_and_procedures_that_it_names() -> None:
    after = relinked(pages("Ana keeps the loom warm, see how to clean the oven."))
    links = "[[ana-kovac]] [[loom/context|loom]] [[clean-the-oven]]"
    assert f"- 2026-02-16: Ana keeps the loom warm, see how to clean the oven. {links} {SRC}\n" in after[PAGE]
    assert "- Ana, by hand.\n" in after[PAGE], "a person's own line is not changed"


def test_a_page_lists_the_pages_that_link_to_it_and_search_finds_it_without_the_list() -> None:
    after = relinked(pages("Ana keeps the loom warm."))
    assert after[ANA].startswith("# Ana Kovač\n\n> - Linked from: [[atlas/context|atlas]]\n\n## About\n")
    assert after[BO] == "# Bo Lund\n\n> - Linked from: [[ana-kovac]]\n", "a link written by hand counts too"
    assert "Linked from" not in after[PAGE]
    assert not any("Linked from" in one.text for one in of_knowledge(ANA, after[ANA], 1, {}))


def test_linking_again_changes_nothing_and_links_leave_with_their_reason() -> None:
    before = pages("Ana keeps the loom warm.")
    after = before | relinked(before)
    assert relinked(after) == {}
    alone = {path: text for path, text in after.items() if path not in (ANA, BO)}
    assert "[[ana-kovac]]" not in (alone | relinked(alone))[PAGE]


def test_linking_writes_the_marks_of_older_versions_as_links() -> None:
    new = pages("Ana keeps the loom warm.")
    old = {path: text.replace(SRC, f"[src: {TALK}#1]") for path, text in new.items()}
    assert old != new
    assert old | relinked(old) == new | relinked(new)


def test_a_first_name_of_two_people_links_neither_of_them() -> None:
    both = pages("Ana keeps the oven, Ana Marić the books.") | {"knowledge/people/ana-maric.md": "# Ana Marić\n"}
    assert f"the books. [[ana-maric]] {SRC}" in relinked(both)[PAGE]


def test_two_people_of_one_name_are_told_apart_by_their_project_or_company() -> None:
    said = f"- 2026-02-16: Ask Ana Kovač about the tariff. {SRC}\n- 2026-02-16: Ana Kovač of Loom & Co called. {SRC}\n"
    both = {
        PAGE: f"# atlas\n\n## Facts\n{said}",
        "knowledge/people/ana-kovac-atlas.md": "# Ana Kovač (Atlas)\n",
        "knowledge/people/ana-kovac-loom-co.md": "# Ana Kovač (Loom & Co)\n",
    }
    first, second = relinked(both)[PAGE].strip().split("\n")[-2:]
    assert first.endswith(f"the tariff. [[ana-kovac-atlas]] {SRC}")
    assert "[[ana-kovac-loom-co]]" in second


async def test_links_are_written_after_a_conversation_and_once(memory: Memory, clock: Clock) -> None:
    memory.files.write_atomic(ANA, "---\ntype: person\n---\n\n# Ana Kovač\n\n## About\n- Our cartographer.\n", new=True)
    await talk(memory, clock, "first", 0, ASK, "Understood.")
    await extract(memory)
    line = next(row for row in memory.files.read_text(PAGE).split("\n") if ASK in row)
    assert f"{ASK} [[ana-kovac]] [src: " in line
    assert "> - Linked from: [[atlas/context|atlas]]\n" in memory.files.read_text(ANA)
    await condense(memory, "weekly")
    before = snapshot(memory)
    assert (await extract(memory, anew=True)).files == {}
    await condense(memory, "weekly")
    assert snapshot(memory) == before
    await catch_up(memory)
    compiled = await compile_context(memory, CompileRequest(message="who knows the tariff?", budget=2000), Caller())
    assert "Ana Kovač" in compiled.text
    assert not any(link in compiled.text for link in ("[[ana-kovac]]", "Linked from")), "no tokens are spent on links"


@pytest.mark.parametrize("page_of", ["[[ana-kovac]] ", ""])
async def test_a_linked_page_enters_the_context_with_the_line_that_links_it(memory: Memory, page_of: str) -> None:
    reach = "In the office on Tuesdays only, room 14."
    memory.files.write_atomic(ANA, f"---\ntype: person\n---\n\n# Ana Kovač\n\n## About\n- {reach}\n", new=True)
    line = f"- 2026-02-16: Ana Kovač approves each change of the harbor tariff. {page_of}{SRC}"
    general = "knowledge/reference/general.md"
    memory.files.write_atomic(general, f"# Outside any project\n\n## Facts\n{line}\n", new=True)
    await catch_up(memory)
    request = CompileRequest(message="who approves changes of the harbor tariff?", budget=2000)
    compiled = await compile_context(memory, request, Caller())
    assert "approves each change" in compiled.text
    assert (reach in compiled.text) == bool(page_of), "the message does not name her, and shares no word with her page"


async def test_pages_have_valid_front_matter_tags_headings_and_links(memory: Memory, clock: Clock) -> None:
    memory.files.write_atomic(ANA, "---\ntype: person\ntags: [person]\n---\n\n# Ana Kovač\n", new=True)
    await talk(memory, clock, "first", 0, *FIRST)
    await talk(memory, clock, "second", 2, *SECOND, ASK, "Understood.")
    await extract(memory)
    await condense(memory, "weekly")
    texts = {path: memory.files.read_text(path) for path in sorted(memory.files.names("knowledge", ""))}
    assert any("[[ana-kovac]]" in text for text in texts.values())
    for path, text in texts.items():
        start = split_front_matter(text)
        fields = load(start.raw, path)
        body = without_comments(start.body)
        assert fields["type"], path
        shipped = path.startswith("knowledge/identity/") or path.endswith(("/MEMORY.md", "/_index.md", "/_active.md"))
        assert shipped or fields["tags"], path
        dead = [link.name for link in links(body) if resolve(link.name, link_targets(texts)) is None]
        assert dead == [], f"{path} links pages that do not exist"
        levels = [one.level for one in sections(body) if one.title]
        assert all(lower <= upper + 1 for upper, lower in pairwise(levels)), f"{path} leaves out a level of headings"
        assert not re.search(r"[ \t]+$", body, re.MULTILINE), f"{path} has spaces at the end of a line"
        assert text.endswith("\n"), path
        assert not text.endswith("\n\n"), path
