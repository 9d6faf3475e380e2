"""Recognizes and creates workspaces: the folders and first files that `init` makes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from mcp_server.errors import Conflict, NotFound, Refused, Unavailable
from mcp_server.storage.local.durable import TEMPORARY
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.git.repository import ask_git
from mcp_server.storage.templates import SETTINGS, templates
from mcp_server.storage.values import LOCAL

IfMissing = Literal["create", "refuse", "adopt"]
"""What to do with a folder that is not a workspace: `create` one if it is missing or empty, `refuse`, or `adopt` it
with its other files."""

FOLDERS = (
    "raw/conversations",
    "knowledge/journal",
    "knowledge/procedures",
    "knowledge/reference",
    "archive",
    "scratch",
)


_DESKTOP = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""Files that desktops create in folders that they show. A folder with only such files is empty."""


def is_workspace(root: Path) -> bool:
    """Returns whether the folder is a workspace. One without its settings file is recognized by its folders."""
    folders = [(root / name).is_dir() for name in ("knowledge", "raw/conversations", "topics")]
    if (root / SETTINGS).is_file():
        return any(folders) or not _has_repository(root)
    return (all(folders) and not _is_free(root)) or _is_clone_without_files(root)


def check_may_open(root: Path, if_missing: IfMissing) -> None:
    """Raises if `root` is not a workspace and none may be created there.

    Raises:
        NotFound: the folder is missing or empty, and `if_missing` is `refuse`.
        Refused: the folder contains other files, such as another project's repository.
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
        content = "a git repository" if _has_repository(root) else "other files"
        raise Refused(
            f"{root} is not a memory: it contains {content}, and nothing was written there; {other}, or, if you want a "
            f"memory among these files: {here} --adopt"
        )
    if if_missing == "refuse":
        raise NotFound(f"there is no memory in {root}; create one: {here}; or {other}")


def _is_free(root: Path) -> bool:
    """Returns whether the folder is missing, empty, or left by a killed `create`. Raises OSError if unreadable."""
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
    """Returns whether the folder has only a git repository, which contains a memory.

    Git leaves such a clone if the remote's HEAD names a branch that does not exist.
    """
    if not _has_repository(root) or {path.name for path in root.iterdir()} - {".git", LOCAL} - _DESKTOP:
        return False
    refs = (ask_git(root, "for-each-ref", "--format=%(objectname)") or "").split()
    return any(ask_git(root, "ls-tree", "--name-only", ref, SETTINGS) for ref in refs)


def _has_repository(root: Path) -> bool:
    return os.path.lexists(root / ".git")


def create(root: Path, generated: Mapping[str, str]) -> bool:
    """Creates the workspace. Returns False, and changes nothing, if it exists.

    `generated` are further files (path -> text), such as the settings. They are written last: a workspace that has them
    all is complete, and templates that its owner deleted stay deleted. Raises Unavailable if the disk refuses.
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
            except Conflict:  # another process is creating the same workspace
                continue
    return True
