"""Deriving: a conversation's lines by the extractors that are there, with a model where there is one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points

from anyio.to_thread import run_sync

from mcp_server.conversations.projects import project_of
from mcp_server.errors import Invalid
from mcp_server.knowledge import extractors as ours
from mcp_server.knowledge import llm_answers
from mcp_server.knowledge import notes as session_notes
from mcp_server.knowledge.extractors import ENTRY_POINTS, JOURNAL, REGISTRY, Context, Extractor, context_of
from mcp_server.knowledge.notes import MAX_ITEMS, from_dict, settled_items
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.model import Caller, Turn
from mcp_server.storage.values import SessionRow
from mcp_server.text.derived_lines import Line, without_sources
from mcp_server.text.fencing import neutralise
from mcp_server.text.redaction import redact, secrets
from mcp_server.text.transcript import Transcript

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


async def derive(
    memory: Memory, path: str, transcript: Transcript, extractors: Sequence[Extractor], *, use_model: bool = True
) -> Derived:
    """Returns the lines of a transcript and writes nothing. Call it without a lock: it may wait for an LLM."""
    head = transcript.head
    turns = tuple(placed.turn for placed in transcript.turns)
    project = await project_of(memory, Caller(), head.project or "global")

    def read() -> Context:
        return context_of(turns, path, head.title, project.slug, memory.local_date, memory.recognizer())

    context = await run_sync(read)
    asked = use_model and memory.llm is not None
    given = await _by_model(memory, turns, context) if asked else None
    context = await _reviewed(memory, turns, context) if asked else context
    lines = await run_sync(_by_rules, memory, turns, context, extractors, given)
    refused = len(given.refused) if given else 0
    return Derived(path, head.session_id, head.title, lines, given is not None, asked and given is None, refused)


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
        if any(turn.name and turn.role == "user" for turn in turns):
            return ()  # people with names: what they tell is extracted when the conversation ends
        numbers = {turn.number for turn in turns}
        found = settled_items(notes, memory.recognizer())
        here = tuple(item for item in found if item.sources[0] in numbers)
        context = Context(row.path, row.title, project.slug, memory.local_date, frozenset(), here)
        return (
            *(line for line in before if line.turn < oldest),
            *_by_rules(memory, turns, context, ours.ITEMS, None),
        )

    return await run_sync(read, abandon_on_cancel=True)  # a window that opens waits for its brief


async def _by_model(memory: Memory, turns: Sequence[Turn], context: Context) -> llm_answers.Answer | None:
    """Returns the lines of an LLM; None if one of its answers is unusable: half a conversation is no extraction."""
    assert memory.llm is not None
    found = llm_answers.Answer()
    for prompt in llm_answers.requests(memory.templates("extract"), turns, context):
        try:
            answer = await memory.llm.complete(prompt, purpose="extraction", max_tokens=llm_answers.ANSWER_TOKENS)
        except LlmUnavailable:
            return None
        part = llm_answers.read(answer, turns, context)
        if part is None:
            return None
        found = llm_answers.Answer((*found.lines, *part.lines), (*found.refused, *part.refused))
    return found


async def _reviewed(memory: Memory, turns: Sequence[Turn], context: Context) -> Context:
    """Returns the context with its items as an LLM corrected them. Items of windows without a usable answer stay."""
    assert memory.llm is not None
    if context.speakers:
        return context
    found = llm_answers.Reviewed(context.items)
    template = memory.templates("review_items")
    for window in llm_answers.windows(turns, context.items):
        try:
            prompt = window.prompt(template, context)
            answer = await memory.llm.complete(prompt, purpose="review", max_tokens=llm_answers.ANSWER_TOKENS)
        except LlmUnavailable:
            break
        found = llm_answers.reviewed(window, redact(answer).text, found)
    if found.refused:
        log.info("%d answers about the items of %s could not be used", found.refused, context.path)
    return replace(context, items=found.items, settled=found.settled)


def _by_rules(
    memory: Memory,
    turns: Sequence[Turn],
    context: Context,
    extractors: Sequence[Extractor],
    answer: llm_answers.Answer | None,
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
            found += ours.of_day(given)
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
