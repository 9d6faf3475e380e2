"""The screen "What it knows": the lines of the pages with their sources, proposals, and changes by hand.

A change made here runs the function of the corresponding command: `review`, `approve` or `forget`. Each form contains a
hash of the line that it shows. If the line has changed since then, the change is refused with a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anyio.to_thread import run_sync
from starlette.responses import Response

from mcp_server.conversations.projects import list_projects
from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound
from mcp_server.forgetting.forget import ELSEWHERE, forget, git_sentences, plan_forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge import review
from mcp_server.knowledge.editing import NewFact
from mcp_server.knowledge.prune_knowledge import archive_files
from mcp_server.knowledge.remember import remember
from mcp_server.memory import Memory
from mcp_server.page.answer import ME, Page, Routes, mark_of, number_in
from mcp_server.page.passages import CONVERSATIONS, Passages, Words
from mcp_server.storage.files import is_untouched_template
from mcp_server.text.destinations import DECISIONS, ENDED, FACTS, GENERAL_PAGE, MEMORY, OPEN, PROJECTS, RULES
from mcp_server.text.entries import Entry, entries
from mcp_server.text.markdown import split_front_matter

SHOWN = 200
"""Lines shown at once."""

VIEWS = {
    "rules": "Rules",
    "decisions": "Decisions in force",
    "open": "Open items",
    "facts": "Facts",
    "people": "People",
    "memory": "Core memory",
    "identity": "Identity",
    "other": "Other",
    "ended": "Replaced and closed",
}
_SECTIONS = {RULES: "rules", DECISIONS: "decisions", OPEN: "open", FACTS: "facts"}
_KINDS = {RULES: "rule", DECISIONS: "decision", FACTS: "fact"}


@dataclass(frozen=True, slots=True)
class PageLine:
    """An entry of a page, at lines `first` to `last` of its file."""

    path: str
    entry: Entry
    first: int
    last: int

    @property
    def mark(self) -> str:
        """Returns a hash of the entry's text, which detects changes by others."""
        return mark_of(self.entry.text)

    @property
    def project(self) -> str:
        """Returns the slug of the entry's project, or "" if it has none."""
        return self.path.split("/")[2] if self.path.startswith(PROJECTS) and self.path.count("/") > 2 else ""

    @property
    def page_name(self) -> str:
        """Returns the name of the entry's page, as in `reference › general`."""
        return self.path.removeprefix("knowledge/").removesuffix(".md").replace("/", " › ")


async def show_lines(page: Page) -> Response:
    memory, query = page.memory, page.query
    view, project, words = query.get("view", ""), query.get("project", ""), query.get("q", "").strip()
    if view and view not in VIEWS:
        raise Invalid(f"view {view!r} is not one of {', '.join(VIEWS)}")
    found = await run_sync(_lines, memory)
    if project:
        found = [one for one in found if one.project == project]
    if words:
        folded = words.casefold()
        found = [one for one in found if folded in one.entry.said.casefold()]
    counts = dict.fromkeys(VIEWS, 0)
    for one in found:
        counts[view_of(one)] += 1
    view = view or next((name for name, count in counts.items() if count), "rules")
    chosen = sorted((one for one in found if view_of(one) == view), key=lambda one: one.entry.date, reverse=True)
    return page.show(
        "knows.html",
        lines=chosen[:SHOWN],
        hidden=max(0, len(chosen) - SHOWN),
        counts=counts,
        views=VIEWS,
        view=view,
        words=words,
        project=project,
        projects=[one.slug for one in await list_projects(memory)],
        waiting=await review.waiting(memory),
        pages=sorted({one.path for one in chosen}),
    )


def view_of(line: PageLine) -> str:
    if line.entry.section in ENDED:
        return "ended"
    if line.path.startswith("knowledge/people/"):
        return "people"
    if line.path == MEMORY:
        return "memory"
    if line.path.startswith("knowledge/identity/"):
        return "identity"
    return _SECTIONS.get(line.entry.section, "other")


