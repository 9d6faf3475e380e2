"""P0 identity and P1 memory, journal, projects: workspace files that every context carries.

Files of one slot share its room so that small ones stay whole; what an earlier slot shows is not said again. What is
cut ends with a line that says which lines are left out and how to read them; those lines may still come in by relevance
(P3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import date, timedelta

from mcp_server.core.compiler.budget import (
    MOST_CHARACTERS_PER_TOKEN,
    UNLIMITED_BYTES,
    Meter,
    Room,
    kilobytes,
    shared_out,
)
from mcp_server.core.compiler.cut import beginning
from mcp_server.core.compiler.holding import SETTLED, held, is_page
from mcp_server.core.compiler.inputs import CompileInputs, CompilerSettings, SourceFile, Withheld
from mcp_server.core.compiler.receipt import Considered
from mcp_server.core.compiler.render import SEPARATOR, file_text, label, one_line, tight
from mcp_server.core.compiler.said import NO_LONGER_SO, SHOWN_ABOVE, repeats, said_above, without
from mcp_server.core.compiler.section import NOTHING, Filling, Section, Slot
from mcp_server.core.lifecycle.changing import overtaken_lines
from mcp_server.core.lifecycle.places import GENERAL_PAGE, PEOPLE_SECTIONS, USER_FILE
from mcp_server.core.text.markdown import sections, without_comments
from mcp_server.core.text.remembering import MEMORY as MEMORY_FILE

PROJECTS_FOLDER = "knowledge/projects/"
ACTIVE_FILE = "knowledge/projects/_active.md"
JOURNAL_FOLDER = "knowledge/journal/"
_IDENTITY_ORDER = ("SOUL.md", "USER.md", "AGENTS.md", "TOOLS.md")
NOT_ALWAYS = "not always shown: comes in where a message is about it"
_LEAST_TOKENS = 24
"""Below it a file's block would be little more than its label."""


def journal_files(local_date: str) -> tuple[str, str]:
    """The journals of the user's today and yesterday."""
    today = date.fromisoformat(local_date)
    return tuple(f"{JOURNAL_FOLDER}{day.isoformat()}.md" for day in (today, today - timedelta(days=1)))  # type: ignore[return-value]


def of_the_user(source: SourceFile) -> SourceFile:
    """What of the user's own file every context carries: who they are and how they want things, up to the first section
    that tells of days. Empty if it has neither."""
    lasting = (PEOPLE_SECTIONS["about"], PEOPLE_SECTIONS["preference"])
    titled = [one for one in sections(source.text) if one.level == 2]
    end = next((one.start for one in titled if one.title not in lasting), None)
    if not any(one.title in lasting for one in titled):
        end = 1
    if end is None or not source.text.strip():
        return source
    rest = Withheld(NOT_ALWAYS, source.first_line + end - 1, source.first_line + source.text.rstrip().count("\n"))
    return replace(source, text="\n".join(source.text.split("\n")[: end - 1]), withheld=(rest,))


def is_identity(inputs: CompileInputs, path: str) -> bool:
    return path.startswith("knowledge/identity/") or path == USER_FILE


def is_memory(inputs: CompileInputs, path: str) -> bool:
    return path == MEMORY_FILE


def is_journal(inputs: CompileInputs, path: str) -> bool:
    return path in journal_files(inputs.local_date)


def is_active(inputs: CompileInputs, path: str) -> bool:
    return path == ACTIVE_FILE


def is_project(inputs: CompileInputs, path: str) -> bool:
    return path == GENERAL_PAGE or (path.startswith(PROJECTS_FOLDER) and path.count("/") > 2)


def _order(source: SourceFile) -> tuple[int, str]:
    name = source.path.rsplit("/", 1)[-1]
    if name in _IDENTITY_ORDER:
        return _IDENTITY_ORDER.index(name), source.path
    return len(_IDENTITY_ORDER), source.path


