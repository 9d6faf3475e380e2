"""Sessions: finds the session of a call, reads its turns, restores it from transcripts, and closes it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import merge

from anyio.to_thread import run_sync

from mcp_server.conversations.closed_sessions import PENDING_COMMITS, commit_pending, queue_extraction
from mcp_server.conversations.source_keys import counts_of, keys_of
from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Delivery, Kind, TranscriptHead, Turn
from mcp_server.storage.values import Change, SessionRow
from mcp_server.text.prose import did_you_mean
from mcp_server.text.transcript import Transcript

AS_OF = "as_of"
"""Namespace of the state: session → `{"turn": its last visible turn, "until": its turns when it was wound back}`."""


async def last_visible_turn(memory: Memory, row: SessionRow) -> int | None:
    """Returns the number of the last visible turn of a session; None if all turns are visible."""
    return last_visible(await memory.state.get(AS_OF, row.session), row)


def last_visible(stored: object, row: SessionRow) -> int | None:
    """Returns the number of a session's last visible turn from the stored value; None if all turns are visible."""
    if not isinstance(stored, Mapping) or row.turns > int(stored["until"]):
        return None
    return int(stored["turn"])


def wound_back(seen: int, turns: int) -> str:
    """Returns a sentence about the hidden turns after number `seen`."""
    hidden = f"turn {turns} is" if turns == seen + 1 else f"turns {seen + 1} to {turns} are"
    until = "until the next message, and cold from then on"
    return f"this conversation was wound back to turn {seen}: {hidden} hidden {until}"


CONTINUING = "continuing"
"""Namespace of the state: sessions whose next transcript is being written. After a crash, the next process searches for
that transcript."""

HANDLE = re.compile(r"ses_[0-9a-f]{12}")
"""The form of the ids that `Memory.new_id` makes."""

RESUMED = "resumed"
"""Namespace of the state: session → its last turn when it was resumed in an empty window."""


@dataclass(frozen=True, slots=True)
class SessionShown:
    """A session: its row, the turns of all its transcripts, and the transcripts' paths, oldest first.

    `seen` is the last visible turn if the session was wound back, else None.
    """

    row: SessionRow
    turns: tuple[Turn, ...]
    paths: tuple[str, ...]
    seen: int | None = None

    @property
    def wound_back(self) -> str:
        """A sentence about the hidden turns; empty if there are none."""
        return "" if self.seen is None else wound_back(self.seen, self.row.turns)


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The result of closing. `committed` is the commit's id; None if git is off, missing, or busy (retried later)."""

    session: str
    path: str
    committed: str | None
    note: str = ""


async def current_row(memory: Memory, session: str, *, look: bool = True) -> SessionRow | None:
    """Returns the session's row, or None if it has no turns. Call it under the transcript's lock before writing.

    Turns that are only in the transcripts, after a crash or because another process wrote them, are first read into the
    state. With `look` False, the transcripts of a session that the state does not know are not searched for: such a
    session is usually new.
    """
    return await checked_row(memory, session, await memory.state.session(session), look=look)


async def checked_row(memory: Memory, session: str, row: SessionRow | None, *, look: bool = True) -> SessionRow | None:
    """Returns the same as `current_row`, for a row that was just read from the state."""
    if row is None:
        return await _find_and_restore(memory, session) if look else None
    if row.status == "closed":
        # A process that was continuing the session may have been killed before it updated the state.
        return await _find_and_restore(memory, session) if await memory.state.get(CONTINUING, session) else row
    try:
        size = memory.files.stat(row.path).size
    except NotFound:
        return await _find_and_restore(memory, session)
    if size == row.size:
        return row
    transcript = await run_sync(memory.transcripts.read, row.path)
    return await _record(memory, row.path, transcript, await memory.state.last_number(session))


async def restore(memory: Memory, path: str) -> SessionRow:
    """Reads a transcript and those that it continues back into the state (row and source keys). Returns the row."""
    transcript = await run_sync(memory.transcripts.read, path)
    session = transcript.head.session_id
    known = await memory.state.last_number(session)
    if transcript.turns and transcript.turns[0].turn.number > known + 1 and transcript.head.continues:
        await restore(memory, transcript.head.continues)
        known = await memory.state.last_number(session)
    return await _record(memory, path, transcript, known)


