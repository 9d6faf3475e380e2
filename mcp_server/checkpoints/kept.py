"""Stores what restoring a checkpoint needs: the inputs of its context, and the state entries of its session.

The inputs compile again to the same bytes. A feature that stores entries by session needs one line in `KEPT`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.checkpoints.document import Checkpoint
from mcp_server.context.compiler import Compiled, compile_inputs
from mcp_server.context.inputs import COMPILER_VERSION, CompileInputs, differing_fields
from mcp_server.conversations import sessions
from mcp_server.conversations.sessions import AS_OF
from mcp_server.errors import ContextManagerError
from mcp_server.knowledge import notes as session_notes
from mcp_server.knowledge.notes import with_texts, without_texts
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.relevance import clarity
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.storage.checkpoint_files import CheckpointTrees
from mcp_server.storage.values import READINGS, STEPS, Place, SessionState
from mcp_server.text.markdown import split_front_matter

WORTH_A_REFERENCE = 40  # least characters of a text that is replaced by a reference
LAST_TURNS = 20  # the message is searched in at most this many of the session's last turns
TextOf = Callable[[str], str | None]
"""Returns the text of a file, or of a turn (`path#number`); None if it does not exist."""

TurnOf = Callable[[str], Mapping[str, Any] | None]
"""Returns a turn (`path#number`) as JSON values; None if it does not exist."""


def referring(document: Mapping[str, Any], text_of: TextOf, turn_of: TurnOf, place_of: Mapping[int, str]) -> Any:
    """Returns the JSON document with references. `place_of` maps each turn's number to the path of its transcript."""

    def named(number: int) -> str:
        return f"{place_of.get(number, '')}#{number}"

    def text(value: str, of: str) -> Any:
        if len(value) < WORTH_A_REFERENCE:
            return value
        start = (text_of(of) or "").find(value)
        return value if start < 0 else {"of": of, "at": [start, len(value)]}

    def turn(value: Mapping[str, Any], of: str) -> Any:
        return {"turn_of": of} if turn_of(of) == value else dict(value)

    def hit(value: Mapping[str, Any]) -> Any:
        found = value["hit"]
        passage = found["passage"]
        of = passage["path"] if passage["turn"] is None else f"{passage['path']}#{passage['turn']}"
        return {**value, "hit": {**found, "passage": {**passage, "text": text(passage["text"], of)}}}

    given = dict(document)
    given["files"] = [{**one, "text": text(one["text"], one["path"])} for one in document["files"]]
    given["hits"] = [hit(one) for one in document["hits"]]
    given["turns"] = [turn(one, named(one["number"])) for one in document["turns"]]
    messages = (text(document["message"], named(number)) for number in sorted(place_of, reverse=True)[:LAST_TURNS])
    given["message"] = next((one for one in messages if one != document["message"]), document["message"])
    if last := document.get("last_session"):
        turns = [turn(one, f"{last['path']}#{one['number']}") for one in last["turns"]]
        given["last_session"] = {**last, "turns": turns}
    return given


def resolved(given: Any, text_of: TextOf, turn_of: TurnOf) -> Any:
    """Returns the document with the texts of its references. A missing text is empty; a missing turn is left out."""
    if isinstance(given, list):
        found = ((inner, resolved(inner, text_of, turn_of)) for inner in given)
        return [one for inner, one in found if one is not None or inner is None]
    if not isinstance(given, Mapping):
        return given
    if given.keys() == {"of", "at"}:
        start, length = given["at"]
        return (text_of(given["of"]) or "")[start : start + length]
    if given.keys() == {"turn_of"}:
        return turn_of(given["turn_of"])
    return {name: resolved(inner, text_of, turn_of) for name, inner in given.items()}


def sources(given: Any) -> frozenset[str]:
    """Returns the files and turns that a document refers to, as in `of`."""
    found: set[str] = set()
    resolved(given, found.add, found.add)
    return frozenset(found)


