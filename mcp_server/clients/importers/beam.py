"""BEAM chats: a folder with `chat.json`, a list of batches `{batch_number, turns}`; `turns` nests lists of messages.

Every batch becomes one session, every message `id` a turn id. A `time_anchor` (`March-15-2024`) gives the day from that
message on; the messages follow each other at a few seconds' distance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mcp_server.clients.importers.imported import SECONDS_A_TURN, Skipped, parse_time, short_name
from mcp_server.clients.importers.json_stream import json_items
from mcp_server.conversations.imports import ImportedSession, ImportedTurn
from mcp_server.model import Role

SOURCE = "import:beam"
CHAT = "chat.json"
MARKS = ('"batch_number"', '"time_anchor"')
"""What shows in the first bytes of such a file."""

_ROLES: Mapping[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "agent",
    "agent": "agent",
    "system": "system",
}


def chats(path: Path) -> list[Path]:
    """The chat files that `path` means: itself, or every `chat.json` in the folder and below."""
    return [path] if path.is_file() else sorted(path.rglob(CHAT), key=lambda found: (len(found.parts), str(found)))


def read(
    path: Path, project: str | None = None, told: Callable[[int], None] = lambda _: None
) -> Iterator[ImportedSession | Skipped]:
    """The sessions of one chat file; memory holds one batch at a time. `told` gets the bytes read so far."""
    chat = short_name(path.parent if path.name == CHAT else path.with_suffix(""))
    name = ""
    at = _never(path)
    for place, batch in enumerate(_batches(json_items(path, told)), start=1):
        where = f"{path.parent.name}/{path.name}, batch {place}"
        if not isinstance(batch, Mapping) or not isinstance(batch.get("turns"), list):
            yield Skipped(where, "not an object with `turns`")
            continue
        messages = list(_messages(batch["turns"]))
        # A folder is often called `1`: the digest of how the chat begins keeps two of them apart.
        digest = hashlib.sha256(str(messages[0].get("content") if messages else "").encode("utf-8", "replace"))
        name = name or f"{chat}-{digest.hexdigest()[:6]}"
        if moment := parse_time(batch.get("time_anchor")):
            at = moment
        turns: list[ImportedTurn] = []
        for message in messages:
            moment = parse_time(message.get("timestamp")) or parse_time(message.get("time_anchor"))
            at = moment if moment else at + timedelta(seconds=SECONDS_A_TURN)
            role, content = _ROLES.get(str(message.get("role")).lower()), message.get("content")
            if role is None or not isinstance(content, str) or not content.strip():
                why = f"its role is {message.get('role')!r}" if role is None else "holds no text"
                yield Skipped(f"{where}, message {message.get('id')}", why)
                continue
            given = message.get("id")
            turns.append(
                ImportedTurn(
                    role=role, content=content, at=at, turn_id=None if given is None else str(given), name=None
                )
            )
        if turns:
            yield ImportedSession(
                session_id=f"{name}-batch-{batch.get('batch_number', place)}",
                title=" ".join(turns[0].content.split())[:80],
                turns=tuple(turns),
                project=project,
                source=SOURCE,
            )


def _batches(items: Iterator[Any]) -> Iterator[Any]:
    """The longest chats wrap their batches once more, `[{"plan-1": [batch, …]}, …]`."""
    for item in items:
        if isinstance(item, Mapping) and "turns" not in item and any(isinstance(v, list) for v in item.values()):
            for batches in item.values():
                yield from batches if isinstance(batches, list) else ()
        else:
            yield item


def _messages(turns: list[Any]) -> Iterator[Mapping[str, Any]]:
    for item in turns:
        if isinstance(item, list):
            yield from _messages(item)
        elif isinstance(item, Mapping):
            yield item


def _never(path: Path) -> datetime:
    """When a file gives no time at all, the file's own is the best that is known."""
    return datetime.fromtimestamp(int(path.stat().st_mtime), UTC) if path.exists() else datetime.fromtimestamp(0, UTC)
