"""Forget: permanently deletes a text, a turn, a conversation or a file, with every copy.

    the target → a request of hashes → every copy (a dry run ends here)
      → intent → forgotten.jsonl → transcripts → files → state → index → commit → history, on request → intent erased

The request, and every step after the first, knows the text by salted hashes only. After a crash, any process that finds
the intent can continue, because no step needs what an earlier one deleted. Besides hashes, the intent holds the old
names of renamed files; it is overwritten and deleted at the end.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from anyio.to_thread import run_sync

from mcp_server.checkpoints import stored
from mcp_server.context import briefs
from mcp_server.conversations import sessions
from mcp_server.conversations.closed_sessions import PENDING_COMMITS
from mcp_server.errors import Conflict, ContextManagerError, Refused
from mcp_server.forgetting.cleaning import cleaned
from mcp_server.forgetting.target import ForgetTarget, resolve_target, session_and_turn, transcripts
from mcp_server.knowledge import extract, notes
from mcp_server.memory import Memory
from mcp_server.relevance import clarity
from mcp_server.storage.checkpoint_files import CheckpointFiles, CheckpointTrees
from mcp_server.storage.forgotten import PATH as FORGOTTEN
from mcp_server.storage.forgotten import UNNAMED, Copies, Copy
from mcp_server.storage.journal import ForgetIntent, ForgetIntents
from mcp_server.storage.local.git.forget_history import RepositoryHistory, Survey
from mcp_server.storage.values import Change
from mcp_server.storage.whole import BUNDLE
from mcp_server.text.forgotten import MARK, NAME, Forgotten
from mcp_server.text.prose import clipped, counted
from mcp_server.text.transcript_head import stem_of

LOCK = "forget"
COMMITTED = ("raw/", "knowledge/", "topics/", "archive/", "checkpoints/", "attachments/", FORGOTTEN, "anchors.yaml")
"""The files of a workspace that git has."""
ROUNDS = 3
"""Maximum number of searches through all files: another process may write back a text that it had read before."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Receipt:
    """All copies of the forgotten text. `done` is False for a dry run. `backup` is the bundle with the old history,
    which still contains the text."""

    id: str
    done: bool
    copies: tuple[Copy, ...]
    state_rows: int
    history: Survey
    rewritten: bool = False
    backup: str | None = None
    commit: str | None = None
    versions: int | None = None
    """The number of earlier versions with a copy, on PostgreSQL. They are deleted too."""
    left: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return not self.copies and not self.state_rows and not self.history.commits and not self.versions


async def plan_forget(memory: Memory, target: ForgetTarget, *, history: bool = False) -> Receipt:
    """Returns every copy and what would happen to it. Writes nothing.

    Raises:
        NotFound: no such conversation, turn or file.
        Invalid: a text too short to be recognized.
        Refused: a file that `forget` does not delete.
    """
    request, found, rows = await _search(memory, target, history)
    has_git = await run_sync(memory.git.available)
    survey = await run_sync(RepositoryHistory(memory.disk.root).survey, request) if has_git else Survey(0)
    versions = None if memory.disk.here else len(await run_sync(Copies(memory.files).stale_versions, request))
    return Receipt(request.id, False, found, rows, survey, versions=versions)


async def _search(memory: Memory, target: ForgetTarget, history: bool) -> tuple[Forgotten, tuple[Copy, ...], int]:
    """Returns the request, every file with a copy, and the number of rows of the state."""
    request, runs = await resolve_target(memory, target, history=history)
    request, found = await run_sync(_find_copies, memory, request, runs)
    rows = await memory.state.held(request)
    return request, found, sum(rows.values())


async def forget(memory: Memory, target: ForgetTarget, *, history: bool = False) -> Receipt:
    """Deletes every copy and returns the receipt. Logs the name of each step.

    With `history`, git's history is rewritten, after a backup into the folder that contains the workspace. Raises as
    `plan_forget` does, and Refused, before anything has changed, if the history cannot be rewritten.
    """
    async with _exclusively(memory):
        await _resume(memory)
        if history and memory.disk.here:
            await run_sync(RepositoryHistory(memory.disk.root).check)
        request, found, rows = await _search(memory, target, history)
        paths = sorted({path for copy in found for path in (copy.path, copy.new_path) if path})
        intent = ForgetIntent(request, history, tuple(path for path in paths if path.startswith(COMMITTED)))
        await run_sync(ForgetIntents(memory.files).write, intent)
        done = await _perform(memory, intent)
        return replace(done, copies=found, state_rows=rows)


