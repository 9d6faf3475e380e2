"""The workspace's folders and first files: what `init` makes, and how to tell that nobody has filled them in yet."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from mcp_server.errors import Conflict
from mcp_server.store.files import WorkspaceFiles

FOLDERS = (
    "raw/conversations",
    "knowledge/journal",
    "knowledge/procedures",
    "knowledge/reference",
    "archive",
    "scratch",
)
BEGINNING = "maintenance: a new memory"
"""The subject of the commit with the first files."""

# Packaging tools and git treat these names specially, so the bundled copies have no dot.
_DOTTED = {"gitignore": ".gitignore", "gitattributes": ".gitattributes"}


def create(root: Path, generated: Mapping[str, str]) -> bool:
    """Makes the workspace; False if it was there already, and then nothing has changed.

    `generated` are files that are not shipped but written by other rooms (path -> text), the settings among them.
    They are written last and mark a finished workspace: in one that has them all, a template that its owner deleted
    stays deleted. Raises Unavailable where the disk does not allow it.
    """
    place = WorkspaceFiles(root)
    if generated and all(place.exists(path) for path in generated):
        return False
    place.make_folder(".")
    for folder in FOLDERS:
        place.make_folder(folder)
    for path, text in {**templates(), **generated}.items():
        if not place.exists(path):
            try:
                place.write_atomic(path, text, new=True)
            except Conflict:  # another process is making the same workspace
                continue
    return True


@functools.cache
def templates() -> Mapping[str, str]:
    """The shipped files: path in the workspace -> text."""
    return dict(_bundled(files("mcp_server.data") / "workspace", ""))


def is_untouched_template(path: str, text: str) -> bool:
    """True if `text` is the shipped file of that path, whatever the line ends: nobody has filled it in."""
    shipped = templates().get(path)
    return shipped is not None and _plain(shipped) == _plain(text)


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.removeprefix("\ufeff").splitlines()).rstrip()


def _bundled(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _bundled(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + _DOTTED.get(entry.name, entry.name), entry.read_bytes().decode("utf-8").replace("\r\n", "\n")
