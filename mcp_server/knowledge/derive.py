"""Derives a conversation's lines by the extractors, and by a model if there is one.

Extraction: the LLM lists lines. A line is accepted if its turn was shown, its kind is known, and the turn has most of
its words. For a refused line the extractors' lines are kept.

Review: the LLM drops, rewords, settles or adds items. One part of the answer that does not hold (an unknown id, a quote
that no message has, a name that is lost) refuses the whole answer. At most a third of the items may be dropped or
settled.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from importlib.metadata import entry_points
from typing import Any, get_args

from anyio.to_thread import run_sync

from mcp_server.checkpoints.enrichment import unfenced
from mcp_server.conversations.projects import project_of
from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.knowledge import extractors as ours
from mcp_server.knowledge import notes as session_notes
from mcp_server.knowledge.duplicates import NEGATIONS, is_duplicate
from mcp_server.knowledge.extractors import (
    ENTRY_POINTS,
    JOURNAL,
    REGISTRY,
    USER,
    Context,
    Extractor,
    context_of,
    part_of,
)
from mcp_server.knowledge.notes import MAX_ITEMS, TAIL, from_dict, settled_items
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.model import Caller, TranscriptHead, Turn
from mcp_server.storage.values import SessionRow
from mcp_server.text.entries import Line, LineKind, without_sources
from mcp_server.text.fencing import neutralise
from mcp_server.text.prose import clipped, is_injected
from mcp_server.text.redaction import redact, secrets
from mcp_server.text.transcript import Transcript
from mcp_server.text.words import content_words, words
from mcp_server.understanding.cues import stems_of_text
from mcp_server.understanding.judging import ItemKind
from mcp_server.understanding.lines import LONGEST
from mcp_server.understanding.recognizer import Item, is_real

ANSWER_TOKENS = 1_500
MESSAGES = 40
"""Messages that one request shows."""

LONGEST_MESSAGE = 800
"""Characters of a message that are shown, and in which a quote may be."""


def _shown(turn: Turn, context: Context) -> str:
    """Returns a message as a request shows it, safe for a prompt."""
    who = turn.name or {"user": "The user", "agent": "The assistant"}.get(turn.role, "System")
    said = neutralise(clipped(turn.content, LONGEST_MESSAGE))
    return f"[{turn.number}] {neutralise(who)}, {context.day_of(turn.at)}: {said}"


# ---------------------------------------------------------------- extraction

LONGEST_LINE = 300
SUPPORTED_LINE = 0.4
"""Share of a line's content words that its turn must have."""

WEIGHT = 2.5


def requests(template: str, turns: Sequence[Turn], context: Context) -> list[str]:
    """Returns the prompts for a conversation, each with at most `MESSAGES` of its messages."""
    shown = [_shown(turn, context) for turn in turns if turn.content.strip() and not is_injected(turn.content)]
    windows = [shown[start : start + MESSAGES] for start in range(0, len(shown), MESSAGES)]
    return [template.replace("{messages}", "\n".join(window)) for window in windows]


@dataclass(frozen=True, slots=True)
class Answer:
    """The accepted lines of an answer, and the turn of each refused line (None if it names none that was shown)."""

    lines: tuple[Line, ...] = ()
    refused: tuple[int | None, ...] = ()

    def unanswered(self, turns: Sequence[Turn]) -> frozenset[int]:
        """Returns the turns for which the rules' lines stand: those of refused lines and, if any line was refused, all
        turns without an accepted line."""
        if not self.refused:
            return frozenset()
        answered = {line.turn for line in self.lines} - set(self.refused)
        return frozenset(turn.number for turn in turns) - answered


def read_answer(answer: str, turns: Sequence[Turn], context: Context) -> Answer | None:
    """Returns the lines of an answer; None if the answer is no JSON array."""
    try:
        value = json.loads(unfenced(answer))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list):
        return None
    by_number = {turn.number: turn for turn in turns}
    lines: list[Line] = []
    refused: list[int | None] = []
    for one in value:
        line = _line(one, by_number, context)
        if line is not None:
            lines.append(line)
        else:
            number = one.get("turn") if isinstance(one, dict) else None
            refused.append(number if isinstance(number, int) and number in by_number else None)
    return Answer(tuple(lines), tuple(refused))


def _line(value: Any, turns: dict[int, Turn], context: Context) -> Line | None:
    if not isinstance(value, dict) or not isinstance(value.get("turn"), int) or not isinstance(value.get("text"), str):
        return None
    turn, text = turns.get(value["turn"]), clipped(neutralise(value["text"]), LONGEST_LINE)
    kind = next((kind for kind in get_args(LineKind) if kind == value.get("kind")), None)
    if turn is None or kind is None or "[src:" in text or not _supported(text, turn):
        return None
    person = value.get("person")
    said = context.day_of(turn.at)
    return Line(
        kind,
        text,
        _day(value.get("day")) or said,
        turn.number,
        context.path,
        person=person if isinstance(person, str) and person in context.speakers else None,
        said=said,
        weight=WEIGHT,
        project=context.project,
        file=text.partition(":")[0] if kind == "procedure" else "",
    )


