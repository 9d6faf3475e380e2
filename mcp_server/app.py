"""Builds a Memory from settings and adapters. Does not know MCP.

async with open_memory(None, os.environ) as memory:      # a library, a CLI command
    await catch_up(memory)
    await search(memory, …)

async with open_memory(None, os.environ) as memory, maintain(memory, os.environ):    # a server
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from anyio import CancelScope
from anyio.to_thread import run_sync

from mcp_server import embed
from mcp_server.conversations import sessions
from mcp_server.embed.providers import load
from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.history import committing
from mcp_server.home import resolve_workspace, team_address, user_home
from mcp_server.llm import metered
from mcp_server.llm.metered import MeteredLlm
from mcp_server.llm.providers import KEYS, choose
from mcp_server.memory import Memory, Rooms
from mcp_server.relevance.advisor_items import read_lexicon
from mcp_server.settings import MACHINE_FILE, Settings
from mcp_server.settings_file import default_document, machine_document, settings_of, team_settings, timezone_of
from mcp_server.storage.files import BEGINNING, Files, templates
from mcp_server.storage.files import SETTINGS as CONFIG
from mcp_server.storage.forgotten import ForgottenTexts
from mcp_server.storage.live_sets import ColdStorage, LiveSets
from mcp_server.storage.llm_ledger import LlmLedger
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.folders import IfMissing, ProjectFolders, check_may_open, create
from mcp_server.storage.local.git.git import Git
from mcp_server.storage.local.index.index import Index, Scan
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.local.state import LocalState
from mcp_server.storage.state import State
from mcp_server.storage.topics import TopicFiles
from mcp_server.storage.transcripts import Transcripts
from mcp_server.storage.values import Changes, Folder
from mcp_server.text.markdown import local_day
from mcp_server.tokens import TokenCounter
from mcp_server.understanding.model import Model, recognizer

if TYPE_CHECKING:
    from mcp_server.clients.importers.whole_memory import Exported, Imported
    from mcp_server.context.inputs import LeftOff
    from mcp_server.conversations.observe import ContextChunk
    from mcp_server.embed import Embedder
    from mcp_server.llm import Llm
    from mcp_server.model import Turn
    from mcp_server.relevance.advisor_items import Lexicon
    from mcp_server.storage import ports
    from mcp_server.storage.members import Members
    from mcp_server.storage.values import SessionRow


_LOADING = threading.Lock()


@asynccontextmanager
async def open_memory(
    workspace: Path | str | None,
    environ: Mapping[str, str],
    *,
    clock: Callable[[], datetime] | None = None,
    new_id: Callable[[], str] | None = None,
    embedder: Embedder | None = None,
    llm: Llm | None = None,
    if_missing: IfMissing = "create",
) -> AsyncIterator[Memory]:
    """Opens the memory of a workspace: a folder, or the address of a team's memory (`postgresql://…`). Heavy parts are
    loaded on first use.

    A missing or empty folder becomes a workspace, unless `if_missing` is "refuse". A folder with other files becomes
    one only with "adopt". If a workspace cannot be written, state and index are in a temporary folder, and
    `Memory.problems()` says so.

    Raises:
        NotFound: there is no workspace, and `if_missing` is "refuse".
        Refused: the folder contains other files.
        Unavailable: the folder can neither be created nor read, or the server of the address does not answer.
    """
    address = team_address(workspace, environ)
    async with AsyncExitStack() as stack:
        problems: list[str] = []
        now = clock or partial(datetime.now, UTC)
        if address:
            parts = await _team_parts(address, environ, stack)
        else:
            root = resolve_workspace(workspace, environ)
            parts = await _folder_parts(root, environ, problems, now, if_missing, stack)
        settings, files, state = parts.settings, parts.files, parts.state
        knobs = settings.search
        wanted = embed.Wanted(
            knobs.embedder,
            knobs.embedding_model,
            knobs.embedding_dimensions,
            knobs.embedding_url,
            environ.get(KEYS["openai"]),
        )
        loaded, missing = (embedder, None) if embedder is not None else load(wanted)
        problems += [missing] if missing else []
        index = parts.index(loaded, wanted.name, wanted.length)
        stack.push_async_callback(_closed, index)
        timezone = await run_sync(timezone_of, settings)
        local_date = partial(local_day, ZoneInfo(timezone))
        chosen = choose(settings, environ)
        problems += [chosen.problem] if chosen.problem else []
        if llm is None and chosen.large and chosen.small:
            ledger = LlmLedger(state)
            llm = MeteredLlm(chosen.large, chosen.small, settings.llm, ledger, files, now, local_date, chosen.own)
        memory = Memory(
            settings=settings,
            disk=parts.disk,
            files=files,
            transcripts=Transcripts(files),
            state=state,
            live=LiveSets(state),
            cold=ColdStorage(files),
            lexicon=parts.lexicon,
            topics=TopicFiles(files),
            locks=parts.locks,
            index=index,
            git=parts.history(lambda: now().astimezone(ZoneInfo(timezone))),
            folders=parts.folders,
            embedder=loaded,
            tokens=TokenCounter(),
            changes=parts.changes,
            forgotten=ForgottenTexts(files),
            rooms=Rooms(_after_turn, _watch_topics, _close_session, _left_off, _last_checkpoint),
            clock=now,
            new_id=new_id or (lambda: f"ses_{secrets.token_hex(6)}"),
            timezone=timezone,
            local_date=local_date,
            templates=lambda name: resources.files("prompts").joinpath(f"{name}.md").read_text("utf-8"),
            recognizer=_recognizer,
            llm=llm,
            startup_problems=(*problems, *settings.problems),
        )
        stack.push_async_callback(_embeddings_entered, memory)
        yield memory


async def export_memory(workspace: Path | str | None, environ: Mapping[str, str], target: Path) -> Exported:
    """Writes a whole memory to `target`: a zip if its name ends with `.zip`, else a new folder.

    Raises Refused if `target` is not free, Unavailable if it cannot be written, and the errors of `open_memory`.
    """
    from mcp_server.clients.importers.whole_memory import Exported, check_free, writing
    from mcp_server.storage.local import whole

    async with open_memory(workspace, environ, if_missing="refuse") as memory:
        await run_sync(check_free, target, memory.disk.root if memory.disk.here else None)
        await sessions.ready(memory)
        await committing.commit_changes(memory, ask=False)
        left_out: list[str] = []
        async with memory.locks.files():
            with writing(target) as export:
                if isinstance(memory.state, LocalState):
                    left_out = await whole.dump(memory.disk.root, memory.disk.local, memory.state, export)
                else:
                    from mcp_server.storage.postgres import whole as team
                    from mcp_server.storage.postgres.opening import open_storage

                    async with open_storage(team_address(workspace, environ) or "") as storage:
                        await run_sync(team.dump, storage.database, committing.OURS, export)
        return Exported(str(target), export.files, export.bytes, tuple(left_out))


async def import_memory(workspace: Path | str | None, environ: Mapping[str, str], path: Path) -> Imported:
    """Fills a memory that is missing or empty with an export. If it fails or is killed, the memory stays empty.

    Raises Refused for a memory that is not empty, Invalid or Unavailable for an export that cannot be read.
    """
    from mcp_server.clients.importers.whole_memory import Import, Imported

    source = await run_sync(Import, path)
    if address := team_address(workspace, environ):
        from mcp_server.storage.postgres import whole as team
        from mcp_server.storage.postgres.opening import open_storage

        async with open_storage(address) as storage:
            await run_sync(team.load, storage.database, source)
            return Imported(storage.disk.name, source.count, source.bytes)
    from mcp_server.storage.local import whole as local

    root = resolve_workspace(workspace, environ)
    await local.load(root, source, {MACHINE_FILE: machine_document()})
    return Imported(str(root), source.count, source.bytes)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The ports of a workspace, and functions that create the ports that need its settings."""

    settings: Settings
    disk: Folder
    files: Files
    state: State
    locks: ports.Locks
    changes: Changes
    folders: ProjectFolders
    lexicon: Callable[[], tuple[Lexicon, str]]
    index: Callable[[Embedder | None, str, int], ports.Index]
    history: Callable[[Callable[[], datetime]], ports.History]


