"""Inject: what is pushed into a client's window, at a start and with a prompt; decided, logged, remembered as sent.

    for_start      the brief of the project, once a window
    for_prompt     the passages that this prompt is about, and the topics that it brings in, as far as this window was
                   not sent them before; to a first prompt that only asks to go on, the end of the conversation before
    count_printed  notes as sent what the hook reports to have printed without a server
    take_back      notes as not sent what the hook did not wait for

Every decision, also that nothing is pushed, is one line of the log `injection`: with its exact bytes, and why.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from anyio.to_thread import run_sync

from mcp_server.checkpoints import stored
from mcp_server.concurrency import both
from mcp_server.context import briefs, inject_topics, injection, pauses, previous_session, sent
from mcp_server.context.briefs import compiled_within
from mcp_server.context.compile import compiler_settings, other_projects, reasons_out
from mcp_server.context.going_on import asks_to_go_on
from mcp_server.context.inject_topics import Offered
from mcp_server.context.injection import Judged
from mcp_server.context.inputs import Candidate, CompileInputs, LeftOff
from mcp_server.context.left_off import of_checkpoint
from mcp_server.context.sent import Window
from mcp_server.conversations import sessions
from mcp_server.conversations.projects import project_of
from mcp_server.errors import ContextManagerError
from mcp_server.knowledge import live
from mcp_server.memory import Memory
from mcp_server.model import Caller, Hit
from mcp_server.project import Project
from mcp_server.search.search import Found, SearchRequest, embed_ahead, find, find_page_lines
from mcp_server.storage import logs
from mcp_server.storage.templates import is_untouched_template
from mcp_server.storage.values import Depth, SessionRow
from mcp_server.text.derived_lines import sources_of
from mcp_server.text.passages import own_text
from mcp_server.text.redaction import redact
from mcp_server.topics import watch
from mcp_server.topics.watch import Seen

log = logging.getLogger(__name__)

LOG = "injection"
DEPTH = Depth(postings=1_000, words=60, lines=30, meaning=30, around=10)
"""A prompt waits, and few passages go in: half the work of a search."""

MORE = 20
"""Hits beyond those that are judged: lines of the page are among them."""

LIVE_SECONDS = 0.5
"""A window that begins waits for this long, at most, until what other windows settled is on the pages."""

IN_WINDOW = "quotes this conversation, and the window holds it"

A_TEMPLATE = "a template that nobody has filled in"

PROMPT_SHOWN = 300
"""Characters of a prompt that the log keeps, without secrets."""


@dataclass(frozen=True, slots=True)
class Injection:
    """What is pushed: `text` is "" for nothing, `why` says so in words. `line` is what the user sees."""

    event: str
    text: str
    why: str
    tokens: int = 0
    passages: int = 0
    topics: Sequence[str] = ()
    considered: Sequence[dict[str, Any]] = ()
    gate: dict[str, Any] | None = None
    line: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


async def for_start(memory: Memory, session: str, source: str, caller: Caller, *, paused: bool = False) -> Injection:
    """Returns the brief for a window that begins. `source`: startup, resume, clear, compact. After a compaction the
    brief says where the session stood. A resumed window still holds what it was sent, so it gets a brief only if the
    client compacted it meanwhile."""
    row = await sessions.current_row(memory, session)
    project = await _project(memory, row, caller)
    event = "SessionStart"
    if caller.folder and project.slug:
        await briefs.know_folder(memory, caller.folder, project)
    window = await sent.window_of(memory, session)
    if source == "compact":
        window = await sent.emptied(memory, session, window)
    silent = "paused (CONTEXT_MANAGER_PAUSE)" if paused else await pauses.why_silent(memory, project)
    emptied = row is not None and (
        source == "compact" or (source == "resume" and await sessions.window_start(memory, row) is not None)
    )
    stood = await _stood(memory, session, window) if emptied else None
    if silent:
        said = Injection(event, "", silent)
    elif window.brief and stood is None:
        said = Injection(event, "", "this window holds a brief already")
    else:
        await _read_open_conversations(memory)
        made = await briefs.make(memory, project, stood, whole=not window.brief)
        shown = briefs.shown(made.compiled)
        what = Injection(event, made.text, f"brief, {source or 'start'}", made.tokens, considered=shown)
        said = what if made.text else Injection(event, "", "nothing is known that a brief could tell")
    if said.text:
        said = replace(said, line=injection.visible_line(0, said.tokens, "brief"))
        window = replace(window, lines=window.lines | set(injection.fingerprints(said.text)), brief=True)
        window = replace(window, checkpoint=stood.id if stood else window.checkpoint)
    await sent.keep(memory, session, window)
    await _log(memory, session, project, said, "")
    return said


async def _read_open_conversations(memory: Memory) -> None:
    """Brings the pages up to date with what was just said in other windows. Without it, the brief is a little older."""
    with anyio.move_on_after(LIVE_SECONDS):
        try:
            await live.refresh(memory)
        except ContextManagerError as error:
            log.warning("the brief is without what was said last: %s", error)


async def count_printed(
    memory: Memory, session: str, event: str, source: str, text: str, at: float, caller: Caller
) -> None:
    """Adds a text that the hook printed without a server to what the window holds, and logs it. A report that was
    counted before has no effect. `at` is when the hook printed it, in seconds since 1970."""
    row = await sessions.current_row(memory, session)
    window = await sent.window_from(memory, session, await sessions.window_start(memory, row) if row else None)
    if at <= window.printed:
        return
    begins = event == "SessionStart"
    if begins and source == "compact":
        window = await sent.emptied(memory, session, window)
    lines = window.lines | set(injection.fingerprints(text))
    await sent.keep(memory, session, replace(window, lines=lines, brief=window.brief or begins, printed=at))
    tokens = await run_sync(memory.tokens.count, text)
    what = f"brief, {source or 'start'}" if begins else "the prompt's words are in it"
    why = f"{what}; the hook printed it from disk, because no server answered"
    line = injection.visible_line(0, tokens, "brief" if begins else "found by keywords")
    project = await _project(memory, row, caller)
    await _log(memory, session, project, Injection(event, text, why, tokens, line=line), "")


async def take_back(memory: Memory, session: str, event: str, text: str, caller: Caller) -> None:
    """Removes a text from what the window holds: the hook had stopped waiting for it, so nobody printed it."""
    window = await sent.window_of(memory, session)
    lines = window.lines - set(injection.fingerprints(text))
    brief = window.brief and event != "SessionStart"
    await sent.keep(memory, session, replace(window, lines=lines, brief=brief, checkpoint=""))
    project = await _project(memory, await sessions.current_row(memory, session, look=False), caller)
    why = "the hook had stopped waiting, so the text decided on just before this was not shown"
    await _log(memory, session, project, Injection(event, "", why), "")


async def for_prompt(memory: Memory, session: str, prompt: str, caller: Caller, *, paused: bool = False) -> Injection:
    """What the memory pushes with a prompt: usually nothing."""

    async def place() -> tuple[Project, int | None]:
        row = await sessions.current_row(memory, session, look=False)
        return await _project(memory, row, caller), await sessions.window_start(memory, row) if row else None

    def look() -> Seen:
        if injection.asks_nothing(prompt) is None:
            embed_ahead(memory, prompt)
        return watch.look(memory, prompt)

    (project, start), seen = await both(place(), run_sync(look))  # a prompt waits
    said = await _for_prompt(memory, session, start, prompt, project, seen, paused)
    if start is not None and not injection.is_the_clients(prompt) and not paused:
        said = await _with_checkpoint(memory, session, start, project, said)
    await _log(memory, session, project, said, prompt)
    return said


async def _for_prompt(
    memory: Memory, session: str, start: int | None, prompt: str, project: Project, seen: Seen, paused: bool
) -> Injection:
    event = "UserPromptSubmit"
    before = asks_to_go_on(prompt) and await previous_session.begins(memory, session)
    last = await previous_session.last_session(memory, project, session) if before else None
    asks = None if last else injection.asks_nothing(prompt)
    silent = (
        (asks if asks != injection.NO_SUBJECT else None)
        or ("paused (CONTEXT_MANAGER_PAUSE)" if paused else await pauses.why_silent(memory, project))
        or ("hooks.turn_tokens is 0" if memory.settings.hooks.turn_tokens <= 0 else None)
    )
    if silent:
        return Injection(event, "", silent)
    if last is not None:
        inputs = replace(_inputs(memory, prompt, session, project), last_session=last)
        return await _go_on(memory, session, inputs, await sent.window_from(memory, session, start))
    if asks:
        window, topics = await _offered(memory, session, start, prompt, seen)
        if not topics:
            return Injection(event, "", asks)
        found = await _find(memory, prompt, project, session, start)
    else:  # the prompt waits, and neither needs the other: what takes longer begins first
        beside = _offered(memory, session, start, prompt, seen)
        found, (window, topics) = await both(_find(memory, prompt, project, session, start), beside)
    allowance = min(memory.settings.hooks.turn_tokens, memory.settings.hooks.session_tokens - window.tokens)
    allowance -= injection.HEADING
    row = await memory.state.session(session)
    own = (row.path, start or 0) if row else ("", 0)
    judged = await run_sync(_judged, memory, prompt, found, window.lines, project, allowance, own)  # reads files
    chosen = [one for one in judged if one.included and not asks]
    gate = {"open": found.all.gate.open, "value": found.all.gate.value, "threshold": found.all.gate.threshold}
    if not chosen and not topics:
        why = judged[0].reason if judged else "nothing found"
        why = why if why == injection.SENT_BEFORE else f"nothing is worth its tokens: {why}"
        return Injection(event, "", why, considered=_rows(judged), gate=gate)
    candidates = tuple(Candidate(one.hit) for one in chosen)
    inputs = replace(
        _inputs(memory, prompt, session, project),
        hits=candidates,
        in_window=start,
        topics=topics.topics,
        corrections=topics.corrections,
        settings=replace(
            compiler_settings(memory.settings),
            topic_share=inject_topics.SHARE,
            passage_tokens=injection.MAX_PASSAGE_TOKENS,
            short_headers=True,
        ),
    )
    compiled = await run_sync(compiled_within, memory, inputs)
    included = [one for one in compiled.receipt.considered if one.included]
    inside = {one.id: one.tokens for one in included if one.slot == "knowledge"}
    if not included:
        return Injection(event, "", "what is relevant does not fit", considered=_rows(judged), gate=gate)
    new = {mark for one in chosen if one.id in inside for mark in injection.fingerprints(own_text(one.hit.passage))}
    new |= topics.marks(compiled.receipt)
    spent = window.tokens + compiled.tokens
    await sent.keep(memory, session, replace(window, lines=window.lines | new, tokens=spent))
    reasons = {one.id: one.reason for one in compiled.receipt.considered}
    return Injection(
        event,
        compiled.text,
        "relevant to the prompt",
        tokens=compiled.tokens,
        passages=len(inside),
        considered=[*inject_topics.rows(compiled.receipt), *_rows(judged, inside, reasons)],
        gate=gate,
        line=injection.visible_line(len(inside), compiled.tokens, topics=topics.shown(compiled.receipt)),
        topics=topics.shown(compiled.receipt),
    )


async def _go_on(memory: Memory, session: str, inputs: CompileInputs, window: Window) -> Injection:
    """How the conversation before ended, for a window that has not been told."""
    event = "UserPromptSubmit"
    compiled = await run_sync(compiled_within, memory, inputs)
    new = set(injection.fingerprints(compiled.text)) - window.lines
    considered = briefs.shown(compiled)
    if not any(one["included"] for one in considered) or not new:
        return Injection(event, "", "this window was told where you left off", considered=considered)
    await sent.keep(memory, session, replace(window, lines=window.lines | new))
    return Injection(
        event,
        compiled.text,
        "the prompt asks to go on: the conversation before",
        tokens=compiled.tokens,
        considered=considered,
        line=injection.visible_line(0, compiled.tokens, "where you left off"),
    )


async def _offered(memory: Memory, session: str, start: int | None, prompt: str, seen: Seen) -> tuple[Window, Offered]:
    """The window, and the topics that the prompt brings into it."""
    window = await sent.window_from(memory, session, start)
    return window, await inject_topics.offered(memory, session, prompt, seen, window.lines)


async def _with_checkpoint(memory: Memory, session: str, start: int, project: Project, said: Injection) -> Injection:
    """The same, and before it where the session stood, if its window was emptied and begun anew where no server was."""
    window = await sent.window_from(memory, session, start)
    stood = None if window.checkpoint else await _stood(memory, session, window)
    if stood is None or await pauses.why_silent(memory, project):
        return said
    made = await briefs.make(memory, project, stood, whole=False)
    if not made.text:
        return said
    new = frozenset(injection.fingerprints(made.text))
    await sent.keep(memory, session, replace(window, lines=window.lines | new, checkpoint=stood.id))
    text = "\n\n".join(filter(None, (made.text, said.text)))
    tokens = made.tokens + said.tokens
    return replace(
        said,
        text=text,
        tokens=tokens,
        why="where the session stood before its window was emptied" + (f"; {said.why}" if said.text else ""),
        considered=(*briefs.shown(made.compiled), *said.considered),
        line=injection.visible_line(said.passages, tokens, "" if said.passages else "where we were", said.topics),
    )


async def _stood(memory: Memory, session: str, window: Window) -> LeftOff | None:
    """Where the session stood, for a window that has lost something; None if it was told, or nothing is known."""
    kept = await stored.latest(memory, session)
    return None if kept is None or kept.id == window.checkpoint else of_checkpoint(kept)


@dataclass(frozen=True, slots=True)
class _Hits:
    """The hits for a prompt: among all passages, and among the lines of the project's page."""

    all: Found
    lines: Found