def _day(value: object) -> str | None:
    try:
        return date.fromisoformat(value).isoformat() if isinstance(value, str) else None
    except ValueError:
        return None


def _supported(text: str, turn: Turn) -> bool:
    names = content_words(f"{turn.name or ''} {USER}")
    said = content_words(text, names)
    known = set(content_words(turn.content))
    return bool(said) and sum(word in known for word in said) >= SUPPORTED_LINE * len(said)


# ---------------------------------------------------------------- review

LEAST_QUOTE = 3
"""Words of a quote."""

MOST_REMOVED = 1 / 3
"""Share of the shown items that one answer may drop or settle."""

MOST_ADDED = 3
"""Items that one answer may add, or half as many as there are."""

SUPPORTED = 0.6
"""Share of the content words of a rewording that its messages must say."""

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
    """The items after the review. `settled` says by its item which turn replaced or closed it. `refused` counts the
    answers that changed nothing because they could not be used."""

    items: tuple[Item, ...]
    settled: Mapping[Item, int] = field(default_factory=dict)
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a conversation that one request shows: its messages, and its items by their ids."""

    turns: tuple[Turn, ...]
    items: Mapping[str, Item]

    def prompt(self, template: str, context: Context) -> str:
        """Returns the request."""
        items = [
            f"{name} ({one.kind}, message {one.sources[0]}): {neutralise(one.text)}" for name, one in self.items.items()
        ]
        messages = [_shown(turn, context) for turn in self.turns]
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
    """Returns the items after one answer; if it cannot be used, only `refused` has changed."""
    try:
        return _applied(window, _object(answer), before)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return replace(before, refused=before.refused + 1)


def _object(answer: str) -> dict[str, list[Any]]:
    value = json.loads(unfenced(answer))
    known = {"drop", "reword", "settle", "add"}
    if not isinstance(value, dict) or not set(value) <= known:
        raise ValueError("not the object that was asked for")
    if not all(isinstance(one, list) for one in value.values()):
        raise ValueError("not lists")
    return {name: value.get(name, []) for name in known}


def _applied(window: Window, asked: Mapping[str, list[Any]], before: Reviewed) -> Reviewed:
    texts = {turn.number: turn.content for turn in window.turns}
    dropped = {window.items[name] for name in asked["drop"]}
    pairs = {window.items[one["id"]]: window.items[one["by"]] for one in asked["settle"]}
    for old, new in pairs.items():
        _check(new.kind in _SETTLES.get(old.kind, ()) and new.turn > old.turn and not {old, new} & dropped)
    _check(all(one.probability < 1 for one in dropped))  # a label always counts
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
        raise ValueError("a part of the answer does not hold")


def _reworded(item: Item, text: str, texts: Mapping[int, str]) -> str:
    """Returns a rewording that keeps every name, number and negation, and says nothing that its messages do not say."""
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
"""A longer transcript takes up to twenty times its size in memory while it is read."""


@dataclass(frozen=True, slots=True)
class Derived:
    """The lines of one transcript, each once; `title` and `session` are the conversation's. `model`: an LLM gave them;
    `fell_back`: an LLM was asked and gave no usable answer. `refused` counts the lines of its answers that were
    refused, so that the rules' lines stand for them."""

    path: str
    session: str
    title: str
    lines: tuple[Line, ...]
    model: bool = False
    fell_back: bool = False
    refused: int = 0


@cache
def available() -> Mapping[str, Extractor]:
    """Returns our extractors and those of installed packages by name. An extractor that cannot be loaded is logged and
    left out."""
    found = dict(REGISTRY)
    for point in entry_points(group=ENTRY_POINTS):
        try:
            extractor = point.load()
        except Exception as error:  # somebody else's code: whatever it raises, ours goes on
            log.warning("the extractor %s cannot be loaded: %s", point.name, error)
            continue
        if isinstance(extractor, Extractor):
            found[extractor.name] = extractor
        else:
            log.warning("the extractor %s is no Extractor", point.name)
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
    asked = memory.llm is not None
    given = await _by_model(memory, turns, context) if asked else None
    context = await _reviewed(memory, turns, context) if asked else context
    lines = await run_sync(_by_rules, memory, turns, context, extractors, given)
    refused = len(given.refused) if given else 0
    return Derived(path, head.session_id, context.title, lines, given is not None, asked and given is None, refused)


def _title_of(memory: Memory, head: TranscriptHead) -> str:
    """Returns the title of a conversation: that of its first transcript. It has one for each time it was resumed."""
    seen: set[str] = set()
    while head.continues and head.continues not in seen:
        seen.add(head.continues)
        try:
            head = memory.transcripts.head(head.continues)
        except ContextManagerError:  # gone or damaged: `status` names it
            break
    return head.title


def _end_of(memory: Memory, path: str | None) -> list[Turn]:
    """Returns the last turns of a transcript, which are read again with those of the transcript that continues it."""
    try:
        turns = [placed.turn for placed in memory.transcripts.read(path).turns] if path else []
    except ContextManagerError:  # gone or damaged: `status` names it
        return []
    return [turn for turn in turns if is_real(turn)][-TAIL:]


