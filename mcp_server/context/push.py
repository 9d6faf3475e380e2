"""Push: decides what is added to a client's window, at its start and with a prompt, and logs it.

    for_start      the brief of the project, once for each window
    for_prompt     passages relevant to the prompt and the topics that it activates, if the window does not hold them;
                   for a first prompt such as "continue", the end of the previous conversation
    count_printed  stores as sent what the hook printed without a server
    take_back      stores as not sent what the hook did not wait for

Every decision, also to push nothing, is one line of the log `injection`, with the exact text and the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import anyio
from anyio.to_thread import run_sync

from mcp_server.concurrency import both
from mcp_server.context import briefs, push_policy, windows
from mcp_server.context.compile import end_of, has_no_answer, last_session, other_projects, shown_prompt
from mcp_server.context.compiler import Compiled, compile_short, compiler_settings
from mcp_server.context.exclusions import NO_LONGER_SO, as_page, why_out
from mcp_server.context.inputs import Candidate, CompileInputs, LastSession, LeftOff
from mcp_server.context.push_policy import Judged, visible_line
from mcp_server.context.sections import Receipt, rows_of
from mcp_server.context.window_text import (
    FOR_THE_CLIENT,
    NothingAsked,
    asks_to_go_on,
    fingerprints,
    was_sent,
)
from mcp_server.context.windows import Pause, Window, window_from
from mcp_server.conversations import sessions
from mcp_server.conversations.projects import project_of
from mcp_server.errors import ContextManagerError
from mcp_server.knowledge import extract
from mcp_server.knowledge.pages import is_changed
from mcp_server.memory import Memory
from mcp_server.model import Caller, Hit, Project, SourceFile
from mcp_server.search.search import WITH_EXCHANGE, Found, SearchRequest, embed_ahead, find
from mcp_server.storage import logs
from mcp_server.storage.files import is_untouched_template, templates
from mcp_server.storage.values import Depth, SessionRow
from mcp_server.text.destinations import DECISIONS, OLD_FACTS, OLD_RULES, PROJECT_INDEX, REPLACED
from mcp_server.text.entries import Source, is_derived, sources_of, without_sources
from mcp_server.text.passages import own_text
from mcp_server.text.transcript_head import file_id
from mcp_server.topics import watch
from mcp_server.topics.topic_context import InContext, active_context
from mcp_server.topics.watch import Seen
from mcp_server.understanding.settling import settled_in

DEPTH = Depth(postings=1_000, words=60, lines=30, meaning=30, around=10)
"""Half the work of a search, because a prompt waits for it and few passages are pushed."""

MORE = 20
"""Hits beyond those that are judged, because lines of the page are among them."""

TOLD_BY_LINE = "it was changed: a line of the page says how"
_CHANGED = re.compile(r" \((?:amended|refused): ")
"""In a line of the page: the user's answer changed or refused the proposal that the line quotes."""

