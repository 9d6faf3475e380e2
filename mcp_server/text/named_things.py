"""Finds the things that a message names by their form: projects, tools, files and keywords.

    project  ClaraCore, focus-engine            id `claracore`, `focus-engine`
    tool     web_search, a tool that was called  id `tool:web_search`
    file     SOUL.md, memory/active-context.md   id `soul.md`, `memory/active-context.md`
    keyword  any other word with a subject       id `oven`

Ids are lower case. A name inside another one (`core` in `focus-core`, `src` in `src/app.py`) is not counted again, and
the marks of redacted secrets and forgotten texts are no names. In fenced code only files count, because the words of a
pasted log are not the subject of the conversation. Of a very long message only its beginning and its end are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from mcp_server.text.prose import prose
from mcp_server.text.words import TALK_WORDS, content_words

ItemCategory = Literal["project", "tool", "file", "keyword"]
CATEGORIES: tuple[ItemCategory, ...] = get_args(ItemCategory)

TOOL = "tool:"
SHORTEST_KEYWORD = 3
LONGEST_ID = 100
"""Characters. What is longer (base64, minified code) is no name that a person would use."""

LONGEST_READ = 40_000
"""Characters of a message, half of them from its end."""

_NO_NAME = re.compile(r"\bhttps?://\S+|\[(?:redacted:[\w-]+|forgotten)\]", re.IGNORECASE)
_FILE = re.compile(r"(?<![\w./-])(?:[\w.-]+/)*[\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,4}(?![\w/-])")
_TOOL = re.compile(r"(?<![\w.-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w-])")
_CAMEL = re.compile(r"(?<![\w-])[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+(?![\w-])")
_HYPHENATED = re.compile(r"(?<![\w-])[A-Za-z][a-z0-9]+(?:-[a-z0-9]+){1,3}(?![\w-])")


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


EXTENSIONS = _listed(
    """
    md txt rst json jsonl yaml yml toml ini cfg conf env csv tsv xml html css scss js jsx ts tsx mjs cjs py pyi ipynb
    rs go java kt kts c h cc cpp hpp cs rb php swift scala lua pl sh bash zsh ps1 sql proto lock log pdf png jpg svg gif
    vue svelte tf gradle ex exs erl hs clj dart r jl zig nix
    """
)
"""What the end of a file's name may be: `e.g` and versions are no files."""

_ENGLISH_PARTS = _listed(
    """
    well long short high low real self non pre post re co multi semi sub up down in out on off over under all any one
    two three four five six seven eight nine ten first second third half full open end old new day week month year
    hour minute time term known based wise like free friendly built made ready only date and or by the to of at
    """
)
"""Parts of compounds that are English, not names: `well-known`, `long-term`, `up-to-date`."""


def extract(text: str, tools: Iterable[str] = ()) -> dict[str, ItemCategory]:
    """Returns the things that `text` names, by id, in a stable order. `tools` are the names of tools that were called
    with it."""
    found: dict[str, ItemCategory] = {}
    if len(text) > LONGEST_READ:
        text = f"{text[: LONGEST_READ // 2]}\n{text[-LONGEST_READ // 2 :]}"
    rest = _NO_NAME.sub(" ", text)

    def take(pattern: re.Pattern[str], category: ItemCategory, prefix: str = "") -> None:
        nonlocal rest

        def name(match: re.Match[str]) -> str:
            said = match[0]
            if len(said) > LONGEST_ID or not _fits(category, said):
                return said
            found.setdefault(prefix + said.lower(), category)
            return " "

        rest = pattern.sub(name, rest)

    for tool in tools:
        if 0 < len(tool) <= LONGEST_ID:
            found.setdefault(TOOL + tool.lower(), "tool")
    take(_FILE, "file")
    rest = "\n".join(prose(rest))
    take(_TOOL, "tool", TOOL)
    take(_CAMEL, "project")
    take(_HYPHENATED, "project")
    for word in content_words(rest, TALK_WORDS):
        if SHORTEST_KEYWORD <= len(word) <= LONGEST_ID and not word.isdigit():
            found.setdefault(word, "keyword")
    return found


def _fits(category: ItemCategory, said: str) -> bool:
    if category == "file":
        return said.rsplit(".", 1)[1].lower() in EXTENSIONS
    if category == "project" and "-" in said:
        return not any(part in _ENGLISH_PARTS for part in said.lower().split("-"))
    return True


def item_id(said: str) -> str:
    """Returns the id of a thing that a person names: `web_search` becomes `tool:web_search`, other names become lower
    case."""
    lower = said.lower()
    return TOOL + lower if TOOL + lower in extract(said) else lower


def known_in(text: str, tools: Iterable[str], known: Mapping[str, object]) -> list[str]:
    """Returns those ids among `known` that `text` names."""
    return [item for item in extract(text, tools) if item in known]