async def derive_live(memory: Memory, row: SessionRow, before: Sequence[Line] = ()) -> tuple[Line, ...]:
    """Returns the items of an open conversation's last transcript whose exchanges are over. The notes of a long
    conversation lack the oldest items: those are taken from `before`, its earlier lines. A transcript over LIVE_BYTES
    is read only when the conversation ends."""
    if row.size > LIVE_BYTES:
        return tuple(before)
    notes = from_dict(await memory.state.get(session_notes.NAMESPACE, row.session))
    notes = notes if notes.turn == row.turns else await session_notes.notes_of(memory, row.session)
    oldest = notes.items[0].sources[0] if len(notes.items) >= MAX_ITEMS else 0
    project = await project_of(memory, Caller(), row.project or "global")

    def read() -> tuple[Line, ...]:
        turns = tuple(placed.turn for placed in memory.transcripts.read(row.path).turns)
        if not turns or any(turn.name and turn.role == "user" for turn in turns):
            return ()  # people with names: what they tell is extracted when the conversation ends
        found = settled_items(notes, memory.recognizer())
        here = tuple(item for whole in found if (item := part_of(whole, turns[0].number)))
        context = Context(row.path, row.title, project.slug, memory.local_date, frozenset(), here)
        return (*(line for line in before if line.turn < oldest), *_by_rules(memory, turns, context, ours.ITEMS, None))

    return await run_sync(read, abandon_on_cancel=True)  # a window that opens waits for its brief


async def _by_model(memory: Memory, turns: Sequence[Turn], context: Context) -> Answer | None:
    """Returns the lines of an LLM; None if one of its answers is unusable: half a conversation is no extraction."""
    assert memory.llm is not None
    found = Answer()
    for prompt in requests(memory.templates("extract"), turns, context):
        try:
            answer = await memory.llm.complete(prompt, purpose="extraction", max_tokens=ANSWER_TOKENS)
        except LlmUnavailable:
            return None
        part = read_answer(answer, turns, context)
        if part is None:
            return None
        found = Answer((*found.lines, *part.lines), (*found.refused, *part.refused))
    return found


async def _reviewed(memory: Memory, turns: Sequence[Turn], context: Context) -> Context:
    """Returns the context with its items as an LLM corrected them. Items of windows without a usable answer stay."""
    assert memory.llm is not None
    if context.speakers:
        return context
    found = Reviewed(context.items)
    template = memory.templates("review_items")
    for window in windows(turns, context.items):
        try:
            prompt = window.prompt(template, context)
            answer = await memory.llm.complete(prompt, purpose="review", max_tokens=ANSWER_TOKENS)
        except LlmUnavailable:
            break
        found = reviewed(window, redact(answer).text, found)
    if found.refused:
        log.info("%d answers about the items of %s could not be used", found.refused, context.path)
    return replace(context, items=found.items, settled=found.settled)


def _by_rules(
    memory: Memory, turns: Sequence[Turn], context: Context, extractors: Sequence[Extractor], answer: Answer | None
) -> tuple[Line, ...]:
    """Returns the lines of the extractors. If an LLM answered, its lines replace those of extractors with `kinds`,
    except for turns with a refused line. Recognized items are only reviewed by an LLM, never replaced."""
    found: list[Line] = []
    given: list[Line] = []
    recognized = () if context.speakers else ours.ITEMS
    replaced = frozenset(one.name for one in available().values() if one.kinds and one not in recognized)
    if answer is not None:
        by_rules = answer.unanswered(turns)
        of_rules = [one for one in available().values() if one.name in replaced and one.name != JOURNAL.name]
        given = [line for line in answer.lines if not recognized or line.kind not in ours.KINDS]
        given += _read(ours.DECISIONS, turns, context) if recognized else []
        for extractor in of_rules if by_rules else ():
            given += [line for line in _read(extractor, turns, context) if line.turn in by_rules]
    for extractor in extractors:
        if answer is None:
            found += _read(extractor, turns, context)
        elif extractor.name == JOURNAL.name:
            found += ours.of_day(given, context.project)
        elif extractor.name in replaced:
            found += [line for line in given if line.kind in extractor.kinds]
        else:
            found += _read(extractor, turns, context)
    once: dict[tuple[str, str, str, int], Line] = {}
    for line in found:
        # What was said may hold half characters, which no file takes, what hides or reorders text, and sources that
        # it does not come from.
        text = " ".join(without_sources(neutralise(line.text)).split())
        line = replace(line, text=text, person=line.person and neutralise(line.person))
        if line.text and not secrets(line.text) and memory.forgotten.clean(line.entry) == line.entry:
            once.setdefault((line.file, line.kind, line.text, line.turn), line)
    return tuple(once.values())


def _read(extractor: Extractor, turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns the lines of an extractor; none if it fails, so that the others still run."""
    try:
        return extractor.lines(turns, context)
    except Exception as error:  # it may be somebody else's code
        log.warning("the extractor %s failed on %s: %s: %s", extractor.name, context.path, type(error).__name__, error)
        return []
