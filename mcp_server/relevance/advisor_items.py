"""The advisor's items (files, skills and agent outputs in a client's context) and their scores.

    score = recency + frequency + relevance, each 0 to 10, together 0 to 30

    recency   = 10 within 5 minutes of the last access, 8 within 15, 6 within 30, 4 within 60, 2 within 120, else 0
    frequency = 10 from 10 accesses on, 8 from 7, 6 from 4, 4 from 2, 2 for 1, else 0
    relevance = 10 if a keyword of the prompt is a word of the item's name, path or tags
                 8 if it is a word of its description or category only
                 6 for the same technology, 4 for the same architectural layer (by the lexicon)
                 2 for something generic, 0 for something unrelated

On the first prompt of a session recency is 10 and frequency 0 for all. Items are what clients say they loaded, and the
files that tool calls name. The lexicon is the built-in file, or the user's own file if the setting `advisor.lexicon`
names one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path, PurePosixPath
from posixpath import commonpath
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.model import Turn
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.text.markdown import load
from mcp_server.text.words import words

ItemType = Literal["skill", "file", "agent"]

ESTIMATES: Mapping[ItemType, int] = {"skill": 550, "file": 850, "agent": 1500}
"""Estimated tokens of an item without a count."""


@dataclass(frozen=True, slots=True)
class ContextItem:
    """An item and its accesses. `path` is the client's name for it, `below` the path from the project's root on, if the
    root is known; times are aware, in UTC; `chunks` are the ids of the live chunks that contain it."""

    id: str
    type: ItemType
    path: str
    loaded: datetime
    last_accessed: datetime
    accesses: int
    tokens: int
    tags: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    description: str = ""
    mtime: datetime | None = None
    chunks: tuple[str, ...] = ()
    below: str = ""

    @property
    def named(self) -> frozenset[str]:
        """Returns the folded words of its path and tags."""
        return frozenset(words(" ".join(((self.below or self.path).replace("_", " "), *self.tags))))

    @property
    def described(self) -> frozenset[str]:
        """Returns the folded words of its description and topics."""
        return frozenset(words(" ".join((self.description, *self.topics))))


def items_of(live: Iterable[LiveChunk], turns: Mapping[int, Turn], *, estimated: bool) -> list[ContextItem]:
    """Returns the items of a live set in the order in which they came, without cold ones.

    `turns` are by number. A file that a tool read has the tokens of the tool's result. If only the beginning of the
    result is recorded, and `estimated` is set (the client's window has the whole result), it has an estimate.

    The folder that all absolute paths share is left out when they are compared with a prompt: it is the project's, and
    a prompt that names the project does not mean all of its files.
    """
    found: dict[str, ContextItem] = {}
    for chunk in (chunk for chunk in live if chunk.form != "cold"):
        if kind := next((known for known in ESTIMATES if known == chunk.kind), None):
            _add(found, _loaded(chunk, kind))
        elif chunk.kind == "tool" and (turn := turns.get(chunk.turn)) and chunk.part <= len(turn.tool_calls):
            call = turn.tool_calls[chunk.part - 1]
            files = tuple(dict.fromkeys(path for path in map(_plain, call.files) if path))
            for path in files:
                tokens = -(-chunk.tokens // len(files))
                if estimated and (not call.result or call.result.endswith("…")):  # only its beginning is recorded
                    tokens = ESTIMATES["file"]
                _add(found, ContextItem(f"file:{path}", "file", path, turn.at, turn.at, 1, tokens, chunks=(chunk.id,)))
    absolute = [item.path for item in found.values() if item.type == "file" and PurePosixPath(item.path).is_absolute()]
    if not absolute:
        return list(found.values())
    folder = commonpath([path.rpartition("/")[0] or "/" for path in absolute]).rstrip("/")
    return [replace(item, below=item.path.removeprefix(f"{folder}/")) for item in found.values()]


_NUMBERED = re.compile(r"^ *\d+(?:→|\t) ?", re.MULTILINE)
"""The line number that a client's tool puts before each line."""
_DOCSTRING = re.compile(
    r"""\A(?:#!.*\n|#.*\n|\s)*[rub]*(?:\"{3}|'{3}|/\*\*?|//[/!])[\s*]*(?P<text>[^\n]*)""", re.IGNORECASE
)
_HEADING = re.compile(r"^#{1,6} +(?P<text>[^\n]*)", re.MULTILINE)
HEAD, LONGEST_DESCRIPTION = 4_000, 200
"""Characters of a file in which its description is looked for, and of the description."""


def with_contents(item: ContextItem, texts: Sequence[str], count: Callable[[str], int]) -> ContextItem:
    """Returns a file with its description and the tokens of the `texts` that were read of it; unchanged without
    texts."""
    if not texts:
        return item
    described = next(filter(None, (described_by(text, item.path) for text in texts)), "")
    return replace(item, tokens=sum(map(count, texts)), description=item.description or described)


def described_by(text: str, path: str) -> str:
    """Returns the first heading of a markdown file, or the first line of another file's docstring; "" without one."""
    head = _NUMBERED.sub("", text[:HEAD])
    found = (_HEADING.search if path.endswith((".md", ".markdown")) else _DOCSTRING.match)(head)
    return found["text"].strip(" \"'*/")[:LONGEST_DESCRIPTION] if found else ""


def _loaded(chunk: LiveChunk, kind: ItemType) -> ContextItem:
    path = _plain(chunk.name)
    seen = chunk.accessed or chunk.added
    if kind == "file" and chunk.mtime is not None:
        seen = max(seen, chunk.mtime)
    return ContextItem(
        id=f"{kind}:{path if kind == 'file' else short_name(path)}",
        type=kind,
        path=path,
        loaded=chunk.added,
        last_accessed=seen,
        accesses=chunk.accesses,
        tokens=chunk.tokens,
        tags=chunk.tags,
        topics=chunk.topics,
        mtime=chunk.mtime,
        chunks=(chunk.id,),
    )


def _add(found: dict[str, ContextItem], new: ContextItem) -> None:
    """Adds an item. If the item exists already, adds the accesses and tokens to it."""
    known = found.get(new.id)
    if known is None:
        found[new.id] = new
        return
    found[new.id] = replace(
        known,
        loaded=min(known.loaded, new.loaded),
        last_accessed=max(known.last_accessed, new.last_accessed),
        accesses=known.accesses + new.accesses,
        tokens=known.tokens + new.tokens,
        tags=tuple(dict.fromkeys((*known.tags, *new.tags))),
        topics=tuple(dict.fromkeys((*known.topics, *new.topics))),
        mtime=new.mtime or known.mtime,
        chunks=(*known.chunks, *new.chunks),
    )


def _plain(path: str) -> str:
    return path.strip().replace("\\", "/").removeprefix("./")


def short_name(path: str) -> str:
    """Returns the name of a skill or agent: `skills/api-design/SKILL.md` and `api-design` are `api-design`."""
    return path.removesuffix("/SKILL.md").removesuffix(".md").rsplit("/", 1)[-1]


MINUTES = ((5, 10), (15, 8), (30, 6), (60, 4), (120, 2))
ACCESSES = ((10, 10), (7, 8), (4, 6), (2, 4), (1, 2))
DIRECT, RELATED, SAME_TECHNOLOGY, SAME_LAYER, GENERIC, UNRELATED = 10, 8, 6, 4, 2, 0
Band = Literal["prune", "consider", "keep unless critical", "keep"]


def _word(value: object) -> str:
    folded = [] if isinstance(value, list | dict) else words(str(value))
    if len(folded) != 1:
        raise ValueError(f"{value!r} is not one word")
    return folded[0]


_Words = frozenset[Annotated[str, BeforeValidator(_word)]]
_Groups = Mapping[Annotated[str, BeforeValidator(str)], _Words]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Groups of folded words: technology or layer → its words; and generic words."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    technologies: _Groups
    layers: _Groups
    generic: _Words


@dataclass(frozen=True, slots=True)
class AdvisorScore:
    """A score with its terms: `total` is their sum; `why` explains the relevance."""

    recency: int
    frequency: int
    relevance: int
    why: str = ""

    @property
    def total(self) -> int:
        return self.recency + self.frequency + self.relevance

    def terms(self) -> Mapping[str, int]:
        """Returns the terms by name, as in the state file."""
        return {"recency": self.recency, "frequency": self.frequency, "relevance": self.relevance}


def band(total: int) -> Band:
    """Returns the label of a score: 0–8 prune, 9–15 consider, 16–22 keep unless critical, 23–30 keep."""
    if total <= 8:
        return "prune"
    if total <= 15:
        return "consider"
    return "keep unless critical" if total <= 22 else "keep"


def recency(minutes: float) -> int:
    """Returns the points for an item that was last accessed `minutes` ago."""
    return next((points for most, points in MINUTES if minutes <= most), 0)


def frequency(accesses: int) -> int:
    """Returns the points for the number of accesses in this session."""
    return next((points for least, points in ACCESSES if accesses >= least), 0)


def relevance(
    keywords: Iterable[str], named: frozenset[str], described: frozenset[str], lexicon: Lexicon
) -> tuple[int, str]:
    """Returns the points and the reason. `keywords` are the prompt's content words, `named` the words of an item's
    name, path and tags, `described` those of its description and category; all folded."""
    asked = frozenset(keywords)
    if direct := sorted(asked & named):
        return DIRECT, f"named in the prompt: {', '.join(direct)}"
    if related := sorted(asked & described):
        return RELATED, f"its description has words of the prompt: {', '.join(related)}"
    words = named | described
    if technology := _shared(asked, words, lexicon.technologies):
        return SAME_TECHNOLOGY, f"same technology: {technology}"
    if layer := _shared(asked, words, lexicon.layers):
        return SAME_LAYER, f"same layer: {layer}"
    if general := sorted(words & lexicon.generic):
        return GENERIC, f"generic: {', '.join(general)}"
    return UNRELATED, "unrelated to the prompt"


def _shared(asked: frozenset[str], words: frozenset[str], groups: Mapping[str, frozenset[str]]) -> str:
    """Returns the first group with words in both sets; empty if there is none."""
    return next((name for name, group in groups.items() if asked & group and words & group), "")


SHIPPED = Path(__file__).parents[1] / "data" / "lexicon.yaml"


def read_lexicon(read: Callable[[str], bytes], chosen: str | None) -> tuple[Lexicon, str]:
    """Returns the lexicon of the user's file `chosen`, whose bytes `read` returns, or the built-in one, and the problem
    of the user's file if the built-in one is used instead."""
    problem = ""
    if chosen:
        try:
            return parsed(read(chosen).decode("utf-8"), chosen), ""
        except UnicodeDecodeError:
            problem = f"{chosen} cannot be read: it is not UTF-8 text"
        except OSError as error:
            problem = f"{chosen} cannot be read: {error.strerror}"
        except ContextManagerError as error:
            problem = str(error)
        problem = f"advisor.lexicon: {problem}; the built-in lexicon is used until this is corrected"
    return parsed(SHIPPED.read_text("utf-8"), SHIPPED.name), problem


@lru_cache(16)
def parsed(text: str, where: str) -> Lexicon:
    """Returns the lexicon of a YAML text. Raises Invalid that names `where` and the wrong group."""
    try:
        fields = {"technologies": {}, "layers": {}, "generic": [], **load(text, where)}
        return TypeAdapter(Lexicon).validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place, what = ": ".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        raise Invalid(f"{where}: {place}: {what}; technologies and layers hold `group: [word, word]` lines") from None
