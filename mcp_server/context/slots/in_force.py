"""Rules, decisions in force, facts and open items of the project's page, in every context.

A prompt rarely shares a word with the rule it needs ("set up the CI job" and "stay on Python 3.11"), so these lines
need no match. If they do not all fit, each kind gets a share of the room; short and new lines come first. With a
message, the lines come in the order in which search ranks them for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_server.context.inputs import CompileInputs
from mcp_server.context.receipt import Considered
from mcp_server.context.render import SEPARATOR, label
from mcp_server.context.slots import NOTHING, Filling, Section, Slot
from mcp_server.model import SourceFile
from mcp_server.text.derived_lines import DERIVED, is_derived, without_sources
from mcp_server.text.destinations import DECISIONS, ENDED, FACTS, GENERAL_PAGE, OPEN, REPLACED, RULES, is_page
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import sections
from mcp_server.text.words import words
from mcp_server.tokens import Room
from mcp_server.understanding.changing import overtaken_lines

KINDS = ((RULES, "Rules", 0.5), (DECISIONS, "Decided", 0.35), (OPEN, "Open", 0.15), (FACTS, "Facts", 0.0))
"""Section of the page, its heading in the context, and its share of the room if not everything fits.

Half of the room is for rules, because search rarely finds a rule for the prompt that it applies to. Facts get the rest.
With a message, all but the rules share the room by their rank.
"""

LENGTH_STEP = 80
"""Characters. Without a message, lines shorter than this come before lines shorter than twice this, and so on; among
lines of about one length the newest come first. Short lines say more per token, and search finds a long line for a
later prompt more easily than a short one (`benchmarks push`, eight conversations: prompts met in full .49, so .54)."""

SECTIONS = ENDED.union(section for section, _, _ in KINDS)


@dataclass(frozen=True, slots=True)
class PageLine:
    """A line of the page: its section, its text without date and sources, and its line number in the file."""

    section: str
    text: str
    path: str
    line: int
    day: str


def page_lines(source: SourceFile) -> list[PageLine]:
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
                found.append(PageLine(title, text, source.path, source.first_line + place, matched[1] or ""))
    return found


def fill(filling: Filling, room: Room) -> Section:
    """Returns the lines in force, as many as fit."""
    inputs, meter = filling.inputs, filling.meter
    lines = [
        one for source in inputs.files if is_page(source.path) and not source.untouched for one in page_lines(source)
    ]
    titles = {section: f"{title}:" for section, title, _ in KINDS}
    told = _told(inputs)
    kept = [one for one in lines if one.section in titles and _applies(inputs, one) and not _is_told(one, told)]
    if not kept:
        return NOTHING
    heading = label("what holds", ", ".join(dict.fromkeys(one.path for one in kept)))
    headings = sum(meter.line(titles[section]) for section in {one.section for one in kept})
    left = max(0, room.tokens - meter.line(heading) - meter(SEPARATOR) - headings)
    tokens = {one: meter.line(_shown(one)) for one in kept}
    pools = _pools(inputs, kept)
    needs = [sum(tokens[one] for one in pool) for pool, _ in pools]
    inside: set[PageLine] = set()
    spare = 0
    for (pool, _), pool_room in zip(pools, _shares(needs, [share for _, share in pools], left), strict=True):
        spare += pool_room
        for one in pool:
            if tokens[one] <= spare:
                spare -= tokens[one]
                inside.add(one)
    for one in (one for pool, _ in pools for one in pool if one not in inside):
        if tokens[one] <= spare:  # the rest of the shares
            spare -= tokens[one]
            inside.add(one)
    shown: list[str] = []
    for section, title in titles.items():
        here = [one for one in kept if one.section == section and one in inside]
        here.sort(key=lambda one: (one.path != GENERAL_PAGE, one.line))
        shown += [title, *map(_shown, here)] if here else []
    considered = tuple(_account(one, one in inside, tokens[one]) for pool, _ in pools for one in pool)
    return Section("\n".join([heading, *shown]) if shown else "", considered)


def _pools(inputs: CompileInputs, kept: Sequence[PageLine]) -> list[tuple[list[PageLine], float]]:
    """Returns the lines that compete for the same share of the room, best first, each pool with its share."""
    newest = sorted(kept, key=lambda one: (one.day, one.line), reverse=True)
    if not inputs.page_order:
        newest.sort(key=lambda one: len(one.text) // LENGTH_STEP)
        by_kind = [([one for one in newest if one.section == section], share) for section, _, share in KINDS]
        return [(pool, share) for pool, share in by_kind if pool]
    rank = {line: place for place, line in enumerate(inputs.page_order)}
    ranked = sorted(newest, key=lambda one: rank.get(f"{one.path}:{one.line}", len(rank)))
    rules = [one for one in ranked if one.section == RULES]
    return [(rules, KINDS[0][2]), ([one for one in ranked if one.section != RULES], 1 - KINDS[0][2])]


def _told(inputs: CompileInputs) -> list[frozenset[str]]:
    """Returns the words of each item that the section of the checkpoint shows."""
    stood = inputs.checkpoint
    texts = (*stood.decisions, *stood.rules, *stood.open_items, stood.next_step) if stood else ()
    return [frozenset(words(text)) for text in texts]


def _is_told(one: PageLine, told: Sequence[frozenset[str]]) -> bool:
    """Returns whether one item has all words of a line: the page has a shorter form of long items."""
    said = frozenset(words(one.text))
    return any(said <= text for text in told)


def _applies(inputs: CompileInputs, one: PageLine) -> bool:
    """Returns whether a line applies. Within a project, lines of no project apply only if they are rules."""
    return not inputs.project or one.path != GENERAL_PAGE or one.section == RULES


def _shown(one: PageLine) -> str:
    return f"- {neutralise(one.text)}"


def _shares(needs: Sequence[int], shares: Sequence[float], room: int) -> list[int]:
    """Returns the room divided by these shares. The rest of one kind goes to the others, the first ones first."""
    given = [min(need, int(room * share)) for need, share in zip(needs, shares, strict=True)]
    for place, need in enumerate(needs):
        given[place] += min(need - given[place], room - sum(given))
    return given


def _account(one: PageLine, included: bool, tokens: int) -> Considered:
    return Considered(
        id=f"{one.path}:{one.line}-{one.line}",
        slot="what holds",
        source=one.path,
        included=included,
        reason="in force" if included else "no room within its share",
        tokens=tokens if included else 0,
    )


IN_FORCE = Slot(
    "what holds", "what holds", fill, cap=lambda filling: filling.share(filling.inputs.settings.holding_share)
)
