"""What holds: standing rules, decisions in force and open items from the project's page, in every context.

A prompt rarely shares a word with the rule it needs ("set up the CI job" and "stay on Python 3.11"), so search cannot
be trusted to find it. These lines are short and simply stand there. If they do not all fit, each kind gets a share;
with a message, the lines that search found come first, otherwise the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_server.core.compiler.budget import Room
from mcp_server.core.compiler.inputs import CompileInputs, SourceFile
from mcp_server.core.compiler.receipt import Considered
from mcp_server.core.compiler.render import SEPARATOR, label
from mcp_server.core.compiler.section import NOTHING, Filling, Section, Slot
from mcp_server.core.lifecycle.changing import overtaken_lines
from mcp_server.core.lifecycle.lines import DERIVED, is_derived, without_sources
from mcp_server.core.lifecycle.places import CLOSED, DECISIONS, GENERAL_PAGE, OPEN, REPLACED, RULES
from mcp_server.core.text.fencing import neutralise
from mcp_server.core.text.markdown import sections

KINDS = ((RULES, "Rules", 0.25), (DECISIONS, "Decided", 0.6), (OPEN, "Open", 0.15))
"""Section of the page, its heading in the context, and its share of the room where not everything fits."""

SETTLED = frozenset((REPLACED, CLOSED))
"""Sections whose derived lines no context shows unless search finds them."""

SECTIONS = SETTLED.union(section for section, _, _ in KINDS)


@dataclass(frozen=True, slots=True)
class Held:
    """A line of the page: its section, its text without date and sources, and its line number in the file."""

    section: str
    text: str
    path: str
    line: int
    day: str


def is_page(path: str) -> bool:
    """Whether a file is a page that holds items: a project's context or the page of what belongs to no project."""
    return path == GENERAL_PAGE or (path.startswith("knowledge/projects/") and path.endswith("/context.md"))


def held(source: SourceFile) -> list[Held]:
    """Returns the derived lines of a page's item sections, in the order of the file.

    A line that a newer one takes back in its words ("no Redis: Postgres instead") counts as replaced.
    """
    found = []
    rows = source.text.split("\n")
    gone = overtaken_lines(source.text)
    for section in sections(source.text):
        if section.title not in SECTIONS:
            continue
        for place in range(section.start - 1, section.end):
            if is_derived(rows[place]) and (matched := DERIVED.match(rows[place])):
                text = without_sources(rows[place]).strip().removeprefix("- ").removeprefix(f"{matched[1]}: ")
                title = REPLACED if place in gone else section.title
                found.append(Held(title, text, source.path, source.first_line + place, matched[1] or ""))
    return found


def fill(filling: Filling, room: Room) -> Section:
    """Returns the lines that hold, as many as fit."""
    inputs, meter = filling.inputs, filling.meter
    lines = [one for source in inputs.files if is_page(source.path) and not source.untouched for one in held(source)]
    shown_sections = {section for section, _, _ in KINDS}
    kept = [one for one in lines if one.section in shown_sections and _applies(inputs, one)]
    if not kept:
        return NOTHING
    heading = label("what holds", ", ".join(dict.fromkeys(one.path for one in kept)))
    titles = {section: f"{title}:" for section, title, _ in KINDS}
    there = [(section, share) for section, _, share in KINDS if any(one.section == section for one in kept)]
    headings = sum(meter.line(titles[section]) for section, _ in there)
    left = room.tokens - meter.line(heading) - meter(SEPARATOR) - headings
    by_kind = {section: _ordered(inputs, [one for one in kept if one.section == section]) for section, _ in there}
    needs = [sum(meter.line(_shown(one)) for one in by_kind[section]) for section, _ in there]
    shares = _shares(needs, [share for _, share in there], max(0, left))
    shown: list[str] = []
    considered: list[Considered] = []
    for (section, _), room_here in zip(there, shares, strict=True):
        inside: list[Held] = []
        for one in by_kind[section]:
            tokens = meter.line(_shown(one))
            fits = tokens <= room_here
            room_here -= tokens if fits else 0
            inside += [one] if fits else []
            considered.append(_account(one, fits, tokens if fits else 0))
        if inside:
            inside.sort(key=lambda one: (one.path != GENERAL_PAGE, one.line))
            shown += [titles[section], *map(_shown, inside)]
    return Section("\n".join([heading, *shown]) if shown else "", tuple(considered))


def _applies(inputs: CompileInputs, one: Held) -> bool:
    """Within a project, what belongs to no project counts only if it is a rule."""
    return not inputs.project or one.path != GENERAL_PAGE or one.section == RULES


def _ordered(inputs: CompileInputs, lines: Sequence[Held]) -> list[Held]:
    """The lines that search found first, in its order, then the newest."""
    rank = {(hit.hit.passage.path, hit.hit.passage.start): place for place, hit in enumerate(inputs.hits)}
    newest = sorted(lines, key=lambda one: (one.day, one.line), reverse=True)
    return sorted(newest, key=lambda one: rank.get((one.path, one.line), len(rank)))


def _shown(one: Held) -> str:
    return f"- {neutralise(one.text)}"


def _shares(needs: Sequence[int], shares: Sequence[float], room: int) -> list[int]:
    """Divides the room by these shares; what one kind does not need, the others get, the first ones first."""
    given = [min(need, int(room * share)) for need, share in zip(needs, shares, strict=True)]
    for place, need in enumerate(needs):
        given[place] += min(need - given[place], room - sum(given))
    return given


def _account(one: Held, included: bool, tokens: int) -> Considered:
    return Considered(
        id=f"{one.path}:{one.line}-{one.line}",
        slot="what holds",
        source=one.path,
        included=included,
        reason="holds" if included else "no room within its share",
        tokens=tokens,
    )


HOLDING = Slot(
    "what holds", "what holds", fill, cap=lambda filling: filling.share(filling.inputs.settings.holding_share)
)
