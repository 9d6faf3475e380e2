"""Compile: builds the context for a message within a token budget. Nothing that it writes changes a later score.

This file reads the inputs from the ports, first what the state and the index hold, then all files in one thread;
`compiler` decides what goes into the text.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from operator import attrgetter

from anyio.to_thread import run_sync

from mcp_server.concurrency import both
from mcp_server.context import push_policy
from mcp_server.context.compiler import Compiled, compile_inputs, compiler_settings
from mcp_server.context.exclusions import FOLLOWED, as_page, linked_hits, of_others, why_out, without
from mcp_server.context.inputs import (
    LEAST_BUDGET,
    Candidate,
    CompileInputs,
    Dropped,
    LastSession,
    LeftOff,
    Scope,
    Shortened,
)
from mcp_server.context.sections import Considered
from mcp_server.context.slots.files import journal_files, of_the_user, rules_in_force
from mcp_server.context.slots.session import newest
from mcp_server.context.window_text import asks_to_go_on
from mcp_server.conversations import sessions
from mcp_server.conversations.projects import project_asked, project_of, slugs_of
from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.knowledge.anchor import anchors
from mcp_server.memory import Memory
from mcp_server.model import Caller, Delivery, Project, SourceFile, Turn, Withheld
from mcp_server.relevance.chunks import LiveChunk, Standing, as_shown, text_of
from mcp_server.relevance.clarity import block_of
from mcp_server.search.search import Found, SearchRequest, find, settled
from mcp_server.storage import logs
from mcp_server.storage.files import is_untouched_template
from mcp_server.storage.values import SessionRow
from mcp_server.text.destinations import GENERAL_PAGE, JOURNALS, OWN, PROJECT_INDEX, USER_FILE
from mcp_server.text.destinations import MEMORY as MEMORY_FILE
from mcp_server.text.markdown import marked_line, split_front_matter
from mcp_server.text.redaction import redact
from mcp_server.topics.topic_context import in_context
from mcp_server.topics.watch import Seen, first_tier_of_prompt

LAST_EXCHANGES = 3
MAX_SESSIONS_READ = 20  # number of conversations that are tried if the newest ones cannot be read


async def has_no_answer(memory: Memory, session: str) -> bool:
    """Returns whether the session has no answer yet. Later, "continue" means the session itself."""
    return not await memory.state.count_turns(session, "agent")


async def last_session(memory: Memory, project: Project, without: str) -> LastSession | None:
    """Returns the project's newest conversation other than the session `without`, ignoring subagents. People do not
    continue a single question that was answered without a tool: such conversations count only if there are no
    others."""
    keys, rows = project.keys or {project.key}, await memory.state.sessions()
    own = [row for row in rows if row.project in keys and row.kind != "subagent" and row.session != without]
    newest: LastSession | None = None
    for row in sorted(own, key=lambda row: row.last_at or row.last_arrival, reverse=True)[:MAX_SESSIONS_READ]:
        end = await end_of(memory, row)
        if end is not None and (row.turns > 2 or any(turn.tool_calls for turn in end.turns)):
            return end
        newest = newest or end
    return newest


async def end_of(memory: Memory, row: SessionRow) -> LastSession | None:
    """Returns the last exchanges of a conversation; None if it has none or cannot be read."""
    try:
        turns = await run_sync(_last_turns, memory, row)
    except ContextManagerError:
        return None
    return LastSession(row.path, row.title, memory.local_date(turns[-1].at), turns) if turns else None


def _last_turns(memory: Memory, row: SessionRow) -> tuple[Turn, ...]:
    """Returns the user turns of the last exchanges and the last agent turn of each."""
    by_program = memory.recognizer().by_program
    said: list[Turn] = []
    users = 0
    for one in reversed([placed.turn for placed in memory.transcripts.read(row.path).turns]):
        is_said = one.role != "system" and bool(one.content.strip())
        if is_said and not (one.role == "user" and by_program(one.content)):
            said.append(one)
            users += one.role == "user"
        if users == LAST_EXCHANGES:
            break
    last = said[::-1]
    following = [*(one.role for one in last[1:]), "user"]
    rows = zip(last, following, strict=False)
    return tuple(one for one, then in rows if one.role == "user" or (one.role == "agent" and then != "agent"))


MAX_DROPPED = 40  # number of dropped chunks that a compilation receives: more never fit into its list
LONGEST_DROPPED = 160  # characters of a dropped text in its line


@dataclass(frozen=True, slots=True)
class Live:
    """The turns as they are now, oldest first; those that are `shortened`, and the `dropped` chunks, newest first."""

    turns: tuple[Turn, ...] = ()
    shortened: tuple[Shortened, ...] = ()
    dropped: tuple[Dropped, ...] = ()


async def live_context(memory: Memory, session: str, turns: Sequence[Turn]) -> Live:
    """Returns the live context of a session's `turns`, without later ones. The last user turn is always whole. If there
    is no live set (the session has ended, or its state was lost), it is read from cold storage."""
    standing = await memory.live.shortened_chunks(session)
    if standing is None:
        records = [one for one in await run_sync(memory.cold.of, session) if one.form != "whole"]
        places = [(one.chunk_id, one.kind, one.turn, one.part) for one in records]
        standing = [Standing(*place, one.form, one.shown, one.name) for place, one in zip(places, records, strict=True)]
    return await run_sync(_shown, turns, standing) if standing else Live(tuple(turns))


def _shown(turns: Sequence[Turn], standing: Sequence[Standing]) -> Live:
    by_turn: dict[int, dict[int, LiveChunk | Standing]] = {}
    for one in standing:
        if one.kind in ("message", "tool"):
            by_turn.setdefault(one.turn, {})[one.part] = one
    last = next((turn.number for turn in reversed(turns) if turn.role == "user"), None)
    shown: list[Turn] = []
    shortened: list[Shortened] = []
    for turn in turns:
        chunks = by_turn.get(turn.number)
        if not chunks or turn.number == last:
            shown.append(turn)
        elif (shortened_turn := as_shown(turn, chunks)) is not None:
            shown.append(shortened_turn)
            shortened.append(Shortened(turn.number, tuple(chunks[part].id for part in sorted(chunks))))
    by_number = {turn.number: turn for turn in turns}
    until = turns[-1].number if turns else 0
    gone = [one for one in reversed(standing) if one.form == "cold" and one.turn != last and one.turn <= until]
    dropped = [Dropped(one.id, one.turn, _line(one, by_number.get(one.turn))) for one in gone]
    return Live(tuple(shown), tuple(shortened), tuple(dropped))


def _line(one: Standing, turn: Turn | None) -> str:
    if turn is None or one.kind not in ("message", "tool") or one.part > len(turn.tool_calls):
        return f"{one.kind} {one.name}"
    said = text_of(turn, one.part)[:LONGEST_DROPPED]
    return f"{turn.name or turn.role}: {said}" if one.part == 0 else said


MAX_HITS = 300
"""A rendered passage has 30 tokens or more, so the default budget holds fewer than this. Each costs 0.1 ms."""


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """The message, session and limits of a compilation. Without a message, the session's last user turn is used;
    without either, the context is the same for everyone. `budget` defaults to the setting. If it is below 128 tokens,
    `strict` makes that an error; otherwise the text is cut and says so. `known` makes an unknown project an error;
    otherwise the project is new. `resumed`: the session continues from there in an empty window. `row` is the
    session's, if the caller has just read it."""

    message: str | None = None
    session: str | None = None
    project: str | None = None
    budget: int | None = None
    scope: Scope = "project"
    strict: bool = False
    known: bool = False
    resumed: LeftOff | None = None
    row: SessionRow | None = None


