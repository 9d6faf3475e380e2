"""Comparing: the memory and its reconstructions, by files, by lines, and by what is found in them.

Retrieval is measured with questions that need no judge: for messages taken evenly from all conversations, the words of
a message that are rarest among them ask for it. It is found if one of the ten best knowledge passages names that
message as its source (`turns`), or another message of its conversation (`conversations`). Every version answers the
same questions, so that shares of two versions can be compared; by themselves they say little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.knowledge.reconstruct import STATE, branch_of
from mcp_server.knowledge.writing import FOLDERS
from mcp_server.memory import Memory
from mcp_server.storage.history_values import LONGEST_TEXT
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.text.derived_lines import Source, is_derived, sources_of, without_sources
from mcp_server.text.destinations import MEMORY
from mcp_server.text.markdown import split_front_matter
from mcp_server.text.words import content_words

LIVE = "memory"
"""How the memory as it is now is called among the versions."""

MOST_QUESTIONS = 300
WORDS_ASKED = 6
LEAST_WORDS = 4
DEPTH = 10


@dataclass(frozen=True, slots=True)
class Version:
    """One version: files with derived lines, such lines, turns they name; shares of the questions answered, 0 to 1."""

    name: str
    files: int
    lines: int
    sources: int
    turns: float
    conversations: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The versions, and what differs between the first and each other one, by its name."""

    questions: int
    versions: tuple[Version, ...]
    deltas: Mapping[str, Delta]


async def compare(memory: Memory, names: Sequence[str]) -> Comparison:
    """Compares the memory with these reconstructions. Raises NotFound if one does not exist, Unavailable without
    git."""
    places = {LIVE: memory.disk.root}
    for name in names:
        branch = await branch_of(memory, name)
        if branch.place is None:
            raise NotFound(f"the folder of reconstruction {name!r} is gone; drop it and make it again")
        places[name] = branch.place
    noted = await memory.state.entries(STATE)
    begun = {name: noted.get(name, {}).get("begun") for name in names}
    return await run_sync(_compared, memory, places, begun)


def _compared(memory: Memory, places: Mapping[str, Path], begun: Mapping[str, str | None]) -> Comparison:
    asked = _questions(memory)
    trees = {name: _tree(WorkspaceFiles(place)) for name, place in places.items()}
    versions = tuple(_version(name, tree, asked) for name, tree in trees.items())
    live = trees[LIVE]
    deltas = {
        name: delta(live, tree, _as_begun(memory, live, begun[name])) for name, tree in trees.items() if name != LIVE
    }
    return Comparison(len(asked), versions, deltas)


def _as_begun(memory: Memory, live: Mapping[str, str], commit: str | None) -> dict[str, str] | None:
    """Returns the bodies of the memory's files at the commit from which a reconstruction began; None if it is not
    known."""
    if commit is None:
        return None
    found = memory.git.committed_texts(list(live), LONGEST_TEXT, commit)
    return {path: split_front_matter(text).body for path, text in found.items() if text is not None}


def _tree(files: WorkspaceFiles) -> dict[str, str]:
    """Returns the bodies of all files that extractors may write, by path."""
    paths = [stat.path for folder in FOLDERS for stat in files.walk(folder) if stat.path.endswith(".md")]
    found = {path: files.readable(path) for path in sorted({*paths, MEMORY})}
    return {path: split_front_matter(text).body for path, text in found.items() if text is not None}


def _questions(memory: Memory) -> list[tuple[Source, list[str]]]:
    """Returns messages, taken evenly from all closed conversations, each with the words of its question."""
    said: list[tuple[Source, list[str]]] = []
    frequency: Counter[str] = Counter()
    for path in sorted(memory.transcripts.all()):
        try:
            transcript = memory.transcripts.read(path)
        except ContextManagerError:
            continue
        if transcript.head.ended is None:
            continue
        for placed in transcript.turns:
            words = content_words(placed.turn.content[:4000])
            if placed.turn.role == "user" and len(words) >= LEAST_WORDS:
                said.append((Source(path, placed.turn.number), words))
                frequency.update(words)
    step = max(1, len(said) // MOST_QUESTIONS)
    return [
        (source, sorted(words, key=lambda word: (frequency[word], word))[:WORDS_ASKED])
        for source, words in said[::step][:MOST_QUESTIONS]
    ]


def _version(name: str, tree: Mapping[str, str], asked: Sequence[tuple[Source, list[str]]]) -> Version:
    from rank_bm25 import BM25Plus  # pulls in NumPy

    lines = [line for body in tree.values() for line in body.split("\n") if line.strip() and line[0] != "#"]
    derived = [line for line in lines if sources_of(line)]
    turns = conversations = 0
    if derived:
        ranking = BM25Plus([content_words(line) or [""] for line in lines])
        for source, words in asked:
            scores = ranking.get_scores(words)
            best = sorted(range(len(lines)), key=lambda number: (-scores[number], number))[:DEPTH]
            found = {one for number in best for one in sources_of(lines[number])}
            turns += source in found
            conversations += any(one.path == source.path for one in found)
    return Version(
        name,
        sum(any(sources_of(line) for line in body.split("\n")) for body in tree.values()),
        len(derived),
        len({one for line in derived for one in sources_of(line)}),
        round(turns / len(asked), 4) if asked else 0.0,
        round(conversations / len(asked), 4) if asked else 0.0,
    )


@dataclass(frozen=True, slots=True)
class FileDelta:
    """A file in two versions of a memory: derived lines that only one of them has, by what they say."""

    path: str
    only_first: int
    only_second: int


@dataclass(frozen=True, slots=True)
class Delta:
    """Two versions beside each other. `own_lost` are lines of a person or an agent that the second lacks; `own_since`
    counts those that it cannot have, because they were written since it was begun: a merge keeps them."""

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
        (ours, own), (theirs, other) = _said(first.get(path, "")), _said(second.get(path, ""))
        common = (ours & theirs).total()
        second_lines, common_lines = second_lines + theirs.total(), common_lines + common
        if ours != theirs:
            files.append(FileDelta(path, ours.total() - common, theirs.total() - common))
        missing = own - other
        carried = missing if begun is None else missing & _said(begun.get(path, ""))[1]
        lost += [f"{path}: {line}" for line in carried.elements()]
        since += (missing - carried).total()
    return Delta(second_lines, common_lines, tuple(files), tuple(lost), since)


def _said(body: str) -> tuple[Counter[str], Counter[str]]:
    """Returns the texts of a body's derived lines, and its other lines without headings."""
    derived: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for line in body.split("\n"):
        if is_derived(line):
            derived[without_sources(line).strip()] += 1
        elif line.strip() and not line.startswith("#"):
            own[line.strip()] += 1
    return derived, own