async def list_sessions(memory: Memory, open_only: bool = False, limit: int = 50) -> list[SessionRow]:
    """Returns the sessions, most recent first."""
    rows = await memory.state.sessions(open_only=open_only)
    return sorted(rows, key=lambda row: row.last_arrival, reverse=True)[:limit]


SHORTEST_BEGINNING = 6
"""Minimum number of characters of an id's beginning that name a session, if no other id begins so."""


async def show_session(memory: Memory, session: str) -> SessionShown:
    """Returns the whole session with this id, or the only one whose id begins so. Raises NotFound with the nearest
    id."""
    row = await current_row(memory, session)
    if row is None:
        begun = await _beginning_with(memory, session) if len(session) >= SHORTEST_BEGINNING else []
        row = await require(memory, begun[0] if len(begun) == 1 else session)
    chain = await run_sync(transcripts_of, memory, row.path)
    seen = await last_visible_turn(memory, row)
    return SessionShown(row, _turns(chain), tuple(path for path, _ in chain), seen)


async def everything_said(memory: Memory, shown: SessionShown) -> list[tuple[Turn, str | None]]:
    """Returns every turn of a session in order of time, each with None, or with the path of its transcript if
    `shown.paths` lacks it. Such transcripts exist if two machines continued the session before they were synced."""
    known = {(turn.number, turn.at, turn.role, turn.content) for turn in shown.turns}
    beside: list[list[tuple[Turn, str | None]]] = []
    for path in await run_sync(memory.transcripts.find, shown.row.session):
        if path not in shown.paths:
            try:
                transcript = await run_sync(memory.transcripts.read, path)
            except ContextManagerError:  # `doctor` reports it
                continue
            turns = [placed.turn for placed in transcript.turns]
            new = [turn for turn in turns if (turn.number, turn.at, turn.role, turn.content) not in known]
            beside.append([(turn, path) for turn in new])
    return list(merge([(turn, None) for turn in shown.turns], *beside, key=lambda said: said[0].at))


async def require(memory: Memory, session: str) -> SessionRow:
    """Returns the session's row. Raises NotFound with the nearest id."""
    row = await current_row(memory, session)
    if row is None:
        begun = await _beginning_with(memory, session)
        ids = [known.session for known in await memory.state.sessions()]
        hint = f"; did you mean {begun[0]!r}?" if len(begun) == 1 else await run_sync(did_you_mean, session, ids)
        raise NotFound(f"no session {session!r}{hint} (the tool `status` or the command `session list` shows them)")
    return row


async def check_known(memory: Memory, session: str | None) -> None:
    """Raises NotFound if no conversation has the id, and it has the form that `Memory.new_id` makes or is the beginning
    of such an id of a conversation. Any other id may be new: a client chose it itself."""
    if session is None or await memory.state.session(session):
        return
    begins_one = session.startswith("ses_") and any(map(HANDLE.fullmatch, await _beginning_with(memory, session)))
    if not (HANDLE.fullmatch(session) or begins_one):
        return
    try:
        await require(memory, session)
    except NotFound as error:
        raise NotFound(f"{error}; nothing was written. Leave `session` out if the conversation is new") from error


async def _beginning_with(memory: Memory, session: str) -> list[str]:
    """Returns the ids that begin with these characters."""
    ids = [row.session for row in await memory.state.sessions()]
    return [known for known in ids if session and known.startswith(session)]


async def session_turns(memory: Memory, session: str) -> tuple[Turn, ...]:
    """Returns every turn of the session with this id, oldest first; empty if there is no such session."""
    row = await current_row(memory, session)
    return await run_sync(read_turns, memory, row.path) if row else ()


async def window_start(memory: Memory, row: SessionRow) -> int | None:
    """Returns the number of the turn that the client's window begins with.

    That is the last compaction, or the first turn after the session was resumed in another window. None if the window
    holds all turns.
    """
    resumed = await memory.state.get(RESUMED, row.session)
    return await run_sync(read_window_start, memory, row, resumed)


def read_window_start(
    memory: Memory, row: SessionRow, resumed: object, until: int | None = None, newest: Transcript | None = None
) -> int | None:
    """Returns the same as `window_start`, ignoring turns after number `until`; `resumed` is the session's entry in
    RESUMED, `newest` its last transcript if the caller has read it. Reads files: call it in a thread."""
    starts = [_last_compaction(memory, row, until, newest), resumed + 1 if isinstance(resumed, int) else None]
    return max((start for start in starts if start is not None and (until is None or start <= until)), default=None)


