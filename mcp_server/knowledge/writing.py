"""Writes extracted lines into the pages of the knowledge.

`write_lines` replaces whole files and keeps every line that a person or an agent wrote. `renew` computes links, and the
derived lines of MEMORY.md, again from the other pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations.closed_sessions import LIVE_ITEMS, LIVE_PAGES, PENDING_EXTRACTION
from mcp_server.errors import Conflict, Invalid
from mcp_server.knowledge.derive import Derived
from mcp_server.knowledge.duplicates import is_duplicate
from mcp_server.knowledge.editing import TRIES, despite_editors, stamped
from mcp_server.knowledge.live_pages import LivePage, lines_from, page_from
from mcp_server.knowledge.pages import merged, settled, standing, without_emptied
from mcp_server.knowledge.summaries import (
    derived_lines,
    relinked,
    renewed,
    with_state,
    within_the_day,
)
from mcp_server.memory import Memory
from mcp_server.storage.files import Files
from mcp_server.storage.values import Change
from mcp_server.text.destinations import (
    CORRECTED,
    GENERAL_PAGE,
    JOURNALS,
    MEMORY,
    PEOPLE_INDEX,
    PROJECT_INDEX,
    USER_FILE,
    Place,
    archived_path,
    is_page,
    place_for,
    place_of,
)
from mcp_server.text.entries import Line, entries, is_derived, is_state, without_sources
from mcp_server.text.markdown import difference, sections, split_front_matter

LINKED = ("knowledge/people/", "knowledge/projects/", "knowledge/procedures/", "knowledge/reference/")
"""Folders of the pages that link to each other."""

FOLDERS = (*LINKED, JOURNALS)
"""Folders that contain extracted lines. When a conversation is read again, outdated lines are removed from these
folders."""

ITEM_PAGES = ("knowledge/projects/", "knowledge/reference/")
"""Folders of the pages that hold decisions and open items."""

FLUSHED = ("Decision:", "Lesson:", "To-do:")
"""Beginnings of journal lines that earlier versions wrote when a text was removed from the context. These lines
stay."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One changed file: the derived lines that were added and removed, and the change as a diff."""

    path: str
    added: int
    removed: int
    diff: str

    @classmethod
    def of(cls, path: str, before: str, after: str) -> ChangedFile:
        """Returns the change from one text of a file to another."""
        old, new = _derived_texts(before), _derived_texts(after)
        return cls(path, (new - old).total(), (old - new).total(), difference(before, after, path))

    def after(self, earlier: ChangedFile | None) -> ChangedFile:
        """Returns an earlier change of the file and this one as one change."""
        if earlier is None:
            return self
        added, removed = earlier.added + self.added, earlier.removed + self.removed
        return ChangedFile(self.path, added, removed, f"{earlier.diff}\n{self.diff}")

    @property
    def counts(self) -> str:
        """`+2`, or `+2 −1` if lines were removed."""
        return f"+{self.added}" + (f" −{self.removed}" if self.removed else "")


@dataclass(frozen=True, slots=True)
class _Stale:
    """The transcripts that were read again (`paths`). A line of a transcript in `replaced_only` is removed only if a
    new line replaces it."""

    paths: frozenset[str] = frozenset()
    replaced_only: frozenset[str] = frozenset()