def _of_slot(inputs: CompileInputs, belongs: Callable[[CompileInputs, str], bool]) -> list[SourceFile]:
    return sorted((source for source in inputs.files if belongs(inputs, source.path)), key=_order)


def _ruled_out(inputs: CompileInputs, source: SourceFile) -> str | None:
    """Why a file is not even looked at."""
    if source.untouched:
        return "template, not filled in"
    if not source.text.strip():
        return "empty"
    if source.path == MEMORY_FILE and inputs.kind != "main":
        return f"for main sessions only, this one is {inputs.kind}"
    return None


def _out(source: SourceFile, said: AbstractSet[str]) -> Mapping[int, str]:
    """Why lines of a file are out, by their places from 0: of a project's what is no longer so; what was said above."""
    gone = overtaken_lines(source.text) if source.path.startswith(PROJECTS_FOLDER) else frozenset()
    again = (place for place, line in enumerate(source.text.split("\n")) if repeats(line, said))
    items = held(source) if is_page(source.path) else []
    shown = {one.line - source.first_line: SHOWN_ABOVE for one in items if one.section not in SETTLED}
    settled = {one.line - source.first_line: NO_LONGER_SO for one in items if one.section in SETTLED}
    return dict.fromkeys(again, SHOWN_ABOVE) | dict.fromkeys(gone, NO_LONGER_SO) | shown | settled


def _says_something(text: str) -> bool:
    """Whether anything but headings is in a text."""
    return any(line.strip() and not line.startswith("#") for line in without_comments(text).split("\n"))


def _filler(name: str, belongs: Callable[[CompileInputs, str], bool]) -> Callable[[Filling, Room], Section]:
    """A `fill` function for the files that `belongs` says are this slot's."""

    def fill(filling: Filling, room: Room) -> Section:
        considered: list[Considered] = []
        wanted: list[Prepared] = []
        said = said_above(filling)
        for source in _of_slot(filling.inputs, belongs):
            reason = _ruled_out(filling.inputs, source)
            rest = source if reason else without(source, _out(source, said))
            if rest is not source and not _says_something(rest.text):
                reason = SHOWN_ABOVE
            considered += withheld(name, rest, reason)
            file = None if reason else prepared(name, rest)
            if file is not None:
                wanted.append(file)
            elif source.text.strip() or not source.withheld:
                considered.append(account(name, source, included=False, reason=reason or "empty"))
        blocks: list[str] = []
        lines: dict[str, int] = {}
        meter = filling.meter
        needs = [file.need(room, meter) for file in wanted]
        for file, tokens in zip(wanted, shared_out(needs, room.tokens), strict=True):
            spent = sum(len(block.encode("utf-8", "replace")) + len(SEPARATOR) for block in blocks)
            shown = file.within(Room(tokens, room.bytes - spent), meter)
            if shown is None:
                considered.append(account(name, file.source, included=False, reason="no room within its share"))
                continue
            blocks.append(shown.text)
            lines[file.source.path] = shown.last
            reason = "always shown" if shown.whole else "always shown, cut to its share"
            entry = account(name, file.source, included=True, reason=reason)
            considered.append(replace(entry, tokens=meter(shown.text), whole=shown.whole))
        return Section(SEPARATOR.join(blocks), tuple(considered), lines) if considered else NOTHING

    return fill


@dataclass(frozen=True, slots=True)
class Shown:
    """A file as a block: its label and as much of its text as fitted, down to line `last` of the file."""

    text: str
    last: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """A file ready to be shown: its label, and its text made safe, from line `source.first_line` of the file on."""

    source: SourceFile
    head: str
    text: str

    def need(self, room: Room, meter: Meter) -> int:
        """Tokens that the block would like to have; of one that cannot fit anyhow, all that there are."""
        if len(self.text) > room.tokens * MOST_CHARACTERS_PER_TOKEN:
            return room.tokens
        return meter.line(self.head) + meter.line(self.text) + meter(SEPARATOR)

    def within(self, room: Room, meter: Meter) -> Shown | None:
        """The block within this room; None if not enough of it fits."""
        inside = room.less(self.head, meter)
        shown = beginning(self.text, inside, meter, _mark(self.source, self.text))
        if not shown.text or (not shown.whole and inside.tokens < _LEAST_TOKENS):
            return None
        text = min(f"{self.head}\n{tight(shown.text)}", f"{self.head}\n{shown.text}", key=meter)
        return Shown(text, _first_left_out(self.source, self.text, shown.end) - 1, shown.whole)