async def _folder_parts(
    root: Path,
    environ: Mapping[str, str],
    problems: list[str],
    now: Callable[[], datetime],
    if_missing: IfMissing,
    stack: AsyncExitStack,
) -> _Parts:
    """Opens a workspace in a folder of this machine. Raises the errors of `open_memory`."""
    settings = await run_sync(_created, root, environ, problems, now, if_missing)
    local = await run_sync(_local_folder, root, settings, problems, stack)
    files = WorkspaceFiles(root, local)
    locks = Locks(local, check_there=files.check_there)
    state = await LocalState.open(local / "state.db", locks)
    stack.push_async_callback(_closed, state)
    return _Parts(
        settings=settings,
        disk=Folder.at(files.root, files.local),
        files=files,
        state=state,
        locks=locks,
        changes=Changes(),
        folders=ProjectFolders(user_home(), Path(tempfile.gettempdir()), root),
        lexicon=partial(
            read_lexicon,
            lambda path: (files.root / Path(path).expanduser()).read_bytes(),
            settings.advisor.lexicon,
        ),
        index=lambda embedder, name, length: Index(files, locks, local / "index", embedder, name, length),
        history=lambda clock: Git(root, clock, files),
    )


async def _team_parts(address: str, environ: Mapping[str, str], stack: AsyncExitStack) -> _Parts:
    """Opens a workspace on PostgreSQL. Raises Invalid for a malformed address, Unavailable if the server does not
    answer or the extra is not installed."""
    with needs_extra():
        from mcp_server.storage.postgres.opening import open_storage
    storage = await stack.enter_async_context(open_storage(address))
    await storage.create({CONFIG: default_document()})
    settings = await run_sync(team_settings, storage.files, environ)
    return _Parts(
        settings=settings,
        disk=storage.disk,
        files=storage.files,
        state=storage.state,
        locks=storage.locks,
        changes=storage.changes,
        folders=ProjectFolders(user_home(), Path(tempfile.gettempdir()), user_home()),
        lexicon=partial(read_lexicon, storage.files.read_bytes, settings.advisor.lexicon),
        index=partial(storage.index, scan=lambda files, read: Scan(files, read).search),
        history=storage.history,
    )