_TRANSCRIPTS = "raw/"


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of compiling a checkpoint's inputs. `differing` names the inputs that changed. If there are none and
    the hash differs, the compiler or the tokenizer has changed."""

    matches: bool
    sha256: str
    differing: tuple[str, ...] = ()
    problem: str = ""

    @property
    def sentence(self) -> str:
        if self.problem:
            return f"its compiled context cannot be checked: {self.problem}"
        if self.matches:
            return f"compiling its inputs gives the same context as then (SHA-256 {self.sha256[:12]}…)"
        what = ", ".join(self.differing) or "the compiler"
        return f"compiling its inputs gives another context than then; what differs: {what}"


def stored(
    memory: Memory,
    inputs: CompileInputs,
    place_of: Mapping[int, str],
    trees: CheckpointTrees,
    contents: Mapping[str, bytes],
) -> tuple[Mapping[str, Any], str, tuple[str, ...]]:
    """Returns inputs as a checkpoint stores them, without hits that did not change the text; the hash of the compiled
    text; and the files that the inputs refer to, without transcripts. Reads files. `place_of` maps each turn's number
    to the path of its transcript, `contents` are the files of the checkpoint's tree."""
    compiled = _reduced(inputs, memory)

    def read(path: str) -> bytes | None:
        return contents[path] if path in contents else trees.current([path]).get(path)

    text_of, turn_of = _sources(memory, read)
    given = referring(compiled.inputs.to_json(), text_of, turn_of, place_of)
    files = sorted(of for of in sources(given) if not of.startswith(_TRANSCRIPTS))
    return {"fields": given, "digests": compiled.inputs.digests()}, compiled.sha256, tuple(files)


async def verify(memory: Memory, checkpoint: Checkpoint) -> Verified:
    """Compiles the checkpoint's inputs again, from the files in its tree, without text that was forgotten since."""
    document = checkpoint.compile_inputs
    if document is None or checkpoint.compiled_sha256 is None:
        return Verified(False, "", problem="the checkpoint has no compile inputs")
    trees, tree = CheckpointTrees(memory.files, memory.git), checkpoint.knowledge_tree

    def read(path: str) -> bytes | None:
        data = trees.read(tree, (path,)).get(path) if tree else None
        return data and memory.forgotten.clean(data.decode("utf-8", "replace")).encode("utf-8")

    def work() -> Verified:
        text_of, turn_of = _sources(memory, read)
        try:
            inputs = CompileInputs.from_json(resolved(document["fields"], text_of, turn_of))
            compiled = compile_inputs(inputs, memory.tokens.count)
        except (ContextManagerError, LookupError, TypeError, ValueError, AttributeError) as error:
            return Verified(False, "", problem=str(error) or type(error).__name__)
        differing = differing_fields(document["digests"], inputs.digests())
        if inputs.compiler_version != COMPILER_VERSION:
            differing = (*differing, "compiler_version")
        same = compiled.sha256 == checkpoint.compiled_sha256
        return Verified(same, compiled.sha256, () if same else differing)

    return await run_sync(work)


def _reduced(inputs: CompileInputs, memory: Memory) -> Compiled:
    """Compiles the inputs without the hits that did not change the text."""
    whole = compile_inputs(inputs, memory.tokens.count)
    shown = {one.id for one in whole.receipt.considered if one.included}
    places = ((one, one.hit.passage) for one in inputs.hits)
    hits = tuple(one for one, passage in places if f"{passage.path}:{passage.start}-{passage.end}" in shown)
    fewer = compile_inputs(replace(inputs, hits=hits), memory.tokens.count) if len(hits) < len(inputs.hits) else whole
    return fewer if fewer.sha256 == whole.sha256 else whole


