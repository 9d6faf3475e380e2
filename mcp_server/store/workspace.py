"""The workspace's folders and first files: what `init` creates, and whether a folder is a workspace at all."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from mcp_server.errors import Conflict, NotFound, Refused, Unavailable
from mcp_server.store.durable import TEMPORARY
from mcp_server.store.files import WorkspaceFiles
from mcp_server.store.git_repository import ask_git
from mcp_server.store.paths import LOCAL

SETTINGS = "memory-config.yaml"
"""The settings that belong to the memory. Every workspace has this file."""

IfMissing = Literal["create", "refuse", "adopt"]
"""What opening a folder without a workspace does: `create` one if the folder is missing or empty, `refuse`, or `adopt`
the folder whatever else is in it."""

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


_DESKTOP = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""Files that desktops put into every folder that is looked at: a folder with nothing else is empty."""


def is_workspace(root: Path) -> bool:
    """Whether the folder is a workspace. One that lost its settings file is recognized by its folders."""
    folders = [(root / name).is_dir() for name in ("knowledge", "raw/conversations", "topics")]
    if (root / SETTINGS).is_file():
        return any(folders) or not _has_repository(root)
    return (all(folders) and not _is_free(root)) or _is_clone_without_files(root)


def check_may_open(root: Path, if_missing: IfMissing) -> None:
    """Raises if `root` is no workspace and none may be created there.

    Raises:
        NotFound: the folder is missing or empty, and the caller only reads.
        Refused: the folder holds something else, such as another project's repository.
        Unavailable: the folder cannot be read.
    """
    try:
        if if_missing == "adopt" or is_workspace(root):
            return
        free = _is_free(root)
    except OSError as error:
        raise Unavailable(f"{root} cannot be read ({error.strerror}); give yourself access to it") from error
    here = f"context-manager --workspace {root} init"
    other = "name another folder with --workspace or CONTEXT_MANAGER_HOME"
    if not free:
        holds = "a git repository" if _has_repository(root) else "other files"
        raise Refused(
            f"{root} is not a memory: it holds {holds}, and nothing was written there; {other}, or, if you want a "
            f"memory among these files: {here} --adopt"
        )
    if if_missing == "refuse":
        raise NotFound(f"there is no memory in {root}; create one: {here}; or {other}")


def _is_free(root: Path) -> bool:
    """Whether the folder is missing, empty, or as a killed `create` left it. Raises OSError if it is unreadable."""
    if not root.is_dir():
        return not root.exists()

    def unreadable(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(root, onerror=unreadable):
        above = Path(folder).relative_to(root)
        if above == Path():
            if ".git" in {*folders, *names}:
                return False
            folders[:] = [name for name in folders if name != LOCAL]  # hooks queue there before a server creates
        for name in names:
            known = (above / name).as_posix() in templates() or name in _DESKTOP or TEMPORARY.fullmatch(name)
            if not known:
                return False
    return True


def _is_clone_without_files(root: Path) -> bool:
    """Whether only git's folder is there, and it holds a memory: git checks nothing out if the remote's HEAD names a
    branch that does not exist."""
    if not _has_repository(root) or {path.name for path in root.iterdir()} - {".git", LOCAL} - _DESKTOP:
        return False
    refs = (ask_git(root, "for-each-ref", "--format=%(objectname)") or "").split()
    return any(ask_git(root, "ls-tree", "--name-only", ref, SETTINGS) for ref in refs)


def _has_repository(root: Path) -> bool:
    return os.path.lexists(root / ".git")


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
