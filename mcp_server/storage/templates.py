"""The files that a new workspace begins with."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from mcp_server.text.markdown import split_front_matter, without_comments

SETTINGS = "memory-config.yaml"
"""The memory's own settings. Every workspace has this file."""

BEGINNING = "maintenance: a new memory"
"""The subject of the commit with the first files."""

# Packaging tools and git treat these names specially, so the bundled copies have no dot.
_DOTTED = {"gitignore": ".gitignore", "gitattributes": ".gitattributes"}


@functools.cache
def templates() -> Mapping[str, str]:
    """Returns the shipped files: path in the workspace -> text."""
    return dict(_bundled(files("mcp_server.data") / "workspace", ""))


def is_untouched_template(path: str, text: str) -> bool:
    """Returns True if the user has not filled in a shipped file: `text` equals it, ignoring line ends, or has only
    headings and comments, as the files of earlier versions."""
    shipped = templates().get(path)
    return shipped is not None and (_plain(shipped) == _plain(text) or _is_bare(text))


def _is_bare(text: str) -> bool:
    rest = without_comments(split_front_matter(text).body)
    return all(not line.strip() or line.startswith("#") for line in rest.split("\n"))


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.removeprefix("\ufeff").splitlines()).rstrip()


def _bundled(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _bundled(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + _DOTTED.get(entry.name, entry.name), entry.read_bytes().decode("utf-8").replace("\r\n", "\n")