IN_WINDOW = "quotes this conversation, and the window holds it"


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt, and what is known of the window that it was sent to.

    `row` is that of the window's session, if it has turns. `start` is the first turn that the window holds, None for
    all. `pauses` are those in force, `never` the fingerprints of lines that are never pushed.
    """

    text: str
    session: str
    row: SessionRow | None
    project: Project
    start: int | None
    window: Window
    pauses: Sequence[Pause]
    never: frozenset[str]


async def find_hits(memory: Memory, prompt: _Prompt) -> Found:
    """Returns the hits for a prompt among all passages, and among the lines of the project's page, without the turns
    that the window holds."""
    request = SearchRequest(
        query=prompt.text,
        limit=push_policy.MAX_PASSAGES + MORE,
        project=prompt.project,
        exclude_session=prompt.session,
        exclude_from=prompt.start,
        operators=False,
        depth=DEPTH,
        page=True,
        exchanges=WITH_EXCHANGE,
    )
    return await find(memory, request)


def judged(memory: Memory, prompt: _Prompt, found: Found, allowance: int) -> tuple[Judged, ...]:
    """Returns the decision on each hit, without those in templates that nobody has filled in: they hold no knowledge.
    Lines that only quote turns that the window holds are excluded. Reads files: call it in a thread.

    `allowance` is in tokens.
    """
    paths = {hit.passage.path for hit in (*found.hits, *found.page) if hit.passage.category != "conversation"}
    empty = {path for path in paths if memory.files.version(path) is None}  # deleted after it was indexed
    shipped = memory.files.texts(paths & templates().keys())
    empty |= {path for path, text in shipped.items() if is_untouched_template(path, text or "")}
    passages, lines = (
        tuple(hit for hit in some if hit.passage.category == "conversation" or hit.passage.path not in empty)
        for some in (found.hits, found.page)
    )
    hits = (*passages, *lines)
    session = prompt.row.session if prompt.row else ""
    is_own = cache(lambda path: _is_of(memory, path, session))
    of_all = any(hit.passage.category in ("journal", "memory") or hit.passage.path == PROJECT_INDEX for hit in hits)
    others = other_projects(memory, prompt.project) if of_all else frozenset()
    model = memory.recognizer()
    reasons = why_out([hit.passage for hit in hits], others, partial(_page, memory), model)
    told = {source: (reason, hit) for hit in lines for source, reason in _told_by(hit).items()}
    by_line = {
        _place(hit): told[source]
        for hit in passages
        if hit.passage.turn and (source := Source(hit.passage.path, hit.passage.turn)) in told
    }
    never = prompt.never
    out = {
        _place(hit): why
        or by_line.get(_place(hit), ("", None))[0]
        or (IN_WINDOW if _quotes_only(hit, prompt.start or 0, is_own) else "")
        or (windows.WHY if never and windows.is_never_pushed(own_text(hit.passage), never) else "")
        for hit, why in zip(hits, reasons, strict=True)
    }
    sent = prompt.window.lines
    newer = {turn: _place(line) for turn, (why, line) in by_line.items() if why == TOLD_BY_LINE}
    # By turn, the best of the lines that begin in it, or else the turn.
    said_in = {Source(hit.passage.path, hit.passage.turn): _place(hit) for hit in passages if hit.passage.turn}
    said_in |= {sources[0]: _place(hit) for hit in reversed(lines) if (sources := sources_of(hit.passage.text))}
    for hit in lines:
        if _is_changed(hit) and (by := said_in.get(sources_of(hit.passage.text)[-1])):
            newer[_place(hit)] = by
    return push_policy.choose(prompt.text, model, lines, passages, found.gate, sent, out, allowance, newer)


def _place(hit: Hit) -> str:
    return f"{hit.passage.path}:{hit.passage.start}"


def _is_changed(hit: Hit) -> bool:
    """Returns whether a line says that a newer one may change it. Its last source is that of the newer line."""
    return is_derived(hit.passage.text) and is_changed(without_sources(hit.passage.text).rstrip())


def _told_by(hit: Hit) -> dict[Source, str]:
    """Returns the turns that are not pushed because a line of the page quotes them, each with the reason. The line is a
    replaced one, or has the note that it was perhaps changed, or quotes a proposal with the answer by which the user
    changed or refused it. The first source of a line is the turn that it begins in; the second source of a replaced or
    changed line is the turn with the new value."""
    sources, section = sources_of(hit.passage.text)[:1], hit.passage.title.rsplit(" › ", 1)[-1]
    if section in (REPLACED, OLD_RULES, OLD_FACTS):
        answers = [Source(one.path, settled_in(one.turn, hit.passage.text)) for one in sources]
        return dict.fromkeys((*sources, *answers), NO_LONGER_SO)
    tells_more = _is_changed(hit) or (section == DECISIONS and _CHANGED.search(hit.passage.text))
    return dict.fromkeys(sources, TOLD_BY_LINE) if tells_more else {}


def _page(memory: Memory, path: str) -> SourceFile:
    """Returns a file, without text if it cannot be read."""
    return as_page(path, memory.files.readable(path) or "")


def _quotes_only(hit: Hit, start: int, is_own: Callable[[str], bool]) -> bool:
    """Returns whether the window's own session said every line of a passage, in turn number `start` or later. `is_own`
    tells whether a transcript belongs to the session: a resumed session has several, and numbers its turns through."""
    if "[src: " not in hit.passage.text:
        return False
    rows = [row for row in hit.passage.text.split("\n") if row.strip() and not row.startswith("#")]
    return bool(rows) and all(
        sources_of(row) and all(one.turn >= start and is_own(one.path) for one in sources_of(row)) for row in rows
    )


def _is_of(memory: Memory, path: str, session: str) -> bool:
    """Returns whether a transcript is one of a session's. Reads its head if its name allows it."""
    if not session or f"-{file_id(session)}-" not in path:
        return False
    try:
        return memory.transcripts.head(path).session_id == session
    except ContextManagerError:
        return False


