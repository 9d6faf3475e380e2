"""Makes checkpoints: a checkpoint is the state of a session in a file that people can read and `restore` can restore.

    the compile inputs → the session's state → the transcripts and the knowledge, read once
      → the tree of knowledge files, on disk → the file, on disk: now the checkpoint exists
      → old automatic checkpoints are deleted

A crash in between leaves a tree that no file names; housekeeping deletes it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.checkpoints.document import Checkpoint, Reason
from mcp_server.checkpoints.kept import snapshot, stored, topic_names, without_notes_texts
from mcp_server.context.compile import CompileRequest, InputsWithoutFiles, inputs_without_files, with_files
from mcp_server.conversations import sessions
from mcp_server.conversations.sessions import last_visible_turn
from mcp_server.errors import ContextManagerError
from mcp_server.knowledge import notes as session_notes
from mcp_server.knowledge.anchor import anchors
from mcp_server.knowledge.notes import Noted
from mcp_server.memory import Memory
from mcp_server.model import Caller, Turn
from mcp_server.relevance.chunks import Gauges
from mcp_server.relevance.live_set import gauges, live_set
from mcp_server.storage.checkpoint_files import CheckpointFiles, CheckpointTrees, new_id
from mcp_server.storage.values import Change, SessionRow, SessionState
from mcp_server.text.fencing import neutralise
from mcp_server.text.prose import clipped, is_injected, is_real_user
from mcp_server.text.redaction import redact
from mcp_server.text.words import content_words
from mcp_server.understanding.judging import clean
from mcp_server.understanding.model import Model
from mcp_server.understanding.sentences import is_question, sentences

LOCK = "checkpoints"  # held, shared, while a checkpoint is made, so that `sweep` does not delete its tree
LONGEST_NOTE = 500
ENRICHING = "enriching"
"""Namespace of the state: checkpoint → its session, for checkpoints that an LLM has yet to review."""

_NAMES = re.compile(r"\d|(?<=\S )[A-Z]|[\w-]+[./_-]\w")  # a fact that holds a number, a name, or an identifier
log = logging.getLogger(__name__)


async def make(memory: Memory, session: str, reason: Reason, note: str = "") -> Checkpoint:
    """Makes a checkpoint of a session; it is on disk when this returns.

    Raises:
        NotFound: no such session; the nearest is named.
        Unavailable: the disk refuses it.
    """
    await sessions.ready(memory)
    async with memory.locks.transcript(session):
        return await make_locked(memory, await sessions.require(memory, session), reason, note)


async def make_locked(
    memory: Memory, row: SessionRow, reason: Reason, note: str = "", recovery: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Makes a checkpoint of a session up to its last turn, or to the turn that it was wound back to, under the caller's
    lock on the transcript. `recovery` describes the recovery that follows."""
    session = row.session
    asked: InputsWithoutFiles | None = None
    try:
        asked = await inputs_without_files(memory, CompileRequest(row=row), Caller(source="checkpoint"))
    except (ContextManagerError, OSError) as error:  # a broken index: keep the rest of the state
        log.warning("the checkpoint of %s keeps no compile inputs: %s", session, error)
    hidden = asked.until if asked else await last_visible_turn(memory, row)
    turn = row.turns if hidden is None else hidden
    state = await snapshot(memory, session)
    if not state.rows:  # the stored set was lost: rebuild it
        state = state.with_chunks(await live_set(memory, session))
    full = await gauges(memory, session)

    def work() -> tuple[Checkpoint, list[str], Noted | None]:
        draft, contents, notes = _drafted(memory, row, turn, asked, state, full)
        about = {} if recovery is None else {"recovery": dict(recovery)}
        draft = replace(draft, reason=reason, note=clipped(redact(note).text, LONGEST_NOTE))
        return *_write(memory, replace(draft, state={**(draft.state or {}), **about}), contents), notes

    checkpoint, changed, notes = await run_sync(work)
    if notes is not None:
        await memory.state.put(session_notes.NAMESPACE, session, notes.as_dict(), waits=False)
    if reason != "recovery" and memory.llm is not None:
        await memory.state.put(ENRICHING, checkpoint.id, {"session": session})
    for path in changed:
        memory.changes.publish(Change("file", path))
    return checkpoint


