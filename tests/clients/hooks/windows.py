"""A client's side of the hooks, for tests: transcript files as Claude Code writes them, and what it tells a hook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from mcp_server.clients.hooks.events import handle
from mcp_server.memory import Memory


@dataclass(slots=True)
class ClaudeWindow:
    """One window of Claude Code on one session, in a folder. `projects` is its folder of transcripts."""

    memory: Memory
    projects: Path
    folder: Path
    session: str
    at: datetime = datetime(2026, 2, 16, 19, 0, tzinfo=UTC)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _last: str | None = None

    @property
    def transcript(self) -> Path:
        name = "".join(c if c.isalnum() else "-" for c in str(self.folder))
        return self.projects / name / f"{self.session}.jsonl"

    async def hook(self, event: str, **fields: Any) -> dict[str, Any]:
        """Runs a hook and returns its output."""
        given = {
            "session_id": self.session,
            "transcript_path": str(self.transcript),
            "cwd": str(self.folder),
            "hook_event_name": event,
        }
        return await handle(self.memory, event, {**given, **fields})

    async def start(self, source: str = "startup", **fields: Any) -> str:
        return pushed(await self.hook("SessionStart", source=source, **fields))

    async def prompt(self, text: str, answer: str = "Done.") -> str:
        """Has one exchange, and returns the text that was pushed with the prompt."""
        said = await self.hook("UserPromptSubmit", prompt=text)
        self.write("user", text)
        self.write("assistant", answer)
        await self.hook("Stop", last_assistant_message=answer)
        return pushed(said)

    async def compact(self, start: bool = True) -> str:
        """Compacts the window, with the events in the order in which Claude Code 2.1.329 sends them."""
        await self.hook("PreCompact", trigger="manual")
        self.line(
            type="system",
            subtype="compact_boundary",
            content="Conversation compacted",
            compactMetadata={"trigger": "manual", "preTokens": 1000, "postTokens": 100},
        )
        self.line(
            type="user",
            isCompactSummary=True,
            message={"role": "user", "content": "This session is being continued from a previous conversation."},
        )
        said = await self.start("compact") if start else ""
        await self.hook("PostCompact", trigger="manual", compact_summary="They talked.")
        return said

    def compact_without_events(self) -> None:
        """Writes the line of an automatic compaction into the transcript; no hook runs."""
        compaction = {"trigger": "auto", "preTokens": 9}
        self.line(type="system", subtype="compact_boundary", content="", compactMetadata=compaction)

    def tool(self, name: str, given: dict[str, Any], result: str) -> None:
        """Writes the call of a tool and its result."""
        number = next(self._numbers)
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}
        message = {"role": "assistant", "id": f"msg_{self.session}_{number}", "content": [call]}
        self.line(type="assistant", message={**message, "stop_reason": "tool_use"})
        answer = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": result}
        self.line(type="user", message={"role": "user", "content": [answer]}, toolUseResult={})
        # Claude Code 2.1.329 writes what it sends to the model once more
        self.line(type="api-request-blob", hash="b41b994b", message={"role": "user", "content": [answer]})

    def write(self, role: str, text: str, tokens: int = 0, **more: Any) -> None:
        """Writes a message as a line of the transcript. An answer's window has `tokens`."""
        number = next(self._numbers)
        message: dict[str, Any] = {"role": role, "content": text}
        if role == "assistant":
            message["content"] = [{"type": "text", "text": text}]
            message |= {"id": f"msg_{self.session}_{number}", "stop_reason": "end_turn"}
            message |= {"usage": {"input_tokens": tokens}} if tokens else {}
        self.line(type=role, message=message, **more)

    def line(self, **fields: Any) -> None:
        uuid = f"{self.session}-{next(self._numbers):04d}"
        self.at += timedelta(seconds=20)
        record = {
            "parentUuid": self._last,
            "isSidechain": False,
            "cwd": str(self.folder),
            "sessionId": self.session,
            "version": "2.1.329",
            "uuid": uuid,
            "timestamp": self.at.isoformat().replace("+00:00", "Z"),
            **fields,
        }
        self._last = uuid
        self.transcript.parent.mkdir(parents=True, exist_ok=True)
        with self.transcript.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def pushed(output: dict[str, Any]) -> str:
    """Returns the text that a hook's output adds to the window; "" for none."""
    text = output.get("hookSpecificOutput", {}).get("additionalContext", "")
    assert isinstance(text, str)
    return text