@contextlib.contextmanager
def open_members(address: str) -> Iterator[Members]:
    """Opens the members of all workspaces of a team's database. Creates the workspace of the address if it is missing.
    Blocks. Raises the errors of `open_memory`."""
    with needs_extra():
        from mcp_server.storage.postgres.connections import parse
        from mcp_server.storage.postgres.members import TeamMembers
    members = TeamMembers(parse(address))
    try:
        yield members
    finally:
        members.close()


@contextlib.contextmanager
def needs_extra() -> Iterator[None]:
    """Raises Unavailable, with the command that installs the extra, if an import in the block fails."""
    try:
        yield
    except ImportError as error:
        raise Unavailable(
            f"a memory on PostgreSQL needs the extra `postgres` ({error}): pip install 'context-manager-mcp[postgres]'"
        ) from error


# The functions of `Rooms`. Each imports its module on the first call, because opening a memory must not wait for it.


def _after_turn(
    memory: Memory, row: SessionRow, turns: Sequence[Turn], loaded: Sequence[ContextChunk]
) -> Awaitable[tuple[str, ...]]:
    from mcp_server.pressure.after_turn import after_turn

    return after_turn(memory, row, turns, loaded)


def _watch_topics(
    memory: Memory, row: SessionRow, turns: Sequence[Turn], loaded: Sequence[ContextChunk]
) -> Awaitable[tuple[str, ...]]:
    from mcp_server.topics import watch

    return watch.watch_turns(memory, row, turns, [chunk.id for chunk in loaded if chunk.type == "file"])


def _close_session(memory: Memory, row: SessionRow) -> Awaitable[SessionRow]:
    from mcp_server.pressure.after_turn import close_session

    return close_session(memory, row)


def _left_off(
    memory: Memory, row: SessionRow, turns: Sequence[Turn], in_window: int | None, until: int | None
) -> Awaitable[LeftOff | None]:
    from mcp_server.checkpoints.stored import left_off

    return left_off(memory, row, turns, in_window, until)


def _last_checkpoint(memory: Memory, session: str) -> Awaitable[LeftOff | None]:
    from mcp_server.checkpoints.stored import last_checkpoint

    return last_checkpoint(memory, session)


async def _embeddings_entered(memory: Memory) -> None:
    """Records the embedder's costs when the memory closes. Ignores errors."""
    with CancelScope(shield=True), contextlib.suppress(ContextManagerError):
        await metered.enter_embeddings(memory)


@cache
def _recognizer() -> Model:
    """Returns the recognizer's model, which is loaded once. One caller loads it while the others wait: 16 simultaneous
    loads took 29 s and 1.4 GB."""
    with _LOADING:
        return recognizer()


async def _closed(port: LocalState | ports.Index) -> None:
    """Closes a port, even during cancellation; it takes milliseconds."""
    with CancelScope(shield=True):
        await port.close()