async def before(memory: Memory, session: str, reason: Reason, since: int | None = None) -> None:
    """Makes a checkpoint before the caller changes a session, under the caller's lock on its transcript. Makes none if
    the last checkpoint already covers turn number `since`. Logs a failure instead of raising it."""
    try:
        if since is not None:
            heads = await run_sync(CheckpointFiles(memory.files).heads, session)
            if heads and heads[0].turn >= since:
                return
        row = await sessions.current_row(memory, session)
        if row is not None and row.turns:
            await make_locked(memory, row, reason)
    except (ContextManagerError, OSError) as error:
        log.warning("no checkpoint was made of %s: %s", session, error)


async def sweep(memory: Memory) -> int:
    """Deletes trees without a checkpoint and returns how many. Does nothing while a checkpoint is being made."""
    held, files = await run_sync(memory.locks.try_exclusive, LOCK), CheckpointFiles(memory.files)
    if held is None:
        return 0
    with held:
        kept = frozenset(head.id for head in await run_sync(files.heads))
        await run_sync(files.sweep)
        return await run_sync(CheckpointTrees(memory.files, memory.git).sweep, kept)


def _drafted(
    memory: Memory, row: SessionRow, turn: int, asked: InputsWithoutFiles | None, state: SessionState, full: Gauges
) -> tuple[Checkpoint, dict[str, bytes], Noted | None]:
    """Reads the transcripts and the knowledge. Returns the checkpoint without its tree, the files for that tree, and
    the session's notes if the state lacks some of its turns."""
    session, now = row.session, memory.clock()
    placed = [(path, one.turn) for path, whole in sessions.transcripts_of(memory, row.path) for one in whole.turns]
    turns = [said for _, said in placed if said.number <= turn]
    trees = CheckpointTrees(memory.files, memory.git)
    document, sha256, contents = None, None, trees.contents()
    try:
        if asked is not None:
            places = {said.number: path for path, said in placed}
            document, sha256, more = stored(memory, with_files(memory, asked), places, trees, contents)
            contents |= trees.current(path for path in more if path not in contents)
    except (ContextManagerError, OSError) as error:
        log.warning("the checkpoint of %s keeps no compile inputs: %s", session, error)
    recognizer = memory.recognizer()
    before = session_notes.from_dict(state.entries.get(session_notes.NAMESPACE, {}).get(session))
    notes = session_notes.noted(turns, recognizer, before if before.turn <= turn else None)
    if notes is not before:
        state = replace(state, entries={**state.entries, session_notes.NAMESPACE: {session: notes.as_dict()}})
    checkpoint = Checkpoint(
        id=new_id(),
        session=session,
        at=now.replace(microsecond=now.microsecond // 1000 * 1000),  # the precision of the file
        turn=turn,
        project=row.project,
        **of_notes(recognizer, notes, turns),
        topics=topic_names(state.entries, session),
        gauges=full,
        live=tuple(chunk.id for chunk in state.chunks if chunk.form != "cold"),
        cold=tuple(chunk.id for chunk in state.chunks if chunk.form == "cold"),
        compile_inputs=document,
        compiled_sha256=sha256,
        state=without_notes_texts(state, session).to_json(),
    )
    return checkpoint, contents, notes if notes is not before else None


def of_notes(recognizer: Model, notes: Noted, turns: Sequence[Turn]) -> dict[str, Any]:
    """Returns the fields of a checkpoint that are computed from the session's notes. `turns` are those up to the
    checkpoint."""
    outcome = session_notes.outcome(notes, recognizer)
    next_step = announced(turns, outcome.open_items)
    return {
        "thread": summary(turns),
        "last_tool_call": notes.last_tool_call,
        "files": notes.files,
        "decisions": outcome.decisions,
        "replaced": outcome.replaced,
        "rules": outcome.rules,
        "open_items": tuple(one for one in outcome.open_items if one != next_step),
        "next_step": next_step,
        "facts": tuple(fact for fact in outcome.facts if _NAMES.search(fact)),
    }


def _write(memory: Memory, draft: Checkpoint, contents: Mapping[str, bytes]) -> tuple[Checkpoint, list[str]]:
    """Writes the knowledge tree, then the file; deletes old checkpoints. Returns also the paths that changed."""
    while (held := memory.locks.share(LOCK)) is None:  # another process sweeps
        time.sleep(0.005)
    try:
        tree, left_out = CheckpointTrees(memory.files, memory.git).take(draft.id, contents)
        anchored = tuple(replace(one, place=-1) for one in anchors(memory))
        checkpoint = replace(draft, anchors=anchored, knowledge_tree=tree, left_out=left_out)
        path = CheckpointFiles(memory.files).write(checkpoint)
    finally:
        held.release()
    deleted = _delete_old(memory, checkpoint.session) if checkpoint.reason != "recovery" else []
    return checkpoint, [*deleted, path]


def _delete_old(memory: Memory, session: str) -> list[str]:
    """Deletes a session's old automatic checkpoints and returns their paths. Checkpoints that were asked for stay."""
    files, trees = CheckpointFiles(memory.files), CheckpointTrees(memory.files, memory.git)
    deleted: list[str] = []
    try:
        if files.count(session) <= memory.settings.checkpoints.keep:
            return []
        automatic = [head for head in files.heads(session) if head.reason != "asked"]
        for head in automatic[memory.settings.checkpoints.keep :]:
            files.remove(head.path)
            deleted.append(head.path)
            trees.remove(head.id)
    except ContextManagerError as error:  # the next checkpoint tries again
        log.warning("old checkpoints of %s were not deleted: %s", session, error)
    return deleted


def made_text(made: Checkpoint) -> str:
    more = (
        f'recover(id="{made.id}") shows what restoring it would change; the prompt `resume` continues from it elsewhere'
    )
    return f"{summary_text(made)}\n{more}"


def summary_text(made: Checkpoint) -> str:
    """Returns what a new checkpoint contains, in two lines or more."""
    counts = {"decision": len(made.decisions), "open item": len(made.open_items), "anchor": len(made.anchors)}
    counts |= {"topic": len(made.topics), "live chunk": len(made.live), "cold chunk": len(made.cold)}
    held = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count]
    held.append("the present knowledge files" if made.knowledge_tree else "no knowledge")
    head = [f"checkpoint: {made.id}", f"session {made.session}, after turn {made.turn}: {', '.join(held)}"]
    return neutralise("\n".join([*head, *(f"not in it: {path}, {why}" for path, why in made.left_out)]))


