"""Derives a conversation's lines with the extractors. If there is an LLM, it first reviews the recognized items.

The LLM drops, rewords, settles or adds items. The whole answer is rejected if one part of it is invalid, such as an
unknown id, a quote that is in no message, or a rewording that loses a name. At most a third of the items may be dropped
or settled.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations.projects import project_of
from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.knowledge import notes as session_notes
from mcp_server.knowledge.duplicates import NEGATIONS, is_duplicate
from mcp_server.knowledge.extractors import ENTRY_POINTS, ITEMS, REGISTRY, Context, Extractor, context_of, part_of
from mcp_server.knowledge.notes import MAX_ITEMS, TAIL, from_dict, settled_items
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.model import Caller, TranscriptHead, Turn
from mcp_server.storage.values import SessionRow
from mcp_server.text.entries import Line, without_sources
from mcp_server.text.fencing import neutralise
from mcp_server.text.prose import clipped
from mcp_server.text.redaction import redact, secrets
from mcp_server.text.transcript import Transcript
from mcp_server.text.words import words
from mcp_server.understanding.cues import stems_of_text
from mcp_server.understanding.judging import ItemKind
from mcp_server.understanding.recognizer import Item, is_real
from mcp_server.understanding.replies import LONGEST

ANSWER_TOKENS = 1_500
MESSAGES = 40
"""Maximum number of messages in one request."""

LONGEST_MESSAGE = 800
"""Maximum number of characters of each message in a request."""


def _shown(turn: Turn, day_of: Callable[[datetime], str]) -> str:
    """Returns a message as text for a request, made safe for a prompt."""
    who = turn.name or {"user": "The user", "agent": "The assistant"}.get(turn.role, "System")
    said = neutralise(clipped(turn.content, LONGEST_MESSAGE))
    return f"[{turn.number}] {neutralise(who)}, {day_of(turn.at)}: {said}"


LEAST_QUOTE = 3
"""Minimum number of words in a quote."""

MOST_REMOVED = 1 / 3
"""Share of the shown items that one answer may drop or settle."""

MOST_ADDED = 3
"""Maximum number of items that one answer may add, or half the number of the window's items if that is more."""

SUPPORTED = 0.6
"""Minimum share of a rewording's content words that must occur in the item or in its messages."""

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(
    r"[^\W_]*(?:[a-z][A-Z]|[A-Z]{2}|[^\W\d]\d|\d[^\W\d]|\w[_./]\w)[\w./-]*\w|(?<=[a-z,;] )[A-ZČĆŠŽĐÄÖÜ][\w-]+"
)
"""Identifiers (fooBar, HTTP2, a_b, a/b.c) and, inside a sentence, words with a capital letter."""

_KINDS: Mapping[str, ItemKind] = {"decision": "decision", "rule": "rule", "fact": "fact", "open": "open"}
"""The kinds that an LLM may add."""

