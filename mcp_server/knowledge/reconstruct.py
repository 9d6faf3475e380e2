"""Derives all knowledge again from the conversations, on a separate branch.

The live files and the current branch are not changed: the branch `extract/NAME` has its own folder and state, and
uncommitted changes are committed there. Only lines with an extractor's source are derived again. Lines by people and
agents, and imported ones, are copied. Two reconstructions can be compared with the memory and with each other; one is
merged into the memory on request.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from anyio.to_thread import run_sync

from mcp_server.errors import NotFound
from mcp_server.history.committing import OURS
from mcp_server.history.explore import LOCAL, BranchFolders, beside
from mcp_server.history.merging import Joined, join
from mcp_server.knowledge.condense import condense
from mcp_server.knowledge.derive import chosen, versions
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.pages import holds_nothing, stripped, without_empty
from mcp_server.knowledge.writing import FLUSHED, FOLDERS, bodies_of, markdown_in
from mcp_server.memory import Memory
from mcp_server.storage.files import Files
from mcp_server.storage.history_values import Branch
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.git.git import Git
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.local.state import LocalState
from mcp_server.storage.transcripts import Transcripts
from mcp_server.storage.values import Changes, Folder
from mcp_server.text.destinations import MEMORY
from mcp_server.text.entries import is_derived, sources_of, without_sources
from mcp_server.text.markdown import split_front_matter

LIVE = "memory"
"""The name of the current memory among the compared versions."""


@dataclass(frozen=True, slots=True)
class Version:
    """Measurements of one version of the knowledge: the number of files with derived lines, of these lines, and of the
    turns that they name."""

    name: str
    files: int
    lines: int
    sources: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The compared versions, and the differences (`deltas`) between the first one and each other one, by the name of
    the latter."""

    versions: tuple[Version, ...]
    deltas: Mapping[str, Delta]


async def compare(memory: Memory, names: Sequence[str]) -> Comparison:
    """Compares the memory with these reconstructions. Raises NotFound if one does not exist, Unavailable without
    git."""
    places = {LIVE: memory.disk.root}
    for name in names:
        branch = await RECONSTRUCTIONS.find(memory, name)
        if branch.place is None:
            raise NotFound(f"the folder of reconstruction {name!r} is gone; drop the reconstruction and make it again")
        places[name] = branch.place
    noted = await memory.state.entries(STATE)
    begun = {name: noted.get(name, {}).get("begun") for name in names}
    return await run_sync(_compared, memory, places, begun)


def _compared(memory: Memory, places: Mapping[str, Path], begun: Mapping[str, str | None]) -> Comparison:
    there = {name: WorkspaceFiles(place) for name, place in places.items()}
    trees = {name: bodies_of(files, [*markdown_in(files, *FOLDERS), MEMORY]) for name, files in there.items()}
    versions = tuple(_version(name, tree) for name, tree in trees.items())
    live = trees[LIVE]
    deltas = {
        name: delta(live, tree, _as_begun(memory, live, begun[name])) for name, tree in trees.items() if name != LIVE
    }
    return Comparison(versions, deltas)


def _as_begun(memory: Memory, live: Mapping[str, str], commit: str | None) -> dict[str, str] | None:
    """Returns the bodies of the memory's files at the commit from which a reconstruction began; None if it is not
    known."""
    if commit is None:
        return None
    found = memory.git.committed_texts(list(live), commit)
    return {path: split_front_matter(text).body for path, text in found.items() if text is not None}


def _version(name: str, tree: Mapping[str, str]) -> Version:
    sources = [[found for line in body.split("\n") if (found := sources_of(line))] for body in tree.values()]
    lines = [line for of_file in sources for line in of_file]
    return Version(name, sum(map(bool, sources)), len(lines), len({one for line in lines for one in line}))


@dataclass(frozen=True, slots=True)
class FileDelta:
    """A file that differs between two versions of a memory: the numbers of derived lines that only one version has.
    Lines are compared without their sources."""

    path: str
    only_first: int
    only_second: int


@dataclass(frozen=True, slots=True)
class Delta:
    """The differences between two versions. `own_lost` are lines of a person or an agent that the second version has
    lost. `own_since` counts the lines that the second version cannot have, because they were written after it was
    begun; a merge keeps them."""

    second_lines: int
    common: int
    files: tuple[FileDelta, ...]
    own_lost: tuple[str, ...]
    own_since: int = 0


