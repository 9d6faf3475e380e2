"""Turns a target of `forget` (a text, turn, conversation, file, lines of a file, or all secrets) into a request."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError, Invalid, NotFound, Refused
from mcp_server.memory import Memory
from mcp_server.model import KnowledgeChange
from mcp_server.storage.forgotten import Copies
from mcp_server.storage.local.git.forget_history import RepositoryHistory
from mcp_server.storage.values import LOCAL
from mcp_server.text import redaction
from mcp_server.text.entries import entries
from mcp_server.text.forgotten import MARK, SHORTEST, Forgotten, joined
from mcp_server.text.prose import no_such_lines
from mcp_server.text.transcript import PlacedTurn, Transcript
from mcp_server.text.transcript_head import stem_of, title_of

SENTENCE = 6
"""A turn or line of at least this many words is forgotten everywhere; a shorter one ("yes, please") only in its
place."""
MOST_LINES = 500
DELETABLE = ("knowledge/", "topics/", "archive/", "checkpoints/", "attachments/", "scratch/", "tmp/")
_LEADING = re.compile(r"^\s*(?:[-*+>]\s+|\d+[.)]\s+|#{1,6}\s+)*(?:\[[ xX]\]\s+)?(?:\d{4}-\d\d-\d\d\s*[:—–-]?\s*)?")


@dataclass(frozen=True, slots=True)
class ForgetTarget:
    """Exactly one of `text`, `turn` (`SESSION#N`), `session`, `path`, `secrets` (all stored secrets).

    `lines` (first, last) are lines of `path`.
    """

    text: str | None = None
    turn: str | None = None
    session: str | None = None
    path: str | None = None
    lines: tuple[int, int] | None = None
    secrets: bool = False


async def resolve_target(
    memory: Memory, target: ForgetTarget, *, history: bool = False
) -> tuple[Forgotten, tuple[str, ...]]:
    """Returns the request, and the texts whose truncated copies are searched for as well. With `history`, a turn that
    was forgotten before is found again, so that its request can be applied to git's history.

    Raises NotFound if the conversation, turn or file does not exist, Invalid and Refused as `forget` does.
    """
    given = [value for value in (target.text, target.turn, target.session, target.path) if value is not None]
    if len(given) + target.secrets != 1 or (target.lines and target.path is None):
        raise Invalid(
            "say one thing to forget: TEXT, --turn SESSION#N, --session ID, --path PATH [--lines A-B], or --secrets"
        )
    now = memory.clock()
    request = Forgotten(f"fgt_{now:%Y%m%d}_{secrets.token_hex(4)}", now, await run_sync(memory.forgotten.salt))
    await sessions.ready(memory)
    if target.secrets:
        return await run_sync(_secrets, memory, request)
    if target.text is not None:
        return _text(request, target.text)
    if target.path is not None:
        return await run_sync(_file, memory, request, target.path, target.lines)
    session, number = session_and_turn(target)
    row = await sessions.require(memory, session)
    chain = await run_sync(transcripts, memory, row.session)
    if number is None:
        return await run_sync(_conversation, memory, request, row.session, chain)
    return await run_sync(_turn, memory, request, row.session, number, chain, history)


def _text(request: Forgotten, text: str) -> tuple[Forgotten, tuple[str, ...]]:
    run = joined(text)
    if len(run) < (SHORTEST if run.isascii() else 2):
        raise Invalid(
            f"{text[:40]!r} has fewer than {SHORTEST} letters or digits: it would match nearly everywhere. "
            "Give more of the sentence, or name the turn, or the file and its lines"
        )
    return replace(request, windows=frozenset({request.window(text)})), (run,)


def _secrets(memory: Memory, request: Forgotten) -> tuple[Forgotten, tuple[str, ...]]:
    """Returns a request for every stored secret that is long enough to be recognized."""
    found = {secret.words for secret in stored_secrets(memory) if len(joined(secret.words)) >= SHORTEST}
    if not found:
        raise NotFound("no secret was found in what is stored; there is nothing to forget")
    return _with(request, found), tuple(joined(words) for words in found if len(words) < 4000)


def session_and_turn(target: ForgetTarget) -> tuple[str, int | None]:
    """Returns the session that a target names, and the number of the turn, if it names one."""
    if target.session is not None:
        return target.session, None
    session, _, number = (target.turn or "").rpartition("#")
    if not session or not re.fullmatch(r"[0-9]{1,15}", number):
        raise Invalid(f"a turn is named SESSION#NUMBER, such as ses_a1b2#7, not {target.turn!r}")
    return session, int(number)


def transcripts(memory: Memory, session: str) -> list[tuple[str, Transcript]]:
    """Returns the readable transcripts of a session, with their paths."""
    found: list[tuple[str, Transcript]] = []
    for path in memory.transcripts.find(session):
        try:
            found.append((path, memory.transcripts.read(path)))
        except ContextManagerError:
            continue
    return found


def _conversation(
    memory: Memory, request: Forgotten, session: str, chain: Sequence[tuple[str, Transcript]]
) -> tuple[Forgotten, tuple[str, ...]]:
    sources = {request.source_hash(session)}
    titles: list[str] = []
    derived: list[str] = []
    for path, whole in chain:
        sources |= {request.source_hash(path), request.source_hash(stem_of(path))}
        titles.append(whole.head.title)
        derived += _derived(memory, whole.changes)
    hashes = frozenset({request.session_hash(session)})
    found, runs = _everywhere(request, titles, derived)
    return replace(found, sessions=hashes, sources=frozenset(sources)), runs


def _turn(
    memory: Memory,
    request: Forgotten,
    session: str,
    number: int,
    chain: Sequence[tuple[str, Transcript]],
    history: bool,
) -> tuple[Forgotten, tuple[str, ...]]:
    sources: set[bytes] = set()
    texts: list[str] = []
    derived: list[str] = []
    turns: list[PlacedTurn] = []
    for path, whole in chain:
        here = [placed for placed in whole.turns if placed.turn.number == number]
        if here:
            turns += here
            sources |= {request.source_hash(name, number) for name in (path, stem_of(path), session)}
            texts += [placed.turn.content for placed in here]
            texts += [whole.head.title for placed in here if title_of(placed.turn.content) == whole.head.title]
            after = [placed.change for placed in whole.placed_changes if placed.after == number]
            derived += _derived(memory, after)
    if not turns:
        last = max((placed.turn.number for _, whole in chain for placed in whole.turns), default=0)
        raise NotFound(
            f"conversation {session} has no turn {number}; it has turns 1 to {last} (session show {session})"
        )
    if all(placed.turn.content.strip() in ("", MARK) and not placed.turn.tool_calls for placed in turns):
        names = {request.source_hash(path, number) for path, _ in chain}
        if history and (before := [one for one in memory.forgotten.requests() if not names.isdisjoint(one.sources)]):
            return before[-1], ()  # the same request again, now for git's history
        raise NotFound(f"turn {number} of {session} is forgotten already")
    hashes = frozenset(request.turn_hash(placed.turn, session) for placed in turns)
    found, runs = _everywhere(request, texts, derived)
    return replace(found, turns=hashes, sources=frozenset(sources)), runs


def _file(
    memory: Memory, request: Forgotten, path: str, lines: tuple[int, int] | None
) -> tuple[Forgotten, tuple[str, ...]]:
    path = memory.files.relative(path)
    if path.startswith("raw/"):
        raise Refused(f"{path} is a transcript; forget a turn of it (SESSION#NUMBER) or the whole session")
    if not path.startswith(DELETABLE):
        raise Refused(f"{path} cannot be forgotten; only files under {', '.join(DELETABLE)} are")
    memory.files.stat(path)  # raises NotFound with the nearest name
    try:
        text = memory.files.read_text(path)
    except Invalid:
        if lines:
            raise
        text = ""  # a binary file has no lines, but can be deleted
    found = text.splitlines()
    if lines is None:
        # An imported file holds other people's sentences too: only the file is deleted.
        texts = [] if path.startswith("knowledge/reference/") else _sentences(found)
        request = replace(request, paths=frozenset({request.path_hash(path)}))
        return _everywhere(request, texts)
    first, last = lines
    if not 1 <= first <= last <= len(found):
        raise Invalid(no_such_lines(path, len(found), first, last))
    chosen = [line for line in (_LEADING.sub("", line) for line in found[first - 1 : last]) if joined(line)]
    short = [line for line in chosen if len(joined(line)) < SHORTEST]
    if short or not chosen:
        what = repr(short[0][:40]) if short else "an empty line"
        raise Invalid(f"{path}: {what} is too short to be recognized; edit the file by hand and name other lines")
    return _with(request, chosen), tuple(joined(line) for line in chosen)


def _sentences(lines: Iterable[str]) -> list[str]:
    """Returns the lines of a file without headings, front matter, tables and code fences."""
    body = [line for line in lines if not line.startswith(("#", "---", "|", "```")) and not re.match(r"\w+:", line)]
    if len(body) > MOST_LINES:
        body = body[:MOST_LINES]
    return [_LEADING.sub("", line) for line in body]


def _derived(memory: Memory, changes: Iterable[KnowledgeChange]) -> Iterator[str]:
    """Yields the whole texts that a conversation wrote into knowledge files; the transcript has truncated summaries."""
    for change in changes:
        said = change.summary.removesuffix("…")
        if said == change.summary:
            yield said
            continue
        try:
            text = memory.files.read_text(change.path)
        except ContextManagerError:
            continue
        for entry in entries(text):
            plain = _LEADING.sub("", entry.text)
            if joined(said) and joined(plain).startswith(joined(said)):
                yield plain


def _everywhere(
    request: Forgotten, texts: Iterable[str], derived: Iterable[str] = ()
) -> tuple[Forgotten, tuple[str, ...]]:
    """Adds the texts that are long enough to be unique, and the texts that were derived from them."""
    whole = [text for text in texts if len(text.split()) >= SENTENCE and joined(text)]
    whole += [text for text in derived if len(text.split()) > 1 and len(joined(text)) >= SHORTEST]
    return _with(request, whole), tuple(joined(text) for text in whole if len(text) < 4000)


def _with(request: Forgotten, texts: Iterable[str]) -> Forgotten:
    return replace(request, windows=request.windows | {request.window(text) for text in texts})


# ---------------------------------------------------------------- stored secrets

_OWN_KEYS = re.compile(rf"{re.escape(LOCAL)}/(?:[a-z-]{{1,20}}token|installs/.*)|\.git(?:ignore|attributes)")
"""Files that are not searched: tokens of this program's servers, and backups of clients' settings, which contain keys
that the clients need."""


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A secret in a file (`line` is its line) or in an object of git (`path` names it, `line` is None).

    `words` are the whole words that contain it: forgetting matches whole words.
    """

    kind: str
    path: str
    line: int | None
    words: str


