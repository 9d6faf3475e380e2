"""Folders of this machine: workspaces and the client's project folders.

The keys of a project come from its `.context-manager` file, git's origin, its oldest commit, or the folder itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mcp_server.errors import NotFound, Refused, Unavailable
from mcp_server.model import origin_key
from mcp_server.storage.files import SETTINGS, templates
from mcp_server.storage.git_process import ask_git
from mcp_server.storage.local.durable import TEMPORARY
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.values import LOCAL

MARKER = ".context-manager"
_LINKED = re.compile(r"gitdir: (.+?)/\.git/worktrees/")


@dataclass(slots=True)
class ProjectFolders:
    """Reads folders of the client's machine. `home`, `temporary` and `workspace` are never projects themselves.

    Git is run once for each folder and process: a remote that is added later is found after a restart.
    """

    home: Path
    temporary: Path
    workspace: Path
    _git_keys: dict[Path, tuple[str, ...]] = field(default_factory=dict)

    def keys(self, folder: str, directory_id: Callable[[str], str]) -> tuple[str, ...]:
        """Returns the raw keys of a folder, best first: `name:`, git's origin, `root:`, or `dir:` with the id from
        `directory_id(path)`.

        Returns nothing for the home folder, the file system's root, temporary folders and missing folders.
        """
        here = Path(os.path.realpath(folder))
        if not here.is_dir():
            return ()
        if here not in self._git_keys:
            self._git_keys[here] = self._from_git(here)
        named = self._named(here)
        found = ((named,) if named else ()) + self._git_keys[here]
        if found or self._is_never_a_project(here) or here.is_relative_to(os.path.realpath(self.temporary)):
            return found
        return (f"dir:{directory_id(str(here))}",)

    def name(self, folder: str) -> str:
        """Returns the name of a folder's project: the name of its repository's folder (for a linked worktree, of the
        main repository's folder), else the folder's own name."""
        here = Path(os.path.realpath(folder))
        top = next((place for place in (here, *here.parents) if (place / ".git").exists()), here)
        try:
            linked = _LINKED.match((top / ".git").read_text("utf-8"))
        except (OSError, UnicodeDecodeError):  # an ordinary repository, or none
            linked = None
        return Path(linked[1]).name if linked else top.name

    def _is_never_a_project(self, folder: Path) -> bool:
        excluded = {Path(os.path.realpath(place)) for place in (self.home, self.temporary, self.workspace)}
        return folder == folder.parent or folder in excluded

    def _named(self, folder: Path) -> str | None:
        for place in (folder, *folder.parents):
            marker = place / MARKER
            try:
                with marker.open("rb") as stream:
                    lines = stream.read(1000).decode("utf-8", "replace").split("\n")
            except OSError:
                continue
            name = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", lines[0]).split())
            if name := name.removeprefix("name:").strip():  # people also write "name: bakery"
                return f"name:{name}"
        return None

    def _from_git(self, folder: Path) -> tuple[str, ...]:
        if not any((place / ".git").exists() for place in (folder, *folder.parents)):
            return ()  # without starting git
        top = ask_git(folder, "rev-parse", "--show-toplevel")
        if not top or self._is_never_a_project(Path(os.path.realpath(top))):
            return ()
        origin = ask_git(folder, "config", "--get", "remote.origin.url")
        roots = (ask_git(folder, "rev-list", "--max-parents=0", "--date-order", "--reverse", "HEAD") or "").split()
        by_origin = origin_key(origin) if origin else None
        return tuple(key for key in (by_origin, f"root:{roots[0]}" if roots else None) if key)


IfMissing = Literal["create", "refuse", "adopt"]
"""What to do with a folder that is not a workspace: `create` a workspace if the folder is missing or empty, `refuse`
it, or `adopt` it together with its other files."""

FOLDERS = (
    "raw/conversations",
    "knowledge/journal",
    "knowledge/procedures",
    "knowledge/reference",
    "archive",
    "scratch",
)

_DESKTOP = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""Files that desktops create in folders that they show. A folder with only such files counts as empty."""


def is_workspace(root: Path) -> bool:
    """Returns whether the folder is a workspace. A workspace without its settings file is recognized by its folders."""
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
        raise Unavailable(f"{root} cannot be read ({error.strerror}); check its permissions") from error
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
    """Returns whether the folder is missing, empty, or left incomplete by a killed `create`. Raises OSError if it is
    unreadable."""
    if not root.is_dir():
        return not root.exists()

    def unreadable(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(root, onerror=unreadable):
        above = Path(folder).relative_to(root)
        if above == Path():
            if ".git" in {*folders, *names}:
                return False
            # Hooks write a queue there before a server creates the workspace.
            folders[:] = [name for name in folders if name != LOCAL]
        for name in names:
            known = (above / name).as_posix() in templates() or name in _DESKTOP or TEMPORARY.fullmatch(name)
            if not known:
                return False
    return True


def _is_clone_without_files(root: Path) -> bool:
    """Returns whether the folder has only a git repository, and that contains a memory.

    Git makes such a clone without files if the remote's HEAD names a branch that does not exist.
    """
    if not _has_repository(root) or {path.name for path in root.iterdir()} - {".git", LOCAL} - _DESKTOP:
        return False
    refs = (ask_git(root, "for-each-ref", "--format=%(objectname)") or "").split()
    return any(ask_git(root, "ls-tree", "--name-only", ref, SETTINGS) for ref in refs)


def _has_repository(root: Path) -> bool:
    return os.path.lexists(root / ".git")


def create(root: Path, generated: Mapping[str, str]) -> bool:
    """Creates the workspace. Returns False, and changes nothing, if it exists.

    `generated` are further files (path -> text), such as the settings. They are written last: a workspace that has all
    of them is complete, so templates that its owner deleted are not written again. Raises Unavailable if the disk
    refuses a write.
    """
    place = WorkspaceFiles(root)
    if generated and all(place.exists(path) for path in generated):
        return False
    place.make_folder(".")
    for folder in FOLDERS:
        place.make_folder(folder)
    place.write_missing({**templates(), **generated})
    return True