@dataclass(frozen=True, slots=True)
class _Conversation:
    """The session that a compilation is for; empty without a session. `seen` are the triggers of topics in a message
    that is not recorded."""

    seen: Seen
    row: SessionRow | None = None
    turns: tuple[Turn, ...] = ()
    in_window: int | None = None
    live: Live = field(default_factory=Live)
    left_off: LeftOff | None = None
    resumed: bool = False
    until: int | None = None

    @property
    def delivery(self) -> Delivery:
        return "replace" if self.resumed else (self.row.delivery if self.row else None) or "add"

    @property
    def last_user(self) -> Turn | None:
        return next((turn for turn in reversed(self.turns) if turn.role == "user"), None)


@dataclass(frozen=True, slots=True)
class InputsWithoutFiles:
    """A compilation before its files are read: the inputs without them, what search found, and the project.
    `references` counts for each path of a hit how often the file was of use. `until` is the last visible turn of a
    session that was wound back, else None."""

    inputs: CompileInputs
    found: Found | None
    project: Project
    references: Mapping[str, int]
    until: int | None


async def compile_context(
    memory: Memory, request: CompileRequest, caller: Caller, personal: Memory | None = None
) -> Compiled:
    """Returns the compiled context and its receipt: the same bytes for the same state, on every channel.

    With `personal`, the user's own memory beside a shared one, it also has who the user is, and the user's rules.

    Raises:
        Invalid: `strict`, and the budget is below 128 tokens.
        NotFound: there is no such session; the nearest is named.
    """
    asked = await inputs_without_files(memory, request, caller)

    def work() -> Compiled:
        inputs = with_files(memory, asked)
        if personal is not None:
            inputs = replace(inputs, files=(*inputs.files, *own_files(personal)))
        compiled, found = compile_inputs(inputs, memory.tokens.count), asked.found
        generation, messages = (found.generation, found.messages) if found else ("none", ())
        compiled = replace(compiled, receipt=replace(compiled.receipt, generation=generation, messages=messages))
        log_compiled(memory, asked.inputs.message, asked.project.slug or "", compiled)
        return compiled

    return await run_sync(work)


