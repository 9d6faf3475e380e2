"""Questions with known answers, as SPEC §19 takes them from data sets: those whose evidence names existing turns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mcp_server.clients.importers import beam, locomo
from mcp_server.clients.importers.imported import Skipped
from mcp_server.clients.importers.json_stream import json_items
from mcp_server.errors import Invalid, NotFound

QUESTIONS = "probing_questions.json"
UNANSWERABLE = "abstention"
_EVIDENCE = re.compile(r"D\s*:?\s*(\d+)\s*:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Question:
    """`gold` are the turn ids that hold the answer: at least one, all of them existing."""

    text: str
    gold: frozenset[str]
    category: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation to import by itself. `document` is LoCoMo's JSON; BEAM lies in a file of its own."""

    name: str
    questions: tuple[Question, ...]
    path: Path
    document: Mapping[str, Any] | None = None


def conversations(path: Path, kind: Literal["locomo", "beam"]) -> Iterator[Conversation]:
    """The conversations under `path`, one at a time, each with its questions.

    Raises:
        NotFound, Invalid: no conversation of that format is there, or its questions are missing or malformed.
    """
    if not path.exists():
        raise NotFound(f"there is nothing at {path}; give the file or folder of the data set")
    found = False
    for conversation in _locomo(path) if kind == "locomo" else _beam(path):
        found = True
        yield conversation
    if not found:
        raise Invalid(f"{path}: no {kind} conversation in it; give another path or --format")


def _locomo(path: Path) -> Iterator[Conversation]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files:
        for place, document in enumerate(json_items(file), start=1):
            if not isinstance(document, Mapping) or "conversation" not in document:
                continue
            name = locomo.conversation_name(document, f"{file.stem}-{place}")
            turns = _turn_ids(locomo.sessions(document, name))
            yield Conversation(name, tuple(locomo_questions(document.get("qa") or [], turns)), file, document)


def locomo_questions(entries: list[Any], turns: frozenset[str]) -> Iterator[Question]:
    """All five categories. Evidence is free text that may hold several ids (`D8:6; D9:17`, `D:11:26`)."""
    by_number = {number: turn for turn in turns for number in _numbers(turn)}
    for entry in entries:
        ids = [number for evidence in entry.get("evidence") or [] for number in _numbers(str(evidence))]
        gold = frozenset(by_number[found] for found in ids if found in by_number)
        if gold:
            yield Question(str(entry["question"]), gold, str(entry.get("category", "")))


def _numbers(text: str) -> list[tuple[int, int]]:
    return [(int(session), int(turn)) for session, turn in _EVIDENCE.findall(text)]


def _beam(path: Path) -> Iterator[Conversation]:
    for chat in beam.chats(path):
        found = next(
            (at for at in (chat.parent / QUESTIONS, chat.parent / "probing_questions" / QUESTIONS) if at.exists()), None
        )
        if found is None:
            raise NotFound(f"{chat.parent / QUESTIONS} is missing; the questions lie beside the chat in BEAM")
        try:
            entries = json.loads(found.read_text(encoding="utf-8"))
        except ValueError as error:
            raise Invalid(f"{found}: not JSON ({error}); unpack the data set again") from None
        yield Conversation(chat.parent.name, tuple(beam_questions(entries, _turn_ids(beam.read(chat)))), chat)


def beam_questions(entries: Mapping[str, list[Any]], turns: frozenset[str]) -> Iterator[Question]:
    """All categories but `abstention`; gold is every id in `source_chat_ids`, however deeply nested."""
    for category, questions in entries.items():
        if category == UNANSWERABLE:
            continue
        for entry in questions:
            gold = frozenset(str(found) for found in _flatten(entry.get("source_chat_ids")) if str(found) in turns)
            if gold:
                yield Question(str(entry["question"]), gold, category)


def _flatten(ids: object) -> Iterator[object]:
    if isinstance(ids, Mapping):
        for value in ids.values():
            yield from _flatten(value)
    elif isinstance(ids, list):
        for value in ids:
            yield from _flatten(value)
    elif ids is not None:
        yield ids


def _turn_ids(sessions: Iterator[Any]) -> frozenset[str]:
    return frozenset(
        turn.turn_id
        for session in sessions
        if not isinstance(session, Skipped)
        for turn in session.turns
        if turn.turn_id is not None
    )
