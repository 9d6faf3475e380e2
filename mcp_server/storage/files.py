"""Documents by path: the base class of both engines, and the files of a new workspace. Paths are POSIX strings relative
to the workspace, and valid on every system."""

from __future__ import annotations

import difflib
import functools
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice
from typing import get_args

from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused
from mcp_server.model import Category
from mcp_server.storage.values import FileStat
from mcp_server.text.markdown import split_front_matter, without_comments

MOST_SIMILAR = 5_000
"""Most paths with which a missing path is compared to find a similar one."""

_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\\:]")


@lru_cache(4096)
def is_usable(name: str) -> bool:
    """Returns True if a file or folder of this name can be part of a path on every system."""
    forbidden = _FORBIDDEN.search(name) or _DEVICE.fullmatch(name) or name.endswith((".", " "))
    return not forbidden and len(name.encode()) <= 255


@lru_cache(4096)
def parts_of(path: str) -> tuple[str, ...]:
    """Returns the parts of a relative path that is valid on every system. Raises Refused for any other path."""
    if not path.strip():
        raise Refused("the path is empty; name a file inside the workspace, such as knowledge/memory/MEMORY.md")
    found = _FORBIDDEN.search(path)
    if found:
        raise Refused(
            f"{path!r} contains {found.group()!r}, which paths cannot have; use letters, digits, '-', '_', '.' and '/'"
        )
    if path.startswith(("/", "~")):
        raise Refused(f"{path!r} is absolute; give a path relative to the workspace")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for part in parts:
        if part == "..":
            raise Refused(f"{path!r} leaves the workspace ('..'); give a path inside it")
        if part.lower() == ".git":
            raise Refused(f"{path!r} leads into git's own folder; use the history tools instead")
        if _DEVICE.fullmatch(part) or part.endswith((".", " ")):
            raise Refused(f"{path!r} contains {part!r}, a name that Windows does not allow; choose another one")
        if len(part.encode()) > 255:
            raise Refused(f"{part[:60]}… is too long for a file name; choose a shorter one")
    return tuple(parts)


def file_name(name: str) -> str:
    """Returns `name` unchanged. Raises Refused if it is not a valid file name without a folder on every system."""
    if len(parts_of(name)) != 1:
        raise Refused(f"{name!r} is not a file name without a folder")
    return name