async def finish(memory: Memory) -> list[Receipt]:
    """Completes requests that a crash interrupted. Does nothing while another process forgets."""
    if not await run_sync(ForgetIntents(memory.files).all):
        return []
    try:
        async with _exclusively(memory):
            return await _resume(memory)
    except Conflict:
        return []


def unfinished_sentences(memory: Memory) -> list[str]:
    """Returns a sentence per incomplete request, for `status` and `doctor`."""
    return [
        f"forgetting {intent.request.id} was interrupted and is not complete: context-manager forget --apply"
        for intent in ForgetIntents(memory.files).all()
    ]


@asynccontextmanager
async def _exclusively(memory: Memory) -> AsyncIterator[None]:
    held = await run_sync(memory.locks.try_exclusive, LOCK)
    if held is None:
        raise Conflict("another `forget` is running in this workspace; wait until it has finished")
    with held:
        yield


async def _resume(memory: Memory) -> list[Receipt]:
    return [await _perform(memory, intent, again=True) for intent in await run_sync(ForgetIntents(memory.files).all)]


# ---------------------------------------------------------------- finding


def _find_copies(memory: Memory, request: Forgotten, runs: Sequence[str]) -> tuple[Forgotten, tuple[Copy, ...]]:
    """Returns the request with all data for carrying it out, and every file with a copy."""
    copies = Copies(memory.files)
    cuts = frozenset(request.window(cut) for cut in copies.cuts(runs)) if runs else frozenset()
    request = replace(request, cuts=cuts)
    found = list(copies.find(request))
    renames: dict[str, str] = {}
    for copy in found:
        if copy.new_path:
            renames[copy.path] = copies.free_name(copy.new_path, set(renames.values()))
    # Files that name a transcript by its path get the new path. The words of a path alone may occur in any text.
    stems = {(stem_of(old), stem_of(new)) for old, new in renames.items() if old.startswith("raw/")}
    longest_first = sorted(stems, key=lambda pair: (-len(pair[0]), pair))
    request = replace(request, renames=tuple(longest_first))
    if stems:
        found = list(copies.find(request))
    return request, tuple(replace(copy, new_path=renames.get(copy.path)) for copy in sorted(found, key=_by_kind))


KNOWN_FIRST, KNOWN_LAST = ("raw/", "knowledge/", "topics/"), ("archive/", "attachments/", "checkpoints/", ".local/")
"""Folders whose files are listed first and last. Conversations and pages come before copies, because people know them
better."""


def _by_kind(copy: Copy) -> tuple[int, str]:
    """Sorts conversations and pages before other files, and copies last."""
    places = [*KNOWN_FIRST, "", *KNOWN_LAST]
    folder = next((one for one in (*KNOWN_FIRST, *KNOWN_LAST) if copy.path.startswith(one)), "")
    return places.index(folder), copy.path


# ---------------------------------------------------------------- doing