async def offered_topics(memory: Memory, prompt: _Prompt, seen: Seen) -> InContext:
    """Judges the prompt's topics, and returns the active ones that the window does not hold."""
    sent = prompt.window.lines
    topics, standing = await watch.judge_prompt(memory, prompt.session, prompt.text, seen)
    living = standing.active.living(standing.exchanges, memory.settings.watchers.topic_ttl)
    active = await active_context(memory, topics, standing.active, living)
    fresh = tuple(
        replace(topic, subscriptions=tuple(one for one in topic.subscriptions if not was_sent(one.text, sent)))
        for topic in active.topics
        if topic.payloads or not was_sent(topic.source.text, sent)
    )
    return InContext(fresh, active.corrections)


log = logging.getLogger(__name__)

TOPIC_SHARE = 0.65
"""Largest part of a push for topics: they come once for each window, and leave room for passages."""

PAUSED = "paused (CONTEXT_MANAGER_PAUSE)"
NOTHING_KNOWN = "nothing in this memory is about the prompt"

LIVE_SECONDS = 0.5
"""Time limit, at a window's start, for updating the pages with the latest messages of other windows."""


@dataclass(frozen=True, slots=True)
class Injection:
    """A decision. `text` is what is pushed, "" for nothing; `why` is the reason in words; `line` is for the user.
    `recorded`: the session of a prompt has turns. `taken_back`: the text before was not shown."""

    event: str
    text: str
    why: str
    tokens: int = 0
    passages: int = 0
    topics: Sequence[str] = ()
    considered: Sequence[dict[str, Any]] = ()
    gate: dict[str, Any] | None = None
    line: str = ""
    recorded: bool = False
    taken_back: bool = False


async def for_start(memory: Memory, session: str, source: str, caller: Caller, *, paused: bool = False) -> Injection:
    """Returns the brief for a window that begins.

    `source` is the client's reason: startup, resume, clear or compact. After a compaction the brief also has the state
    of the work. A resumed window still holds its brief, so it gets only that state, if the client compacted it.
    """
    state = await windows.push_state(memory, session)
    row = await sessions.checked_row(memory, session, state.row)
    project = await _project(memory, row, caller)
    event = "SessionStart"
    if caller.folder and project.slug:
        await briefs.know_folders(memory, {caller.folder: project})
    window = state.window
    if source == "compact":
        window = await windows.emptied(memory, session, window)
    silent = PAUSED if paused else windows.why_silent(memory, project, state.pauses)
    emptied = row is not None and source == "compact"
    if row is not None and source == "resume":
        emptied = await run_sync(sessions.read_window_start, memory, row, state.resumed) is not None
    left_off = await _checkpoint_for(memory, session, window) if emptied else None
    if silent:
        said = Injection(event, "", silent)
    elif window.brief and left_off is None:
        said = Injection(event, "", "this window holds a brief already")
    else:
        await _read_open_conversations(memory)
        last = await end_of(memory, row) if left_off and row else None
        made = await briefs.make(memory, project, left_off, last=last, whole=not window.brief)
        shown = rows_of(made.considered)
        what = Injection(event, made.text, f"brief, {source or 'start'}", made.tokens, considered=shown)
        said = what if made.text else Injection(event, "", "the memory has nothing for a brief")
    if said.text:
        said = replace(said, line=visible_line(0, said.tokens, "brief"))
        window = replace(window, lines=window.lines | set(fingerprints(said.text)), brief=True)
        window = replace(window, checkpoint=left_off.id if left_off else window.checkpoint)
    await windows.keep(memory, session, window)
    await _log(memory, session, project, said, "")
    return said


