"""What a checkpoint's context was compiled from, kept so that it can be compiled again: same inputs, same bytes.

store    inputs → references in the place of texts, one SHA-256 a field, the hash of the text
verify   the texts fetched again (knowledge from the checkpoint's tree, turns from the transcripts) → compiled →
         the stored hash, or the names of the fields that are not what they were
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.checkpoints.document import Checkpoint
from mcp_server.checkpoints.references import TextOf, TurnOf, referring, resolved, sources
from mcp_server.context.compiler import Compiled, compile_inputs
from mcp_server.context.inputs import COMPILER_VERSION, CompileInputs, differing_fields
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.storage.checkpoint_trees import CheckpointTrees
from mcp_server.text.markdown import split_front_matter

_TRANSCRIPTS = "raw/"


@dataclass(frozen=True, slots=True)
class Verified:
    """What compiling a checkpoint's inputs gave. `differing` names the inputs that are not what they were; with none,
    and another hash, the compiler or the tokenizer is another one."""

    matches: bool
    sha256: str
    differing: tuple[str, ...] = ()
    problem: str = ""

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        if self.problem:
            return f"its compiled context cannot be checked: {self.problem}"
        if self.matches:
            return f"compiling its inputs gives the same context as then (SHA-256 {self.sha256[:12]}…)"
        what = ", ".join(self.differing) or "the compiler"
        return f"compiling its inputs gives another context than then; what differs: {what}"


@dataclass(frozen=True, slots=True)
class Stored:
    """Compile inputs for a checkpoint: the document, and the hash of what they give. `files` are those that it refers
    to outside of the transcripts."""

    document: Mapping[str, Any]
    sha256: str
    files: tuple[str, ...]


async def stored(memory: Memory, inputs: CompileInputs, place_of: Mapping[int, str]) -> Stored:
    """These inputs as a checkpoint keeps them; of the hits only those that the text is made of, where that is enough.
    `place_of` says in which transcript each turn of the session stands."""

    def work() -> Stored:
        compiled = _reduced(inputs, memory)
        text_of, turn_of = _now(memory)
        given = referring(compiled.inputs.to_json(), text_of, turn_of, place_of)
        files = sorted(of for of in sources(given) if not of.startswith(_TRANSCRIPTS))
        document = {"fields": given, "digests": compiled.inputs.digests()}
        return Stored(document, compiled.sha256, tuple(files))

    return await run_sync(work)


async def verify(memory: Memory, checkpoint: Checkpoint) -> Verified:
    """Compiles what the checkpoint was compiled from once more."""
    document = checkpoint.compile_inputs
    if document is None or checkpoint.compiled_sha256 is None:
        return Verified(False, "", problem="it keeps no compile inputs")

    def work() -> Verified:
        text_of, turn_of = _then(memory, checkpoint)
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
    """The inputs compiled, without the hits that left no trace in the text."""
    count = memory.tokens.count
    whole = compile_inputs(inputs, count)
    shown = {one.id for one in whole.receipt.considered if one.included}
    hits = tuple(one for one in inputs.hits if _id(one.hit.passage) in shown)
    if len(hits) < len(inputs.hits):
        fewer = compile_inputs(replace(inputs, hits=hits), count)
        if fewer.sha256 == whole.sha256:
            return fewer
    return whole


def _id(passage: Any) -> str:
    return f"{passage.path}:{passage.start}-{passage.end}"


def _now(memory: Memory) -> tuple[TextOf, TurnOf]:
    """Files as they are on disk."""

    def read(path: str) -> str | None:
        try:
            return split_front_matter(memory.files.read_text(path)).body
        except ContextManagerError:
            return None

    return _sources(memory, read)


def _then(memory: Memory, checkpoint: Checkpoint) -> tuple[TextOf, TurnOf]:
    """Files as the checkpoint's tree has them; without what was forgotten on request since."""
    trees = CheckpointTrees(memory.files, memory.git)

    def read(path: str) -> str | None:
        if checkpoint.knowledge_tree is None:
            return None
        data = trees.read(checkpoint.knowledge_tree, (path,)).get(path)
        if data is None:
            return None
        return split_front_matter(memory.forgotten.clean(data.decode("utf-8", "replace"))).body

    return _sources(memory, read)


def _sources(memory: Memory, read: Callable[[str], str | None]) -> tuple[TextOf, TurnOf]:
    """Where texts and turns come from, each file read once."""
    read = cache(read)

    @cache
    def turns(path: str) -> Mapping[int, Any]:
        try:
            return {placed.turn.number: placed.turn for placed in memory.transcripts.read(path).turns}
        except ContextManagerError:
            return {}

    def turn_at(of: str) -> Any:
        path, _, number = of.rpartition("#")
        return turns(path).get(int(number)) if path and number.isdigit() else None

    def text_of(of: str) -> str | None:
        if not of.startswith(_TRANSCRIPTS):
            return read(of)
        turn = turn_at(of)
        return turn.content if turn is not None else None

    def turn_of(of: str) -> Mapping[str, Any] | None:
        turn = turn_at(of)
        return None if turn is None else _as_json(turn)

    return text_of, turn_of


def _as_json(turn: Any) -> Mapping[str, Any]:
    """A turn as `CompileInputs.to_json` writes it."""
    return dict(CompileInputs("", 0, turn.at, "", turns=(turn,)).to_json()["turns"][0])
