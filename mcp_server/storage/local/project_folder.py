"""Keys of a project folder: its `.context-manager` file, git's origin, its oldest commit, or the folder itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mcp_server.project import origin_key

MARKER = ".context-manager"
_LINKED = re.compile(r"gitdir: (.+?)/\.git/worktrees/")


@dataclass(slots=True)
class ProjectFolders:
    """Reads folders of the client's machine. `home`, `temporary` and `workspace` are never projects by themselves.

    What git says of a folder is asked once a process: a remote that is added later is seen by the next start.
    """

    home: Path
    temporary: Path
    workspace: Path
    _git_keys: dict[Path, tuple[str, ...]] = field(default_factory=dict)

    def keys(self, folder: str, directory_id: Callable[[str], str]) -> tuple[str, ...]:
        """Returns the raw keys of a folder, best first: name, git, root, or `dir:` with the id from
        `directory_id(path)`.

        Returns nothing for the home folder, the file system's root, temporary folders and missing folders.
        """
        here = Path(os.path.realpath(folder))
        if not here.is_dir():
            return ()
        named = self._named(here)
        found = ((named,) if named else ()) + self._from_git(here)
        if found or self._is_nobodys(here) or here.is_relative_to(os.path.realpath(self.temporary)):
            return found
        return (f"dir:{directory_id(str(here))}",)

    def name(self, folder: str) -> str:
        """Returns the name of a folder's project: the folder of its repository (of a linked worktree the main one),
        else the folder."""
        here = Path(os.path.realpath(folder))
        top = next((place for place in (here, *here.parents) if (place / ".git").exists()), here)
        try:
            linked = _LINKED.match((top / ".git").read_text("utf-8"))
        except (OSError, UnicodeDecodeError):  # an ordinary repository, or none
            linked = None
        return Path(linked[1]).name if linked else top.name

    def _is_nobodys(self, folder: Path) -> bool:
        nobodys = {Path(os.path.realpath(place)) for place in (self.home, self.temporary, self.workspace)}
        return folder == folder.parent or folder in nobodys

    def _named(self, folder: Path) -> str | None:
        for place in (folder, *folder.parents):
            marker = place / MARKER
            try:
                with marker.open("rb") as stream:
                    lines = stream.read(1000).decode("utf-8", "replace").split("\n")
            except OSError:
                continue
            name = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", lines[0]).split())
            if name:
                return f"name:{name}"
        return None

    def _from_git(self, folder: Path) -> tuple[str, ...]:
        if folder not in self._git_keys:
            self._git_keys[folder] = self._ask_git(folder)
        return self._git_keys[folder]

    def _ask_git(self, folder: Path) -> tuple[str, ...]:
        if not any((place / ".git").exists() for place in (folder, *folder.parents)):
            return ()  # spares the start of a process
        from mcp_server.storage.local.git.repository import ask_git

        top = ask_git(folder, "rev-parse", "--show-toplevel")
        if not top or self._is_nobodys(Path(os.path.realpath(top))):
            return ()
        origin = ask_git(folder, "config", "--get", "remote.origin.url")
        roots = (ask_git(folder, "rev-list", "--max-parents=0", "--date-order", "--reverse", "HEAD") or "").split()
        by_origin = origin_key(origin) if origin else None
        return tuple(key for key in (by_origin, f"root:{roots[0]}" if roots else None) if key)