def _last_compaction(memory: Memory, row: SessionRow, until: int | None, newest: Transcript | None) -> int | None:
    if until is not None:
        turns = read_turns(memory, row.path)
        return max((turn.number for turn in turns if turn.name == COMPACTION and turn.number <= until), default=None)
    path: str | None = row.path
    seen: set[str] = set()
    while path is not None and path not in seen:
        seen.add(path)
        if newest is not None:
            numbers = [placed.turn.number for placed in newest.turns if placed.turn.name == COMPACTION]
            found, path, newest = max(numbers, default=None), newest.head.continues, None
        else:
            try:
                found = memory.transcripts.last_compaction(path)
                path = memory.transcripts.head(path).continues if found is None else None
            except ContextManagerError:
                return None
        if found is not None:
            return found
    return None


def transcripts_of(memory: Memory, path: str) -> list[tuple[str, Transcript]]:
    """Returns a session's transcripts, oldest first. Follows `continues` back from the last one."""
    chain: list[tuple[str, Transcript]] = []
    following: str | None = path
    while following is not None and all(following != seen for seen, _ in chain):
        try:
            transcript = memory.transcripts.read(following)
        except ContextManagerError:
            if not chain:
                raise
            break
        chain.insert(0, (following, transcript))
        following = transcript.head.continues
    return chain


def read_turns(memory: Memory, path: str) -> tuple[Turn, ...]:
    """Returns the turns of a transcript and of those that it continues, oldest first. Reads files: call it in a
    thread."""
    return _turns(transcripts_of(memory, path))


def _turns(chain: list[tuple[str, Transcript]]) -> tuple[Turn, ...]:
    return tuple(placed.turn for _, transcript in chain for placed in transcript.turns)


async def ready(memory: Memory) -> None:
    """Reads all transcripts into the state, oldest first, if the state is new. `status` reports unreadable transcripts.
    Actions call it before they use sessions."""
    if not await memory.state.complete():
        for path in await run_sync(lambda: sorted(memory.transcripts.all())):
            with suppress(ContextManagerError):
                await restore(memory, path)
        await memory.state.completed()


async def end_session(memory: Memory, session: str) -> SessionEnded:
    """Seals the session's transcript and commits it. Ending a closed session changes nothing."""
    async with memory.locks.transcript(session):
        row = await require(memory, session)
        if row.status == "closed":
            return SessionEnded(session, row.path, None, "nothing has changed since it was closed")
        row = await memory.rooms.close_session(memory, row)
    memory.changes.publish(Change("session", row.path, session))
    committed, note = await commit_pending(memory)
    return SessionEnded(session, row.path, committed, note)


async def _end_if_idle(memory: Memory, session: str) -> bool:
    """Locks a session, seals it if it is still idle, and returns whether it was sealed."""
    async with memory.locks.transcript(session):
        row = await current_row(memory, session)
        if row is None or row.status == "closed" or not is_idle(memory, row, memory.clock()):
            return False
        row = await memory.rooms.close_session(memory, row)
    memory.changes.publish(Change("session", row.path, session))
    return True


async def seal(memory: Memory, row: SessionRow) -> SessionRow:
    """Fills in the front matter and closes the transcript, as a part of `Rooms.close_session`. Returns the new row.

    `commit_pending` commits the transcript later.
    """
    transcript = await run_sync(memory.transcripts.read, row.path)
    said = [placed.turn for placed in transcript.turns]
    tokens_in, tokens_out = await run_sync(token_sums, memory, said)
    head = replace(
        transcript.head,
        ended=memory.clock(),
        topic=transcript.head.topic or transcript.head.title,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        knowledge_changes=transcript.changes,
    )
    await memory.state.put(PENDING_COMMITS, row.path, row.session)
    await queue_extraction(memory, row.path, row.session)
    size = await run_sync(lambda: memory.transcripts.replace_head(row.path, head, sealed=True))
    closed = replace(row, status="closed", size=size)
    await memory.state.save_session(closed)
    return closed


async def rename_head(memory: Memory, row: SessionRow, kind: Kind | None, delivery: Delivery | None) -> SessionRow:
    """Writes the kind and delivery into the open transcript's front matter; no line moves."""
    head = (await run_sync(memory.transcripts.read, row.path)).head
    head = replace(head, kind=kind or head.kind, delivery=delivery or head.delivery)
    size = await run_sync(memory.transcripts.replace_head, row.path, head)
    named = replace(row, kind=kind, delivery=delivery, size=size)
    await memory.state.save_session(named)
    return named


