"""LoCoMo files: a list of conversations between two people, each with `session_1`, `session_1_date_time`, …

Every `session_N` becomes one session named `{sample_id}-session_N`, every `dia_id` a turn id. Both sides are people, so
both are `user`, with their names. What is known of a shared picture is its caption, which is made part of the turn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mcp_server.clients.importers.imported import SECONDS_A_TURN, Skipped, parse_time, short_name
from mcp_server.clients.importers.json_stream import json_items
from mcp_server.conversations.imports import ImportedSession, ImportedTurn

SOURCE = "import:locomo"
MARKS = ('"dia_id"', '"speaker_a"', '"session_1_date_time"')
"""What shows in the first bytes of such a file."""

_SESSION = re.compile(r"session_(\d+)")


def read(
    path: Path, project: str | None = None, told: Callable[[int], None] = lambda _: None
) -> Iterator[ImportedSession | Skipped]:
    """The sessions of every conversation in `path`; memory holds one of them at a time. `told` gets the bytes read."""
    for place, document in enumerate(json_items(path, told), start=1):
        if not isinstance(document, Mapping):
            yield Skipped(f"{path.name}, conversation {place}", "not an object with a `conversation`")
        else:
            yield from sessions(document, f"{short_name(path.with_suffix(''))}-{place}", project)


def conversation_name(document: Mapping[str, Any], otherwise: str) -> str:
    """`sample_id`; where there is none, `otherwise` and a digest, so that two files never share a session id."""
    name = document.get("sample_id")
    if isinstance(name, str | int) and str(name).strip():
        return str(name).strip()
    digest = hashlib.sha256(repr(sorted(document.get("conversation", document).items())[:4]).encode()).hexdigest()
    return f"{otherwise}-{digest[:6]}"


def sessions(
    document: Mapping[str, Any], otherwise: str, project: str | None = None
) -> Iterator[ImportedSession | Skipped]:
    """The sessions of one conversation, by number. Sessions that are announced with a date but empty do not exist."""
    conversation = document.get("conversation", document)
    name = conversation_name(document, otherwise)
    if not isinstance(conversation, Mapping):
        yield Skipped(name, "its `conversation` is not an object")
        return
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key)))
    if not numbers:
        yield Skipped(name, "holds no `session_1`, `session_2`, …")
    speakers = [conversation.get(key) for key in ("speaker_a", "speaker_b")]
    between = " and ".join(str(speaker) for speaker in speakers if speaker)
    started = datetime(1970, 1, 1, 12, tzinfo=UTC)
    for number in numbers:
        place, messages = f"{name}, session_{number}", conversation[f"session_{number}"]
        if not isinstance(messages, list):
            yield Skipped(place, "is not a list of turns")
            continue
        given = conversation.get(f"session_{number}_date_time")
        moment = parse_time(given)
        if moment is None:
            yield Skipped(
                f"{place}_date_time", f"no date that can be read in {given!r}; placed a day after the last one"
            )
        started = moment or started + timedelta(days=1)
        turns: list[ImportedTurn] = []
        for message in messages:
            turn = _turn(message, started + timedelta(seconds=SECONDS_A_TURN * len(turns)))
            if turn is None:
                yield Skipped(f"{place}, {_id(message) or 'a turn'}", "holds no text")
            else:
                turns.append(turn)
        if turns:
            yield ImportedSession(
                session_id=f"{name}-session_{number}",
                title=f"{between or name}, {started.day} {started:%B %Y}",
                turns=tuple(turns),
                project=project,
                source=SOURCE,
            )


def _turn(message: object, at: datetime) -> ImportedTurn | None:
    if not isinstance(message, Mapping):
        return None
    parts = [str(message.get("text") or message.get("clean_text") or "").strip()]
    if caption := str(message.get("blip_caption") or "").strip():
        parts.append(f"[image: {caption}]")
    content = " ".join(filter(None, parts))
    if not content:
        return None
    speaker = message.get("speaker")
    return ImportedTurn(
        role="user",
        content=content,
        at=at,
        turn_id=_id(message) or None,
        name=str(speaker) if speaker else None,
    )


def _id(message: object) -> str:
    return str(message.get("dia_id") or "").strip() if isinstance(message, Mapping) else ""