async def _perform(memory: Memory, intent: ForgetIntent, *, again: bool = False) -> Receipt:
    request, copies = intent.request, Copies(memory.files)
    async with memory.locks.files():
        await run_sync(memory.forgotten.add, replace(request, cuts=frozenset(), renames=()))
    await sessions.ready(memory)
    kept = ""
    used: tuple[str, ...] = ()
    versions = 0
    found: list[Copy] = []
    for number in range(ROUNDS):
        log.info("forget: transcripts")
        await _clean_transcripts(memory, request, again and number == 0)
        log.info("forget: files")
        await extract.retract(memory)
        await _clean_files(memory, request)
        await run_sync(_clean_trees, memory, request)
        log.info("forget: state")
        kept = await memory.state.scrub(request)
        log.info("forget: index")
        used = await memory.index.renew()
        if not memory.disk.here:
            log.info("forget: versions")
            versions += await run_sync(_erase_versions, memory, request)
        # Another process may have written back a text that it had read before.
        found = await run_sync(lambda: list(copies.find(request)))
        if all(copy.stuck for copy in found) and not await memory.state.held(request):
            break
    left = [f"{copy.path}: {copy.stuck or 'found again'}" for copy in found]
    left += [kept] if kept else []
    left += [f".local/index/{name}: in use by another process, which deletes it when it closes it" for name in used]
    left += await _ids_with_forgotten_words(memory, request)
    if memory.disk.here:
        await briefs.refresh(memory)  # a brief quotes parts of turns, which are not recognized
        log.info("forget: git")
        receipt = await _in_git(memory, intent, left)
    else:
        receipt = Receipt(request.id, True, (), 0, Survey(0), left=tuple(left), versions=versions)
    await run_sync(ForgetIntents(memory.files).erase, intent)
    memory.changes.publish(Change("index"))
    return receipt


async def _clean_transcripts(memory: Memory, request: Forgotten, again: bool) -> None:
    """Cleans every conversation with a copy under its lock: its files, its row and its source keys."""
    copies = Copies(memory.files)
    for session in await run_sync(_sessions_of, memory, request, again):
        async with memory.locks.transcript(session):
            paths = await run_sync(memory.transcripts.find, session)
            # Before the files are cleaned, because the new names follow from their words.
            wanted = {path: await run_sync(copies.new_name, path, request) for path in paths}
            changed = [path for path in paths if await run_sync(copies.clean, path, request)]
            names = {path: await run_sync(_renamed, memory, path, wanted[path]) for path in paths}
            moved = {old: new for old, new in names.items() if old != new}
            if not changed and not moved and not again:
                continue
            await memory.state.forget_keys(session)
            await clarity.forget(memory, session)
            await notes.forget(memory, session)
            row = await memory.state.session(session)
            if row is not None:
                await memory.state.save_session(replace(row, path=names.get(row.path, row.path), title=MARK))
            for path in paths[-1:]:
                await sessions.restore(memory, names[path])
            await stored.forget(memory, session)
            waiting = await memory.state.entries(PENDING_COMMITS)
            for old, new in moved.items():
                if old in waiting:
                    await memory.state.put(PENDING_COMMITS, new, session)
                    await memory.state.remove(PENDING_COMMITS, old)


def _sessions_of(memory: Memory, request: Forgotten, again: bool) -> list[str]:
    """Returns the conversations to clean; after a crash also clean ones, whose state may be outdated."""
    found: dict[str, None] = {}
    stale = {copy.path for copy in Copies(memory.files).find(request)}
    for path in memory.transcripts.all():
        if path not in stale and not again:
            continue
        try:
            data = memory.files.read_bytes(path)
            if path in stale or MARK.encode() in data or f"-{NAME}" in path:
                found[memory.transcripts.read(path).head.session_id] = None
        except ContextManagerError:  # a broken transcript is cleaned with the other files
            continue
    return list(found)


def _renamed(memory: Memory, path: str, new: str) -> str:
    """Renames a file whose name has forgotten words; returns its present path."""
    if new == path:
        return path
    new = Copies(memory.files).free_name(new, set())
    memory.files.move(path, new)
    memory.files.remove_empty(path.rpartition("/")[0])
    return new


async def _clean_files(memory: Memory, request: Forgotten) -> None:
    copies = Copies(memory.files)
    for copy in await run_sync(lambda: list(copies.find(request))):
        if copy.stuck == UNNAMED or (copy.stuck and not copy.places):
            continue
        async with memory.locks.files():
            new = await run_sync(copies.new_name, copy.path, request)
            await run_sync(copies.clean, copy.path, request)
            if await run_sync(memory.files.exists, copy.path):
                await run_sync(_renamed, memory, copy.path, new)


def _erase_versions(memory: Memory, request: Forgotten) -> int:
    """Deletes the earlier versions with a copy. Returns their number."""
    stale = Copies(memory.files).stale_versions(request)
    memory.files.erase_versions(stale)
    memory.files.erase(BUNDLE)  # the commits in it may contain the text
    return len(stale)


