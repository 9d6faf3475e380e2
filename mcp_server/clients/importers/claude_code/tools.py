"""Tool calls as a transcript keeps them: one line of what was asked, one of what came back, and the files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from mcp_server.model import ToolCall
from mcp_server.text.redaction import redact

SUMMARY, RESULT = 200, 400
"""Characters kept of what a tool was asked and of what it answered."""

SPOKEN = frozenset({"AskUserQuestion", "ExitPlanMode"})
"""Tools whose input and output are words between user and model: much more is kept of them."""
SPOKEN_LENGTH = 4_000

OWN_ANSWERS = ("__compile_context", "__hook")
"""Our own tools that hand out memory: what they answered was said before and is not said anew."""

OWN_QUESTIONS = ("__forget",)
"""What this one was asked is what shall stand nowhere, not even its beginning."""

_TELLING = (
    *("description", "command", "file_path", "notebook_path", "path", "pattern", "query", "url"),
    *("skill", "plan", "content", "prompt"),
)
_FILES = ("file_path", "notebook_path")
_LOOKED_AT = 8_000  # characters; a secret that begins among those kept ends before
_MOST_FILES = 20


def tool_call(name: str, given: Mapping[str, Any], result: str, cwd: str | None) -> ToolCall:
    """One call. Files lie relative to `cwd` where they are inside it."""
    spoken = name in SPOKEN
    if name.endswith(OWN_ANSWERS + OWN_QUESTIONS):
        result = ""
    if name.endswith(OWN_QUESTIONS):
        given = {}
    return ToolCall(
        name=" ".join(name.split())[:200] or "tool",
        summary=_line(_asked(given), SPOKEN_LENGTH if spoken else SUMMARY),
        result=_line(result, SPOKEN_LENGTH if spoken else RESULT),
        files=_files(given, cwd),
    )


def result_text(content: object, is_error: bool) -> str:
    """The text of a `tool_result` block, as far as it is looked at."""
    if isinstance(content, str):
        text = content[:_LOOKED_AT]
    elif isinstance(content, list):
        pieces = (
            block["text"]
            if isinstance(block, Mapping) and isinstance(block.get("text"), str)
            else f"[{block.get('type', 'block') if isinstance(block, Mapping) else 'block'}]"
            for block in content
        )
        text = "\n".join(piece[:_LOOKED_AT] for piece in pieces)[:_LOOKED_AT]
    else:
        text = ""
    return f"error: {text}" if is_error and text else text


def _asked(given: Mapping[str, Any]) -> str:
    for key in _TELLING:
        if isinstance(value := given.get(key), str) and value.strip():
            return value[:_LOOKED_AT]
    return json.dumps(given, ensure_ascii=False, default=str)[:_LOOKED_AT] if given else ""


def _line(text: str, most: int) -> str:
    """`text` in one line of at most `most` characters. Secrets go first: half of one would not be known any more."""
    line = " ".join(redact(text).text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def _files(given: Mapping[str, Any], cwd: str | None) -> tuple[str, ...]:
    named = [value for key in _FILES if isinstance(value := given.get(key), str) and value.strip()]
    return tuple(dict.fromkeys(_relative(path, cwd)[:1_000] for path in named[:_MOST_FILES]))


def _relative(path: str, cwd: str | None) -> str:
    """`path` with slashes, as it is seen from `cwd`. A transcript of Windows may be read anywhere."""
    kind = PureWindowsPath if PureWindowsPath(cwd or path).drive else PurePosixPath
    found = kind(path)
    if cwd and found.is_relative_to(kind(cwd)):
        return found.relative_to(kind(cwd)).as_posix()
    return found.as_posix() if kind is PureWindowsPath else path
