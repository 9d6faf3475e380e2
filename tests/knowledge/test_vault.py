"""The folder of pages opens as a vault of linked notes: front matter, headings and links are as such programs read
them."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from mcp_server.knowledge.condense import condense
from mcp_server.knowledge.extract import extract
from mcp_server.memory import Memory
from mcp_server.text.markdown import link_targets, links, load, resolve, sections, split_front_matter, without_comments
from tests.conftest import Clock
from tests.knowledge.test_items import FIRST, SECOND, talk
from tests.knowledge.test_linking import ANA, ASK

pytestmark = pytest.mark.anyio


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