def _lines(memory: Memory) -> list[PageLine]:
    """Returns the entries of all pages. Skips unreadable files and unchanged templates."""
    found: list[PageLine] = []
    for path in _paths(memory):
        try:
            text = memory.files.text_or_none(path) or ""
        except ContextManagerError:
            continue
        if is_untouched_template(path, text):
            continue
        split = split_front_matter(text)
        found += [_line(path, entry, split.body_line) for entry in entries(split.body) if entry.said]
    return found


def _paths(memory: Memory) -> Iterator[str]:
    for folder in (PROJECTS, "knowledge/people/", "knowledge/identity/"):
        for stat in memory.files.walk(folder):
            if stat.path.endswith(".md") and not stat.path.rpartition("/")[2].startswith("_"):
                yield stat.path
    yield from (GENERAL_PAGE, MEMORY)


def _line(path: str, entry: Entry, body_line: int) -> PageLine:
    return PageLine(path, entry, entry.start + body_line - 1, entry.end + body_line - 1)


def _find_line(memory: Memory, form: dict[str, str]) -> PageLine:
    """Returns the line that the parameters select. Raises Conflict if the line has changed since it was shown."""
    path, mark = memory.files.relative(form.get("path", "")), form.get("mark", "")
    split = split_front_matter(memory.files.text_or_none(path) or "")
    lines = (_line(path, entry, split.body_line) for entry in entries(split.body))
    same = [line for line in lines if line.mark == mark]
    if not same:
        raise Conflict("this line was changed or removed since you opened it; go back, and look at it again")
    return min(same, key=lambda line: abs(line.first - number_in(form.get("first"))))


# ---------------------------------------------------------------- changes


async def show_edit(page: Page) -> Response:
    """Returns the form that corrects a line or replaces it by a newer statement."""
    line = await run_sync(_find_line, page.memory, page.query)
    said = [await run_sync(Passages(page.memory).turn, str(source)) for source in line.entry.sources]
    return page.show(
        "edit.html", line=line, sources=[one for one in said if one], back=page.query.get("back", "/knows")
    )


async def change_line(page: Page) -> Response:
    """Writes the corrected line, or a newer statement that supersedes the line, or removes the line."""
    form = await page.form()
    line = await run_sync(_find_line, page.memory, form)
    if form.get("how") == "remove":
        if line.path == MEMORY and line.entry.sources:
            raise Invalid("this line is a copy of a line on another page; remove it there")
        await review.remove(page.memory, review.Unreviewed(line.path, line.entry))
        return page.back(form, "/knows", "Removed. The line is in the archive, and does not come back.")
    text = form.get("text", "").strip()
    if not text:
        raise Invalid("the text is empty; to delete a line, use “Remove it”")
    section = line.entry.section
    if form.get("how") == "supersede":
        newer = NewFact(
            text,
            kind=_KINDS.get(section, "fact"),
            project=line.project or "global",
            path=None if section in _KINDS and not line.path.startswith("knowledge/people/") else line.path,
            section=None if section in _KINDS else section,
            supersedes=f"{line.path}:{line.first}",
        )
        done = await remember(page.memory, newer, ME, approved=True)
        said = "The newer statement is in force. The older one is kept as replaced."
        return page.back(form, "/knows", " ".join((said, *done.notes)))
    await review.correct(page.memory, review.Unreviewed(line.path, line.entry), text)
    return page.back(form, "/knows", "Corrected.")


async def show_archive(page: Page) -> Response:
    path = page.query.get("path", "")
    return page.show(
        "archive.html", plan=await archive_files(page.memory, [path], True), file=path, back=page.query.get("back", "")
    )


async def archive(page: Page) -> Response:
    form = await page.form()
    done = await archive_files(page.memory, [form.get("path", "")], False)
    undo = f" To undo it: context-manager recover {done.undo[0]} --apply" if done.undo else ""
    return page.back(form, "/knows", f"{form.get('path')} is in the archive now.{undo}")


