"""Linked pages: with a line that answers a message, the first lines of the people and procedures that it links.

A message may ask who approves a change; the line that answers it names Ana, and only her page says when she can be
reached. Such lines share no word with the message, so no search finds them.

    score of a linked line = LINKED_SHARE · score of the line that links it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mcp_server.context.render import passage_text
from mcp_server.model import Hit, Passage
from mcp_server.text.markdown import links, resolve

LINKED_SHARE = 0.5

MOST_LINKING, MOST_LINES = 3, 3
"""The first hits whose links are followed, and the lines of each linked page."""

LONGEST = 320
"""Characters of a linked line: a longer one is not expected to be worth its tokens."""

FOLLOWED = ("knowledge/people/", "knowledge/procedures/")
"""Folders of pages that are followed. Another project's page would bring in what is not about this one."""


def linked_hits(
    hits: Sequence[Hit],
    worthwhile: Collection[int],
    paths: Callable[[], Sequence[str]],
    passages: Callable[[str], Sequence[Passage]],
) -> list[Hit]:
    """Returns hits for lines of the pages that the first worthwhile hits link to. `worthwhile` are their positions,
    `paths` lists the pages of FOLLOWED, and `passages` returns those of a page."""
    first = [hits[place] for place in sorted(worthwhile) if "[[" in hits[place].passage.text][:MOST_LINKING]
    if not first:
        return []
    known, found = paths(), {(hit.passage.path, hit.passage.start): hit for hit in hits}
    new: dict[tuple[str, int], Hit] = {}
    for hit in first:
        for link in links(hit.passage.text):
            path = resolve(link.name, known)
            lines = [one for one in passages(path) if one.part == 0][:MOST_LINES] if path else ()
            for one in lines:
                place = (one.path, one.start)
                if place not in found and len(passage_text(one)) <= LONGEST:
                    score = LINKED_SHARE * hit.score
                    new.setdefault(place, Hit(one, score, {"linked": score}))
    return list(new.values())
