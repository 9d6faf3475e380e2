"""Reads the conversations of two public data sets with their questions, and tells which answering turns a text holds.

A LoCoMo file is a JSON list of conversations between two people, each with `session_1`, `session_1_date_time`, … and
its questions (`qa`). Both speakers have the role `user`, and their names. The caption of a picture is part of its turn.

A BEAM chat is a folder with `chat.json`, a list of batches `{batch_number, turns}` where `turns` nests lists of
messages, and `probing_questions.json`. Each batch is a session. A `time_anchor` gives the day of the messages after it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from anyio.to_thread import run_sync

from benchmarks.workbench import caught_up
from mcp_server.clients.importers.exports import Part
from mcp_server.clients.importers.exports import conversations as json_items
from mcp_server.clients.importers.imported import in_parts
from mcp_server.context.compiler import Compiled
from mcp_server.context.sections import Receipt, file_text, said
from mcp_server.conversations.closed_sessions import commit_together
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.errors import Invalid, NotFound
from mcp_server.memory import Memory
from mcp_server.model import Role
from mcp_server.text.entries import sources_of
from mcp_server.text.words import content_words

Kind = Literal["locomo", "beam"]

MARKS: Mapping[Kind, tuple[str, ...]] = {
    "locomo": ('"dia_id"', '"speaker_a"', '"session_1_date_time"'),
    "beam": ('"batch_number"', '"time_anchor"'),
}
"""Keys of which at least one is near the start of every file of this kind."""

HEAD = 256 * 1024
"""Bytes in which MARKS are looked for."""

CHAT, QUESTIONS = "chat.json", "probing_questions.json"
UNANSWERABLE = "abstention"
LEAST_REPEATED = 0.6
"""The least share of a line's content words that are also in a turn, if the line says what the turn says. Extractors
quote: on LoCoMo and BEAM 807 of 808 lines have this share of each turn that they name, 784 have .8."""

SECONDS_A_TURN = 10
ROLES: Mapping[str, Role] = {"user": "user", "assistant": "agent", "system": "system"}
_EVIDENCE = re.compile(r"D\s*:?\s*(\d+)\s*:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Question:
    """`gold` are the ids of the turns that hold the answer: at least one, and all exist."""

    text: str
    gold: frozenset[str]
    category: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation, and its questions that have known evidence."""

    kind: Kind
    name: str
    sessions: tuple[ImportedSession, ...]
    questions: tuple[Question, ...]


def kind_of(path: Path) -> Kind | None:
    """Returns the data set that a file or folder belongs to, or None."""
    if path.is_dir():
        return "beam" if any(path.rglob(CHAT)) else "locomo" if any(path.glob("*.json")) else None
    if not path.exists():
        raise NotFound(f"there is nothing at {path}; give the file or folder of the data set")
    with path.open("rb") as file:
        head = file.read(HEAD).decode("utf-8", "ignore")
    return next((kind for kind, marks in MARKS.items() if any(mark in head for mark in marks)), None)


def conversations(path: Path) -> list[Conversation]:
    """Returns the conversations of a LoCoMo file or a folder with such files, or of a folder with BEAM chats.

    Raises:
        NotFound, Invalid: there is no such conversation, or no question with evidence.
    """
    found = list(talks(path))
    if not any(one.questions for one in found):
        raise Invalid(f"{path} holds no conversations with questions; give LoCoMo files or BEAM folders")
    return found


def talks(path: Path) -> Iterator[Conversation]:
    """Yields such conversations, also those without questions; nothing for any other file."""
    kind = kind_of(path)
    yield from _beam(path) if kind == "beam" else _locomo(path) if kind else ()


def _part(file: Path) -> Part:
    return Part(str(file), 0, lambda: file.open("rb"))


def _locomo(path: Path) -> Iterator[Conversation]:
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        for place, document in enumerate(json_items(_part(file)), start=1):
            if isinstance(document, Mapping) and "conversation" in document:
                name = str(document.get("sample_id") or f"{file.stem}-{place}")
                sessions = tuple(_locomo_sessions(document["conversation"], name))
                questions = tuple(_locomo_questions(document.get("qa") or [], _turn_ids(sessions)))
                yield Conversation("locomo", name, sessions, questions)