async def decide(page: Page) -> Response:
    """Approves or rejects a proposal. Raises Conflict if its diff differs from the one that was shown."""
    form = await page.form()
    number = form.get("id", "")
    if form.get("verdict") == "approve":
        (found,) = await review.waiting(page.memory, number)
        if form.get("mark") != found.mark:
            raise Conflict("this change differs from the one that you saw; go back, and look at it again")
        done = await review.approve(page.memory, number, anyway=found.changed)
        said = f"Approved: {done.path} is {done.action}."
    elif form.get("verdict") == "reject":
        said = f"Rejected: {(await review.reject(page.memory, number)).path} stays as it is."
    else:
        raise Invalid("the verdict is approve or reject")
    return page.back(form, "/knows", said)


# ---------------------------------------------------------------- forgetting


async def show_forget(page: Page) -> Response:
    """Returns the passage to forget at once. The page then loads the copies, because finding them can take long."""
    _, words = await run_sync(_target, page.memory, page.query)
    return page.show("forget.html", words=words, fields=_fields(page), back=page.query.get("back", "/now"))


async def show_copies(page: Page) -> Response:
    """Returns all copies of a passage, and the button that deletes them."""
    target, words = await run_sync(_target, page.memory, page.query)
    plan = await plan_forget(page.memory, target)
    return page.show(
        "_copies.html",
        plan=plan,
        mark=mark_of(words.text),
        sentences=[*git_sentences(plan, False), ELSEWHERE],
        fields=_fields(page),
        back=page.query.get("back", "/now"),
    )


def _fields(page: Page) -> dict[str, str]:
    return {name: page.query[name] for name in ("path", "line", "first", "last") if name in page.query}


async def forget_passage(page: Page) -> Response:
    """Deletes all copies of a passage. Raises Conflict if the passage has changed since it was shown."""
    form = await page.form()
    target, words = await run_sync(_target, page.memory, form)
    if form.get("mark") != mark_of(words.text):
        raise Conflict("these lines have changed since you saw them, and nothing was deleted; look at them again")
    done = await forget(page.memory, target)
    copies = sum(len(copy.places) for copy in done.copies)
    left = f" Not deleted: {'; '.join(done.left)}." if done.left else ""
    return page.back(form, "/now", f"Forgotten: {copies} places in {len(done.copies)} files.{left}")


def _target(memory: Memory, given: dict[str, str]) -> tuple[ForgetTarget, Words]:
    """Returns the target of `forget`, a message or lines of a file, and its text."""
    path = memory.files.relative(given.get("path", ""))
    passages = Passages(memory)
    if path.startswith(CONVERSATIONS):
        placed = passages.turn_at(path, number_in(given.get("line")))
        if placed is None:
            raise NotFound("this message no longer exists")
        words = Words(placed.turn.content, path, placed.start, placed.end, placed.turn.name or placed.turn.role)
        return ForgetTarget(turn=f"{memory.transcripts.head(path).session_id}#{placed.turn.number}"), words
    first, last = number_in(given.get("first")), number_in(given.get("last"))
    rows = passages.lines(path)[max(0, first - 1) : last] if first else []
    if not rows:
        raise NotFound("these lines no longer exist")
    return ForgetTarget(path=path, lines=(first, last)), Words("\n".join(rows), path, first, last)


ROUTES: Routes = (
    ("GET", "/knows", show_lines),
    ("GET", "/knows/edit", show_edit),
    ("POST", "/knows/edit", change_line),
    ("GET", "/knows/archive", show_archive),
    ("POST", "/knows/archive", archive),
    ("POST", "/knows/decide", decide),
    ("GET", "/forget", show_forget),
    ("GET", "/forget/copies", show_copies),
    ("POST", "/forget", forget_passage),
)
