"""History: what git knows about the memory.

    when    did I learn X               the commits that added or removed a text
    where   did this come from          the lines with a text, their authors, and the conversations
    diff    what changed                in knowledge between two moments, by file and line
    today   what did I learn today      the changes since midnight, committed or not
    show    a commit                    its message and its changes
    blame   a file, line by line

`revert` reverts the knowledge changes of a commit with a new commit. `read(at=…)` returns an earlier version of a file,
and `tag` names a state. Conversations are left out: `search` covers them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError, Invalid, NotFound, Refused
from mcp_server.history.committing import commit_changes
from mcp_server.history.merging import refuse_staged, resolver, retried
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.storage.files import BEGINNING
from mcp_server.storage.history_values import Commit, MergePlan
from mcp_server.storage.values import Change
from mcp_server.text.dates import moment
from mcp_server.text.destinations import is_for_own_hand
from mcp_server.text.entries import sources_of
from mcp_server.text.fencing import neutralise
from mcp_server.text.prose import counted, no_such_lines

KNOWLEDGE = ("knowledge", "topics", "archive", "anchors.yaml")
"""The folders and files that history covers."""

MOST_LINES = 20
"""Maximum number of lines that `where` traces."""

_PLACE = re.compile(r"(.+?):(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Happening:
    """A commit in which a file gained or lost occurrences of a text. `commit` is None for uncommitted changes.
    `sources` are the turns that the lines name, else the conversations that the commit names."""

    what: str
    path: str
    at: datetime | None
    commit: str | None
    subject: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """A current line, the commit that wrote it, and its sources: the turns that the line names, else the conversations
    that the commit names."""

    path: str
    line: int
    text: str
    at: datetime | None
    commit: str | None
    subject: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Changed:
    """Changes: (path, added lines, removed lines) per file, and the diff. `about` names the period or commit."""

    about: str
    files: tuple[tuple[str, int, int], ...]
    diff: str

    @property
    def markdown(self) -> str:
        if not self.files:
            return f"{self.about}: nothing changed"
        listed = [f"- {path} {_signed(came, '+')} {_signed(went, '-')}" for path, came, went in self.files]
        head = [self.about.rstrip(), ""] if "\n" in self.about else [f"{self.about}:"]
        return neutralise("\n".join([*head, *listed, "", "```diff", self.diff, "```"]))


async def when(memory: Memory, text: str, limit: int = 20) -> list[Happening]:
    """Returns when a text, ignoring case, was added to or removed from knowledge, oldest first. Raises Invalid for an
    empty text, Unavailable without git."""
    happened: list[Happening] = []
    needle = text.lower()
    for commit, path, before, after in await run_sync(memory.git.past.occurrences, text, KNOWLEDGE, limit):
        if what := _verb(needle, before, after):
            lines = [
                line for line in (after if needle in after.lower() else before).split("\n") if needle in line.lower()
            ]
            said, sources = memory.forgotten.clean(commit.subject), _sources(lines, commit)
            happened.append(Happening(what, path, commit.at, commit.id, said, sources))
    for change in await run_sync(memory.git.changes, KNOWLEDGE):
        if what := _verb(needle, change.before or "", change.after or ""):
            happened.append(Happening(what, change.path, None, None, "not committed yet"))
    return happened


async def where(memory: Memory, what: str) -> list[Origin]:
    """Returns who wrote the lines with a text, of a file, or of `PATH:LINE`. Raises NotFound if no line has it."""
    if place := await run_sync(_file_and_lines, memory, what):
        return await blame(memory, *place)
    places = await run_sync(_lines_saying, memory, what)
    if not places:
        raise NotFound(f"no line of knowledge contains {what!r}; `search` also finds other wordings")
    found: list[Origin] = []
    for file, numbers in places.items():
        found += await _origins(memory, file, [(number, number) for number in numbers])
    return found


async def blame(memory: Memory, path: str, start: int | None = None, end: int | None = None) -> list[Origin]:
    """Returns who wrote each line of a file. Raises NotFound for a missing file, Invalid for lines that it does not
    have."""
    path = memory.files.relative(path)
    text = await run_sync(memory.files.read_text, path)
    last = len(text.removesuffix("\n").split("\n"))
    first = start or 1
    if not 1 <= first <= last or (end or first) < first:
        raise Invalid(no_such_lines(path, last, first, end))
    return await _origins(memory, path, [(first, min(end or last, last))])


async def diff(memory: Memory, since: str = "1 week ago", until: str | None = None, path: str | None = None) -> Changed:
    """Returns the changes of knowledge from `since` to `until`, each a time, a commit or a tag. Without `until`, to
    now, including uncommitted changes."""
    now = memory.clock().astimezone(ZoneInfo(memory.timezone))
    begun = moment(since, now, end=False)
    old = await run_sync(memory.git.past.at, begun) if begun else await run_sync(memory.git.commit_at, since)
    if old is None:  # the beginning, without the files that every new memory has
        old = await run_sync(memory.git.past.beginning, BEGINNING)
    new = await run_sync(memory.git.commit_at, until) if until else await run_sync(memory.git.tree_now, KNOWLEDGE)
    paths = [memory.files.relative(path)] if path else KNOWLEDGE
    files = await run_sync(memory.git.past.counts, old, new, paths)
    text = await run_sync(memory.git.past.between, old, new, paths) if files else ""
    return Changed(f"{since} to {until or 'now'}", tuple(files), memory.forgotten.clean(text))


async def show(memory: Memory, commit: str) -> Changed:
    """Returns a commit's author, time, message and changes. For conversations, only the file names are included."""
    found = await run_sync(memory.git.past.commit, commit)
    parents = await run_sync(memory.git.past.parents, found.id)
    old = parents[0] if parents else None
    files = await run_sync(memory.git.past.counts, old, found.id, ())
    text = await run_sync(memory.git.past.between, old, found.id, [*KNOWLEDGE, "checkpoints", "memory-config.yaml"])
    about = f"{found.id[:10]}, {found.at:%Y-%m-%d %H:%M} UTC, {found.author}\n\n{found.message}\n"
    return Changed(memory.forgotten.clean(about), tuple(files), memory.forgotten.clean(text))