async def _read_open_conversations(memory: Memory) -> None:
    """Updates the pages with the latest messages of other windows. If that fails, the brief is a little older."""
    with anyio.move_on_after(LIVE_SECONDS):
        try:
            await extract.refresh(memory)
        except ContextManagerError as error:
            log.warning("the brief lacks the latest messages: %s", error)


async def count_printed(
    memory: Memory, session: str, event: str, source: str, text: str, at: float, caller: Caller
) -> None:
    """Stores a text that the hook printed without a server as held by the window, and logs it.

    `at` is when the hook printed it, in seconds since 1970. A report that was counted before has no effect.
    """
    row = await sessions.current_row(memory, session)
    window = await windows.window_of(memory, session)
    window = window_from(window, await sessions.window_start(memory, row) if row else None)
    if at <= window.printed:
        return
    begins = event == "SessionStart"
    if begins and source == "compact":
        window = await windows.emptied(memory, session, window)
    lines = window.lines | set(fingerprints(text))
    await windows.keep(memory, session, replace(window, lines=lines, brief=window.brief or begins, printed=at))
    tokens = await run_sync(memory.tokens.count, text)
    what = "the brief" if begins else "it shares words with the prompt"
    why = f"{what}; read from disk, because no server was running"
    line = visible_line(0, tokens, "brief" if begins else "found by keywords")
    project = await _project(memory, row, caller)
    await _log(memory, session, project, Injection(event, text, why, tokens, line=line), "")


async def take_back(memory: Memory, session: str, event: str, text: str, caller: Caller) -> None:
    """Stores a text as not sent, because the hook had stopped waiting for it, so that it may be pushed again."""
    window = await windows.window_of(memory, session)
    lines = window.lines - set(fingerprints(text))
    brief = window.brief and event != "SessionStart"
    await windows.keep(memory, session, replace(window, lines=lines, brief=brief, checkpoint=""))
    project = await _project(memory, await sessions.current_row(memory, session, look=False), caller)
    why = "the hook had stopped waiting, so the text decided on just before this was not shown"
    await _log(memory, session, project, Injection(event, "", why, taken_back=True), "")


async def for_prompt(memory: Memory, session: str, prompt: str, caller: Caller, *, paused: bool = False) -> Injection:
    """Returns what is pushed with a prompt, which is usually nothing."""
    asks = await run_sync(push_policy.why_nothing, prompt, lambda: memory.recognizer().needs(prompt))

    async def place() -> _Prompt:
        state = await windows.push_state(memory, session)
        row = await sessions.checked_row(memory, session, state.row, look=False)
        project = await _project(memory, row, caller)
        start = await run_sync(sessions.read_window_start, memory, row, state.resumed) if row else None
        window = window_from(state.window, start)
        return _Prompt(prompt, session, row, project, start, window, state.pauses, state.never)

    def look() -> Seen:
        if asks is None:
            embed_ahead(memory, prompt)
        return watch.first_tier_of_prompt(memory, prompt)

    seen, placed = await both(run_sync(look), place())  # at once, because a prompt waits
    said = await _for_prompt(memory, placed, asks, seen, paused)
    if placed.start is not None and asks not in FOR_THE_CLIENT and not paused:
        said = await _with_checkpoint(memory, placed, said)
    await _log(memory, session, placed.project, said, prompt)
    return replace(said, recorded=placed.row is not None)


