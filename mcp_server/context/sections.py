"""The parts of a compiled context: slots, sections, the rendering of stored text as data, and the receipt.

A `Slot` says how one kind of content is filled, a `Section` is its text. A new slot is a `fill` function, and an entry
in `compiler.FILL` and `compiler.SHOWN`. `<!-- slot: origin -->` begins a block; `neutralise` leaves no such opener in
stored text. The receipt lists the included and excluded candidates, with scores, tokens and reasons.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Any

from mcp_server.context.inputs import LEAST_BUDGET, CompileInputs
from mcp_server.model import Delivery, GateSignal, Passage, Turn, shown_name
from mcp_server.relevance.chunks import tool_line
from mcp_server.text.dates import written
from mcp_server.text.destinations import GENERAL_PAGE
from mcp_server.text.entries import DERIVED, is_derived, without_sources
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import without_comments
from mcp_server.text.prose import is_injected
from mcp_server.tokens import Meter, Room

RECEIPT_VERSION = 1
MOST_CONSIDERED = 200
OUTSIDE_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Considered:
    """A candidate. `id` is `path:start-end`, or `session#turn` for a turn of the session's own history. The id of a
    whole excluded file is its path, of excluded history `session#first-last`. `tokens` are those of the rendered text,
    0 if it was excluded before it was rendered. `reason` says why it is in or out, in words for a person. `score` is
    the product of `terms`; candidates are ordered by `score` less `charge`, which grows with their length. `whole` is
    False if only a part is shown."""

    id: str
    slot: str
    source: str
    included: bool
    reason: str
    tokens: int = 0
    score: float | None = None
    charge: float = 0.0
    terms: Mapping[str, float] = field(default_factory=dict)
    relevance: Mapping[str, float] = field(default_factory=dict)
    unit: str = ""
    turn: int | None = None
    whole: bool = True


@dataclass(frozen=True, slots=True)
class SlotAccount:
    """The tokens of a slot: in the text, its cap, and its floor, which was kept free for it."""

    name: str
    tokens: int
    cap: int
    floor: int
    included: int
    cut: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The account of one compilation. Σ tokens of `slots` + `separators` = `tokens` ≤ `budget`.

    `considered` holds at most 200 candidates, included ones first; `left_out` counts the others by reason. `too_small`:
    the budget was below `LEAST_BUDGET`. `generation` is the index of the hits, `messages` are its messages; they are
    not inputs.
    """

    sha256: str
    budget: int
    tokens: int
    delivery: Delivery
    session: str
    project: str
    slots: tuple[SlotAccount, ...]
    separators: int
    considered: tuple[Considered, ...]
    left_out: Mapping[str, int]
    gate: GateSignal | None
    too_small: bool = False
    generation: str = ""
    messages: tuple[str, ...] = ()
    version: int = RECEIPT_VERSION

    @property
    def markdown(self) -> str:
        """The receipt for a person or a model: tokens by slot, included and excluded candidates, and why."""
        return neutralise("\n".join([*self._head(), *self._slots(), *self._inside(), *self._outside()]))

    def _head(self) -> list[str]:
        lines = [f"# Receipt: {self.tokens:,} of {self.budget:,} tokens, delivery {self.delivery}"]
        lines += [f"The budget is below {LEAST_BUDGET} tokens, so needed parts were cut."] if self.too_small else []
        scope = [f"session {self.session}"] if self.session else []
        scope += [f"project {shown_name(self.project)}"] if self.project else []
        lines += [f"For {', '.join(scope)}."] if scope else []
        if self.gate is not None:
            sign = "open, ≥" if self.gate.open else "closed, <"
            lines.append(f"Gate: {self.gate.value:.3f} ({self.gate.signal}), {sign} {self.gate.threshold:.3f}.")
        index = f" Index {self.generation}." if self.generation else ""
        return [*lines, f"SHA-256 {self.sha256}.{index}", *self.messages]

    def _slots(self) -> list[str]:
        lines = ["", "## Tokens by slot", "", "| slot | tokens | at most | kept free | shown | in part |"]
        lines.append("|---|--:|--:|--:|--:|--:|")
        for one in self.slots:
            lines.append(f"| {one.name} | {one.tokens:,} | {one.cap:,} | {one.floor:,} | {one.included} | {one.cut} |")
        return [*lines, f"| between them | {self.separators:,} | | | | |"]

    def _inside(self) -> list[str]:
        shown = [one for one in self.considered if one.included]
        lines = [f"- {one.id} — {one.tokens:,} tokens, {one.reason}{_score(one)}" for one in shown]
        return ["", f"## In: {len(shown)}", "", *lines] if lines else ["", "## In: nothing"]

    def _outside(self) -> list[str]:
        kept_out = [one for one in self.considered if not one.included]
        reasons = Counter(one.reason for one in kept_out) + Counter(self.left_out)
        nearest = [one for one in kept_out if one.score is not None][:OUTSIDE_SHOWN]
        lines = ["", f"## Out: {reasons.total():,}", ""] if reasons else []
        lines += [f"- {count:,} × {reason}" for reason, count in reasons.most_common()]
        lines += ["", "The best of them:", ""] if nearest else []
        return [*lines, *(f"- {one.id} — {one.reason}{_score(one)}" for one in nearest)]