def delta(first: Mapping[str, str], second: Mapping[str, str], begun: Mapping[str, str] | None = None) -> Delta:
    """Compares two versions of a memory, each as bodies by path. `begun` is the first version when the second was made
    from it; by default it has not changed since."""
    files: list[FileDelta] = []
    second_lines = common_lines = 0
    lost: list[str] = []
    since = 0
    for path in sorted({*first, *second}):
        (ours, own), (theirs, other) = _line_counts(first.get(path, "")), _line_counts(second.get(path, ""))
        common = (ours & theirs).total()
        second_lines, common_lines = second_lines + theirs.total(), common_lines + common
        if ours != theirs:
            files.append(FileDelta(path, ours.total() - common, theirs.total() - common))
        missing = own - other
        carried = missing if begun is None else missing & _line_counts(begun.get(path, ""))[1]
        lost += [f"{path}: {line}" for line in carried.elements()]
        since += (missing - carried).total()
    return Delta(second_lines, common_lines, tuple(files), tuple(lost), since)


def _line_counts(body: str) -> tuple[Counter[str], Counter[str]]:
    """Returns the texts of a body's derived lines, and those of its other lines without headings, with their counts."""
    derived: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for line in body.split("\n"):
        if is_derived(line):
            derived[without_sources(line).strip()] += 1
        elif line.strip() and not line.startswith("#"):
            own[line.strip()] += 1
    return derived, own


RECONSTRUCTIONS = BranchFolders("extract", "reconstruction", "reconstruct")

CARRIED = tuple(path for path in OURS if path not in ("raw/conversations", "checkpoints", "attachments"))
"""Paths that are committed on the branch. Conversations, checkpoints and attachments are committed on the current
branch, as usual."""

STATE = "reconstruct"
"""Namespace of the state: name → when, by what and from which commit it was made."""


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """A reconstruction: its folder (None if it is gone), when it was made, by which model and extractors (`by`), from
    how many conversations, and the numbers of derived lines that were removed (`before`) and derived again
    (`lines`)."""

    name: str
    place: str | None
    made: datetime
    by: str
    conversations: int
    before: int
    lines: int
    notes: tuple[str, ...] = ()


async def reconstruct(
    memory: Memory,
    name: str,
    extractors: Sequence[str] = (),
    *,
    use_model: bool = True,
    show: Callable[[float, float, str], None] = lambda done, total, label: None,
) -> Reconstruction:
    """Makes a reconstruction from all closed conversations, by the named extractors (by all if no name is given), with
    an LLM if there is one.

    Raises:
        Invalid: an invalid name, or an unknown extractor.
        Conflict: the name is taken.
        Unavailable: there is no git.
    """
    used = versions(chosen(extractors))
    model = memory.llm.model if use_model and memory.llm is not None else "rules"
    async with RECONSTRUCTIONS.making(memory, name) as place:
        begun = await _commit_uncommitted(memory, name, place)
        made = await _derive_again(memory, name, place, extractors, use_model, f"{model}; {used}", show)
        noted = {field: getattr(made, field) for field in ("by", "conversations", "before", "lines")}
        await memory.state.put(STATE, name, {**noted, "made": made.made.isoformat(), "begun": begun})
    return made


async def reconstructions(memory: Memory) -> list[Reconstruction]:
    """Returns all reconstructions, oldest first. Raises Unavailable without git."""
    known = await memory.state.entries(STATE)
    found = [_read(one, known.get(RECONSTRUCTIONS.short(one), {})) for one in await RECONSTRUCTIONS.all(memory)]
    return sorted(found, key=lambda one: (one.made, one.name))


async def merge(memory: Memory, name: str) -> Joined | None:
    """Merges a reconstruction into the memory, tags the commit, and ends the reconstruction. Returns None if nothing
    differs. Later edits of the memory stay. Raises NotFound, Unavailable, or Refused if files that it changes are
    staged."""
    branch = await RECONSTRUCTIONS.find(memory, name)
    noted = await memory.state.get(STATE, name) or {}
    text = f"extract: merge reconstruction {name}\n\nBy {noted.get('by', 'not known')}."
    joined = await join(memory, branch.commit, lambda plan: text, begun=noted.get("begun"))
    if joined is not None:
        joined = replace(joined, tag=await RECONSTRUCTIONS.tag(memory, f"extract/{name}", joined.commit))
    await _end(memory, branch)
    return joined


async def drop(memory: Memory, name: str) -> None:
    """Ends a reconstruction without a tag, because it can be made again. Raises NotFound, Unavailable."""
    await _end(memory, await RECONSTRUCTIONS.find(memory, name))


