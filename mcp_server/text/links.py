"""Wiki links, `[[name]]`, `[[name|label]]`, `[[name#heading]]`: found in text, resolved to files of the workspace."""

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
    """The links of a text in order; what stands in code is none."""
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
    """The file that a link's name means: its path, the end of one, or a file or folder of that name; None if there
    is none.

    Case, accents, spaces and a missing `.md` make no difference. Of several the shortest path wins, then the first
    by name.
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
    """The files that these names mean, as `resolve` finds them; for many names at once."""
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