def as_text(found: Sequence[Happening] | Sequence[Origin]) -> str:
    lines: list[str] = []
    for one in found:
        at = f"{one.at:%Y-%m-%d %H:%M} UTC" if one.at else "not committed yet"
        commit = f" ({one.commit[:10]}: {one.subject})" if one.commit else ""
        if isinstance(one, Origin):
            lines += [f"- {one.path}:{one.line} {one.text.strip()}", f"  written {at}{commit}"]
        else:
            lines.append(f"- {at}: {one.what} {one.path}{commit}")
        lines += [f"  from {source}" for source in one.sources]
    return neutralise("\n".join(lines) or "nothing was found; `search` also searches conversations")


async def _origins(memory: Memory, path: str, ranges: Sequence[tuple[int, int]]) -> list[Origin]:
    try:
        blamed = await run_sync(memory.git.past.blame, path, ranges)
    except NotFound:  # the file was not committed yet
        lines = (await run_sync(memory.files.read_text, path)).split("\n")
        numbers = (number for first, last in ranges for number in range(first, last + 1))
        blamed = [(number, lines[number - 1], None) for number in numbers]
    found: list[Origin] = []
    for number, text, commit in blamed:
        at, oid, subject = None, None, "not committed yet"
        if commit is not None:
            at, oid, subject = commit.at, commit.id, memory.forgotten.clean(commit.subject)
        said = memory.forgotten.clean(text)
        found.append(Origin(path, number, said, at, oid, subject, _sources((text,), commit)))
    return found


def _sources(lines: Iterable[str], commit: Commit | None) -> tuple[str, ...]:
    """Returns the turns that the lines name. If they name none, returns the conversations that the commit names."""
    marked = dict.fromkeys(str(source) for line in lines for source in sources_of(line))
    return tuple(marked) or (commit.sessions if commit else ())