async def _commit_uncommitted(memory: Memory, name: str, place: Path) -> str:
    """Copies uncommitted changes into the new folder and commits them there. Returns the commit to begin from. Changes
    that may not be committed are copied too, so that no comparison reports them as lost."""
    git, there = Git(place, memory.git.clock), WorkspaceFiles(place, beside(place, LOCAL))

    def copied() -> list[str]:
        paths = [path for path in memory.git.differing(OURS) if not (memory.disk.root / path).is_dir()]
        for path in paths:
            try:
                there.write_bytes_atomic(path, memory.files.read_bytes(path), None)
            except NotFound:
                if there.exists(path):
                    there.remove(path)
        return [path for path in paths if path.startswith(CARRIED)]

    paths = await run_sync(copied)
    if paths:
        async with memory.locks.git():
            await run_sync(git.commit_files, paths, f"extract: what was not committed yet when {name} was begun")
    return str(await run_sync(git.head))


async def _derive_again(
    memory: Memory,
    name: str,
    place: Path,
    extractors: Sequence[str],
    use_model: bool,
    by: str,
    show: Callable[[float, float, str], None],
) -> Reconstruction:
    async with _beside(memory, place, use_model) as there:
        emptied, before = await run_sync(_strip, there.files)
        done = await extract(there, names=extractors, anew=True, show=show)
        weekly = await condense(there, "weekly", with_indexes=False)
        await run_sync(_tidy, there.files, emptied)
        left_out = await RECONSTRUCTIONS.commit(memory, there.git, CARRIED)
        done.notes += [f"{path} is not in the reconstruction: {reason}" for path, reason in left_out.items()]
    by_rules = f"{done.fell_back} conversations were read by rules: the model gave no usable answer"
    notes = (*done.notes, *weekly.notes, *([by_rules] if done.fell_back else []))
    return Reconstruction(name, str(place), memory.clock(), by, done.read, before, done.lines, notes)


@asynccontextmanager
async def _beside(memory: Memory, place: Path, use_model: bool) -> AsyncIterator[Memory]:
    """Yields the memory of another work tree with its own files, state and locks."""
    local = beside(place, LOCAL)
    files = WorkspaceFiles(place, local)
    locks = Locks(local)
    state = await LocalState.open(local / "state.db", locks)
    try:
        yield replace(
            memory,
            disk=Folder.at(files.root, files.local),
            files=files,
            transcripts=Transcripts(files),
            state=state,
            locks=locks,
            git=Git(place, memory.git.clock),
            changes=Changes(),
            llm=memory.llm if use_model else None,
        )
    finally:
        await state.close()
        shutil.rmtree(local, ignore_errors=True)


def _strip(files: Files) -> tuple[dict[str, frozenset[str]], int]:
    """Removes the derived lines from every file. Returns the headings that became empty, by path, and the number of
    lines."""
    emptied: dict[str, frozenset[str]] = {}
    removed = 0
    for path in (*markdown_in(files, *FOLDERS), MEMORY):
        text = files.readable(path)
        if text is None:
            continue
        split = split_front_matter(text)
        without = stripped(split.body, FLUSHED)
        if without.removed:
            files.write_atomic(path, split.head + without.body, text)
            emptied[path] = without.emptied
            removed += without.removed
    return emptied, removed


def _tidy(files: Files, emptied: dict[str, frozenset[str]]) -> None:
    """Removes headings that became empty, and files without any text."""
    for path, headings in emptied.items():
        text = files.text_or_none(path)
        if text is None:
            continue
        split = split_front_matter(text)
        after = without_empty(split.body, headings)
        if path != MEMORY and holds_nothing(after):
            files.remove(path)
        elif after != split.body:
            files.write_atomic(path, split.head + after, text)


async def _end(memory: Memory, branch: Branch) -> None:
    await RECONSTRUCTIONS.remove(memory, branch)
    await memory.state.remove(STATE, RECONSTRUCTIONS.short(branch))


def _read(branch: Branch, noted: dict[str, object]) -> Reconstruction:
    made = noted.get("made")
    return Reconstruction(
        RECONSTRUCTIONS.short(branch),
        str(branch.place) if branch.place else None,
        datetime.fromisoformat(made) if isinstance(made, str) else branch.at,
        str(noted.get("by", "not known")),
        int(str(noted.get("conversations", 0))),
        int(str(noted.get("before", 0))),
        int(str(noted.get("lines", 0))),
    )
