"""The receipt of a compilation: the included and excluded candidates, with scores, tokens and reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mcp_server.context.inputs import LEAST_BUDGET
from mcp_server.model import Delivery, GateSignal
from mcp_server.project import shown_name
from mcp_server.text.fencing import neutralise

RECEIPT_VERSION = 1
MOST_CONSIDERED = 200
OUTSIDE_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Considered:
    """A candidate. `id` is `path:start-end`, or `session#turn` for a turn of the session's own history.

    The id of a whole excluded file is its path, of excluded history `session#first-last`. `tokens` are those of the
    rendered text, 0 if it was excluded before it was rendered. `reason` says why it is in or out, in words for a
    person. `score` is the product of `terms`; candidates are ordered by `score` less `charge`, which grows with their
    length. `whole` is False if only a part is shown.
    """

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

    `considered` holds at most 200 candidates, included ones first; `left_out` counts the others by reason. `inputs`
    holds a SHA-256 of each input field. `too_small`: the budget was below `LEAST_BUDGET`. `generation` is the index of
    the hits, `messages` are its messages; they are not inputs.
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
    inputs: Mapping[str, str]
    too_small: bool = False
    generation: str = ""
    messages: tuple[str, ...] = ()
    version: int = RECEIPT_VERSION

    def to_json(self) -> dict[str, Any]:
        """Returns the receipt as JSON values."""
        return asdict(replace(self, inputs=dict(self.inputs)))

    @property
    def markdown(self) -> str:
        """The receipt for a person or a model: tokens by slot, included and excluded candidates, and why."""
        return neutralise("\n".join([*self._head(), *self._slots(), *self._inside(), *self._outside()]))

    def _head(self) -> list[str]:
        lines = [f"# Receipt: {self.tokens:,} of {self.budget:,} tokens, delivery {self.delivery}"]
        lines += [f"The budget is below {LEAST_BUDGET} tokens: what a context needs was cut."] if self.too_small else []
        scope = [f"session {self.session}"] * bool(self.session) + [f"project {shown_name(self.project)}"] * bool(
            self.project
        )
        lines += [f"For {', '.join(scope)}."] if scope else []
        if self.gate is not None:
            sign = "open, ≥" if self.gate.open else "closed, <"
            lines.append(f"Gate: {self.gate.value:.3f} ({self.gate.signal}), {sign} {self.gate.threshold:.3f}.")
        index = f" Index {self.generation}." if self.generation else ""
        return [*lines, f"SHA-256 {self.sha256}.{index}", *self.messages]

    def _slots(self) -> list[str]:
        lines = [
            "",
            "## Tokens by slot",
            "",
            "| slot | tokens | at most | kept free | shown | in part |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        for slot in self.slots:
            lines.append(
                f"| {slot.name} | {slot.tokens:,} | {slot.cap:,} | {slot.floor:,} | {slot.included} | {slot.cut} |"
            )
        return [*lines, f"| between them | {self.separators:,} | | | | |"]

    def _inside(self) -> list[str]:
        shown = [one for one in self.considered if one.included]
        lines = [f"- {one.id} — {one.tokens:,} tokens, {one.reason}{_score(one)}" for one in shown]
        return ["", f"## In: {len(shown)}", "", *lines] if lines else ["", "## In: nothing"]

    def _outside(self) -> list[str]:
        kept_out = [one for one in self.considered if not one.included]
        reasons = Counter(one.reason for one in kept_out) + Counter(self.left_out)
        if not reasons:
            return []
        lines = [f"- {count:,} × {reason}" for reason, count in reasons.most_common()]
        nearest = [one for one in kept_out if one.score is not None][:OUTSIDE_SHOWN]
        named = [f"- {one.id} — {one.reason}{_score(one)}" for one in nearest]
        return [
            "",
            f"## Out: {reasons.total():,}",
            "",
            *lines,
            *(["", "The best of them:", "", *named] if named else []),
        ]


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
