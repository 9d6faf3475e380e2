"""Transcripts as Claude Code writes them, made by hand; and, as a command, as many of them as one likes:

python -m tests.clients.importers.claude_code_files FOLDER MEGABYTES [MEGABYTES OF ONE MORE FILE]
"""

from __future__ import annotations

import json
import random
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SESSION = "0b5c1a3e-7d41-4c57-9a53-1c1e7a1f0a01"
START = datetime(2026, 2, 16, 18, 0, tzinfo=UTC)


@dataclass
class Transcript:
    """A transcript that grows line by line. Every method adds lines as the client would and returns the last one's
    uuid; `parent` is where the next one hangs."""

    session: str = SESSION
    cwd: str = "/home/ana/atlas"
    agent: str | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    parent: str | None = None

    def line(self, kind: str, **fields: Any) -> str:
        """A line with what all lines of a message have."""
        number = len(self.lines) + 1
        given = str(fields.pop("uuid", uuid.uuid5(uuid.NAMESPACE_OID, f"{self.session}/{self.agent}/{number}")))
        at = START + timedelta(seconds=number)
        base: dict[str, Any] = {
            "parentUuid": self.parent,
            "isSidechain": self.agent is not None,
            "type": kind,
            "uuid": given,
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": "2.1.329",
            "gitBranch": "main",
        }
        if self.agent is not None:
            base["agentId"] = self.agent
        self.lines.append(base | fields)
        self.parent = given
        return given

    def note(self, kind: str, **fields: Any) -> None:
        """A line of bookkeeping, which is no part of the tree."""
        self.lines.append({"type": kind, "sessionId": self.session, **fields})

    def user(self, content: object, **fields: Any) -> str:
        return self.line("user", message={"role": "user", "content": content}, **fields)

    def attachment(self, kind: str, **fields: Any) -> str:
        return self.line("attachment", attachment={"type": kind, **fields})

    def assistant(self, message_id: str, *blocks: dict[str, Any], stop: str | None = "end_turn", **fields: Any) -> str:
        """One line for every block, all of one message."""
        for block in blocks:
            message = {
                "id": message_id,
                "type": "message",
                "role": "assistant",
                "model": "claude-opus-5-5",
                "content": [block],
                "stop_reason": stop,
                "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5},
            }
            self.line("assistant", message=message, requestRef=f"req-{message_id}", **fields)
        return str(self.lines[-1]["uuid"])

    def says(self, message_id: str, text: str, **fields: Any) -> str:
        return self.assistant(message_id, {"type": "text", "text": text}, **fields)

    def result(self, call_id: str, content: object, *, is_error: bool = False) -> str:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error}
        return self.user([block], toolUseResult={"stdout": content})

    def compaction(self) -> str:
        before, self.parent = self.parent, None
        metadata = {"trigger": "auto", "preTokens": 150_000, "postTokens": 4_000}
        self.line("system", subtype="compact_boundary", logicalParentUuid=before, compactMetadata=metadata)
        return self.user("This session is being continued from a previous conversation.", isCompactSummary=True)

    @property
    def data(self) -> bytes:
        return b"".join(json.dumps(line).encode() + b"\n" for line in self.lines)

    def write(self, projects: Path, folder: str = "-home-ana-atlas") -> Path:
        """The file where Claude Code would have it."""
        place = projects / folder
        if self.agent is None:
            path = place / f"{self.session}.jsonl"
        else:
            path = place / self.session / "subagents" / f"agent-{self.agent}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(call_id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def everything(session: str = SESSION) -> Transcript:
    """A session with all that is known to occur in one."""
    made = Transcript(session)
    made.note("queue-operation", operation="enqueue", content="How do we deploy?")
    made.attachment("hook_additional_context", content=["INJECTED: the deploy runs at nine"], hookEvent="SessionStart")
    made.user("How do we deploy?")
    made.attachment("environment", snapshot={})
    made.assistant(
        "m1",
        {"type": "thinking", "thinking": "SECRET THOUGHTS", "signature": "x"},
        text("Let me look."),
        call("t1", "Bash", command="ls deploy", description="List the scripts"),
        call("t2", "Read", file_path="/home/ana/atlas/deploy/run.sh"),
        stop="tool_use",
    )
    made.result("t2", "1\tmake release")
    made.note("last-prompt", lastPrompt="How do we deploy?")
    made.result("t1", [text("run.sh")])
    made.attachment("queued_command", prompt="and to staging?", commandMode="prompt")
    made.says("m2", "With make release; staging the same.")
    made.line("system", subtype="stop_hook_summary")
    made.user("<command-name>/cost</command-name>")
    made.user("<local-command-stdout>$0.02</local-command-stdout>")
    made.compaction()
    made.user("ok")
    made.says("m3", "Anything else?")
    made.user("ok")
    made.assistant("m4", text("First."), text("Second."))
    made.user("[Request interrupted by user]")
    made.line("assistant", isApiErrorMessage=True, message={"id": "e", "content": [text("API Error: 529")]})
    made.line("brand-new-type", surprise=True)
    made.user("<system-reminder>\nINJECTED too\n</system-reminder>\nthanks, deploy it")
    made.assistant("m5", call("t3", "Bash", command="make release"), stop="tool_use")
    made.result("t3", "Permission denied", is_error=True)
    made.says("m6", "It was refused.", stop=None)
    return made


def many(folder: Path, megabytes: float, giant: float = 0) -> Iterator[Path]:
    """Sessions of 0.1 to 2 MB in several projects, `megabytes` in all, and one more of `giant` megabytes."""
    chance = random.Random(1)
    words = [
        f"{a}{b}{c}" for a in ("ka", "mi", "to", "re") for b in ("lo", "sa", "nu", "ve") for c in ("r", "n", "st", "")
    ]
    written, number = 0.0, 0
    while written < megabytes:
        number += 1
        path = _large(folder, number, chance.uniform(0.1, 2.0), chance, words)
        written += path.stat().st_size / 1024**2
        yield path
    if giant:
        yield _large(folder, 0, giant, chance, words)


def _large(folder: Path, number: int, megabytes: float, chance: random.Random, words: list[str]) -> Path:
    session = str(uuid.UUID(int=number + 1, version=4))
    made = Transcript(session, cwd=f"/srv/work/project-{number % 7}")
    path = folder / f"-srv-work-project-{number % 7}" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = 0
    with path.open("wb") as file:
        while file.tell() < megabytes * 1024**2:
            lines += 1

            def said(most: int) -> str:
                return " ".join(chance.choices(words, k=chance.randint(5, most)))

            made.lines = [{}] * (lines * 10)  # so that uuids differ; what was written is let go of
            before = len(made.lines)
            made.user(f"Question {lines}: {said(60)}?")
            made.attachment("environment", rendered=said(300))
            made.assistant(f"m{lines}", text(said(80)), call(f"t{lines}", "Bash", command=said(8)), stop="tool_use")
            made.result(f"t{lines}", said(1500))
            made.says(f"n{lines}", said(400))
            file.write(b"".join(json.dumps(line).encode() + b"\n" for line in made.lines[before:]))
    return path


if __name__ == "__main__":
    sizes = [float(argument) for argument in sys.argv[2:]]
    print(sum(1 for _ in many(Path(sys.argv[1]), *sizes)), "files")