async def _find(memory: Memory, prompt: str, project: Project, session: str, start: int | None) -> _Hits:
    request = SearchRequest(
        query=prompt,
        limit=injection.MAX_PASSAGES + MORE,
        project=project,
        exclude_session=session,
        exclude_from=start,
        operators=False,
        depth=DEPTH,
    )
    return _Hits(await find(memory, request), await find_page_lines(memory, request))


def _judged(
    memory: Memory,
    prompt: str,
    found: _Hits,
    window: frozenset[str],
    project: Project,
    allowance: int,
    own: tuple[str, int],
) -> tuple[Judged, ...]:
    """The policy's decisions on what is for this project, still so, and no template that nobody has filled in. `own` is
    the window's transcript and the first turn that the window holds: lines that only quote these turns are out."""
    hits = (*found.all.hits, *found.lines.hits)
    journals = any(hit.passage.category == "journal" for hit in hits)
    others = other_projects(memory, project) if journals else frozenset()
    out = {
        f"{hit.passage.path}:{hit.passage.start}": why
        or (IN_WINDOW if _quotes_only(hit, own) else "")
        or (A_TEMPLATE if hit.passage.category != "conversation" and _is_template(memory, hit) else "")
        for hit, why in zip(hits, reasons_out(memory, hits, others), strict=True)
    }
    return injection.choose(prompt, found.lines.hits, found.all.hits, found.all.gate, window, out, allowance)


