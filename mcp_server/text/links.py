"""Finds wiki links in a text (`[[name]]`, `[[name|label]]`, `[[name#heading]]`), and the file that each one means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from mcp_server.text.words import fold

_LINK = re.compile(r"\[\[([^\[\]|#\n]{1,200})(?:#([^\[\]|\n]{0,200}))?(?:\|([^\[\]\n]{0,200}))?\]\]")
_CODE = re.compile(
    r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)|(`+)(?!`)[^\n]*?(?<!`)\2(?!`)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link as written: the name it points to, a heading of that file, the label it shows; and where it stands."""

    name: str
    heading: str | None
    label: str
    start: int
    end: int


def links(text: str) -> tuple[Link, ...]:
    """Returns the links of a text in order; links in code do not count."""
    if "[[" not in text:
        return ()
    code = [match.span() for match in _CODE.finditer(text)]
    found: list[Link] = []
    passed = 0
    for match in _LINK.finditer(text):
        while passed < len(code) and code[passed][1] <= match.start():
            passed += 1
        name = match.group(1).strip()
        if not name or (passed < len(code) and code[passed][0] <= match.start()):
            continue
        heading = (match.group(2) or "").strip() or None
        found.append(Link(name, heading, (match.group(3) or "").strip() or name, *match.span()))
    return tuple(found)


def resolve(name: str, known_paths: Iterable[str]) -> str | None:
    """Returns the file that a link's name means: by its path, the end of its path, or the name of the file or its
    folder; None if there is none.

    Ignores case, accents, spaces and a missing `.md`. Of several files the one with the shortest path is returned, then
    the first by name.
    """
    wanted = _plain(name)
    best: tuple[int, int, str] | None = None
    for path in known_paths:
        plain = _plain(path)
        if plain == wanted:
            rank = 0
        elif plain.endswith(f"/{wanted}"):
            rank = 1
        elif plain.endswith((f"/{wanted}/context", f"/{wanted}/-index")):
            rank = 2  # `[[atlas]]` is the project's folder
        else:
            continue
        if best is None or (rank, len(path), path) < best:
            best = (rank, len(path), path)
    return best[2] if best else None


def linked(names: Iterable[str], known_paths: Iterable[str]) -> frozenset[str]:
    """Returns the files that these names mean, as `resolve` does for one name."""
    best: dict[str, tuple[int, int, str]] = {}
    for path in known_paths:
        plain = _plain(path)
        steps = plain.split("/")
        for first in range(len(steps)):
            rank = 0 if first == 0 else 1
            _better(best, "/".join(steps[first:]), (rank, len(path), path))
            if steps[-1] in ("context", "-index") and 0 < first < len(steps) - 1:
                _better(best, "/".join(steps[first:-1]), (2, len(path), path))
    return frozenset(best[wanted][2] for wanted in map(_plain, names) if wanted in best)


def _better(best: dict[str, tuple[int, int, str]], name: str, found: tuple[int, int, str]) -> None:
    best[name] = min(best.get(name, found), found)


def _plain(path: str) -> str:
    return re.sub(r"[\s_]+", "-", fold(path.strip().strip("/").removesuffix(".md")))