def _score(one: Considered) -> str:
    """Returns `, score 0.48 = relevance 0.8 × decay 0.6`, without factors of 1."""
    if one.score is None:
        return ""
    factors = [f"{name} {value:g}" for name, value in one.terms.items() if value != 1]
    product = f" = {' × '.join(factors)}" if len(factors) > 1 else ""
    if one.slot == "clarity":
        terms = " ".join(f"{name} {value:+g}" for name, value in one.relevance.items() if value)
        return f", score {one.score:g} = {terms}"
    charged = f", less {one.charge:g} for its length" if one.charge else ""
    return f", score {one.score:g}{product}{charged}"


def accounted(considered: Iterable[Considered]) -> tuple[tuple[Considered, ...], Mapping[str, int]]:
    """Returns at most 200 candidates, included ones first, and the number of the others by reason."""
    ordered = sorted(considered, key=lambda one: not one.included)
    return tuple(ordered[:MOST_CONSIDERED]), dict(Counter(one.reason for one in ordered[MOST_CONSIDERED:]))


ROW = ("id", "slot", "source", "turn", "tokens", "included", "reason")
"""The fields of a candidate that the log of pushes has."""


def rows_of(considered: Iterable[Considered]) -> list[dict[str, Any]]:
    """Returns the candidates of a receipt for the log of pushes."""
    return [{name: getattr(one, name) for name in ROW} for one in considered]


SEPARATOR = "\n\n"
NO_ROOM_IN_SHARE = "no room within its share"  # the reason of a candidate that a slot's cap leaves out

_EMPTY_HEADING = re.compile(r"^(#{1,6}) [^\n]*(?:\n\s*(?=(?!\1#)#{1,6} )|\s*\Z)", re.MULTILINE)
"""A heading, followed by nothing but a heading that is no deeper, or by the end."""

_DAY = re.compile(r"(\d{4}-\d{2}-\d{2}): ")
_LOOSE = re.compile(r"^([ \t]*[-*+] [^\n]*)\n\n(?=[ \t]*[-*+] )", re.MULTILINE)
"""A bullet and a blank line before the next one."""
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_LONGEST_NAME = 80
_LONGEST_TITLE = 48
_LONGEST_PATH = 300


def one_line(text: str, longest: int) -> str:
    """Returns stored text for a label or a header: neutralized, on one line, cut at a word with an ellipsis."""
    return _one_line(text[: 4 * longest], longest)


@lru_cache(maxsize=1024)  # titles, paths and names are repeated
def _one_line(text: str, longest: int) -> str:
    line = " ".join(neutralise(text).split())
    if len(line) <= longest:
        return line
    return line[:longest].rsplit(" ", 1)[0].rstrip(",;:.-– ") + "…"


def heading_of(name: str, shown: int, all_lines: int) -> str:
    """Returns the heading of a list, which says if not all of its lines are shown: "Decided (8 of 13):"."""
    return f"{name} ({shown} of {all_lines}):" if shown < all_lines else f"{name}:"


def label(slot: str, source: str) -> str:
    """Returns the comment that begins a section and names its source."""
    return f"<!-- {slot}: {one_line(source, 400).replace('>', '›')} -->"


def file_text(text: str) -> str:
    """Returns a workspace file's text, neutralized, with blanked comments and without marks of sources. Line numbers
    stay the same."""
    return neutralise(without_sources(without_comments(text))).rstrip()


def tight(text: str) -> str:
    """Returns the text without empty sections, repeated blank lines, and blank lines between bullets."""
    return _LOOSE.sub(r"\1\n", _BLANK_LINES.sub("\n\n", _EMPTY_HEADING.sub("", text))).strip("\n")


def indented(text: str) -> str:
    """Returns a text with its further lines indented, so that none looks like a header or another speaker's turn."""
    return _BLANK_LINES.sub("\n", text.strip("\n")).replace("\n", "\n ")


def speaker(role: str, name: str | None, text: str) -> str:
    """Returns the name of a turn's writer, or the role if there is no name; "program" for text that a program wrote
    under the user's name."""
    if role == "user" and is_injected(text):
        return "program"
    return one_line(name, _LONGEST_NAME) if name else role


def said(who: str, text: str) -> str:
    """Returns a turn as a line of a section. It is neutralized as a whole, because a person may be called "System"."""
    return neutralise(f"{who}: {indented(neutralise(text))}")