async def write_lines(
    memory: Memory,
    derived: Sequence[Derived],
    *,
    anew: Collection[str] = (),
    ended: Collection[str] = (),
    live: Mapping[str, Mapping[str, Any]] | None = None,
    dry_run: bool = False,
) -> tuple[list[ChangedFile], Mapping[str, str]]:
    """Writes lines durably into their files. Each file is replaced as a whole. `anew` are transcripts that were read
    again: their earlier lines are removed if they are not found again. If an LLM was asked about a transcript, an
    earlier line is removed only if a new line replaces it. `dry_run` writes nothing.

    Returns the changes, and the files that are not changed because they cannot be read, each with the reason.

    Pages also show the items of open conversations: those in the state, and newer ones in `live`, which are then stored
    in the state. The items of the transcripts `ended` are no longer shown, because `derived` has their lines."""
    stale = _Stale(frozenset(anew), frozenset(one.path for one in derived if one.asked))

    async def work() -> tuple[list[ChangedFile], Mapping[str, str]]:
        items, stored = await memory.state.entries_of(LIVE_ITEMS, LIVE_PAGES)
        newer = await _newer(memory, items, live) if live else {}
        open_items = [one["lines"] for path, one in {**items, **newer}.items() if path not in ended]
        batch, paths, pages = await run_sync(_batch, memory, derived, stale, open_items, stored)
        changed: list[ChangedFile | None] = []
        for path in sorted({*paths, *pages}):
            if path in pages:
                changed.append(await _written_page(batch, path, stored.get(path), pages[path], dry_run))
            else:
                changed.append(await run_sync(_written, batch, path, dry_run))
        for path, one in newer.items():
            await memory.state.put(LIVE_ITEMS, path, one, waits=False)  # can be derived again from the transcript
        return [one for one in changed if one is not None], batch.unreadable

    if dry_run:
        return await work()
    async with memory.locks.files():
        changed, unreadable = await work()
        if ended:
            await memory.state.remove(LIVE_ITEMS, *ended)
    for one in changed:
        memory.changes.publish(Change("file", one.path))
    return changed, unreadable


def _batch(
    memory: Memory,
    derived: Sequence[Derived],
    stale: _Stale,
    open_items: Iterable[object],
    stored: Mapping[str, object],
) -> tuple[_Batch, set[str], dict[str, _FoundPage]]:
    """Returns the lines to write, the paths of the files that they change, and the pages that show items of open
    conversations. `open_items` are the stored lines of open conversations, and `stored` are such pages as stored in the
    state."""
    files = memory.files
    live = _not_forgotten(memory, [line for stored in open_items for line in lines_from(stored)])
    shown = [line for line, _ in _not_remembered(files, [(line, "") for line in live])]
    reports = [line for one in derived for line in one.lines if line.kind == "report" and not line.file]
    lines = [(line, one.title) for one in derived for line in one.lines if line.kind != "report" or line.file]
    settling, showing = _by_page(reports), _by_page(shown)
    wanted = {place_of(line, title).path for line, title in lines}
    unreadable = _unreadable(files, {MEMORY, *wanted, *settling, *showing, *stored})
    lines = [(line, title) for line, title in lines if place_of(line, title).path not in unreadable]
    placed = _by_file(files, _not_remembered(files, lines))
    corrected = _by_page(_corrected(files, placed))
    holding = _files_with_source(files, stale.paths) if stale.paths else ()
    batch = _Batch(memory, placed, stale, _sessions_by_journal(derived), settling, corrected, showing, unreadable)
    paths = {*placed, *holding, *filter(files.exists, (*settling, *corrected))} - unreadable.keys()
    live_pages = {*stored, *showing} - unreadable.keys()
    return batch, paths, {path: _found_page(batch, path, stored.get(path)) for path in live_pages}


def _unreadable(files: Files, paths: Iterable[str]) -> dict[str, str]:
    """Returns the files that cannot be read, or whose archived file cannot be read, each with the reason."""
    found: dict[str, str] = {}
    for path in sorted(paths):
        try:
            for one in (path, archived_path(path)):
                files.text_or_none(one)
        except Invalid as error:
            found[path] = str(error)
    return found


def _not_forgotten(memory: Memory, lines: Sequence[Line]) -> Sequence[Line]:
    """Returns the lines that contain no text that was forgotten on request."""
    whole = "\n".join(line.entry for line in lines)
    if memory.forgotten.clean(whole) == whole:
        return lines
    return [line for line in lines if memory.forgotten.clean(line.entry) == line.entry]


def _not_remembered(files: Files, lines: Sequence[tuple[Line, str]]) -> list[tuple[Line, str]]:
    """Returns the lines, except facts with the meaning of an entry that a person or an agent wrote into MEMORY.md."""
    if not any(line.kind == "fact" for line, _ in lines):
        return list(lines)
    known = entries(split_front_matter(files.readable(MEMORY) or "").body)
    remembered = [one.said for one in known if not is_derived(one.text)]
    return [
        (line, title)
        for line, title in lines
        if line.kind != "fact" or line.file or not any(is_duplicate(line.text, one) for one in remembered)
    ]