async def _for_prompt(
    memory: Memory, prompt: _Prompt, asks: NothingAsked | None, seen: Seen, paused: bool
) -> Injection:
    """Returns what is pushed with a prompt, without a checkpoint. `asks` is why the prompt may get nothing."""
    event, window = "UserPromptSubmit", prompt.window
    goes_on = asks_to_go_on(prompt.text, prompt.project.slug or "")
    before = goes_on and await has_no_answer(memory, prompt.session)
    last = await last_session(memory, prompt.project, prompt.session) if before else None
    asks = None if last else asks
    silent = (
        (asks if asks is not NothingAsked.NO_SUBJECT else None)
        or (PAUSED if paused else windows.why_silent(memory, prompt.project, prompt.pauses))
        or ("hooks.turn_tokens is 0" if memory.settings.hooks.turn_tokens <= 0 else None)
    )
    if silent:
        return Injection(event, "", silent)
    if last is not None:
        return await _go_on(memory, prompt, last)
    if asks:
        topics = await offered_topics(memory, prompt, seen)
        if not topics.topics and not topics.corrections:
            return Injection(event, "", asks)
        found = await find_hits(memory, prompt)
    else:
        topics, found = await both(offered_topics(memory, prompt, seen), find_hits(memory, prompt))
    allowance = min(memory.settings.hooks.turn_tokens, memory.settings.hooks.session_tokens - window.tokens)
    allowance -= push_policy.HEADING

    def work() -> tuple[tuple[Judged, ...], list[Judged], Compiled | None]:
        decided = judged(memory, prompt, found, allowance)
        chosen = [one for one in decided if one.included and not asks]
        if not chosen and not topics.topics and not topics.corrections:
            return decided, chosen, None
        inputs = replace(
            _inputs(memory, prompt),
            hits=tuple(Candidate(one.hit) for one in chosen),
            in_window=prompt.start,
            topics=topics.topics,
            corrections=topics.corrections,
            settings=replace(
                compiler_settings(memory.settings),
                topic_share=TOPIC_SHARE,
                passage_tokens=push_policy.MAX_PASSAGE_TOKENS,
                short_headers=True,
            ),
        )
        return decided, chosen, compile_short(inputs, memory.tokens.count, push_policy.LONGEST)

    decided, chosen, compiled = await run_sync(work)
    gate = {"open": found.gate.open, "value": found.gate.value, "threshold": found.gate.threshold}
    if compiled is None:
        why = decided[0].reason if decided else NOTHING_KNOWN
        why = why if why in (push_policy.SENT_BEFORE, NOTHING_KNOWN) else f"nothing is worth its tokens: {why}"
        return Injection(event, "", why, considered=_rows(decided), gate=gate)
    included = [one for one in compiled.receipt.considered if one.included]
    inside = {one.id: one.tokens for one in included if one.slot == "knowledge"}
    if not included:
        return Injection(event, "", "the relevant passages do not fit", considered=_rows(decided), gate=gate)
    new = {mark for one in chosen if one.id in inside for mark in fingerprints(own_text(one.hit.passage))}
    files = {one.source for one in included if one.slot == "topics"}
    of_topics = [file for topic in topics.topics for file in (topic.source, *topic.subscriptions)]
    new |= {mark for file in of_topics if file.path in files for mark in fingerprints(file.text)}  # of cut lines too
    spent = window.tokens + compiled.tokens
    await windows.keep(memory, prompt.session, replace(window, lines=window.lines | new, tokens=spent))
    reasons = {one.id: one.reason for one in compiled.receipt.considered}
    shown = tuple(topic.name for topic in topics.topics if topic.source.path in files)
    return Injection(
        event,
        compiled.text,
        "relevant to the prompt",
        tokens=compiled.tokens,
        passages=len(inside),
        considered=[*_topic_rows(compiled.receipt), *_rows(decided, inside, reasons)],
        gate=gate,
        line=visible_line(len(inside), compiled.tokens, topics=shown),
        topics=shown,
    )


async def _go_on(memory: Memory, prompt: _Prompt, last: LastSession) -> Injection:
    """Returns the end of the previous conversation, unless the window holds it."""
    event, window = "UserPromptSubmit", prompt.window
    inputs = replace(_inputs(memory, prompt), last_session=last)
    compiled = await run_sync(compile_short, inputs, memory.tokens.count, push_policy.LONGEST)
    new = set(fingerprints(compiled.text)) - window.lines
    considered = rows_of(compiled.receipt.considered)
    if not any(one["included"] for one in considered) or not new:
        return Injection(
            event, "", "this window has the end of the previous conversation already", considered=considered
        )
    await windows.keep(memory, prompt.session, replace(window, lines=window.lines | new))
    return Injection(
        event,
        compiled.text,
        "the prompt asks to continue: the end of the previous conversation",
        tokens=compiled.tokens,
        considered=considered,
        line=visible_line(0, compiled.tokens, "where you left off"),
    )