_SETTLES: Mapping[ItemKind, tuple[ItemKind, ...]] = {"decision": ("decision",), "open": ("report", "decision", "fact")}
"""By kind of item, the kinds that can replace or close it."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The items after the review. `settled` maps an item to the number of the turn that replaced or closed it.
    `refused` counts the unusable answers."""

    items: tuple[Item, ...]
    settled: Mapping[Item, int] = field(default_factory=dict)
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a conversation in one request: its messages, and its items by id."""

    turns: tuple[Turn, ...]
    items: Mapping[str, Item]

    def prompt(self, template: str, day_of: Callable[[datetime], str]) -> str:
        """Returns the text of the request: `template` with the items and messages filled in."""
        items = [
            f"{name} ({one.kind}, message {one.sources[0]}): {neutralise(one.text)}" for name, one in self.items.items()
        ]
        messages = [_shown(turn, day_of) for turn in self.turns]
        values = {"items": "\n".join(items) or "(none)", "messages": "\n".join(messages)}
        return re.sub(r"\{(items|messages)\}", lambda place: values[place[1]], template)


def windows(turns: Sequence[Turn], items: Sequence[Item]) -> Iterator[Window]:
    """Yields the conversation in parts of at most `MESSAGES` messages."""
    real = [turn for turn in turns if is_real(turn)]
    for start in range(0, len(real), MESSAGES):
        part = tuple(real[start : start + MESSAGES])
        numbers = {turn.number for turn in part}
        inside = {f"i{place}": one for place, one in enumerate(items, 1) if one.sources[0] in numbers}
        yield Window(part, inside)


def reviewed(window: Window, answer: str, before: Reviewed) -> Reviewed:
    """Returns the items after one answer. If the answer cannot be used, only `refused` changes."""
    try:
        return _applied(window, _object(answer), before)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return replace(before, refused=before.refused + 1)


def _object(answer: str) -> dict[str, list[Any]]:
    fenced = _FENCED.fullmatch(answer)
    value = json.loads(fenced[1] if fenced else answer.strip())
    known = {"drop", "reword", "settle", "add"}
    if not isinstance(value, dict) or not set(value) <= known:
        raise ValueError("not the requested JSON object")
    if not all(isinstance(one, list) for one in value.values()):
        raise ValueError("a value is not a list")
    return {name: value.get(name, []) for name in known}


def _applied(window: Window, asked: Mapping[str, list[Any]], before: Reviewed) -> Reviewed:
    texts = {turn.number: turn.content for turn in window.turns}
    dropped = {window.items[name] for name in asked["drop"]}
    pairs = {window.items[one["id"]]: window.items[one["by"]] for one in asked["settle"]}
    for old, new in pairs.items():
        _check(new.kind in _SETTLES.get(old.kind, ()) and new.turn > old.turn and not {old, new} & dropped)
    _check(all(one.probability < 1 for one in dropped))  # an item that its author labeled is never dropped
    _check(len(dropped) + len(pairs) <= MOST_REMOVED * len(window.items))
    worded: dict[Item, Item] = {}
    for one in asked["reword"]:
        item = window.items[one["id"]]
        _check(item not in dropped)
        worded[item] = replace(item, text=_reworded(item, one["text"], texts), short="")
    added = [_added(one, window) for one in asked["add"]]
    _check(len(added) <= max(MOST_ADDED, len(window.items) // 2))
    items = [worded.get(one, one) for one in before.items if one not in dropped]
    items += [
        one for one in added if not any(one.kind == old.kind and is_duplicate(one.text, old.text) for old in items)
    ]
    settled = {worded.get(old, old): turn for old, turn in before.settled.items()}
    settled.update({worded.get(old, old): new.turn for old, new in pairs.items()})
    return Reviewed(tuple(sorted(items, key=lambda one: one.sources[0])), settled, before.refused)


def _check(holds: bool) -> None:
    if not holds:
        raise ValueError("a part of the answer is invalid")


def _reworded(item: Item, text: str, texts: Mapping[int, str]) -> str:
    """Returns the text of a rewording. Raises ValueError if it loses a name, a number or a negation of the item, or
    contains names, numbers or too many words that are neither in the item nor in its messages."""
    text = " ".join(neutralise(text).split())
    said = " ".join([item.text, *(texts.get(number, "") for number in item.sources)])
    stems, known = stems_of_text(text), stems_of_text(said)
    _check(bool(text) and len(text) <= LONGEST and "[src:" not in text)
    _check(set(_NUMBER.findall(item.text)) <= set(_NUMBER.findall(text)) <= set(_NUMBER.findall(said)))
    _check(all(name in text for name in _NAME.findall(item.text)))
    _check(all(name in said for name in _NAME.findall(text)))
    _check(NEGATIONS.isdisjoint(words(text)) == NEGATIONS.isdisjoint(words(item.text)))
    _check(bool(stems) and len(stems & known) >= SUPPORTED * len(stems))
    _check(2 * len(stems & stems_of_text(item.text)) >= len(stems_of_text(item.text)))
    return text


def _added(one: Any, window: Window) -> Item:
    """Returns an item that quotes a message word for word."""
    turn = next((turn for turn in window.turns if turn.number == one["turn"]), None)
    quote = " ".join(one["quote"].split())
    kind = _KINDS[one["kind"]]
    if turn is None or quote not in " ".join(turn.content.split()):
        raise ValueError("no message has this quote")
    _check(len(quote.split()) >= LEAST_QUOTE and len(quote) <= LONGEST and "[src:" not in quote)
    return Item(kind, quote, turn.number, turn.at, (turn.number,), turn.role, probability=0.5)


log = logging.getLogger(__name__)

LIVE_BYTES = 5_000_000
"""`derive_live` does not read a transcript of more bytes: reading one takes up to 20 times its size in memory."""


@dataclass(frozen=True, slots=True)
class Derived:
    """The lines of one transcript, each once; `title` and `session` are the conversation's. `asked`: an LLM was asked
    to review the items. `fell_back`: the LLM gave no usable answer."""

    path: str
    session: str
    title: str
    lines: tuple[Line, ...]
    asked: bool = False
    fell_back: bool = False


@cache
def available() -> Mapping[str, Extractor]:
    """Returns the built-in extractors and those of installed packages, by name. Logs and leaves out an extractor that
    cannot be loaded."""
    found = dict(REGISTRY)
    for point in entry_points(group=ENTRY_POINTS):
        try:
            extractor = point.load()
        except Exception as error:  # code of another package may raise anything; the others must still load
            log.warning("the extractor %s cannot be loaded: %s", point.name, error)
            continue
        if isinstance(extractor, Extractor):
            found[extractor.name] = extractor
        else:
            log.warning("the extractor %s is not an Extractor", point.name)
    return found


def chosen(names: Sequence[str]) -> tuple[Extractor, ...]:
    """Returns the named extractors, or all of them if no name is given. Raises Invalid for an unknown name."""
    known = available()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Invalid(f"no extractor {unknown[0]!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in (names or known))


def versions(extractors: Sequence[Extractor]) -> str:
    """Returns the names and versions of extractors as the state stores them: `decisions 1, people 2`."""
    return ", ".join(f"{one.name} {one.version}" for one in sorted(extractors, key=lambda one: one.name))


async def derive(memory: Memory, path: str, transcript: Transcript, extractors: Sequence[Extractor]) -> Derived:
    """Returns the lines of a transcript and writes nothing. Call it without a lock: it may wait for an LLM."""
    head = transcript.head
    turns = tuple(placed.turn for placed in transcript.turns)
    project = await project_of(memory, Caller(), head.project or "global")

    def read() -> Context:
        earlier, title = _end_of(memory, head.continues), _title_of(memory, head)
        return context_of(turns, path, title, project.slug, memory.local_date, memory.recognizer(), earlier)

    context = await run_sync(read)
    asked = used = 0
    if not context.speakers:
        found, asked, used = await review(memory, turns, context.items, path)
        context = replace(context, items=found.items, settled=found.settled)
    lines = await run_sync(_by_rules, memory, turns, context, extractors)
    return Derived(path, head.session_id, context.title, lines, asked > 0, asked > 0 and not used)


def _title_of(memory: Memory, head: TranscriptHead) -> str:
    """Returns the title of a conversation's first transcript. A conversation has a further transcript for each time it
    was resumed."""
    seen: set[str] = set()
    while head.continues and head.continues not in seen:
        seen.add(head.continues)
        try:
            head = memory.transcripts.head(head.continues)
        except ContextManagerError:  # gone or damaged: `status` reports it
            break
    return head.title


def _end_of(memory: Memory, path: str | None) -> list[Turn]:
    """Returns the last TAIL messages of a transcript, as context for the transcript that continues it; none if the
    transcript cannot be read."""
    try:
        turns = [placed.turn for placed in memory.transcripts.read(path).turns] if path else []
    except ContextManagerError:  # gone or damaged: `status` reports it
        return []
    return [turn for turn in turns if is_real(turn)][-TAIL:]


async def derive_live(memory: Memory, row: SessionRow, before: Sequence[Line]) -> tuple[Line, ...]:
    """Returns the lines of an open conversation's last transcript, for items whose exchange is over (`settled_items`).
    The notes of a long conversation lack the oldest items: their lines are taken from `before`, the earlier result. A
    transcript over LIVE_BYTES is read only when the conversation ends."""
    if row.size > LIVE_BYTES:
        return tuple(before)
    notes = from_dict(await memory.state.get(session_notes.NAMESPACE, row.session))
    notes = notes if notes.turn == row.turns else await session_notes.notes_of(memory, row.session)
    oldest = notes.items[0].sources[0] if len(notes.items) >= MAX_ITEMS else 0
    project = await project_of(memory, Caller(), row.project or "global")

    def read() -> tuple[Line, ...]:
        turns = tuple(placed.turn for placed in memory.transcripts.read(row.path).turns)
        if not turns or any(turn.name and turn.role == "user" for turn in turns):
            return ()  # statements of named people are extracted when the conversation ends
        found = settled_items(notes, memory.recognizer())
        here = tuple(item for whole in found if (item := part_of(whole, turns[0].number)))
        context = Context(row.path, row.title, project.slug, memory.local_date, frozenset(), here)
        return (*(line for line in before if line.turn < oldest), *_by_rules(memory, turns, context, ITEMS))

    return await run_sync(read, abandon_on_cancel=True)  # do not delay a new window that waits for its brief


async def review(memory: Memory, turns: Sequence[Turn], items: Sequence[Item], where: str) -> tuple[Reviewed, int, int]:
    """Returns the items of these turns as the LLM corrected them, and the numbers of requests and of usable answers.
    The items of a window without a usable answer stay as they are, and without an LLM all items do. `where` names the
    conversation in the log."""
    found, asked, used = Reviewed(tuple(items)), 0, 0
    if memory.llm is None:
        return found, asked, used
    for window in windows(turns, items):
        asked += 1
        try:
            prompt = window.prompt(memory.templates("review_items"), memory.local_date)
            answer = await memory.llm.complete(prompt, purpose="review", max_tokens=ANSWER_TOKENS)
        except LlmUnavailable as error:
            log.info("the items of %s stay as they are: %s", where, error)
            break
        before, found = found, reviewed(window, redact(answer).text, found)
        used += found.refused == before.refused
    if found.refused:
        log.info("%d answers about the items of %s could not be used", found.refused, where)
    return found, asked, used


def _by_rules(
    memory: Memory, turns: Sequence[Turn], context: Context, extractors: Sequence[Extractor]
) -> tuple[Line, ...]:
    """Returns the lines of the extractors without duplicates, and without lines that contain secrets or forgotten
    text."""
    found = [line for extractor in extractors for line in _read(extractor, turns, context)]
    once: dict[tuple[str, str, str, int], Line] = {}
    for line in found:
        # A message may contain lone surrogates, which cannot be written to a file, characters that hide or reorder
        # text, and false source marks.
        text = " ".join(without_sources(neutralise(line.text)).split())
        line = replace(line, text=text, person=line.person and neutralise(line.person))
        if line.text and not secrets(line.text) and memory.forgotten.clean(line.entry) == line.entry:
            once.setdefault((line.file, line.kind, line.text, line.turn), line)
    return tuple(once.values())


def _read(extractor: Extractor, turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns the lines of an extractor; none if it fails, so that the others still run."""
    try:
        return extractor.lines(turns, context)
    except Exception as error:  # code of another package may raise anything
        log.warning("the extractor %s failed on %s: %s: %s", extractor.name, context.path, type(error).__name__, error)
        return []