class Files(ABC):
    """Documents by path. Writes are atomic, and on disk when a method returns. Methods are synchronous and short;
    actions call those that may take over a millisecond in a worker thread.

    Raises Refused for a path outside the workspace, NotFound for a missing file, Unavailable if the disk fails.
    """

    @abstractmethod
    def relative(self, path: str) -> str:
        """Returns the path that the index uses for a file: links resolved, no doubled slashes."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Returns True if there is a file or folder."""

    @abstractmethod
    def is_folder(self, path: str) -> bool:
        """Returns True if there is a folder."""

    @abstractmethod
    def stat(self, path: str) -> FileStat:
        """Returns size and mtime of a file. Raises NotFound with the nearest name."""

    @abstractmethod
    def version(self, path: str) -> object | None:
        """Returns a value that changes whenever the file may have changed; None if there is no such file."""

    # reading

    @abstractmethod
    def read_bytes(self, path: str, start: int = 0, size: int = -1) -> bytes:
        """Returns the file's bytes, or `size` bytes from `start`. Raises NotFound with the nearest name, Invalid for a
        folder."""

    def bytes_or_none(self, path: str) -> bytes | None:
        """Returns the file's bytes, or None if there is no such file. Raises Invalid for a folder."""
        return self.read_bytes(path) if self.exists(path) else None

    def read_text(self, path: str) -> str:
        """Returns the file's text. Raises NotFound with the nearest name, Invalid for a binary file."""
        text = self.text_or_none(path)
        if text is None:
            raise self.missing(path)
        return text

    def text_or_none(self, path: str) -> str | None:
        """Returns the file's text, or None if there is no such file. Raises Invalid for a binary file."""
        data = self.bytes_or_none(path)
        if data is None:
            return None
        if b"\0" in data:
            raise Invalid(f"{path} is a binary file (it has NUL bytes); only text can be read")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise Invalid(f"{path}: line {line}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error

    def texts(self, paths: Iterable[str]) -> dict[str, str | None]:
        """Returns the texts of these files by path; None for a file that cannot be read. Missing files are left out."""
        texts: dict[str, str | None] = {}
        for path in paths:
            try:
                if (text := self.text_or_none(path)) is not None:
                    texts[path] = text
            except ContextManagerError:
                texts[path] = None
        return texts

    def readable(self, path: str) -> str | None:
        """Returns the file's text, or None if it does not exist or is not text. `doctor` reports files that are not
        text."""
        try:
            return self.text_or_none(path)
        except Invalid:
            return None

    @abstractmethod
    def walk(self, prefix: str = "") -> Iterator[FileStat]:
        """Yields every file below a folder, ordered by name; none if there is no such folder.

        Skips hidden files and folders, symbolic links, and names that are not allowed in a path.
        """

    @abstractmethod
    def contents(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yields path and bytes of every file that `walk` lists below a folder. Skips files that cannot be read."""

    @abstractmethod
    def names(self, prefix: str, part: str) -> list[str]:
        """Returns the paths of the markdown files below a folder whose names contain `part`, in no order.

        Skips hidden files and links.
        """

    def unusable(self, prefix: str) -> Iterator[str]:
        """Yields the paths below a folder that `walk` skips because of their names. Of a folder, only its own path."""
        return iter(())

    @abstractmethod
    def everything(self) -> Iterator[str]:
        """Yields the paths of all files, including hidden ones and `.local/`, but not those of git."""

    def unnamed(self, path: str, most: int) -> bytes | None:
        """Returns up to `most` bytes of a file whose name is not allowed in a path; None for all others."""
        return None

    def past_versions(self) -> Iterator[tuple[str, int, bytes]]:
        """Yields path, number and bytes of the earlier versions that the engine itself stores; nothing if git stores
        them."""
        return iter(())

    def count(self) -> Counter[str]:
        """Returns the number of markdown files of each category; "other" for files in other folders."""
        known = set(get_args(Category))
        counts: Counter[str] = Counter()
        for prefix in ("knowledge", "topics", "archive", "raw/conversations"):
            for found in self.walk(prefix):
                parts = found.path.split("/")
                name = {"people": "person", "projects": "project", "procedures": "procedure"}.get(parts[1], parts[1])
                if parts[0] != "knowledge":
                    name = "conversation" if parts[0] == "raw" else parts[0].rstrip("s")
                if found.path.endswith(".md"):
                    counts[name if name in known else "other"] += 1
        return counts

    def nearest(self, path: str) -> str | None:
        """Returns the file whose path or name is most similar to `path`, if any. If several files have that name,
        prefers the one under knowledge/, because it is current."""
        known = [stat.path for stat in islice(self.walk(), MOST_SIMILAR)]
        known.sort(key=lambda path: not path.startswith("knowledge/"))
        by_path = difflib.get_close_matches(path, known, n=1, cutoff=0.75)
        if by_path:
            return by_path[0]
        by_name = {name.rsplit("/", 1)[-1]: name for name in reversed(known)}
        close = difflib.get_close_matches(path.rsplit("/", 1)[-1], list(by_name), n=1, cutoff=0.75)
        return by_name[close[0]] if close else None

    def missing(self, path: str) -> NotFound:
        """Returns the error for a missing file, with the nearest name."""
        near = self.nearest(path)
        return NotFound(
            f"no file {path!r}" + (f"; did you mean {near!r}?" if near else "; use search to find stored texts")
        )

    # writing

    def write_atomic(self, path: str, text: str, expected: str | None = None, *, new: bool = False) -> None:
        """Replaces the file's text durably and atomically: readers and crashes see the old file or the new one.

        Raises Conflict if the file's text is not `expected`, or with `new` if there is a file. Raises Unavailable for a
        full or read-only disk; then nothing has changed.
        """
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Invalid(
                f"{path}: character {error.start + 1} is half of a surrogate pair and cannot be written"
            ) from error
        self.write_bytes_atomic(path, data, None if expected is None else expected.encode("utf-8", "replace"), new=new)

    def write_missing(self, texts: Mapping[str, str]) -> None:
        """Writes the files (path -> text) that do not exist yet. Another process may do the same at the same time."""
        for path, text in texts.items():
            if not self.exists(path):
                with suppress(Conflict):
                    self.write_atomic(path, text, new=True)

    @abstractmethod
    def write_bytes_atomic(
        self, path: str, data: bytes, expected: bytes | None = None, *, new: bool = False, sealed: bool = False
    ) -> None:
        """Replaces the file's bytes, as `write_atomic` does for text. With `sealed`, the file becomes read-only."""

    @abstractmethod
    def write_all_atomic(self, folder: str, contents: Mapping[str, bytes], *, synced: bool = True) -> None:
        """Replaces files of one folder, by name, each atomically. All are on disk when it returns.

        Without `synced` it does not wait for the disk: use that for copies of data that is on disk already.
        """

    @abstractmethod
    def append_durable(self, path: str, data: bytes, at_offset: int) -> int:
        """Writes `data` at byte `at_offset`, where the intact file ends, truncates after it, and returns the new size.

        The caller holds the file's lock and knows that no byte after `at_offset` was acknowledged. If it fails, the
        file ends at `at_offset`. Raises Refused for a read-only file, Conflict if the file is shorter than that.
        """

    @abstractmethod
    def append_log(self, path: str, line: bytes, most: int) -> None:
        """Appends a line to a log, without waiting for the disk. Lines of several processes do not mix.

        Above `most` bytes the log is renamed to `NAME.1.jsonl`, which replaces the previous one. Raises Unavailable.
        """

    @abstractmethod
    def move(self, path: str, to: str) -> None:
        """Renames a file or folder durably. Raises Conflict if `to` exists."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Deletes a file, durably. Raises NotFound with the nearest name."""

    @abstractmethod
    def remove_all(self, folder: str, names: Iterable[str]) -> None:
        """Deletes files of one folder durably. Skips missing ones."""

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """Deletes a folder and all its files. Does nothing if it is missing."""

    def remove_empty(self, folder: str) -> None:  # noqa: B027 - without folders there is nothing to do
        """Deletes a folder and its parents as far as they are empty."""

    @abstractmethod
    def erase(self, path: str) -> None:
        """Overwrites a file and deletes it, so that its text cannot be restored. Does nothing if it is missing."""

    def erase_versions(self, versions: Iterable[tuple[str, int]]) -> None:  # noqa: B027 - with git there are none
        """Deletes these earlier versions (path and number, from `past_versions`)."""

    def remove_leftovers(self) -> None:  # noqa: B027 - a database leaves none
        """Deletes the temporary files of crashed writes."""


SETTINGS = "memory-config.yaml"
"""The memory's own settings. Every workspace has this file."""

BEGINNING = "maintenance: a new memory"
"""The subject of the first commit, which has the files of a new workspace."""

# Packaging tools and git treat these names specially, so the bundled copies have no dot.
_DOTTED = {"gitignore": ".gitignore", "gitattributes": ".gitattributes"}


@functools.cache
def templates() -> Mapping[str, str]:
    """Returns the shipped files: path in the workspace -> text."""
    return dict(_bundled(files("mcp_server.data") / "workspace", ""))


def is_untouched_template(path: str, text: str) -> bool:
    """Returns True if the user has not filled in a shipped file: `text` equals it, ignoring line ends, or has only
    headings and comments, as the shipped files of earlier versions had."""
    shipped = templates().get(path)
    if shipped is None:
        return False
    lines = without_comments(split_front_matter(text).body).split("\n")
    return _plain(shipped) == _plain(text) or all(not line.strip() or line.startswith("#") for line in lines)


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.removeprefix("\ufeff").splitlines()).rstrip()


def _bundled(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _bundled(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + _DOTTED.get(entry.name, entry.name), entry.read_bytes().decode("utf-8").replace("\r\n", "\n")
