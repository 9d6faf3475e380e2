"""Checkpoints on disk: their pages, their state, and the knowledge files at that time.

`checkpoints/{session}/{id}.md` is a page for people. A checkpoint exists if its page exists. The complete checkpoint,
for restoring, is in `.local/checkpoints/{id}.xz`, which is written before the page. A checkpoint of the previous format
has everything in its page.

The tree of a checkpoint has every file of `knowledge/` and `topics/`, and `anchors.yaml`, committed or not. It is
stored in git or as copies. Files with secrets and large files are left out, and the reason is recorded.
"""

from __future__ import annotations

import hashlib
import json
import logging
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from secrets import token_hex

from mcp_server.checkpoints.document import SCHEMA, Checkpoint, page, parse, render
from mcp_server.errors import ContextManagerError, NotFound, Unavailable
from mcp_server.storage.files import Files
from mcp_server.storage.ports import History, Trees
from mcp_server.storage.values import FileStat
from mcp_server.text.markdown import read_moment, split_front_matter
from mcp_server.text.prose import did_you_mean
from mcp_server.text.redaction import secrets
from mcp_server.text.transcript_head import file_id, own_fields

TREES = ".local/checkpoints"
COPY = "copy:"


class CopiedTrees:
    """Trees as copies in `.local/checkpoints/`; equal contents are stored once."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def known(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        return frozenset(path for path, data in contents.items() if self._files.exists(_place(_sha(data))))

    def put(self, number: str, contents: Mapping[str, bytes], known: Set[str]) -> str:
        names = {path: _sha(data) for path, data in contents.items()}
        folders: dict[str, dict[str, bytes]] = {}
        for path in contents.keys() - known:
            folder, _, file = _place(names[path]).rpartition("/")
            folders.setdefault(folder, {})[file] = contents[path]
        for folder, some in folders.items():
            self._files.write_all_atomic(folder, some)
        self._files.write_atomic(_list(number), json.dumps(names, ensure_ascii=True, indent=1, sort_keys=True))
        return COPY + number

    def tree_of(self, number: str) -> str | None:
        return COPY + number if self._files.exists(_list(number)) else None

    def names(self, tree: str) -> dict[str, str]:
        """Returns the files of a tree: path -> SHA-256. Raises Unavailable if it is not here."""
        number = tree.removeprefix(COPY)
        try:
            listed = json.loads(self._files.read_text(_list(number)))
            return {str(path): str(name) for path, name in listed.items()}
        except (ContextManagerError, ValueError, AttributeError) as error:
            raise Unavailable(
                f"the knowledge of checkpoint {number} is not on this machine; it was made on another one, or was "
                f"deleted ({error})"
            ) from error

    def read(self, tree: str, paths: Iterable[str]) -> dict[str, bytes]:
        names = self.names(tree)
        return {path: self._files.read_bytes(_place(names[path])) for path in paths if path in names}

    def remove(self, number: str) -> None:
        """Deletes the tree under a number; `sweep` deletes its contents later."""
        if self._files.exists(_list(number)):
            self._files.remove(_list(number))

    def numbers(self) -> frozenset[str]:
        listed = (stat.path.removeprefix(f"{TREES}/") for stat in self._files.walk(f"{TREES}/"))
        return frozenset(name.removesuffix(".json") for name in listed if "/" not in name and name.endswith(".json"))

    def sweep(self) -> int:
        """Deletes contents that no tree uses any more, and returns their number. Call it only while no other process
        uses the checkpoints."""
        named = {_place(name) for number in self.numbers() for name in self.names(number).values()}
        stale = [stat.path for stat in self._files.walk(f"{TREES}/blobs/") if stat.path not in named]
        for path in stale:
            self._files.remove(path)
        return len(stale)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _place(name: str) -> str:
    return f"{TREES}/blobs/{name[:2]}/{name[2:]}"


def _list(number: str) -> str:
    return f"{TREES}/{number}.json"


FOLDERS = ("knowledge/", "topics/")
ANCHORS = "anchors.yaml"
LARGEST = 5_000_000
"""Larger files are left out: knowledge is text; large files belong in `attachments/`."""

log = logging.getLogger(__name__)


class CheckpointTrees:
    """The checkpoint trees of a workspace. Methods are synchronous and need no lock, because they change no branch, no
    git index and no file of others."""

    def __init__(self, files: Files, git: History) -> None:
        self._files = files
        self._copies = CopiedTrees(files)
        self._git = git

    def contents(self, more: Iterable[str] = ()) -> dict[str, bytes]:
        """Returns the bytes of the current knowledge files and of the files `more`, by path."""
        found = {path: data for folder in FOLDERS for path, data in self._files.contents(folder)}
        return found | self.current(path for path in (ANCHORS, *more) if path not in found)

    def take(self, number: str, contents: Mapping[str, bytes]) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Stores these files under a checkpoint's number. Uses git if it works, else copies. Returns the name of the
        tree, and the files that it lacks, each with the reason. Raises Unavailable if the disk refuses both."""
        for trees in self._places():
            try:
                wanted, left_out, known = _checked(trees, contents)
                return trees.put(number, wanted, known), tuple(sorted(left_out.items()))
            except Unavailable as error:
                if trees is self._copies:
                    raise
                log.warning("git cannot store the checkpoint's knowledge, so it is stored as copies: %s", error)
        raise AssertionError  # unreachable: `_places` ends with the copies

    def refused(self) -> dict[str, str]:
        """Returns the files that `take` would leave out now, each with the reason."""
        for trees in self._places():
            with suppress(Unavailable):  # then `take` makes copies
                return _checked(trees, self.contents())[1]
        return {}

    def clean(self, number: str, clean: Callable[[str, bytes], bytes | None]) -> bool:
        """Replaces the files of a checkpoint's tree by `clean(path, bytes)`; None removes a file. Returns False if
        nothing changed."""
        changed = False
        for trees in self._places():
            tree = trees.tree_of(number)
            if tree is None:
                continue
            before = trees.read(tree, trees.names(tree))
            after = {path: data for path, raw in before.items() if (data := clean(path, raw)) is not None}
            if after != before:
                trees.put(number, after, trees.known(after))
                changed = True
        return changed

    def names(self, tree: str) -> dict[str, str]:
        """Returns the files of a tree: path -> id of the bytes, comparable among trees of the same kind. Raises
        Unavailable."""
        return self._of(tree).names(tree)

    def read(self, tree: str, paths: Iterable[str] | None = None) -> dict[str, bytes]:
        """Returns the bytes of these files of a tree, by default of all; missing ones are left out."""
        return self._of(tree).read(tree, self.names(tree) if paths is None else paths)

    def remove(self, number: str) -> None:
        """Deletes a checkpoint's tree, if there is one. `sweep` deletes it later if git refuses."""
        for trees in self._places():
            try:
                trees.remove(number)
            except Unavailable as error:
                log.warning("the tree of %s was not deleted: %s", number, error)

    def sweep(self, kept: frozenset[str]) -> int:
        """Deletes all trees except those of these checkpoints, and returns the number of deleted trees. Call it only
        while no other process uses the checkpoints."""
        stale = 0
        for trees in self._places():
            try:
                for number in trees.numbers() - kept:
                    trees.remove(number)
                    stale += 1
            except Unavailable as error:  # a broken repository: the copies are still deleted
                log.warning("trees without a checkpoint were not deleted: %s", error)
        self._copies.sweep()
        return stale

    def current(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Returns the bytes of these files as they are now; missing and unreadable ones are left out."""
        found: dict[str, bytes] = {}
        for path in paths:
            with suppress(ContextManagerError):
                if (data := self._files.bytes_or_none(path)) is not None:
                    found[path] = data
        return found

    def _places(self) -> Iterator[Trees]:
        in_git = self._git.trees()
        if in_git is not None:
            yield in_git
        yield self._copies

    def _of(self, tree: str) -> Trees:
        if tree.startswith(COPY):
            return self._copies
        in_git = self._git.trees()
        if in_git is None:
            raise Unavailable(
                "the knowledge of this checkpoint is kept in git: git, or the workspace's repository, was not found; "
                "install git (https://git-scm.com), or recover the repository, and try again"
            )
        return in_git


def _checked(trees: Trees, contents: Mapping[str, bytes]) -> tuple[dict[str, bytes], dict[str, str], frozenset[str]]:
    """Returns the files that may be stored, the others with the reason, and the paths whose bytes are stored already.
    Bytes that are stored already are not searched for secrets again."""
    left_out: dict[str, str] = {}
    for path, data in contents.items():
        if "\n" in path or "\t" in path:
            left_out[path] = "has a name with a line break or a tab"
        elif len(data) > LARGEST:
            left_out[path] = f"has {len(data):,} bytes, over {LARGEST:,}"
    wanted = {path: data for path, data in contents.items() if path not in left_out}
    known = trees.known(wanted)
    for path in wanted.keys() - known:
        if kinds := sorted({found.kind for found in secrets(contents[path].decode("utf-8", "replace"))}):
            left_out[path] = f"holds a secret ({', '.join(kinds)})"
    return {path: data for path, data in wanted.items() if path not in left_out}, left_out, known


FOLDER = "checkpoints"
PREFIX = "ckp_"

_HEAD = 8_192  # bytes that always contain the whole front matter of a checkpoint


@dataclass(frozen=True, slots=True)
class Head:
    """The front matter of a checkpoint; see `Checkpoint`. `described` adds the thread and the next step."""

    id: str
    session: str
    at: datetime
    reason: str
    turn: int
    note: str
    path: str
    thread: str = ""
    next_step: str = ""


def new_id() -> str:
    return PREFIX + token_hex(8)


class CheckpointFiles:
    """The files of one workspace. Methods are synchronous."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def write(self, checkpoint: Checkpoint, before: Checkpoint | None = None) -> str:
        """Writes a checkpoint durably and returns its path. Raises Conflict if the page on disk differs from that of
        `before`; without `before`, if there is a page."""
        path = f"{folder_of(checkpoint.session)}/{checkpoint.id}.md"
        if before is None:
            self._put(path, render(checkpoint))
            self._files.write_atomic(path, page(checkpoint), new=True)
        else:
            self._files.write_atomic(path, page(checkpoint), page(before))
            self._put(path, render(checkpoint))
        return path

    def replace(self, path: str, checkpoint: Checkpoint) -> None:
        """Replaces the content of a checkpoint. Call it under `locks.files()`."""
        self._put(path, render(checkpoint))
        self._files.write_atomic(path, page(checkpoint))

    def read(self, path: str) -> Checkpoint:
        """Returns a checkpoint, without its state if only its page is on this machine. Raises NotFound, or Invalid with
        file and field."""
        shown = self._files.read_text(path)
        whole = self._whole(path)
        return parse(shown if whole is None else whole, path)

    def clean(self, path: str, clean: Callable[[str, bytes], bytes | None]) -> None:
        """Replaces the complete checkpoint (`.xz`) by `clean(path, bytes)`; None removes it."""
        if (before := self._whole(path)) is not None:
            after = clean(path, before.encode("utf-8"))
            if after is None:
                self._files.remove(_whole_of(path))
            elif after != before.encode("utf-8"):
                self._put(path, after.decode("utf-8", "replace"))

    def sweep(self) -> None:
        """Deletes the `.xz` files that have no page. Call it only while no other process uses the checkpoints."""
        known = {_whole_of(stat.path) for stat in self._pages(FOLDER)}
        for stat in list(self._files.walk(f"{TREES}/")):
            if stat.path.endswith(".xz") and stat.path not in known:
                self._files.remove(stat.path)

    def _put(self, path: str, text: str) -> None:
        self._files.write_bytes_atomic(_whole_of(path), lzma.compress(text.encode("utf-8"), preset=1))

    def _whole(self, path: str) -> str | None:
        try:
            return lzma.decompress(self._files.read_bytes(_whole_of(path))).decode("utf-8")
        except (NotFound, lzma.LZMAError, UnicodeDecodeError):
            return None

    def find(self, number: str) -> str:
        """Returns the path of a checkpoint. Raises NotFound with the nearest id."""
        known = {stat.path.rsplit("/", 1)[-1].removesuffix(".md"): stat.path for stat in self._pages(FOLDER)}
        if number in known:
            return known[number]
        raise NotFound(f"no checkpoint {number!r}{did_you_mean(number, known)} (`recover` without an id lists them)")

    def count(self, session: str) -> int:
        """Returns the number of checkpoints of a session, without reading them."""
        return sum(1 for _ in self._pages(folder_of(session)))

    def heads(self, session: str | None = None) -> list[Head]:
        """Returns the checkpoints of a session, or of all, newest first. Skips other files."""
        found: list[tuple[tuple[datetime, int, int], Head]] = []
        for stat in self._pages(FOLDER if session is None else folder_of(session)):
            try:
                head = self._head(stat.path)
                if head is not None and session in (None, head.session):
                    found.append(((head.at, head.turn, stat.mtime_ns), head))
            except ContextManagerError:
                continue
        return [head for _, head in sorted(found, key=lambda one: one[0], reverse=True)]

    def described(self, head: Head) -> Head:
        """Returns the front matter with the thread and the next step from the checkpoint's page; unchanged if the page
        cannot be read."""
        try:
            shown = parse(self._files.read_text(head.path), head.path)
        except ContextManagerError:
            return head
        return replace(head, thread=shown.thread, next_step=shown.next_step)

    def remove(self, path: str) -> None:
        self._files.remove(path)
        if self._files.exists(_whole_of(path)):
            self._files.remove(_whole_of(path))

    def _head(self, path: str) -> Head | None:
        start = self._files.read_bytes(path, 0, _HEAD).decode("utf-8", "replace").replace("\r\n", "\n")
        fields = own_fields(split_front_matter(start).raw)
        at = read_moment(fields.get("at")) if fields else None
        if not fields or fields.get("schema") != SCHEMA or at is None:
            return None
        turn = fields.get("turn")
        number, session, reason, note = (str(fields.get(name) or "") for name in ("id", "session", "reason", "note"))
        return Head(number, session, at, reason, turn if isinstance(turn, int) else 0, note, path)

    def _pages(self, folder: str) -> Iterator[FileStat]:
        for stat in self._files.walk(f"{folder}/"):
            if stat.path.endswith(".md") and stat.path.rsplit("/", 1)[-1].startswith(PREFIX):
                yield stat


def _whole_of(path: str) -> str:
    return f"{TREES}/{path.rsplit('/', 1)[-1].removesuffix('.md')}.xz"


def folder_of(session: str) -> str:
    return f"{FOLDER}/{file_id(session)}"
