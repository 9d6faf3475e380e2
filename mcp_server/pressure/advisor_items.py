"""What the advisor judges: files, skills and agent outputs in a client's context (S2 "Context Item Types").

They are what clients say they loaded, and the files that tool calls name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from mcp_server.model import Turn
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.text.words import words

ItemType = Literal["skill", "file", "agent"]

ESTIMATES: Mapping[ItemType, int] = {"skill": 550, "file": 850, "agent": 1500}
"""Tokens where nobody counted: the middle of S2's size estimates."""


@dataclass(frozen=True, slots=True)
class ContextItem:
    """One item with its accesses. `path` is what the client calls it; times are aware, in UTC; `chunks` are the ids of
    the live chunks that hold it."""

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

    @property
    def named(self) -> frozenset[str]:
        """The words of its path and tags, folded."""
        return frozenset(words(" ".join((self.path.replace("_", " "), *self.tags))))

    @property
    def described(self) -> frozenset[str]:
        """The words of its description and topics, folded."""
        return frozenset(words(" ".join((self.description, *self.topics))))


def items_of(live: Iterable[LiveChunk], turns: Mapping[int, Turn], *, estimated: bool) -> list[ContextItem]:
    """The items of a live set, the one that came first first; what is cold is in no context any more.

    `turns` by their number. What a tool read counts with the tokens of its result in the live set; where there is no
    result, and the client's window surely holds one (`estimated`), with S2's estimate.
    """
    found: dict[str, ContextItem] = {}
    for chunk in live:
        if chunk.form == "cold":
            continue
        kind = next((known for known in ESTIMATES if known == chunk.kind), None)
        if kind is not None:
            _add(found, _loaded(chunk, kind))
        elif chunk.kind == "tool" and (turn := turns.get(chunk.turn)) and chunk.part <= len(turn.tool_calls):
            call = turn.tool_calls[chunk.part - 1]
            files = tuple(dict.fromkeys(path for path in map(_plain, call.files) if path))
            for path in files:
                tokens = -(-chunk.tokens // len(files))
                if estimated and not call.result:
                    tokens = ESTIMATES["file"]
                _add(found, ContextItem(f"file:{path}", "file", path, turn.at, turn.at, 1, tokens, chunks=(chunk.id,)))
    return list(found.values())


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
    """What is in the context twice is one item, accessed as often as both."""
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
    """What a skill or an agent is called: `skills/api-design/SKILL.md` and `api-design` are `api-design`."""
    return path.removesuffix("/SKILL.md").removesuffix(".md").rsplit("/", 1)[-1]
