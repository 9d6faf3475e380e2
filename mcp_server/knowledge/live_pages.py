"""Live pages: a page that shows the items of open conversations, and the page without them.

    base    the page without the items of open conversations
    shown   the page on disk: the base with those items merged into it

When a conversation ends, its items are extracted into the base. The page is then the same as if those items had never
been shown. If somebody edits the page while it is shown, the edits go into the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from mcp_server.knowledge.duplicates import is_duplicate, normalised
from mcp_server.knowledge.pages import in_order, with_entry, without_empty
from mcp_server.text import entries
from mcp_server.text.entries import Entry, Line, LineKind, sources_of, without_sources
from mcp_server.text.markdown import sections, split_front_matter


@dataclass(frozen=True, slots=True)
class Gone:
    """A line of an open conversation that a person deleted or changed: it is not shown again."""

    text: str
    sources: tuple[str, ...]

    def names(self, line: Line) -> bool:
        """Returns whether `line` is the deleted one."""
        return str(line.source) in self.sources and (
            normalised(line.text) == normalised(self.text) or is_duplicate(line.text, self.text)
        )


@dataclass(frozen=True, slots=True)
class LivePage:
    """A page that shows items of open conversations. None stands for a file that does not exist. `was` is the text on
    disk before `shown` was written: after a crash between the two steps, the file still has it."""

    base: str | None
    shown: str | None
    was: str | None = None
    gone: tuple[Gone, ...] = ()

    def edited(self, current: str | None) -> LivePage:
        """Returns the page for `current`, the text that is on disk now. If somebody edited the file, the page gets a
        new base."""
        if current in (self.shown, self.was):
            return self
        base, gone = rebased(self.base, self.shown, current)
        return LivePage(base, current, current, (*self.gone, *gone))


def page_from(stored: object, current: str | None) -> LivePage:
    """Returns a stored page, updated for `current`, the text that is on disk now. If nothing was stored, the page shows
    no items of open conversations."""
    if not isinstance(stored, Mapping):
        return LivePage(current, current)
    gone = tuple(Gone(one["text"], tuple(one["sources"])) for one in stored["gone"])
    return LivePage(stored["base"], stored["shown"], stored["was"], gone).edited(current)


def lines_from(stored: object) -> list[Line]:
    """Returns lines from their JSON values (`asdict`); an empty list if the values are invalid."""
    if not isinstance(stored, list):
        return []
    try:
        return [Line(**{**one, "heard": tuple(one["heard"])}) for one in stored if one["kind"] in get_args(LineKind)]
    except (LookupError, TypeError):
        return []


def rebased(base: str | None, shown: str | None, current: str | None) -> tuple[str | None, list[Gone]]:
    """Returns the base after somebody changed the page from `shown` to `current`, and the live lines that are gone.

    The edited page becomes the base, without the lines that are only in `shown` and with those that only `base` has.
    """
    if current is None:  # moved to the archive, or deleted: the lines may come back
        return None, []
    before, after, here = _derived(base), _derived(shown), _derived(current)
    added, removed = after.keys() - before.keys(), before.keys() - after.keys()
    split = split_front_matter(current)
    body = entries.without(split.body, [here[key] for key in added & here.keys()])
    body = without_empty(body, _titles(shown) - _titles(base))
    moved = {key for key in added if any(_is_moved(one, key) for one in removed)}
    for key in sorted(removed):
        changed = [one for one in added if _is_moved(key, one)]
        if not changed or any(one in here for one in changed):
            body = with_entry(body, _title(base, key[0]), key[1])
    gone = _gone(added - here.keys() - moved, here)
    return split.head + in_order(body), gone


_Key = tuple[str, str]
"""A derived line by its section, in lower case, and its text."""


def _derived(text: str | None) -> dict[_Key, Entry]:
    found = entries.derived(split_front_matter(text or "").body)
    return {(one.section.casefold(), one.text): one for one in found}


def _is_moved(old: _Key, new: _Key) -> bool:
    """Returns whether `new` is the line `old` after an item of an open conversation was merged into it or settled it:
    the two lines then share a source."""
    return bool(set(sources_of(old[1])) & set(sources_of(new[1])))


def _gone(keys: set[_Key], here: Mapping[_Key, Entry]) -> list[Gone]:
    """Returns the lines whose text is in no section of the page."""
    there = {text for _, text in here}
    return [
        Gone(without_sources(entries.statement(text)).strip(), tuple(map(str, sources_of(text))))
        for _, text in sorted(keys)
        if text not in there
    ]


def _title(text: str | None, section: str) -> str:
    """Returns a section's heading with the letter case that the page uses."""
    found = sections(split_front_matter(text or "").body, 1)
    return next((one.title for one in found if one.title.casefold() == section), section)


def _titles(text: str | None) -> set[str]:
    return {one.title for one in sections(split_front_matter(text or "").body, 1) if one.title}