def _quotes_only(hit: Hit, own: tuple[str, int]) -> bool:
    """Whether every line of a passage that says something names only turns of the window's own conversation."""
    rows = [row for row in hit.passage.text.split("\n") if row.strip() and not row.startswith("#")]
    sources = [sources_of(row) for row in rows]
    return bool(rows) and all(
        found and all(one.path == own[0] and one.turn >= own[1] for one in found) for found in sources
    )


def _is_template(memory: Memory, hit: Hit) -> bool:
    try:
        return is_untouched_template(hit.passage.path, memory.files.read_text(hit.passage.path))
    except ContextManagerError:  # gone since it was indexed
        return True


def _inputs(memory: Memory, prompt: str, session: str, project: Project) -> CompileInputs:
    now = memory.clock()
    return CompileInputs(
        message=prompt,
        budget=memory.settings.hooks.turn_tokens,
        now=now,
        local_date=memory.local_date(now),
        session=session,
        project=project.key,
        settings=compiler_settings(memory.settings),
        embedder=memory.embedder.name if memory.embedder else "none",
        vocabulary=memory.tokens.vocabulary,
    )


async def _project(memory: Memory, row: SessionRow | None, caller: Caller) -> Project:
    """The session's own project for good, else that of the folder it works in."""
    if row is not None:
        return await project_of(memory, caller, row.project or "global")
    return await project_of(memory, caller)