def _locomo_sessions(conversation: Mapping[str, Any], name: str) -> Iterator[ImportedSession]:
    """Yields the sessions by number. A session without a date follows the last one by a day."""
    between = " and ".join(str(conversation[key]) for key in ("speaker_a", "speaker_b") if conversation.get(key))
    started = datetime(1970, 1, 1, 12, tzinfo=UTC)
    for number in sorted(int(key[8:]) for key in conversation if re.fullmatch(r"session_\d+", key)):
        started = _time(conversation.get(f"session_{number}_date_time")) or started + timedelta(days=1)
        turns: list[ImportedTurn] = []
        for message in conversation[f"session_{number}"]:
            caption = str(message.get("blip_caption") or "").strip()
            text = str(message.get("text") or message.get("clean_text") or "").strip()
            content = " ".join(filter(None, [text, f"[image: {caption}]" if caption else ""]))
            if content:
                at = started + timedelta(seconds=SECONDS_A_TURN * len(turns))
                turns.append(ImportedTurn("user", content, at, message.get("dia_id"), message.get("speaker")))
        if turns:
            title = f"{between or name}, {started.day} {started:%B %Y}"
            yield ImportedSession(f"{name}-session_{number}", tuple(turns), "import:locomo", title)


def _locomo_questions(entries: list[Any], turns: frozenset[str]) -> Iterator[Question]:
    """Yields the questions of all five categories. Evidence is free text with one or several ids (`D8:6; D9:17`)."""
    by_number = {number: turn for turn in turns for number in _numbers(turn)}
    for entry in entries:
        named = [number for evidence in entry.get("evidence") or [] for number in _numbers(str(evidence))]
        gold = frozenset(by_number[found] for found in named if found in by_number)
        if gold:
            yield Question(str(entry["question"]), gold, str(entry.get("category", "")))


def _numbers(text: str) -> list[tuple[int, int]]:
    return [(int(session), int(turn)) for session, turn in _EVIDENCE.findall(text)]


def _beam(path: Path) -> Iterator[Conversation]:
    chats = [path] if path.is_file() else path.rglob(CHAT)
    for chat in sorted(chats, key=lambda found: (len(found.parts), str(found))):
        places = (chat.parent / QUESTIONS, chat.parent / "probing_questions" / QUESTIONS)
        file = next((place for place in places if place.exists()), None)
        if file is None:
            raise NotFound(f"{places[0]} is missing; in BEAM the questions are beside the chat")
        try:
            entries = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise Invalid(f"{file}: not JSON ({error}); unpack the data set again") from None
        sessions = tuple(_beam_sessions(chat))
        yield Conversation("beam", chat.parent.name, sessions, tuple(_beam_questions(entries, _turn_ids(sessions))))


def _beam_sessions(chat: Path) -> Iterator[ImportedSession]:
    """Yields a session per batch. Folders of chats are numbered, so a digest of the first message tells them apart."""
    at, name = datetime.fromtimestamp(int(chat.stat().st_mtime), UTC), ""
    for place, batch in enumerate(_batches(json_items(_part(chat))), start=1):
        at = _time(batch.get("time_anchor")) or at
        turns: list[ImportedTurn] = []
        messages = list(_flat(batch["turns"]))
        digest = hashlib.sha256(str(messages[0].get("content") if messages else "").encode("utf-8", "replace"))
        name = name or f"{chat.parent.name}-{digest.hexdigest()[:6]}"
        for message in messages:
            given = _time(message.get("timestamp")) or _time(message.get("time_anchor"))
            at = given or at + timedelta(seconds=SECONDS_A_TURN)
            role, content = ROLES.get(str(message.get("role"))), message.get("content")
            if role and isinstance(content, str) and content.strip():
                turns.append(ImportedTurn(role, content, at, str(message["id"]) if "id" in message else None))
        if turns:
            title = " ".join(turns[0].content.split())[:80]
            yield ImportedSession(
                f"{name}-batch-{batch.get('batch_number', place)}", tuple(turns), "import:beam", title
            )


def _batches(items: Iterable[Any]) -> Iterator[Any]:
    """Yields the batches. The longest chats nest them once more: `[{"plan-1": [batch, …]}, …]`."""
    for item in items:
        if "turns" in item:
            yield item
        else:
            for batches in item.values():
                yield from batches


def _beam_questions(entries: Mapping[str, list[Any]], turns: frozenset[str]) -> Iterator[Question]:
    """Yields the questions of all categories but `abstention`. `source_chat_ids` nests ids in lists and objects."""
    for category, questions in entries.items():
        for entry in questions if category != UNANSWERABLE else ():
            gold = frozenset(str(found) for found in _flat(entry.get("source_chat_ids"), into_objects=True)) & turns
            if gold:
                yield Question(str(entry["question"]), gold, category)


def _flat(value: Any, *, into_objects: bool = False) -> Iterator[Any]:
    """Yields what nested lists hold, and nested objects if `into_objects`."""
    if isinstance(value, Mapping) and into_objects:
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _flat(item, into_objects=into_objects)
    elif value is not None:
        yield value


