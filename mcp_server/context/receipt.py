"""The receipt: the account of one compilation. What went in, what stayed out, with scores, tokens and why."""

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
    """One candidate. `id` is `path:start-end`, or `session#turn` for a turn of the session's own history; of what was
    kept out of a file or history as a whole, `path` and `session#first-last`.

    `tokens` is what it costs as rendered, 0 where it was ruled out before that mattered. `reason` says why it is in or
    out, in words a person knows. `score` is the product of `terms`; candidates come in by `score` less `charge`, which
    grows with their length. `whole` is False where only a part of it is shown.
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
    """What one slot took: its tokens in the text, the most it might have taken, and what was kept free for it."""

    name: str
    tokens: int
    cap: int
    floor: int
    included: int
    cut: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """Everything about one compilation. Σ tokens of `slots` + `separators` = `tokens` ≤ `budget`.

    `considered` holds at most 200 candidates, those that are in first; `left_out` counts the rest by reason. `inputs`
    holds one SHA-256 per input field. `too_small` says that the budget was below what a context needs. `generation`
    names the index that the hits came from, `messages` what it had to say: they are not inputs.
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
        """The receipt as JSON values."""
        return asdict(replace(self, inputs=dict(self.inputs)))

    @property
    def markdown(self) -> str:
        """The receipt as a person or a model reads it: where the tokens went, what is in, what stayed out and why."""
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
    """`, score 0.48 = relevance 0.8 × decay 0.6`; factors of 1 are left out."""
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
    """The first 200, those that are in before those that are not, and how many more there were for each reason."""
    ordered = sorted(considered, key=lambda one: not one.included)
    return tuple(ordered[:MOST_CONSIDERED]), dict(Counter(one.reason for one in ordered[MOST_CONSIDERED:]))
