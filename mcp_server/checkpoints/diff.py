"""What would change if one state took the place of another: values for the action that carries it out, and a text for
whoever decides on it (SPEC §11, `recover` with dry run)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Literal

from mcp_server.knowledge.anchors import Anchor

MOST_LISTED = 20
"""So many names of one kind are listed, then a count."""


@dataclass(frozen=True, slots=True)
class State:
    """What a recovery restores. `knowledge` maps a path to its text; None leaves knowledge out of the comparison."""

    anchors: tuple[Anchor, ...] = ()
    topics: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    knowledge: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """Names that would come and names that would go, each sorted."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PathChange:
    """A file that would change, by lines."""

    path: str
    kind: Literal["added", "removed", "changed"]
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class Difference:
    """What would change. An anchor whose note or kind differs would change; its time does not count."""

    anchors: Names = field(default_factory=Names)
    changed_anchors: tuple[str, ...] = ()
    topics: Names = field(default_factory=Names)
    live: Names = field(default_factory=Names)
    paths: tuple[PathChange, ...] = ()

    @property
    def empty(self) -> bool:
        return self == Difference()


def difference(now: State, then: State) -> Difference:
    """What would change if `then` took the place of `now`."""
    here, there = ({anchor.item: (anchor.kind, anchor.note) for anchor in state.anchors} for state in (now, then))
    both_known = now.knowledge is not None and then.knowledge is not None
    return Difference(
        anchors=_names(here, there),
        changed_anchors=tuple(sorted(item for item in here.keys() & there.keys() if here[item] != there[item])),
        topics=_names(now.topics, then.topics),
        live=_names(now.live, then.live),
        paths=_paths(now.knowledge or {}, then.knowledge or {}) if both_known else (),
    )


def text(found: Difference) -> str:
    """The difference in words, a line for each thing; one sentence if there is none."""
    if found.empty:
        return "Nothing would change."
    lines = [
        *_listed("anchors set again", found.anchors.added),
        *_listed("anchors taken away", found.anchors.removed),
        *_listed("anchors changed", found.changed_anchors),
        *_listed("topics active again", found.topics.added),
        *_listed("topics no longer active", found.topics.removed),
        *_counted("live again", found.live.added),
        *_counted("no longer live", found.live.removed),
    ]
    if found.paths:
        added, removed = sum(one.added for one in found.paths), sum(one.removed for one in found.paths)
        lines.append(f"knowledge: {_number(len(found.paths), 'file')}, +{added:,} −{removed:,} lines")
        lines += [f"  {one.path}: {one.kind}, +{one.added:,} −{one.removed:,}" for one in found.paths[:MOST_LISTED]]
        lines += _rest(len(found.paths))
    return "\n".join(lines)


def line_changes(before: str, after: str) -> tuple[int, int]:
    """(lines added, lines removed) from one text to the other."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    same = sum(match.size for match in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks())
    return len(new) - same, len(old) - same


def _names(now: Iterable[str], then: Iterable[str]) -> Names:
    here, there = set(now), set(then)
    return Names(tuple(sorted(there - here)), tuple(sorted(here - there)))


def _paths(now: Mapping[str, str], then: Mapping[str, str]) -> tuple[PathChange, ...]:
    changes = []
    for path in sorted(now.keys() | then.keys()):
        if now.get(path) != then.get(path):
            kind: Literal["added", "removed", "changed"]
            kind = "added" if path not in now else "removed" if path not in then else "changed"
            changes.append(PathChange(path, kind, *line_changes(now.get(path, ""), then.get(path, ""))))
    return tuple(changes)


def _listed(what: str, names: Sequence[str]) -> list[str]:
    more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
    return [f"{what}: {', '.join(names[:MOST_LISTED])}{more}"] if names else []


def _counted(what: str, names: Sequence[str]) -> list[str]:
    return [f"{what}: {_number(len(names), 'chunk')}"] if names else []


def _rest(count: int) -> list[str]:
    return [f"  and {_number(count - MOST_LISTED, 'file')} more"] if count > MOST_LISTED else []


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
