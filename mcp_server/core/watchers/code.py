"""Code in a message: fenced blocks and indented ones, and which language they are in.

A fence that names its language is believed. For one that does not, and for indented code, the language whose marks
stand there most often is taken, if there are any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_FENCE = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)\n(?P<body>.*?)(?:^ {0,3}(?P=fence)[`~]*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_INDENTED = re.compile(r"(?:\A|(?<=\n)[ \t]*\n)(?P<body>(?:(?: {4}|\t)[^\n]*\S[^\n]*(?:\n|\Z)){2,})")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")

ALIASES: Mapping[str, str] = {
    "py": "python",
    "python3": "python",
    "python2": "python",
    "py3": "python",
    "js": "javascript",
    "jsx": "javascript",
    "mjs": "javascript",
    "node": "javascript",
    "ts": "typescript",
    "tsx": "typescript",
    "sh": "shell",
    "bash": "shell",
    "zsh": "shell",
    "console": "shell",
    "rs": "rust",
    "golang": "go",
    "c++": "cpp",
    "cc": "cpp",
    "h": "c",
    "cs": "csharp",
    "c#": "csharp",
    "rb": "ruby",
    "kt": "kotlin",
    "yml": "yaml",
    "htm": "html",
    "postgres": "sql",
    "postgresql": "sql",
    "mysql": "sql",
    "sqlite": "sql",
}
"""Other names of a language, as people write them after a fence."""

_MARKS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(marks, re.MULTILINE)
    for name, marks in {
        "python": r"^\s*(?:def \w+\(.*:\s*$|class \w+.*:\s*$|(?:from [\w.]+ )?import [\w., ]+$|elif .*:|print[ (]"
        r"|@\w+|if __name__|except\b.*:|with .+ as \w+:)",
        "javascript": r"^\s*(?:const |let |var |function[ *(]|export |import .+ from ['\"]|module\.exports)|=>"
        r"|console\.log",
        "typescript": r"^\s*(?:interface \w+|type \w+ =|enum \w+|(?:public|private|readonly) \w+)|: (?:string|number"
        r"|boolean)\b",
        "java": r"^\s*(?:public|private|protected) (?:static |final )*(?:class|void|int|String)\b|System\.out\.",
        "go": r"^\s*(?:package \w+$|func [\w(]|import \()|:= |fmt\.",
        "rust": r"^\s*(?:fn \w+|pub fn|use [\w:]+;|impl\b|let mut )|println!|-> Result<",
        "c": r"^\s*#include\s*<\w+\.h>|^\s*(?:int|void|char) \w+\(.*\)\s*\{|printf\(",
        "cpp": r"^\s*#include\s*<\w+>|std::|cout <<|^\s*template\s*<",
        "csharp": r"^\s*using [\w.]+;|Console\.Write|^\s*namespace \w+",
        "ruby": r"^\s*(?:def \w+[^:]*$|require ['\"]|end$|puts )",
        "php": r"<\?php|^\s*\$\w+ = |echo \$",
        "shell": r"^\s*(?:#!.*sh$|\$ \w|sudo |export \w+=|if \[|fi$|done$|cd |git |npm |pip |curl )",
        "sql": r"^\s*(?:(?i:select)\b.+(?i:from)\b|(?i:insert into|update \w+ set|create table|delete from"
        r"|alter table)\b)",
        "html": r"^\s*<(?:!DOCTYPE|html|div|head|body|p|span|a)\b",
        "css": r"^\s*[.#]?[\w-]+\s*\{\s*$|^\s*[\w-]+:\s*[^;{]+;\s*$",
        "json": r"^\s*[\[{]\s*$|^\s*\"[^\"]+\":\s",
        "yaml": r"^\s*[\w-]+:(?:\s|$)",
    }.items()
}


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A block of code in characters `start` to `end` of a message; `language` is lower case, empty if unknown."""

    language: str
    start: int
    end: int
    text: str


def blocks(text: str) -> tuple[CodeBlock, ...]:
    """The fenced and the indented blocks of a message, in their order."""
    return tuple(sorted((*_fenced(text), *_indented(text)), key=lambda block: block.start))


def plain(language: str) -> str:
    """A language's one name: `py` is `python`."""
    lower = language.strip().lower()
    return ALIASES.get(lower, lower)


def _fenced(text: str) -> Iterator[CodeBlock]:
    if "```" not in text and "~~~" not in text:
        return
    for match in _FENCE.finditer(text):
        named = re.match(r"[\w+#.-]+", match["info"].strip("{} ."))
        yield CodeBlock(plain(named[0]) if named else _guessed(match["body"]), *match.span(), match["body"])


def _indented(text: str) -> Iterator[CodeBlock]:
    if "\n    " not in text and "\n\t" not in text and not text.startswith(("    ", "\t")):
        return
    fenced = [match.span() for match in _FENCE.finditer(text)]
    for match in _INDENTED.finditer(text):
        if any(start <= match.start("body") < end for start, end in fenced):
            continue
        before = text[: match.start()].rstrip().rpartition("\n")[2]
        if _LIST_ITEM.match(before) or _LIST_ITEM.match(match["body"]):
            continue  # the further paragraphs of a list are indented, too
        language = _guessed(match["body"])
        if language:
            yield CodeBlock(language, match.start("body"), match.end("body"), match["body"])


def _guessed(body: str) -> str:
    counted = {name: sum(1 for _ in marks.finditer(body)) for name, marks in _MARKS.items()}
    best = max(counted, key=lambda name: counted[name])
    return best if counted[best] else ""