LOG = "compiled"  # the log of compiled contexts, whose records have the form of those of pushes
PROMPT_SHOWN = 300  # characters of a prompt in a log, without secrets
LONGEST_TEXT = 60_000  # characters of a compiled text in the log; the rest is cut off
MAX_LEFT_OUT = 40  # excluded candidates in the log, the best ones; the others are counted by reason
_CONSIDERED = tuple(field.name for field in fields(Considered))
_VALUES = attrgetter(*_CONSIDERED)


def shown_prompt(memory: Memory, prompt: str) -> str:
    """Returns the beginning of a prompt for a log, without secrets and without forgotten text."""
    begins = prompt[: 4 * PROMPT_SHOWN]
    if len(prompt) > len(begins):  # drop the last word: redaction does not recognize half a secret
        begins = begins.rpartition(" ")[0]
    return memory.forgotten.clean(redact(begins).text)[:PROMPT_SHOWN]


def log_compiled(memory: Memory, message: str, project: str, compiled: Compiled) -> None:
    """Appends a compiled context to the log. Ignores a log that cannot be written. The log belongs to all members of a
    shared memory: what is from the user's own is left out, and then the text too."""
    receipt, gate = compiled.receipt, compiled.receipt.gate
    considered = [one for one in receipt.considered if not one.source.startswith(OWN)]
    inside = [one for one in considered if one.included]
    outside = [one for one in considered if not one.included]
    left_out = Counter(receipt.left_out) + Counter(one.reason for one in outside[MAX_LEFT_OUT:])
    record = {
        "at": memory.clock().isoformat(),
        "event": "compile_context",
        "session": receipt.session,
        "project": project,
        "decision": "compiled",
        "why": f"the client asked for at most {receipt.budget:,} tokens",
        "prompt": shown_prompt(memory, message),
        "tokens": receipt.tokens,
        "budget": receipt.budget,
        "passages": sum(one.slot == "knowledge" for one in inside),
        "characters": len(compiled.text),
        "sha256": receipt.sha256,
        "gate": {"open": gate.open, "value": gate.value, "threshold": gate.threshold} if gate else None,
        "considered": [
            dict(zip(_CONSIDERED, _VALUES(one), strict=True))  # `asdict` would copy every value
            | {"title": one.unit if one.slot == "clarity" else ""}
            for one in (*inside, *outside[:MAX_LEFT_OUT])
        ],
        "left_out": left_out,
        "text": compiled.text[:LONGEST_TEXT] if len(considered) == len(receipt.considered) else "",
    }
    with contextlib.suppress(OSError, ContextManagerError):
        logs.append(memory.files, LOG, record)