def prepared(name: str, source: SourceFile) -> Prepared | None:
    """A file ready to be shown under the label `name`; None if nothing stands in it."""
    text = file_text(source.text)
    blank = len(text) - len(text.lstrip("\n"))
    if blank == len(text):
        return None
    shown = replace(source, text=source.text.split("\n", blank)[-1], first_line=source.first_line + blank)
    return Prepared(shown, label(name, source.path), text[blank:])


def _first_left_out(source: SourceFile, text: str, end: int) -> int:
    """The number in the file of the first line that is not shown whole, if `end` characters of its text are."""
    rest = text[end:]
    return source.first_line + text.count("\n", 0, len(text) - len(rest.lstrip())) + (0 if rest.strip() else 1)


def _mark(source: SourceFile, text: str) -> Callable[[int], str]:
    path = one_line(source.path, 300)
    last = source.first_line + text.count("\n")

    def mark(end: int) -> str:
        return f"[cut: lines {min(last, _first_left_out(source, text, end))}-{last} are left out; read {path}]"

    return mark


def account(slot: str, source: SourceFile, *, included: bool, reason: str) -> Considered:
    """A file's line in the receipt."""
    last = source.first_line + source.text.count("\n")
    return Considered(f"{source.path}:{source.first_line}-{last}", slot, source.path, included, reason)


def withheld(slot: str, source: SourceFile, reason: str | None = None) -> Iterator[Considered]:
    """What was left out of a file's text, for the receipt; not what is out for the `reason` that all of the file is."""
    for one in source.withheld:
        if one.reason != reason:
            lines = f":{one.start}-{one.end}" if one.end else ""
            yield Considered(f"{source.path}{lines}", slot, source.path, False, one.reason)


def _floor(belongs: Callable[[CompileInputs, str], bool], part: float) -> Callable[[Filling], int]:
    """A part of P1's share that earlier files of P1 leave free for these, if there are any."""

    def floor(filling: Filling) -> int:
        there = any(_ruled_out(filling.inputs, source) is None for source in _of_slot(filling.inputs, belongs))
        return int(_memory_cap(filling) * part) if there else 0

    return floor


def _identity_cap(filling: Filling) -> int:
    return filling.share(filling.inputs.settings.identity_share)


def _memory_cap(filling: Filling) -> int:
    return filling.share(filling.inputs.settings.memory_share)


def _slot(
    name: str,
    belongs: Callable[[CompileInputs, str], bool],
    most_kb: Callable[[CompilerSettings], float] | None = None,
    *,
    group: str = "P1",
    cap: Callable[[Filling], int] = _memory_cap,
    least: float = 0.0,
) -> Slot:
    """The slot of some files: `most_kb` caps their text, `least` is the part of P1's share kept free for them."""
    return Slot(
        name,
        group,
        _filler(name, belongs),
        cap=cap,
        floor=_floor(belongs, least),
        most_bytes=lambda filling: kilobytes(most_kb(filling.inputs.settings)) if most_kb else UNLIMITED_BYTES,
    )


IDENTITY = _slot("identity", is_identity, lambda knobs: knobs.identity_kb, group="identity", cap=_identity_cap)
MEMORY = _slot("memory", is_memory, lambda knobs: knobs.memory_kb)
JOURNAL = _slot("journal", is_journal, lambda knobs: knobs.journal_kb, least=0.2)
ACTIVE_PROJECTS = _slot("active projects", is_active, lambda knobs: knobs.active_projects_kb, least=0.1)
PROJECT = _slot("project", is_project, least=0.3)