def with_advice(said: Injection, advice: str, tokens: int) -> Injection:
    """Returns what is pushed with a prompt, and the advisor's proposal after it, whose first line the user sees."""
    shown = advice.split("\n", 1)[0] + " Your client's /compact makes room."
    return replace(
        said,
        text="\n\n".join(filter(None, (said.text, advice))),
        tokens=said.tokens + tokens,
        line="; ".join(filter(None, (said.line, shown))),
    )


async def _with_checkpoint(memory: Memory, prompt: _Prompt, said: Injection) -> Injection:
    """Prepends the state of the last checkpoint if the client compacted its window while no server was running."""
    session = prompt.session
    window = window_from(await windows.window_of(memory, session), prompt.start)
    left_off = None if window.checkpoint else await _checkpoint_for(memory, session, window)
    if left_off is None or windows.why_silent(memory, prompt.project, prompt.pauses):
        return said
    made = await briefs.make(memory, prompt.project, left_off, whole=False)
    if not made.text:
        return said
    new = frozenset(fingerprints(made.text))
    await windows.keep(memory, session, replace(window, lines=window.lines | new, checkpoint=left_off.id))
    text = "\n\n".join(filter(None, (made.text, said.text)))
    tokens = made.tokens + said.tokens
    return replace(
        said,
        text=text,
        tokens=tokens,
        why="the state of the session before its window was compacted" + (f"; {said.why}" if said.text else ""),
        considered=(*rows_of(made.considered), *said.considered),
        line=visible_line(said.passages, tokens, "" if said.passages else "where we were", said.topics),
    )


async def _checkpoint_for(memory: Memory, session: str, window: Window) -> LeftOff | None:
    """Returns the session's state at its last checkpoint; None if the window was told it, or without a checkpoint."""
    left_off = await memory.rooms.last_checkpoint(memory, session)
    return None if left_off is None or left_off.id == window.checkpoint else left_off


def _inputs(memory: Memory, prompt: _Prompt) -> CompileInputs:
    now = memory.clock()
    return CompileInputs(
        message=prompt.text,
        budget=memory.settings.hooks.turn_tokens,
        now=now,
        local_date=memory.local_date(now),
        session=prompt.session,
        project=prompt.project.key,
        settings=compiler_settings(memory.settings),
        embedder=memory.embedder.name if memory.embedder else "none",
        vocabulary=memory.tokens.vocabulary,
    )


async def _project(memory: Memory, row: SessionRow | None, caller: Caller) -> Project:
    """Returns the session's project, which never changes; without a session, the project of the caller's folder."""
    if row is not None:
        return await project_of(memory, caller, row.project or "global")
    return await project_of(memory, caller)


def _rows(
    decided: Sequence[Judged], inside: dict[str, int] | None = None, reasons: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Returns the candidates for the log, with the names that receipts use.

    `inside` are the tokens of those in the text, `reasons` the receipt's, both by id.
    """
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
        for one in decided
    ]


def _topic_rows(receipt: Receipt) -> list[dict[str, Any]]:
    """Returns the topics and corrections for the log, with the names that passages have."""
    of_topics = [one for one in receipt.considered if one.slot in ("topics", "corrections")]
    return [{**row, "title": "", "score": one.score} for one, row in zip(of_topics, rows_of(of_topics), strict=True)]


async def _log(memory: Memory, session: str, project: Project, said: Injection, prompt: str) -> None:
    """Appends the decision to the log. Ignores a log that cannot be written."""
    record = {
        "at": memory.clock().isoformat(),
        "event": said.event,
        "session": session,
        "project": project.slug or "",
        "decision": "injected" if said.text else windows.TAKEN_BACK if said.taken_back else "nothing",
        "why": said.why,
        "prompt": shown_prompt(memory, prompt),
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
        logs.append(memory.files, windows.PUSHED, record)  # a short write: waking a thread would take as long