def _sources(memory: Memory, read: Callable[[str], bytes | None]) -> tuple[TextOf, TurnOf]:
    """Returns the readers of texts and turns; each file is read once."""

    @cache
    def body(path: str) -> str | None:
        data = read(path)
        return None if data is None else split_front_matter(data.decode("utf-8", "replace")).body

    @cache
    def turns(path: str) -> Mapping[int, Turn]:
        try:
            return {placed.turn.number: placed.turn for placed in memory.transcripts.read(path).turns}
        except ContextManagerError:
            return {}

    def turn_at(of: str) -> Turn | None:
        path, _, number = of.rpartition("#")
        return turns(path).get(int(number)) if path and number.isdigit() else None

    def text_of(of: str) -> str | None:
        if not of.startswith(_TRANSCRIPTS):
            return body(of)
        return turn.content if (turn := turn_at(of)) else None

    def turn_of(of: str) -> Mapping[str, Any] | None:
        if turn := turn_at(of):
            return dict(CompileInputs("", 0, turn.at, "", turns=(turn,)).to_json()["turns"][0])
        return None

    return text_of, turn_of


TOPICS = "topics"  # namespace of the state: session → its active topics by name

KEPT: tuple[tuple[str, str, str | None], ...] = (
    (clarity.NAMESPACE, f"{clarity.STATE}:", "lastTurnNumber"),
    (clarity.NAMESPACE, f"{clarity.PRUNED}:", None),
    (session_notes.NAMESPACE, "", "turn"),
    (TOPICS, "", None),
    (READINGS, "", None),
    (STEPS, "", None),
)
"""The entries of the state that belong to a session: the namespace, the beginning of the key, which ends with the
session, and the field, if any, with the number of the last processed turn. Later turns are processed when it is read.
"""


def _places(session: str) -> list[Place]:
    return [(namespace, prefix + session) for namespace, prefix, _ in KEPT]


async def snapshot(memory: Memory, session: str) -> SessionState:
    return await memory.live.read_state(session, _places(session))


def without_notes_texts(state: SessionState, session: str) -> SessionState:
    """Returns the state as a checkpoint stores it: its notes refer to turns and do not repeat their texts."""
    return replace(state, entries=_with_notes(state.entries, session, without_texts))


async def replace_state(
    memory: Memory, session: str, stored: SessionState, chunks: list[LiveChunk], turn: int, turns: int
) -> None:
    """Replaces a session's state and live chunks in one transaction. `turn` is the last turn of the stored state; later
    turns of the session, which has `turns` turns, are hidden."""
    places = [*_places(session), (AS_OF, session)]
    said = await sessions.session_turns(memory, session)
    entries = _with_notes(stored.entries, session, lambda notes: with_texts(notes, said))
    if turn < turns:
        entries[AS_OF] = {session: {"turn": turn, "until": turns}}
    await memory.live.replace_state(session, places, entries, chunks)


def _with_notes(
    entries: Mapping[str, Mapping[str, Any]], session: str, change: Callable[[object], object]
) -> dict[str, dict[str, Any]]:
    changed = {namespace: dict(values) for namespace, values in entries.items()}
    if session in changed.get(session_notes.NAMESPACE, {}):
        changed[session_notes.NAMESPACE][session] = change(changed[session_notes.NAMESPACE][session])
    return changed


async def end_rewind(memory: Memory, session: str, turns: Sequence[Turn]) -> None:
    """Ends the rewound state of a session, which continues with `turns`: the hidden turns are never processed. Call it
    under the transcript's lock, before the turns are processed."""
    hidden = await memory.state.get(AS_OF, session)
    if hidden is None:
        return
    last = turns[0].number - 1
    for namespace, prefix, field in KEPT:
        if field is not None:
            value = await memory.state.get(namespace, prefix + session)
            if isinstance(value, Mapping) and int(value.get(field, last)) < last:
                await memory.state.put(namespace, prefix + session, {**value, field: last})
    await memory.state.remove(AS_OF, session)


def topic_names(stored: Mapping[str, Mapping[str, Any]], session: str) -> tuple[str, ...]:
    value = stored.get(TOPICS, {}).get(session)
    topics = value.items() if isinstance(value, Mapping) else ()
    return tuple(sorted(str(name) for name, state in topics if isinstance(state, Mapping)))