def _file_and_lines(memory: Memory, what: str) -> tuple[str, int | None, int | None] | None:
    """Returns the file that `PATH` or `PATH:LINE` names, and its first and last line if it names any; None if `what` is
    not a path."""
    named: list[tuple[str, int | None, int | None]] = [(what, None, None)]
    if place := _PLACE.fullmatch(what):
        named.append((place[1], int(place[2]), int(place[3] or place[2])))
    for path, first, last in named:
        with suppress(ContextManagerError):
            if "\n" not in path and memory.files.exists(path) and not memory.files.is_folder(path):
                return memory.files.relative(path), first, last
    return None


def _lines_saying(memory: Memory, text: str) -> dict[str, list[int]]:
    needle = " ".join(text.lower().split())
    found: dict[str, list[int]] = {}
    left = MOST_LINES
    for stat in (stat for folder in KNOWLEDGE[:3] for stat in memory.files.walk(f"{folder}/")):
        if not stat.path.endswith(".md") or not needle:
            continue
        try:
            lines = memory.files.read_text(stat.path).split("\n")
        except ContextManagerError:
            continue
        for number, line in enumerate(lines, 1):
            if needle in " ".join(line.lower().split()) and left:
                found.setdefault(stat.path, []).append(number)
                left -= 1
    return found


def _verb(needle: str, before: str, after: str) -> str:
    """Returns in words how a change affects a text; an empty string if the file contains the text as often as
    before."""
    was, now = before.lower().count(needle), after.lower().count(needle)
    if was == now:
        return ""
    if not was:
        return "added to"
    if not now:
        return "removed from"
    return "occurs more often in" if now > was else "occurs less often in"


def _signed(count: int, sign: str) -> str:
    return "binary" if count < 0 else f"{sign}{count}"


MAX_REVERTS_READ = 200
"""Maximum number of reverts that are read, the newest ones."""


def reverts(memory: Memory) -> Mapping[str, Commit]:
    """Returns the commits that are reverted now, each with the commit that reverted it, newest first.

    Leaves out reverts that were reverted themselves. Raises Unavailable.
    """
    found: dict[str, Commit] = {}
    gone: set[str] = set()
    for commit, target in memory.git.past.reverts(MAX_REVERTS_READ):
        if commit.id not in gone:
            gone.add(target)
            found.setdefault(target, commit)
    return found


def reverted_commits(memory: Memory) -> list[Commit]:
    """Returns the commits that are reverted now, newest revert first, without reverts. Raises Unavailable."""
    found = list(reverts(memory))
    known = memory.git.past.commits(found)
    return [known[one] for one in found if one in known and not known[one].reverts]


async def revert_revert(memory: Memory, what: str, caller: Caller, *, apply: bool) -> Reverted:
    """Undoes a revert. `what` is the reverted commit or the revert itself.

    Raises NotFound if the commit was not reverted, and as `revert` does.
    """

    def asked() -> str:
        commit = memory.git.past.commit(what)
        by = reverts(memory)
        if commit.id in by:
            return by[commit.id].id
        if any(one.id == commit.id for one in by.values()):
            return commit.id
        raise NotFound(
            f"{what[:10]} ({commit.subject}) was not reverted; `context-manager history revert` reverts a commit"
        )

    return await revert(memory, await run_sync(asked), caller, apply=apply)


@dataclass(frozen=True, slots=True)
class Reverted:
    """The result of a revert; `commit` is the new commit, None if nothing was done."""

    reverts: str
    subject: str
    paths: tuple[str, ...]
    diff: str
    commit: str | None = None

    @property
    def markdown(self) -> str:
        head = f"{self.reverts[:10]} ({self.subject})"
        if not self.paths:
            return neutralise(f"nothing to do: {head} changed no knowledge, or its changes are gone already")
        done = f"reverted: {head}; undo: revert {self.commit[:10]}" if self.commit else f"would revert {head}"
        files = [f"{counted(len(self.paths), 'file')}:", *(f"- {path}" for path in self.paths)]
        return neutralise("\n".join([done, *files, "```diff", self.diff, "```"]))


