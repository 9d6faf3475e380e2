"""Describes the differences between clients with hooks: their files, events and lines of transcripts.

    events       translate a client's event into one of ours, the argument of `context-manager hook EVENT --client NAME`
    transcripts  translate a line of a client's transcript into lines as Claude Code writes them, for `importers`

Our events have Claude Code's names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Fields = Mapping[str, Any]

Recorded = Literal["claude-code", "codex", "gemini", "qwen", "copilot", "opencode"]
"""The clients with hooks."""

CONTINUES = "continues"
"""Message id of a line that belongs to the answer before it, unless that answer has tool results already."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A client's folder: `default` in the home folder, or `below` in the folder that an environment variable names."""

    default: str
    variable: str = ""
    below: str = ""

    def of(self, environ: Mapping[str, str], home: Path) -> Path:
        named = environ.get(self.variable, "").strip()
        return Path(named).expanduser() / self.below if named else home / self.default


@dataclass(frozen=True, slots=True)
class Adapter:
    """Describes one client with hooks."""

    client: Recorded
    """Its name for `install`."""
    title: str
    events: Mapping[str, tuple[str, Mapping[str, Any]]]
    """Its event → our event, and further fields of the hook's entry, such as the time limit."""
    folder: Folder
    hooks: str
    """Its file with hooks, in its folder."""
    transcripts: str
    """The folder of its transcripts, in `data` or, without that, in `folder`."""
    data: Folder | None = None
    """Its folder of data, if its transcripts are not in `folder`."""
    project_hooks: str | None = None
    """Its file with the hooks of one project."""
    hooks_begin: Mapping[str, Any] = field(default_factory=dict)
    """Keys that its file with hooks must have."""
    file_names: str = "*.jsonl"
    """The pattern of its transcripts' names."""
    session_file: Callable[[str], str] | None = None
    """Returns the path of a session's transcript below `transcripts`; needed if hooks do not always name it."""
    plugin: Callable[[str, list[str]], str] | None = None
    """Returns the text of its file with hooks from a hook's command and arguments, if that file is a program."""
    is_database: bool = False
    """True if all its sessions are in one database."""
    lines: Callable[[Fields], Iterable[Fields]] = lambda fields: (fields,)
    """Translates a line of its transcript into lines in Claude Code's form."""
    is_line: Callable[[Fields], bool] = lambda fields: False
    """Returns True for a line that only this client's transcripts have near their beginning."""

    @property
    def source(self) -> str:
        return f"import:{self.client}"

    def hooks_file(self, environ: Mapping[str, str], home: Path, project: Path | None) -> Path | None:
        """Returns the file with hooks, for all projects or for one; None if a project has none."""
        if project is not None:
            return project / self.project_hooks if self.project_hooks else None
        return self.folder.of(environ, home) / self.hooks

    def transcripts_folder(self, environ: Mapping[str, str], home: Path) -> Path:
        return (self.data or self.folder).of(environ, home) / self.transcripts


def as_mapping(value: object) -> Fields:
    """Returns `value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def tool_use(call_id: object, name: object, given: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def tool_result(call_id: object, output: object, failed: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": output, "is_error": failed}


def blocks_of_parts(parts: object) -> list[dict[str, Any]]:
    """Returns the content blocks for a message's parts in the form of Gemini's API, without the model's thoughts."""
    blocks: list[dict[str, Any]] = []
    for part in map(as_mapping, parts if isinstance(parts, list) else ()):
        call, response = as_mapping(part.get("functionCall")), as_mapping(part.get("functionResponse"))
        if call:
            blocks.append(tool_use(call.get("id"), call.get("name"), call.get("args")))
        elif response:
            said = as_mapping(response.get("response"))
            output = said.get("output") or said.get("error")
            blocks.append(tool_result(response.get("id"), output, "error" in said))
        elif "text" in part and not part.get("thought"):
            blocks.append({"type": "text", "text": part["text"]})
    return blocks


def limits(
    names: Mapping[str, str] | None = None, *, milliseconds: bool = False
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Returns `Adapter.events` for a client's event → ours, with the time limits that our events need. Without `names`
    the client has all our events."""
    factor = 1000 if milliseconds else 1
    names = names or {name: name for name in SECONDS}
    return {name: (ours, {"timeout": SECONDS[ours] * factor}) for name, ours in names.items()}


SECONDS = {
    "SessionStart": 5,
    "UserPromptSubmit": 8,
    "PostToolUse": 5,
    "Stop": 5,
    "PreCompact": 5,
    "PostCompact": 5,
    "SessionEnd": 2,
}
"""Our events, and the seconds after which a client may stop the command. It takes at most 1.5, or 6 for a prompt."""


CLAUDE_CODE = Adapter(
    client="claude-code",
    title="Claude Code",
    events={
        name: (name, {**also, "async": True} if name == "PostToolUse" else also) for name, (_, also) in limits().items()
    },
    folder=Folder(".claude", "CLAUDE_CONFIG_DIR"),
    hooks="settings.json",
    project_hooks=".claude/settings.local.json",
    transcripts="projects",
    is_line=lambda fields: "sessionId" in fields and "type" in fields,
)
"""Our events and the form of our transcripts are Claude Code's own."""