def _time(text: object) -> datetime | None:
    """Returns the time in UTC that `1:56 pm on 8 May, 2023`, `March-15-2024` (noon) or an ISO time means, or None."""
    if isinstance(text, str):
        with suppress(ValueError):
            return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        with suppress(ValueError):
            return datetime.strptime(text, "%B-%d-%Y").replace(hour=12, tzinfo=UTC)
        with suppress(ValueError):
            return datetime.fromisoformat(text).astimezone(UTC)
    return None


def _turn_ids(sessions: Iterable[ImportedSession]) -> frozenset[str]:
    return frozenset(turn.turn_id for session in sessions for turn in session.turns if turn.turn_id is not None)


async def import_conversation(memory: Memory, conversation: Conversation) -> None:
    """Imports a conversation as `context-manager import` does, and indexes it."""
    for session in conversation.sessions:
        for part in in_parts(session):
            await record_session(memory, part)
    await commit_together(memory, f"import {conversation.name}")
    await caught_up(memory)


@dataclass(frozen=True, slots=True)
class KnownTurn:
    """A turn of a workspace: its id, the unit that search ranks, and its words as a context shows them."""

    turn_id: str
    unit: str
    shown: str


@dataclass(frozen=True, slots=True)
class DerivedLine:
    """A line of knowledge: its words as a context shows them, and the units of the turns that it repeats."""

    shown: str
    sources: frozenset[str]


async def known_turns(memory: Memory) -> Mapping[str, KnownTurn]:
    """Returns every turn of the workspace that has an id, by id."""

    def read() -> dict[str, KnownTurn]:
        found: dict[str, KnownTurn] = {}
        for path in memory.transcripts.all():
            for placed in memory.transcripts.read(path).turns:
                turn = placed.turn
                if turn.turn_id is not None:
                    shown = one_line(said(turn.name or turn.role, turn.content))
                    found[turn.turn_id] = KnownTurn(turn.turn_id, f"{path}#{turn.number}", shown)
        return found

    return await run_sync(read)


async def derived_lines(memory: Memory, turns: Mapping[str, KnownTurn]) -> Mapping[str, DerivedLine]:
    """Returns the lines of knowledge that were derived from `turns` and say what they say, by unit."""
    said = {turn.unit: turn.shown for turn in turns.values()}

    def read() -> dict[str, DerivedLine]:
        found: dict[str, DerivedLine] = {}
        for folder in ("knowledge/", "archive/"):
            for stat in memory.files.walk(folder):
                text = memory.files.text_or_none(stat.path) if stat.path.endswith(".md") else None
                for number, line in enumerate((text or "").splitlines(), start=1):
                    shown = one_line(file_text(line))
                    named = [str(source) for source in sources_of(line)]
                    sources = frozenset(unit for unit in named if repeats(shown, said.get(unit, "")))
                    if sources:
                        found[f"{stat.path}#{number}"] = DerivedLine(shown, sources)
        return found

    return await run_sync(read)


def repeats(line: str, turn: str) -> bool:
    """Returns whether a line says what a turn says: LEAST_REPEATED of its content words are the turn's. Words with
    digits do not count, because extractors add dates."""
    said = [word for word in content_words(line) if not any(map(str.isdigit, word))]
    return bool(said) and len(set(said).intersection(content_words(turn))) >= LEAST_REPEATED * len(said)


def one_line(text: str) -> str:
    """Returns `text` with one space for each run of white space."""
    return " ".join(text.split())


def whole(turns: Iterable[KnownTurn], text: str) -> frozenset[str]:
    """Returns the ids of the turns whose complete words are in `text`, with the speaker."""
    line = one_line(text)
    return frozenset(turn.turn_id for turn in turns if turn.shown in line)


def units_of(receipt: Receipt) -> frozenset[str]:
    """Returns the units that a receipt counts as included."""
    return frozenset(one.unit for one in receipt.considered if one.included and one.unit)


def inside(
    turns: Sequence[KnownTurn], text: str, units: Set[str], derived: Mapping[str, DerivedLine] | None = None
) -> frozenset[str]:
    """Returns the ids of the turns that `text` holds: whole, as the part that was found of a long turn, or by a line
    that was derived from them. `units` are those that the text is known to include."""
    missing = {turn.unit for turn in turns} - units
    line = one_line(text)
    for unit, known in (derived or {}).items():
        if known.sources & missing and (unit in units or known.shown in line):
            missing -= known.sources
    return whole(turns, text) | frozenset(turn.turn_id for turn in turns if turn.unit not in missing)


def share_inside(
    question: Question,
    turns: Mapping[str, KnownTurn],
    compiled: Compiled,
    derived: Mapping[str, DerivedLine] | None = None,
) -> float:
    """Returns the share of a question's gold turns that a compiled context holds."""
    gold = [turns[turn] for turn in question.gold]
    return len(inside(gold, compiled.text, units_of(compiled.receipt), derived)) / len(gold)