def _created(
    root: Path,
    environ: Mapping[str, str],
    problems: list[str],
    clock: Callable[[], datetime],
    if_missing: IfMissing,
) -> Settings:
    """Creates the workspace if it is missing, and returns its settings. Raises the errors of `open_memory`."""
    check_may_open(root, if_missing)
    try:
        create(root, {CONFIG: default_document()})
    except ContextManagerError as error:
        if not root.is_dir():
            raise
        problems.append(f"{error}; the memory can be read, but nothing can be recorded")
    git = Git(root, clock)
    with contextlib.suppress(ContextManagerError):  # it exists, or the disk cannot be written
        if not (root / MACHINE_FILE).exists():
            WorkspaceFiles(root).write_atomic(MACHINE_FILE, machine_document(), new=True)
    try:
        if git.init():
            git.commit_files([CONFIG, *templates()], f"{BEGINNING}\n\nThe files it begins with.")
    except ContextManagerError as error:
        problems.append(str(error))
    settings = settings_of(root, environ)
    try:
        if git.available() and settings.git.hooks != git.hooks.in_place():
            git.hooks.ensure() if settings.git.hooks else git.hooks.remove()
    except ContextManagerError as error:
        problems.append(str(error))
    return settings


def _local_folder(root: Path, settings: Settings, problems: list[str], stack: AsyncExitStack) -> Path:
    """Returns the folder for state and index: the one in the settings, or a temporary one if it cannot be written."""
    chosen = settings.workspace.local_dir
    local = Path(chosen).expanduser() if chosen else root / ".local"
    local = local if local.is_absolute() else root / local
    if _is_the_memorys(root.resolve(), local.resolve()):
        problems.append(f"workspace.local_dir is {chosen!r}, which contains the memory itself; .local is used instead")
        local = root / ".local"
    try:
        local.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=local) as probe:
            probe.write(b"\0" * 65536)  # fails on a full disk before a database is opened
    except OSError as error:
        problems.append(f"{local} cannot be written ({error.strerror}); until it can, index and state are temporary")
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="context-manager-")))
    return local


def _is_the_memorys(root: Path, local: Path) -> bool:
    """Returns whether a folder is the workspace, contains it, or is one of the folders of its files."""
    own = (root / name for name in (".git", "raw", "knowledge", "topics", "archive", "checkpoints", "attachments"))
    return local == root or local in root.parents or any(place == local or place in local.parents for place in own)


async def catch_up(memory: Memory, *, reads: bool = False) -> None:
    """Updates state and index from the files and the clients' queue, for one command. Leaves this to the process that
    maintains the workspace, if there is one. With `reads`, for a command that wrote passages, the recognizer's network
    also reads up to READ_IN_A_STEP new ones."""
    from mcp_server.checkpoints import restore
    from mcp_server.clients.hooks import listener
    from mcp_server.clients.hooks.events import work
    from mcp_server.history import sync
    from mcp_server.jobs.duties import READ_IN_A_STEP

    await sessions.ready(memory)
    held = await run_sync(memory.locks.try_maintainer)
    if held is not None:
        with held:
            await restore.finish(memory)
            if memory.disk.here:
                await listener.drain(memory, work)
                await sync.take_in(memory)
            await memory.index.refresh()
            if reads:
                await memory.index.read_ahead(READ_IN_A_STEP)
            if memory.disk.here:
                await committing.commit_if_due(memory)


@asynccontextmanager
async def maintain(memory: Memory, environ: Mapping[str, str] | None = None) -> AsyncIterator[None]:
    """Updates index and sessions in the background, for a server, and publishes changes.

    The maintaining process also answers clients' hooks and handles their queue. With the `environ` of `open_memory`,
    long computations run in a child process, otherwise in this one.
    """
    import anyio

    from mcp_server.clients.hooks.listener import attend
    from mcp_server.jobs import maintainer
    from mcp_server.jobs.duties import (
        DUTIES,
        keep_committed,
        keep_enriching,
        keep_exported,
        keep_extracted,
        keep_rewording,
    )
    from mcp_server.jobs.scheduler import JOBS, keep_schedule, keep_topic_times

    worker_environ = environ if memory.disk.here else None  # a worker process opens a folder

    keep_knowledge = partial(keep_extracted, environ=worker_environ)
    keep_jobs = partial(keep_schedule, jobs=JOBS, environ=worker_environ)
    duties: list[maintainer.Duty] = [attend, *DUTIES, keep_knowledge, keep_topic_times, keep_jobs]
    if not memory.disk.here:  # PostgreSQL: no hooks of clients, and no git repository in the workspace
        duties = [duty for duty in duties if duty not in (attend, keep_committed)] + [keep_exported]
    duties += [keep_enriching, keep_rewording] if memory.llm is not None else []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(maintainer.run, memory, duties)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