BEGAN_WITH = "Began with: "
LEAST_WORDS = 2  # least content words of a message that has a subject
MAX_READ = 20_000  # characters of a message that are read
LONGEST_SUMMARY_PART = 180  # characters
LAST_MESSAGES = 6  # messages at the end in which the next step is looked for

_NEXT = re.compile(
    r"\bnext (?:steps?|up|thing)\b|\bnext,? (?:i|we)\b"
    r"|\b(?:we|i|let'?s)(?:'ll| will)? (?:go on|continue|carry on|resume|pick (?:it|this) up|start) .*"
    r"(?:tomorrow|next|later|with|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
    r"|\b(?:tomorrow|next week|on (?:mon|tues|wednes|thurs|fri|satur|sun)day),? (?:we|i)(?:'ll| will)?\b"
    r"|\b(?:outstanding|left over|still to do|remaining|open (?:on|with|from|items?))\b[^.]*:",
    re.IGNORECASE,
)


def summary(turns: Sequence[Turn]) -> str:
    """Returns the conversation's beginning and latest subject in about 400 characters; empty without a user turn."""
    said = [turn for turn in _beginnings(turns) if is_real_user(turn.role, turn.content)]
    if not said:
        return ""
    about = [turn for turn in said if turn.important or len(content_words(turn.content)) >= LEAST_WORDS] or said
    first, last = (clipped(turn.content, LONGEST_SUMMARY_PART) for turn in (about[0], about[-1]))
    return f"{BEGAN_WITH}{first}" + (f"\nLast asked: {last}" if len(about) > 1 else "")


def announced(turns: Sequence[Turn], open_items: Sequence[str]) -> str:
    """Returns the newest sentence of the last messages that announces the next step, the user's rather than the
    agent's. If there is none, returns the newest open item that announces one, else an empty text."""
    real = [turn for turn in turns if turn.role != "system" and not is_injected(turn.content)]
    last = _beginnings(real[-LAST_MESSAGES:])
    parts = [sentences(turn.content) for role in ("agent", "user") for turn in last if turn.role == role]
    said = [clean(one.text) for one in chain.from_iterable(parts)]
    found = next(filter(_announces, reversed(said)), "")
    if found:
        return next((item for item in open_items if found in item), found)
    return next(filter(_announces, reversed(open_items)), "")


def _announces(text: str) -> bool:
    return _NEXT.search(text) is not None and not is_question(text)


def _beginnings(turns: Sequence[Turn]) -> list[Turn]:
    return [turn if len(turn.content) <= MAX_READ else replace(turn, content=turn.content[:MAX_READ]) for turn in turns]