def turn_text(turn: Turn) -> str:
    """Returns a turn's text, and one line for each tool call."""
    calls = [f"> {tool_line(call)}" for call in turn.tool_calls]
    return "\n".join([turn.content, *calls] if turn.content else calls)


def group_header(passage: Passage, *, cut: bool, year: int | None = None) -> str:
    """Returns the line above what was found in one conversation or file on one day; with `cut`, it also says how to
    read the rest. With the `year` of today, the header of a conversation or of a line of a project's page is its day in
    few tokens ("14 September:", "14 September 2025:"), and that of other parts of the page its project."""
    path = one_line(passage.path, _LONGEST_PATH)
    day = passage.at.date().isoformat() if passage.at and not is_derived(passage.text) else ""
    is_said = passage.category == "conversation"
    if year is not None and (said_on := day_of_line(passage) or (day if is_said else "")):
        with suppress(ValueError):  # a person may have written a day that does not exist
            return f"{written(date.fromisoformat(said_on), year)}:"
    if year is not None and _is_of_project(passage):
        parts = [f"project {one_line(passage.path.split('/')[-2], _LONGEST_PATH)}", day]
    elif not is_said:
        parts = [path, day]
    else:
        parts = [day, one_line(passage.title, _LONGEST_TITLE), f"read {path}" if cut else ""]
    return f"[{' · '.join(filter(None, parts))}]"


def _is_of_project(passage: Passage) -> bool:
    return passage.category == "project" and passage.path.endswith("/context.md")


def day_of_line(passage: Passage) -> str:
    """Returns the day at the beginning of a line of a project's page, or of the page for no project; "" elsewhere."""
    is_of_page = passage.path == GENERAL_PAGE or _is_of_project(passage)
    dated = DERIVED.match(passage.text) if is_of_page else None
    return (dated[1] or "") if dated else ""


def passage_text(passage: Passage) -> str:
    """Returns a passage's text without marks of sources and without a section's heading, which is in its title."""
    if passage.category == "conversation":
        return passage.text
    if passage.text.startswith("#"):
        return passage.text.partition("\n")[2] or passage.text
    if not is_derived(passage.text):
        return passage.text
    text = without_sources(passage.text).removeprefix("- ")
    dated = _DAY.match(text)
    if dated is None or dated[1][:4] not in text[dated.end() :]:
        return text
    with suppress(ValueError):  # a line that names its day is shown without it
        text = text[dated.end() :] if written(date.fromisoformat(dated[1])) in text else text
    return text


def passage_line(passage: Passage, text: str, *, cut: bool) -> str:
    """Returns a passage as a line under its header: with its speaker, or with its lines in the file and its title."""
    lines = f"{passage.start}-{passage.end}"
    if passage.category == "conversation":
        who = speaker(passage.role or "user", passage.speaker, passage.text)
        return said(who, text) + (f" (lines {lines})" if cut else "")
    if is_derived(passage.text):  # it names its person and day itself
        return neutralise(indented(neutralise(text)))
    return said(f"{lines} {one_line(passage.title, 2 * _LONGEST_TITLE)}".rstrip(), text)


@dataclass(frozen=True, slots=True)
class Section:
    """The text of a slot, and the receipt's lines for everything that it considered. `lines` are the shown line numbers
    of files and `turns` the shown turns of the session, so that nothing is repeated."""

    text: str = ""
    considered: tuple[Considered, ...] = ()
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)
    turns: frozenset[int] = frozenset()


NOTHING = Section()


@dataclass(frozen=True, slots=True)
class Filling:
    """The arguments of `fill`: the inputs, the whole allowance in tokens, and the sections filled before."""

    inputs: CompileInputs
    allowance: int
    meter: Meter
    before: Mapping[str, Section]

    def shown_lines(self) -> Mapping[str, frozenset[int]]:
        """Returns for each file the line numbers that are already shown."""
        shown: dict[str, frozenset[int]] = {}
        for section in self.before.values():
            for path, lines in section.lines.items():
                shown[path] = shown.get(path, lines) | lines
        return shown


Fill = Callable[[Filling, Room], Section]


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot holds one kind of content, such as the journal. Slots of one `group` share its cap.

    `needs` names the input without which the slot is empty. `share` names the setting with the largest part of the
    allowance that the slot may take (default: all of it), `part` is the slot's part of that, unless `cap` gives the
    tokens. `floor` gives the tokens that earlier slots keep free for it (default: 0), `most_kb` names
    the setting with the most KB of its text (default: any number). Floors depend on the inputs and the safety line
    only. A slot that `grows` may exceed its cap with tokens that no other slot uses.
    """

    name: str
    group: str
    fill: Fill
    needs: str = ""
    share: str = ""
    part: float = 1.0
    cap: Callable[[Filling], int] | None = None
    floor: Callable[[Filling], int] | None = None
    most_kb: str = ""
    grows: bool = False