async def inputs_without_files(memory: Memory, request: CompileRequest, caller: Caller) -> InputsWithoutFiles:
    """Returns the inputs that the state and the index hold. Raises as `compile_context` does."""
    budget = memory.settings.context_compiler.token_budget if request.budget is None else request.budget
    if request.strict and budget < LEAST_BUDGET:
        raise Invalid(f"budget {budget} is too small for a context; give at least {LEAST_BUDGET} tokens")
    conversation = await _conversation(memory, request, caller)
    row, asked = conversation.row, conversation.last_user
    if request.project is None and row is not None:
        project = await project_of(memory, caller, row.project)
    else:
        project = await (project_asked if request.known else project_of)(memory, caller, request.project)
    message = request.message if request.message is not None else asked.content if asked else ""
    moment = asked.at if asked else memory.clock()
    topics = await in_context(memory, row.session if row else None, conversation.seen)
    await settled(memory)
    search = SearchRequest(
        query=message,
        limit=MAX_HITS,
        scope=request.scope,
        project=project,
        exclude_session=row.session if row and conversation.delivery == "add" else None,
        exclude_from=conversation.in_window,
        operators=False,  # quotes and dashes in a message
        also=topics.keywords,
        page=True,
        exchanges=push_policy.MAX_PASSAGES,
    )

    async def searched() -> tuple[Found | None, Mapping[str, int]]:
        found = await find(memory, search) if message.strip() else None
        return found, await memory.state.references([hit.passage.path for hit in found.hits]) if found else {}

    (found, references), clarity = await both(searched(), block_of(memory, row))
    turns, first_exchange = newest(conversation.live.turns, budget)
    inputs = CompileInputs(
        message=message,
        budget=budget,
        now=moment if asked else moment.replace(hour=0, minute=0, second=0, microsecond=0),  # knowledge ages by days
        local_date=memory.local_date(moment),
        delivery=conversation.delivery,
        kind=(row.kind if row else None) or "main",
        session=row.session if row else "",
        project=project.key,
        scope=request.scope,
        as_of=conversation.turns[-1].number if conversation.turns else None,
        gate=found.gate if found else None,
        turns=turns,
        first_exchange=first_exchange,
        in_window=conversation.in_window,
        live_set=conversation.live.shortened,
        topics=topics.topics,
        corrections=topics.corrections,
        drop_list=conversation.live.dropped[:MAX_DROPPED],
        dropped=len(conversation.live.dropped),
        clarity=clarity,
        checkpoint=conversation.left_off,
        last_session=await _before(memory, message, project, conversation),
        page_order=tuple(f"{hit.passage.path}:{hit.passage.start}" for hit in found.page) if found else (),
        settings=compiler_settings(memory.settings),
        settings_hash=memory.settings.digest,
        embedder=memory.embedder.name if memory.embedder else "none",
        vocabulary=memory.tokens.vocabulary,
    )
    return InputsWithoutFiles(inputs, found, project, references, conversation.until)


def with_files(memory: Memory, asked: InputsWithoutFiles) -> CompileInputs:
    """Returns the inputs with what files hold: the workspace files, the anchors, and why hits are excluded. Reads
    files: call it in a thread."""
    inputs, found = asked.inputs, asked.found
    others = other_projects(memory, asked.project, inputs.scope)
    sources = source_files(memory, inputs.local_date, asked.project, others)
    inputs = replace(inputs, files=tuple(sources), anchors=anchored(memory))
    if found is None:
        return inputs
    worthwhile = push_policy.worthwhile(inputs.message, memory.recognizer(), found.hits, found.gate)
    read = {one.path: one for one in sources if not one.withheld}

    @cache
    def page_of(path: str) -> SourceFile:
        return read.get(path) or as_page(path, memory.files.readable(path) or "")

    new = linked_hits(found.hits, worthwhile, lambda: _markdown_in(memory, *FOLLOWED), page_of)
    every, worth = (*found.hits, *new), worthwhile | set(range(len(found.hits), len(found.hits) + len(new)))
    reasons = why_out([hit.passage for hit in every], others, page_of, memory.recognizer())
    hits = [
        Candidate(hit, asked.references.get(hit.passage.path, 0), why, place in worth)
        for place, (hit, why) in enumerate(zip(every, reasons, strict=True))
    ]
    return replace(inputs, hits=tuple(hits))


async def _conversation(memory: Memory, request: CompileRequest, caller: Caller) -> _Conversation:
    """Returns the session with its turns up to the last visible one: all turns if the context replaces the client's
    history, otherwise the turns of its last transcript."""

    def first_tier(turns: Sequence[Turn]) -> Seen:
        asked = next((turn.content for turn in reversed(turns) if turn.role == "user"), None)
        unrecorded = request.message if request.message != asked else None
        return first_tier_of_prompt(memory, unrecorded or "", retry=True)

    row, resumed = request.row, request.resumed
    session = row.session if row else request.session or caller.session
    if not session:
        return _Conversation(await run_sync(first_tier, ()))
    if row is None:
        await sessions.ready(memory)
    places = (sessions.AS_OF, session), (sessions.RESUMED, session)
    known, (wound_back, resumed_at), _ = await memory.state.session_and_entries(session, places)
    row = row or await sessions.checked_row(memory, session, known) or await sessions.require(memory, session)
    until = resumed.turn if resumed else sessions.last_visible(wound_back, row)
    until = None if until is None or until >= row.turns else until
    replaces = row.delivery == "replace" or resumed is not None

    def read() -> tuple[tuple[Turn, ...], int | None, Seen]:
        if replaces:
            turns = _until(sessions.read_turns(memory, row.path), until)
            return turns, None, first_tier(turns)
        newest = memory.transcripts.read(row.path)
        latest = _until([placed.turn for placed in newest.turns], until)
        asked = any(turn.role == "user" for turn in latest)
        turns = latest if asked else _until(sessions.read_turns(memory, row.path), until)
        return turns, sessions.read_window_start(memory, row, resumed_at, until, newest), first_tier(turns)

    turns, start, seen = await run_sync(read)
    if replaces:
        left_off = resumed or await memory.rooms.left_off(memory, row, turns, None, until)
        live = await live_context(memory, row.session, turns)
        return _Conversation(seen, row, turns, None, live, left_off, resumed is not None, until)
    left_off = None if start is None else await memory.rooms.left_off(memory, row, turns, start, until)
    return _Conversation(seen, row, turns, in_window=start, left_off=left_off, until=until)


