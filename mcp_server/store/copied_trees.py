"""Files kept without git: `.local/checkpoints/`, each content once under its SHA-256, and a list of names a checkpoint.

blobs/4f/0c…        the bytes
ckp_….json          path → SHA-256; written last, so that what it names is there
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.store.files import WorkspaceFiles

FOLDER = ".local/checkpoints"
PREFIX = "copy:"


class CopiedTrees:
    """The copies of one workspace."""

    def __init__(self, files: WorkspaceFiles) -> None:
        self._files = files

    def known(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        """The paths whose bytes are kept already, under whatever name."""
        return frozenset(path for path, data in contents.items() if self._files.exists(_place(_sha(data))))

    def put(self, number: str, contents: Mapping[str, bytes]) -> str:
        """Keeps these files under a number, durably; returns the name of the whole."""
        names = {path: _sha(data) for path, data in contents.items()}
        folders: dict[str, dict[str, bytes]] = {}
        for path, name in names.items():
            if not self._files.exists(_place(name)):
                folder, _, file = _place(name).rpartition("/")
                folders.setdefault(folder, {})[file] = contents[path]
        for folder, some in folders.items():
            self._files.write_all_atomic(folder, some)
        self._files.write_atomic(_list(number), json.dumps(names, ensure_ascii=True, indent=1, sort_keys=True))
        return PREFIX + number

    def tree_of(self, number: str) -> str | None:
        """The name of what is kept under a number; None for nothing."""
        return PREFIX + number if self._files.exists(_list(number)) else None

    def names(self, tree: str) -> dict[str, str]:
        """The files of a whole: path → SHA-256. Raises Unavailable if it is not here."""
        number = tree.removeprefix(PREFIX)
        try:
            listed = json.loads(self._files.read_text(_list(number)))
            return {str(path): str(name) for path, name in listed.items()}
        except (ContextManagerError, ValueError, AttributeError) as error:
            raise Unavailable(
                f"the knowledge of checkpoint {number} is not on this machine; it was made on another one, or was "
                f"deleted ({error})"
            ) from error

    def read(self, tree: str, paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of these files of a whole; those that it does not have are left out."""
        names = self.names(tree)
        return {path: self._files.read_bytes(_place(names[path])) for path in paths if path in names}

    def remove(self, number: str) -> None:
        """Lets go of what is kept under a number; `sweep` clears it away."""
        if self._files.exists(_list(number)):
            self._files.remove(_list(number))

    def numbers(self) -> frozenset[str]:
        """The numbers under which something is kept."""
        listed = (stat.path.removeprefix(f"{FOLDER}/") for stat in self._files.walk(f"{FOLDER}/"))
        return frozenset(name.removesuffix(".json") for name in listed if "/" not in name and name.endswith(".json"))

    def sweep(self) -> int:
        """Deletes contents that nothing names any more; returns how many. For one who is alone with the checkpoints."""
        named = {_place(name) for number in self.numbers() for name in self.names(number).values()}
        stale = [stat.path for stat in self._files.walk(f"{FOLDER}/blobs/") if stat.path not in named]
        for path in stale:
            self._files.remove(path)
        return len(stale)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _place(name: str) -> str:
    return f"{FOLDER}/blobs/{name[:2]}/{name[2:]}"


def _list(number: str) -> str:
    return f"{FOLDER}/{number}.json"