async def revert(
    memory: Memory, commit: str, caller: Caller, *, apply: bool = False, only: Sequence[str] = ()
) -> Reverted:
    """Returns what reverting a commit would change; with `apply`, reverts it. `only` are the files and folders to
    revert; if it is empty, all are reverted.

    Raises:
        NotFound: no such commit, or it changed nothing in `only`.
        Refused: a merge; the same lines were changed since; files that only the user may change; staged changes.
        Unavailable: git is missing or busy.
    """
    if apply:  # later changes get a commit of their own, so that the revert has only its own change
        await commit_changes(memory, ask=False)
    paths = [memory.files.relative(path.rstrip("/")) for path in only]
    done = await retried(memory, lambda: _reverted(memory, commit, caller, apply, paths))
    for path in done.paths if done.commit else ():
        memory.changes.publish(Change("file", path))
    return done


def _is_in(path: str, places: Iterable[str]) -> bool:
    """Returns whether a path is one of these files, or in one of these folders."""
    return any(path == one or path.startswith(f"{one}/") for one in places)


def _reverted(memory: Memory, revision: str, caller: Caller, apply: bool, only: Sequence[str] = ()) -> Reverted | None:
    git, merger = memory.git, memory.git.merging
    git.check_free()
    commit = git.past.commit(revision)
    parents = git.past.parents(commit.id)
    if len(parents) > 1:
        raise Refused(f"{commit.id[:10]} is a merge commit; revert the commits that it merged, one by one")
    head = git.head()
    if head is None:
        raise NotFound("nothing was committed yet; there is nothing to revert")
    contested: set[str] = set()
    resolve = resolver(memory, head, commit.id, contested)
    parent = parents[0] if parents else git.past.empty_tree()

    def is_kept(path: str) -> bool:
        return not (_is_in(path, KNOWLEDGE) and (not only or _is_in(path, only)))

    plan = merger.plan(head, commit.id, parent, resolve, keep=is_kept)
    if only and not plan.changed:
        places = ", ".join(only)
        raise NotFound(
            f"{commit.id[:10]} changed nothing in {places} that can be reverted; without a path, all changes are shown"
        )
    if contested.intersection(plan.changed):
        names = ", ".join(sorted(contested.intersection(plan.changed))[:3])
        raise Refused(
            f"the same lines of {names} were changed since {commit.id[:10]}; "
            f"`recover PATH@{parents[0][:10] if parents else 'REV'}` brings a whole file back"
        )
    _check(memory, plan, caller)
    diff = memory.forgotten.clean(git.past.between(head, plan.tree, ())) if plan.changed else ""
    reverted = Reverted(commit.id, memory.forgotten.clean(commit.subject), tuple(sorted(plan.changed)), diff)
    if not apply or not plan.changed:
        return reverted
    refuse_staged(memory, plan)
    limit = f"\n\nOnly in {', '.join(only)}." if only else ""
    message = f'maintenance: revert "{commit.subject}"\n\nThis reverts commit {commit.id}.{limit}'
    merger.apply(plan, resolve)
    made = merger.commit(plan, [head], message)
    return None if made is None else replace(reverted, commit=made)


def _check(memory: Memory, plan: MergePlan, caller: Caller) -> None:
    """Raises Refused if the caller may not change one of the files, or if the revert brings forgotten text back."""
    for path, (_, new) in plan.changed.items():
        if caller.source != "cli" and memory.settings.knowledge.approve and is_for_own_hand(path):
            raise Refused(f"only the user may change {path}; ask the user to run `context-manager history revert`")
        data = memory.git.merging.content(path, new)
        text = None if data is None else data.decode("utf-8", "surrogateescape")
        if text is not None and memory.forgotten.document(path, text) != text:
            raise Refused(f"{path} would bring back text that was forgotten on request (forgotten.jsonl)")