async def _before(memory: Memory, message: str, project: Project, conversation: _Conversation) -> LastSession | None:
    """Returns the project's previous conversation if this one begins with a request to continue it."""
    row = conversation.row
    if not asks_to_go_on(message, project.slug or "") or (row and not await has_no_answer(memory, row.session)):
        return None
    return await last_session(memory, project, row.session if row else "")


def _until(turns: Sequence[Turn], until: int | None) -> tuple[Turn, ...]:
    return tuple(turn for turn in turns if until is None or turn.number <= until)


def other_projects(memory: Memory, project: Project, scope: Scope = "project") -> frozenset[str]:
    """Returns the projects whose content a context of this project must not show."""
    return slugs_of(memory) - {project.slug} if project.slug is not None and scope == "project" else frozenset()


def source_files(
    memory: Memory, local_date: str, project: Project, others: frozenset[str] | None = None
) -> list[SourceFile]:
    """Returns the files that belong to every context by path, without lines that extractors wrote about the projects
    `others` (by default: all other projects). Outside any project MEMORY.md and the index keep their lines of each.
    An unreadable file is returned as withheld."""
    others = other_projects(memory, project) if others is None else others
    paths = [*_identity_files(memory), MEMORY_FILE, PROJECT_INDEX, GENERAL_PAGE, *journal_files(local_date)]
    if project.slug is not None:
        paths += [f"knowledge/projects/{project.slug}/{name}.md" for name in ("context", "progress")]
    names_others = (JOURNALS,) if project.slug is None else (JOURNALS, MEMORY_FILE, PROJECT_INDEX)
    return [
        without(one, of_others(one.text, others)) if one.path.startswith(names_others) else one
        for one in _read(memory, paths)
    ]


def own_files(personal: Memory) -> list[SourceFile]:
    """Returns the files of the user's own memory that belong to every context of a shared one: who the user is, and the
    rules that belong to no project. Their paths begin with OWN."""
    files = _read(personal, [*_identity_files(personal), GENERAL_PAGE])
    shown = [rules_in_force(one) if one.path == GENERAL_PAGE else one for one in files]
    return [replace(one, path=OWN + one.path) for one in shown]


def _identity_files(memory: Memory) -> list[str]:
    return [USER_FILE, *_markdown_in(memory, "knowledge/identity/")]


def _markdown_in(memory: Memory, *folders: str) -> list[str]:
    return [stat.path for folder in folders for stat in memory.files.walk(folder) if stat.path.endswith(".md")]


def _read(memory: Memory, paths: Iterable[str]) -> list[SourceFile]:
    """Returns those of these files that exist, by path. An unreadable file is returned as withheld."""
    found = memory.files.texts(paths)
    texts = {path: text for path, text in found.items() if text is not None}
    withheld = (Withheld("cannot be read: `status` says why"),)
    sources = {path: SourceFile(path, "", withheld=withheld) for path in found.keys() - texts.keys()}
    merge = (Withheld("two versions that nobody has merged: `status` says where"),)  # neither is the user's choice
    marked = list(map(marked_line, texts.values()))
    split = list(map(split_front_matter, texts.values()))
    untouched = list(map(is_untouched_template, texts, texts.values()))
    for path, mark, parts, is_template in zip(texts, marked, split, untouched, strict=True):
        source = SourceFile(path, parts.body, parts.body_line, is_template)
        source = of_the_user(source) if path == USER_FILE else source
        sources[path] = source if mark is None else SourceFile(path, "", withheld=merge)
    return [sources[path] for path in sorted(sources)]


def anchored(memory: Memory) -> tuple[str, ...]:
    """Returns the texts that the user anchored."""
    return tuple(anchor.item for anchor in anchors(memory))