async def _newer(
    memory: Memory, known: Mapping[str, Mapping[str, Any]], live: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Returns the items of `live`, except those of conversations that are no longer open or for which another process
    has stored newer items."""
    still_open = {row.path for row in await memory.state.sessions(open_only=True)}
    still_open.update(await memory.state.keys_of(PENDING_EXTRACTION))
    return {
        path: one
        for path, one in live.items()
        if path in still_open and (path not in known or known[path]["turn"] <= one["turn"])
    }


@dataclass(frozen=True, slots=True)
class _Batch:
    """The lines to write, by path: `reports` close open items of a page, `corrected` are recognized lines that the user
    moved or reworded on a page, and `shown` are lines of open conversations. `unreadable` are files that are not
    changed, each with the reason."""

    memory: Memory
    placed: Mapping[str, list[tuple[Place, Line]]]
    stale: _Stale
    by_day: Mapping[str, Sequence[str]]
    reports: Mapping[str, Sequence[Line]]
    corrected: Mapping[str, Sequence[Line]]
    shown: Mapping[str, Sequence[Line]]
    unreadable: Mapping[str, str]


_FoundPage = tuple[str | None, LivePage]
"""The text of a page, and the page with the lines to write."""


async def write_changes(memory: Memory, work: Callable[[], list[ChangedFile]], dry_run: bool) -> list[ChangedFile]:
    """Runs `work` under the lock of the files, and publishes the files that it changed. A dry run takes no lock."""
    if dry_run:
        return await run_sync(work)
    async with memory.locks.files():
        changed = await run_sync(work)
    for one in changed:
        memory.changes.publish(Change("file", one.path))
    return changed


async def renew(memory: Memory, dry_run: bool = False) -> list[ChangedFile]:
    """Writes the texts that are computed from the other pages, and returns the changes: the links of derived lines to
    people, projects and procedures, the lists of the pages that link to a page, and the derived lines of MEMORY.md.
    Pages that show items of open conversations get their links when those conversations end."""
    shown = await memory.state.keys_of(LIVE_PAGES)

    def work() -> list[ChangedFile]:
        links = despite_editors(partial(_renew_links, memory.files, shown, dry_run))
        return links + _renew_memory(memory, dry_run)

    return await write_changes(memory, work, dry_run)


async def renew_memory(memory: Memory) -> None:
    """Computes the derived lines of MEMORY.md again from the other pages, and writes them."""
    await write_changes(memory, partial(_renew_memory, memory, False), False)


def _renew_links(files: Files, shown: Collection[str], dry_run: bool) -> list[ChangedFile]:
    texts = {path: text for path in markdown_in(files, *LINKED) if (text := files.readable(path)) is not None}
    starts = {path: split_front_matter(text) for path, text in texts.items()}
    changed: list[ChangedFile] = []
    for path, body in relinked({path: start.body for path, start in starts.items()}).items():
        if path not in shown:
            after = starts[path].head + body
            if not dry_run:
                files.write_atomic(path, after, texts[path])
            changed.append(ChangedFile.of(path, texts[path], after))
    return changed


def _renew_memory(memory: Memory, dry_run: bool) -> list[ChangedFile]:
    if memory.files.exists(MEMORY) and memory.files.readable(MEMORY) is None:
        return []  # `doctor` reports the file
    template = place_for("fact", "x", None, "", None).template
    lines = derived_lines(page_bodies(memory.files))
    return edit_body(memory, MEMORY, partial(renewed, lines=lines), dry_run, template)


def edit_body(
    memory: Memory, path: str, change: Callable[[str], str], dry_run: bool, template: str = ""
) -> list[ChangedFile]:
    """Writes the body of a file as `change` returns it; a new file begins as `template`. Returns the change, if any. If
    an editor writes the file meanwhile, `change` is called again."""

    def edit() -> list[ChangedFile]:
        before = memory.files.text_or_none(path)
        start = split_front_matter(before if before is not None else template)
        body = change(start.body)
        if body == start.body:
            return []
        after = stamped(path, start.head + body, memory.clock(), None)
        if not dry_run:
            memory.files.write_atomic(path, after, before, new=before is None)
        return [ChangedFile.of(path, before or "", after)]

    return despite_editors(edit)


def markdown_in(files: Files, *folders: str) -> list[str]:
    """Returns the paths of the markdown files in these folders."""
    return [stat.path for folder in folders for stat in files.walk(folder) if stat.path.endswith(".md")]


def bodies_of(files: Files, paths: Iterable[str]) -> dict[str, str]:
    """Returns the bodies of the files that can be read, by path."""
    return {path: split_front_matter(text).body for path, text in files.texts(paths).items() if text is not None}


def page_bodies(files: Files) -> dict[str, str]:
    """Returns the bodies of the pages of the user and of projects, and of the general page."""
    pages = [path for path in markdown_in(files, "knowledge/projects/") if path != PROJECT_INDEX]
    return bodies_of(files, [USER_FILE, GENERAL_PAGE, *pages])


def _by_page(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Returns lines by the path of the page whose open items they can close."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(place_of(replace(line, kind="open")).path, []).append(line)
    return found


def _sessions_by_journal(derived: Iterable[Derived]) -> dict[str, list[str]]:
    """Returns the sessions that each journal names, by its path."""
    found: dict[str, list[str]] = {}
    for one in derived:
        for path in dict.fromkeys(f"knowledge/journal/{line.said}.md" for line in one.lines if line.file == "journal"):
            found.setdefault(path, []).append(one.session)
    return found


def _by_file(files: Files, given: Iterable[tuple[Line, str]]) -> dict[str, list[tuple[Place, Line]]]:
    """Returns lines, given with the titles of their conversations, by the path of their file. The path may be in the
    archive: a line that was archived stays there when its conversation is read again, and new lines of an archived
    journal are added in the archive."""
    placed: dict[str, list[tuple[Place, Line]]] = {}
    for line, title in given:
        place = place_of(line, title)
        placed.setdefault(place.path, []).append((place, line))
    home: dict[str, list[tuple[Place, Line]]] = {}
    for path, lines in placed.items():
        cold = archived_path(path)
        archived, live = files.text_or_none(cold), files.text_or_none(path)
        if archived is None:
            home[path] = lines
        elif path.startswith(JOURNALS) and live is None:
            home[cold] = lines
        else:
            only = [line for _, line in lines]
            there, here = (standing(split_front_matter(text or "").body, only) for text in (archived, live))
            for one, is_there, is_here in zip(lines, there, here, strict=True):
                home.setdefault(cold if is_there and not is_here else path, []).append(one)
    return home


def _corrected(files: Files, home: Mapping[str, Sequence[tuple[Place, Line]]]) -> list[Line]:
    """Returns the lines that the user moved or reworded on their page. Their original is in the page's archive, and
    they still replace the items that they replaced before."""
    found: list[Line] = []
    for path, placed in home.items():
        if path.startswith("archive/"):
            lines = [line for _, line in placed]
            inside = sections(split_front_matter(files.text_or_none(path) or "").body)
            text = "\n".join(one.text for one in inside if one.title == CORRECTED)
            found += [line for line, is_there in zip(lines, standing(text, lines), strict=True) if is_there]
    return found


def _files_with_source(files: Files, transcripts: frozenset[str]) -> list[str]:
    """Returns the files, also in the archive, with a line that names one of these transcripts as its source, except the
    indexes, which repeat other files."""
    paths = markdown_in(files, *FOLDERS, *map(archived_path, FOLDERS))
    texts = ((path, files.readable(path)) for path in paths if path not in (PEOPLE_INDEX, PROJECT_INDEX))
    return [path for path, text in texts if text is not None and any(one in text for one in transcripts)]


def _written(batch: _Batch, path: str, dry_run: bool) -> ChangedFile | None:
    """Writes a file that shows no items of open conversations."""
    files, now = batch.memory.files, batch.memory.clock()
    live_path = path if path.startswith("knowledge/") else f"knowledge/{path.removeprefix('archive/')}"
    placed, reports, sessions = (
        batch.placed.get(path, ()),
        batch.reports.get(live_path, ()),
        batch.by_day.get(live_path, ()),
    )
    corrected = batch.corrected.get(path, ())

    def write() -> ChangedFile | None:
        before = files.text_or_none(path)
        after = _rewritten(live_path, before, placed, batch.stale, now, reports, corrected, sessions)
        if after is None or after == before:
            return None
        if not dry_run:
            files.write_atomic(path, after, before, new=before is None)
        return ChangedFile.of(path, before or "", after)

    return despite_editors(write)


async def _written_page(
    batch: _Batch, path: str, stored: object, found: _FoundPage, dry_run: bool
) -> ChangedFile | None:
    """Writes a page that shows items of open conversations. Its base is stored in the state before the file changes, so
    that a crash in between loses neither."""
    memory = batch.memory
    for again in range(TRIES):
        before, page = found
        is_live = page.base != page.shown or (page.gone and path in batch.shown)
        if not dry_run:
            values = asdict(page)
            if values != stored and (is_live or stored is not None):
                await memory.state.put(LIVE_PAGES, path, values)
            try:
                if page.shown != before:
                    await run_sync(put_page, memory.files, path, before, page.shown)
            except Conflict:
                if again == TRIES - 1:
                    raise
                stored = values
                found = await run_sync(_found_page, batch, path, stored)
                continue
            if not is_live and stored is not None:
                await memory.state.remove(LIVE_PAGES, path)
        break
    return None if page.shown == before else ChangedFile.of(path, before or "", page.shown or "")


def put_page(files: Files, path: str, before: str | None, after: str | None) -> None:
    """Writes a page, or deletes it if `after` is None. Raises Conflict if the file is no longer as `before`."""
    if after is None:
        if before is not None:
            files.remove(path)
    elif after != before:
        files.write_atomic(path, after, before, new=before is None)


def _found_page(batch: _Batch, path: str, stored: object) -> _FoundPage:
    """Returns the text of a page on disk, and the page with the lines of ended conversations in its `base` and those of
    open conversations in its `shown` text."""
    files, now = batch.memory.files, batch.memory.clock()
    before = files.text_or_none(path)
    page = page_from(stored, before)
    placed = _without_gone(page, batch.placed.get(path, ()))
    corrected = batch.corrected.get(path, ())
    base = _rewritten(path, page.base, placed, batch.stale, now, batch.reports.get(path, ()), corrected)
    lines = batch.shown.get(path, ())
    home = _by_file(files, [(line, "") for line in lines if line.kind != "report"])
    written = _without_gone(page, home.get(path, ()))
    reports = [line for line in lines if line.kind == "report"]
    shown = _rewritten(path, base, written, _Stale(), now, reports, _corrected(files, home))
    bodies = [None if text is None else split_front_matter(text).body for text in (shown, page.shown)]
    if base != shown and bodies[0] == bodies[1]:
        shown = page.shown  # only the time in its front matter differs
    return before, LivePage(base, shown, page.was if shown == page.shown else page.shown, page.gone)


def _without_gone(page: LivePage, placed: Sequence[tuple[Place, Line]]) -> list[tuple[Place, Line]]:
    return [(place, line) for place, line in placed if not any(one.names(line) for one in page.gone)]


def _derived_texts(text: str) -> Counter[str]:
    """Returns the derived lines of a file without their sources, which change when a second turn has the same line."""
    lines = (line for line in text.split("\n") if is_derived(line) and not is_state(line))
    return Counter(without_sources(line).strip() for line in lines)


def _rewritten(
    path: str,
    before: str | None,
    placed: Sequence[tuple[Place, Line]],
    stale: _Stale,
    now: datetime,
    reports: Sequence[Line],
    corrected: Sequence[Line] = (),
    sessions: Sequence[str] = (),
) -> str | None:
    """Returns the file with these lines, and without old lines whose sources are all in `stale` transcripts; `before`
    if nothing changes. `reports` close open items of the file, and `corrected` replace others. A new file begins with
    its place's template. `sessions` are added to the front matter of a journal."""
    if not placed and (before is None or not (reports or corrected or stale.paths)):
        return before
    start = split_front_matter(before if before is not None else placed[0][0].template)
    body = merged(start.body, placed, stale.paths, FLUSHED, stale.replaced_only)
    if path.startswith(JOURNALS):
        body = within_the_day(body)
    if path.startswith(ITEM_PAGES):
        lines = (*(line for _, line in placed), *reports)
        body = settled(body, lines, corrected, of_one_subject=path != GENERAL_PAGE)
    body = without_emptied(start.body, body)
    if is_page(path) and path != GENERAL_PAGE:
        body = with_state(body)
    if body == start.body and before is not None:
        return before
    after = start.head + body
    for session in sessions or (None,):
        after = stamped(path, after, now, session)
    return after