def _clean_trees(memory: Memory, request: Forgotten) -> None:
    """Cleans the machine-readable parts of checkpoints, and their knowledge trees in git. Trees that are stored as
    copies are cleaned as files."""

    def clean(path: str, data: bytes) -> bytes | None:
        return cleaned(path, data, request).data

    trees = CheckpointTrees(memory.files, memory.git)
    files = CheckpointFiles(memory.files)
    for head in files.heads():
        files.clean(head.path, clean)
        trees.clean(head.id, clean)


async def _ids_with_forgotten_words(memory: Memory, request: Forgotten) -> list[str]:
    """Returns a sentence for each conversation whose id has forgotten words: ids stay, because clients use them."""
    rows = await memory.state.sessions()
    return [
        f"the id of conversation {row.session} contains it, and a client uses this id; run `forget --session`"
        for row in rows
        if request.find(row.session, names=True)
    ]


# ---------------------------------------------------------------- git


async def _in_git(memory: Memory, intent: ForgetIntent, left: list[str]) -> Receipt:
    request = intent.request
    commit: str | None = None
    backup: str | None = None
    if not memory.git.available():
        left.append("git is not installed here: nothing was committed, and a .git folder was not searched")
        return Receipt(request.id, True, (), 0, Survey(0), left=tuple(left))
    async with memory.locks.git():
        try:
            commit = await _committed(memory, intent, left)
        except ContextManagerError as error:
            left.append(f"not committed: {error}. Commit it yourself with the line `Forget: {request.id}`")
        past = RepositoryHistory(memory.disk.root)
        rewritten = False
        if intent.history:
            root = memory.disk.root
            place = root.parent / f"{root.name}-before-{request.id}.bundle"
            log.info("forget: backup of the history")
            await run_sync(past.back_up, place)
            log.info("forget: rewriting the history")
            left += [f"git still holds it in {what}" for what in await run_sync(past.rewrite, request)]
            backup, rewritten = str(place), True
        survey = await run_sync(past.survey, request)
    return Receipt(request.id, True, (), 0, survey, rewritten, backup, commit, left=tuple(left))


async def _committed(memory: Memory, intent: ForgetIntent, left: list[str]) -> str | None:
    if not memory.settings.git.auto_commit:
        raise Refused("git.auto_commit is off")
    still_open = {row.path for row in await memory.state.sessions(open_only=True)}
    paths = [path for path in (*intent.paths, FORGOTTEN) if path not in still_open]
    message = f"maintenance: forgotten on request\n\n{len(paths) - 1} files.\n\nForget: {intent.request.id}"
    done = await run_sync(memory.git.commit_files, paths, message)
    left += [f"{path} was left out of the commit: {reason}" for path, reason in done.left_out.items()]
    return done.commit


# ---------------------------------------------------------------- texts for people

ELSEWHERE = (
    "Out of reach: the client's own records of the conversation (a new import leaves the forgotten words out), "
    "your other machines and backups, and overwritten blocks that a drive keeps."
)
MOST_FILES = 40
LONGEST_NAMED = 300
"""Characters of a text or message that a question shows."""

ADD_HISTORY = "Add --history to rewrite the history."
IN_A_TERMINAL = "`context-manager forget`, in a terminal, rewrites the history with --history."


def as_text(receipt: Receipt, history: bool = False, advice: str = IN_A_TERMINAL) -> str:
    """Returns the receipt in markdown. It contains forgotten words only as parts of old file names. `history` and
    `advice` as in `git_sentences`."""
    if receipt.nothing and not receipt.done:
        return "No copy was found: nothing would change."
    lines = [f"Forgotten ({receipt.id}):" if receipt.done else "This would be forgotten:", *places(receipt)]
    lines += [f"- the state: {receipt.state_rows} rows"] if receipt.state_rows else []
    lines += [f"Not deleted: {sentence}" for sentence in receipt.left]
    return "\n".join([*lines, *git_sentences(receipt, history, advice), ELSEWHERE])