async def close_idle(memory: Memory) -> list[str]:
    """Ends every open session without a turn for `lifecycle.session_idle_hours`, and returns their ids.

    If a transcript is broken, the other sessions are still ended, and the last such error is raised afterwards.
    """
    now = memory.clock()
    silent = [row.session for row in await memory.state.sessions(open_only=True) if is_idle(memory, row, now)]
    ended: list[str] = []
    failed: ContextManagerError | None = None
    for session in silent:
        try:
            if await _end_if_idle(memory, session):
                ended.append(session)
        except ContextManagerError as error:
            failed = error
    if ended:
        await commit_pending(memory)
    if failed is not None:
        raise failed
    return ended


async def forget_old(memory: Memory, places: Iterable[tuple[str, str]]) -> None:
    """Removes the entries of closed sessions without a turn for `context.recoverable_for_days` days, after which cold
    records expire. `places` are namespaces of the state, each with the beginning of its keys before the session."""
    oldest = memory.clock() - timedelta(days=memory.settings.context.recoverable_for_days)
    rows = await memory.state.sessions()
    old = [row.session for row in rows if row.status == "closed" and row.last_arrival < oldest]
    for namespace, before in places if old else ():
        gone = {f"{before}{session}" for session in old}.intersection(await memory.state.keys_of(namespace))
        if gone:
            await memory.state.remove(namespace, *sorted(gone))


def is_idle(memory: Memory, row: SessionRow, now: datetime) -> bool:
    """Returns True if the session had no turn for `lifecycle.session_idle_hours`."""
    return now - row.last_arrival > timedelta(hours=memory.settings.lifecycle.session_idle_hours)


@asynccontextmanager
async def continuing(memory: Memory, row: SessionRow | None) -> AsyncIterator[None]:
    """Marks `row`'s session as continuing while its next transcript is written and the state is updated."""
    if row is not None:
        await memory.state.put(CONTINUING, row.session, row.path)
    yield
    if row is not None:
        await memory.state.remove(CONTINUING, row.session)


def token_sums(memory: Memory, said: list[Turn]) -> tuple[int, int]:
    """Returns the tokens of the input (user, system) and of the agent's turns."""
    agent = sum(memory.tokens.count(turn.content) for turn in said if turn.role == "agent")
    return sum(memory.tokens.count(turn.content) for turn in said if turn.role != "agent"), agent


async def _find_and_restore(memory: Memory, session: str) -> SessionRow | None:
    paths = await run_sync(memory.transcripts.find, session)
    return await restore(memory, paths[-1]) if paths else None


def row_of(head: TranscriptHead, path: str, size: int, last: Turn | None, earlier: SessionRow | None) -> SessionRow:
    """Returns the row of a session whose newest transcript has this front matter and last turn. `earlier` is its row
    before that transcript."""
    arrived = last.at if last else head.started
    return SessionRow(
        session=head.session_id,
        path=path,
        status="closed" if head.ended else "open",
        project=head.project,
        kind=head.kind,
        delivery=head.delivery,
        title=head.title,
        opened=earlier.opened if earlier else head.started,
        last_arrival=max(arrived, earlier.last_arrival) if earlier else max(arrived, head.started),
        turns=last.number if last else 0,
        last_at=arrived,
        size=size,
    )


async def _record(memory: Memory, path: str, transcript: Transcript, known: int) -> SessionRow:
    """Updates the state from a transcript: the keys of turns after number `known`, and the row."""
    head = transcript.head
    session = head.session_id
    unknown = [placed.turn for placed in transcript.turns if placed.turn.number > known]
    recorded = await memory.state.keys(session) if unknown else []
    last = transcript.turns[-1].turn if transcript.turns else None
    earlier = await memory.state.session(session)
    row = row_of(head, path, transcript.complete_bytes, last, earlier)
    row = replace(row, turns=last.number if last else known, last_at=transcript.last_at)
    if earlier:  # None if no call has named a kind or a delivery yet
        row = replace(row, kind=earlier.kind, delivery=earlier.delivery)
    await memory.state.save_session(row, keys_of(unknown, counts_of(recorded)))
    return row