def _rows(
    judged: Sequence[Judged], inside: dict[str, int] | None = None, reasons: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The candidates for the log, as receipts name things."""
    inside, reasons = inside or {}, reasons or {}
    return [
        {
            "id": one.id,
            "slot": "knowledge",
            "source": one.hit.passage.path,
            "turn": one.hit.passage.turn,
            "session": one.hit.passage.session,
            "title": one.hit.passage.title[:100],
            "score": round(one.hit.score, 3),
            "worth": round(one.worth, 4),
            "terms": {name: value for name, value in one.hit.terms.items() if value},
            "tokens": inside.get(one.id, 0),
            "included": one.id in inside,
            "reason": reasons.get(one.id, one.reason) if one.included else one.reason,
        }
        for one in judged
    ]


async def _log(memory: Memory, session: str, project: Project, said: Injection, prompt: str) -> None:
    """One line about what was decided. A log that cannot be written stops nothing."""
    begins = prompt[: 4 * PROMPT_SHOWN]
    if len(prompt) > len(begins):  # without its last word: half a secret is not known as one
        begins = begins.rpartition(" ")[0]
    shown = memory.forgotten.clean(redact(begins).text)[:PROMPT_SHOWN]
    record = {
        "at": memory.clock().isoformat(),
        "event": said.event,
        "session": session,
        "project": project.slug or "",
        "decision": "injected" if said.text else "nothing",
        "why": said.why,
        "prompt": shown,
        "tokens": said.tokens,
        "passages": said.passages,
        "characters": len(said.text),
        "sha256": hashlib.sha256(said.text.encode("utf-8", "replace")).hexdigest() if said.text else "",
        "gate": said.gate,
        "considered": list(said.considered),
        "line": said.line,
        "text": said.text,
    }
    with contextlib.suppress(OSError, ContextManagerError):
        logs.append(memory.files, LOG, record)  # one short write: a thread would take as long to wake up