def places(receipt: Receipt) -> list[str]:
    """Returns a line for every file: the places in it and what happens there."""
    lines = []
    for copy in receipt.copies[:MOST_FILES]:
        parts = [place.what if place.line is None else f"line {place.line}: {place.what}" for place in copy.places[:5]]
        parts += [f"and {len(copy.places) - 5:,} more places"] if len(copy.places) > 5 else []
        parts += [f"renamed to {copy.new_path.rsplit('/', 1)[-1]}"] if copy.new_path else []
        parts += [f"STAYS: {copy.stuck}; delete it with its path"] if copy.stuck else []
        lines.append(f"- `{copy.path}`: {'; '.join(parts)}")
    more = len(receipt.copies) - MOST_FILES
    return [*lines, f"- and {more:,} more files"] if more > 0 else lines


def git_sentences(receipt: Receipt, history: bool, advice: str = ADD_HISTORY) -> list[str]:
    """Returns sentences about the copies in git; `advice` says how to remove them from the history."""
    past = receipt.history
    if receipt.versions is not None:
        what = counted(receipt.versions, "earlier version")
        return [
            f"{what} of files with it {'were' if receipt.done else 'would be'} deleted too. Backups of the server, its "
            "write-ahead log and free space in its files hold it until they are overwritten (docs/team.md)."
        ]
    said: list[str] = []
    if receipt.commit:
        said.append(f"Committed as {receipt.commit[:10]}, with the trailer `Forget: {receipt.id}`.")
    if receipt.rewritten:
        said.append("Git's history was rewritten: commits have new ids, and no object contains the forgotten words.")
    if receipt.backup:
        said.append(
            f"The backup {receipt.backup} STILL HOLDS ALL OF IT. When you have checked the result, "
            f"delete it: rm '{receipt.backup}'"
        )
    if past.commits:
        since = f"{past.since[:10]} of {past.at:%Y-%m-%d}" if past.at else past.since[:10]
        files = [one for one in past.paths if not any(other.startswith(f"{one}/") for other in past.paths)]
        holds = "holds" if not receipt.done else "still holds"
        said.append(
            f"Git {holds} it: {past.commits:,} commits, the oldest {since} ({', '.join(files)}). Anyone with this "
            "repository can read it there. " + ("It will be rewritten." if history and not receipt.done else advice)
        )
    elif not receipt.rewritten and not receipt.left:
        said.append("Git's history does not hold it.")
    for remote in past.remotes:
        said.append(
            f"Commits pushed to the remote {remote!r} stay there: after --history, `git push --force --all {remote}` "
            f"and `git push --force --tags {remote}`, and ask its host to delete its copies."
        )
    return said


async def question(memory: Memory, target: ForgetTarget) -> str:
    """Returns the question to the user before an agent's request to forget is carried out.

    It lists the files. The text stays the same while nothing changes. Empty if there is nothing to forget. Raises as
    `plan_forget` does.
    """
    receipt = await plan_forget(memory, target)
    if receipt.nothing:
        return ""
    asked = f"An agent wants to delete this from your memory, permanently: {await _named(memory, target)}"
    return "\n".join([asked, "", f"It is in {counted(len(receipt.copies), 'file')}:", *places(receipt)])


async def _named(memory: Memory, target: ForgetTarget) -> str:
    """Returns the target in words that a person recognizes."""
    if target.secrets:
        return "every secret that is stored"
    if target.text is not None:
        return repr(clipped(target.text, LONGEST_NAMED))
    if target.path is not None:
        lines = f", lines {target.lines[0]} to {target.lines[1]}" if target.lines else ""
        return f"the file {target.path!r}{lines}"
    session, number = session_and_turn(target)
    row = await sessions.require(memory, session)
    if number is None:
        return f"the whole conversation {row.title or row.session!r}"
    said = await run_sync(_turn, memory, row.session, number)
    return f"message {number} of {row.title or row.session!r}: {clipped(said, LONGEST_NAMED)!r}"


def _turn(memory: Memory, session: str, number: int) -> str:
    turns = (placed.turn for _, whole in transcripts(memory, session) for placed in whole.turns)
    return next((turn.content for turn in turns if turn.number == number), "")