def stored_secrets(memory: Memory) -> Iterator[StoredSecret]:
    """Yields every secret in the workspace's files, then every further one in their history. Reads all of them."""
    copies = Copies(memory.files)
    known: set[str] = set()
    for path in copies.walk():
        if not _OWN_KEYS.fullmatch(path):
            for found in _in_text(path, copies.text(path), lines=True):
                known.add(found.words)
                yield found
    for name, text in _past_texts(memory):
        for found in _in_text(name, text, lines=False):
            if found.words not in known:
                known.add(found.words)
                yield found


def _past_texts(memory: Memory) -> Iterator[tuple[str, str]]:
    """Yields name and text of every earlier version of a file, and of every object of git."""
    for path, number, stored in memory.files.past_versions():
        yield f"{path}, version {number}", stored.decode("utf-8", "surrogateescape")
    if memory.git.available():
        for oid, text in RepositoryHistory(memory.disk.root).texts():
            yield f"git object {oid[:10]}", text


def _in_text(path: str, text: str, *, lines: bool) -> Iterator[StoredSecret]:
    if "\0" in text[:8000]:  # a binary file
        return
    for secret in redaction.secrets(text):
        start, end = secret.start, secret.end
        while start > 0 and text[start - 1].isalnum():
            start -= 1
        while end < len(text) and text[end].isalnum():
            end += 1
        yield StoredSecret(secret.kind, path, text.count("\n", 0, secret.start) + 1 if lines else None, text[start:end])
