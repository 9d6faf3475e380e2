"""Decides what of the memory is pushed with a prompt: candidates whose expected worth is more than their tokens cost.

    estimate = 1 / (1 + exp(−Σ weight × feature))     the probability that a candidate holds what the prompt needs
    nothing goes in unless the best estimate ≥ LEAST_BEST
    then goes in    if estimate ≥ PRICE × (tokens + FRAME)    best first, while the allowance of tokens lasts

Candidates are lines of the project's page (rules, decisions in force, facts, open items) and passages of conversations
and other files. Many prompts need nothing of the memory: "rename this variable", or a question about another project.
Each finds some lines that are a little likely; what tells such prompts is that not even the best candidate is likely.
Once one is, further candidates cost little: a missing fact is a wrong answer, and sixty tokens are 0.03% of a window.

Out whatever they score: what the window holds already, notes of the system, identity and topics (they come by
themselves), and what says no more than the prompt.

`benchmarks/fit_push.py` fits WEIGHTS on 39 labeled working conversations (31 of them are in
`benchmarks/conversations/train`) and the development halves of LoCoMo and BEAM: 6,200 prompts, most of which need
nothing that the memory holds. AUC on conversations left out of the fitting, in five folds: .82 (working conversations),
.91 (LoCoMo), .92 (BEAM).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from mcp_server.context.window_text import NO_SUBJECT as NO_SUBJECT  # callers of the policy use both
from mcp_server.context.window_text import asks_nothing as asks_nothing
from mcp_server.context.window_text import fingerprints as fingerprints
from mcp_server.context.window_text import is_the_clients as is_the_clients
from mcp_server.context.window_text import subject_words as subject_words
from mcp_server.context.window_text import was_sent as was_sent
from mcp_server.knowledge.places import CLOSED, REPLACED
from mcp_server.model import GateSignal, Hit, Passage
from mcp_server.search.ranking import RankingWeights, ends_with_question
from mcp_server.text.derived_lines import is_derived
from mcp_server.text.passages import own_text
from mcp_server.text.words import TALK_WORDS, bounded, content_words
from mcp_server.understanding.features import content_stems, subject_stems, word_list

LEAST_BEST = 0.04
"""Nothing is pushed with a prompt unless the best candidate is estimated so high."""

PRICE, FRAME = 0.00012, 40
"""The price of a token, as a probability, and the tokens that are added to the cost of each candidate. A passage of 90
tokens is pushed if its estimate is at least .016."""

BUDGET_LEAST_BEST, BUDGET_PRICE = 0.01, 0.00003
"""LEAST_BEST and PRICE for a compiled context. Its budget was chosen by the caller, so a token costs a quarter."""

MAX_LINES, MAX_PASSAGES = 60, 20
"""Candidates of either kind that are judged."""

MAX_PASSAGE_TOKENS = 80
"""A longer passage is shown by its relevant part."""

HEADING = 28
"""Tokens of what stands above all that is pushed: the line that says it is data, and a label."""

HEADER = 8
"""Tokens of the day above what was found in a conversation, and of the speaker's name."""

LONGEST_READ = 1_000
"""Characters of a candidate whose words are compared with the prompt."""

WEIGHTS_OF_SEARCH = RankingWeights()

CHARACTERS_PER_TOKEN = 4.2

ECHO = 0.7
"""A passage with so large a share of its content words in the message tells nothing that the message does not."""

LONGEST = 9_500
"""Characters of one injection: over 10,000 the client makes a file of it."""

SENT_BEFORE = "sent before: this window has it"

WEIGHTS: Mapping[str, float] = {
    "around": 1.61,
    "asks": -0.32,
    "best cosine": -2.31,
    "best coverage": -1.98,
    "bias": -1.57,
    "code": -0.67,
    "gate": 7.21,
    "line": -3.73,
    "line above usual": 3.53,
    "line cosine": 2.43,
    "line coverage": 2.28,
    "line rank": -0.39,
    "line score": -0.98,
    "passage": -4.74,
    "passage above usual": 2.13,
    "passage cosine": 0.05,
    "passage coverage": 1.50,
    "passage rank": -0.64,
    "passage score": 4.03,
    "repeats": 0.26,
    "shared words": 0.34,
    "shares a word": -0.31,
    "subject words": 0.11,
    "task": -0.76,
    "unknown words": -0.19,
}
"""Weights of the features that `features` names."""

_TASK = re.compile(
    r"\W*(?:please |can you |could you )?(?:write|explain|rename|fix|sort|turn|convert|translate|format|rewrite"
    r"|summari[sz]e|show|run|git|what(?:'s| is| are| does| do) (?:the (?:difference|meaning|syntax)|an? |\W)"
    r"|how do (?:i|you)\b)",
    re.IGNORECASE,
)
"""How prompts begin that ask for something general, which no memory is needed for."""


_STATEMENT = re.compile(r"(?:\S+\s+){3}[^?]*?[.!](?:\s|$)")
"""A sentence of four words or more that is no question."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate that was considered. `worth` is its estimate, 0 to 1; `reason` says in words why it is in or out."""

    hit: Hit
    worth: float
    included: bool
    reason: str

    @property
    def id(self) -> str:
        """`path:start-end`, as receipts name it."""
        passage = self.hit.passage
        return f"{passage.path}:{passage.start}-{passage.end}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hit with its features, and the stems of its content words."""

    hit: Hit
    features: Mapping[str, float]
    stems: frozenset[str]

    @property
    def worth(self) -> float:
        """Returns the probability that the hit holds what the prompt needs."""
        total = sum(WEIGHTS.get(name, 0.0) * value for name, value in self.features.items())
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


def choose(
    message: str,
    lines: Sequence[Hit],
    passages: Sequence[Hit],
    gate: GateSignal,
    sent: Collection[str],
    out: Mapping[str, str],
    allowance: int,
) -> tuple[Judged, ...]:
    """Returns the candidates, best first, with the decision on each.

    Args:
        lines: hits among the lines of the project's page, best first.
        passages: hits among everything, best first; lines of the page among them are passed over.
        sent: fingerprints of what the window holds.
        out: by `path:line`, why a candidate is out whatever it scores.
        allowance: tokens that may be spent.
    """
    subject = subject_words(message)
    worths = [(one.worth, one) for one in candidates(message, lines, passages, gate)]
    opened = any(worth >= LEAST_BEST and not why_out(one.hit.passage, subject, sent, out) for worth, one in worths)
    judged: list[Judged] = []
    said: list[frozenset[str]] = []
    left = allowance
    for worth, one in sorted(worths, key=lambda pair: -pair[0]):
        tokens = cost(one.hit.passage)
        price = PRICE * (tokens + FRAME)
        reason = why_out(one.hit.passage, subject, sent, out)
        if not reason and not opened:
            reason = f"nothing is likely enough to be needed ({worth:.3f} < {LEAST_BEST})"
        if not reason and worth < price:
            reason = f"worth less than its {tokens} tokens ({worth:.3f} < {price:.3f})"
        if not reason and any(len(one.stems & other) >= 0.8 * len(one.stems) for other in said):
            reason = "says no more than what goes in"
        if not reason and tokens > left:
            reason = "no room left"
        if not reason:
            left -= tokens
            said.append(one.stems)
        judged.append(Judged(one.hit, worth, not reason, reason or f"worth its tokens ({worth:.2f})"))
    return tuple(judged)


def worthwhile(message: str, hits: Sequence[Hit], gate: GateSignal) -> frozenset[int]:
    """Returns the places of the hits, best first, that are expected to be worth their tokens in a compiled context."""
    if asks_nothing(message) is not None:
        return frozenset()
    subject = subject_words(message)
    places = {id(hit): place for place, hit in enumerate(hits)}
    lines = [hit for hit in hits if is_derived(hit.passage.text)]
    others = [hit for hit in hits if not is_derived(hit.passage.text)]
    worths = [
        (one.worth, one.hit)
        for one in candidates(message, lines, others, gate)
        if not why_out(one.hit.passage, subject, (), {})
    ]
    if all(worth < BUDGET_LEAST_BEST for worth, _ in worths):
        return frozenset()
    return frozenset(places[id(hit)] for worth, hit in worths if worth >= BUDGET_PRICE * (cost(hit.passage) + FRAME))


def candidates(message: str, lines: Sequence[Hit], passages: Sequence[Hit], gate: GateSignal) -> list[Candidate]:
    """Returns the hits that are judged, with their features: of each its place and scores in the search and the words
    that it shares with the prompt; of the prompt how much of it the memory knows."""
    pages = {hit.passage.path for hit in lines}
    others = [hit for hit in passages if not (hit.passage.path in pages and is_derived(hit.passage.text))]
    asked = subject_stems(bounded(message))
    ranked = [
        (hit, rank, is_line, content_stems(word_list(own_text(hit.passage)[:LONGEST_READ])))
        for is_line, hits in ((True, lines[:MAX_LINES]), (False, others[:MAX_PASSAGES]))
        for rank, hit in enumerate(hits)
    ]
    known = asked & frozenset().union(*(stems for *_, stems in ranked))
    usual = median([hit.cosine or 0.0 for hit in others[:MAX_PASSAGES]] or [0.0])
    prompt = {
        "bias": 1.0,
        "gate": gate.value,
        "task": float(_TASK.match(message) is not None),
        "code": float("`" in message or "\n" in message.strip()),
        "subject words": math.log(1 + len(asked)),
        "unknown words": float(min(5, len(asked) - len(known))),
        "best cosine": max((hit.cosine or 0.0 for hit, *_ in ranked), default=0.0),
        "best coverage": max((_coverage(hit) for hit, *_ in ranked), default=0.0),
    }
    return [
        Candidate(hit, prompt | _features(hit, rank, len(asked & stems), usual, is_line=is_line), stems)
        for hit, rank, is_line, stems in ranked
    ]


def _features(hit: Hit, rank: int, shared: int, usual: float, *, is_line: bool) -> dict[str, float]:
    """Returns the features of a hit. `shared` counts the words that it shares with the prompt, `usual` is the median of
    the cosines of all passages found."""
    passage = hit.passage
    derived = is_derived(passage.text)
    written = passage.category not in ("conversation", "journal") and not derived
    kind = "line" if is_line or written else "passage"  # what somebody wrote down counts as a line of the page does
    cosine = hit.cosine or 0.0
    return {
        kind: 1.0,
        f"{kind} rank": math.log(rank + 1),
        f"{kind} score": hit.score,
        f"{kind} cosine": cosine,
        f"{kind} above usual": cosine - usual,
        f"{kind} coverage": _coverage(hit),
        "around": hit.terms.get("around", 0.0) / WEIGHTS_OF_SEARCH.around,
        "shares a word": float(shared > 0),
        "shared words": float(min(shared, 3)),
        "repeats": float(kind == "passage" and derived),
        "asks": float(ends_with_question(own_text(passage))),
    }


def _coverage(hit: Hit) -> float:
    """Returns the share of the prompt's words, by their rarity, that stand in a hit."""
    return hit.terms.get("coverage", 0.0) / WEIGHTS_OF_SEARCH.coverage


def cost(passage: Passage) -> int:
    """Returns the tokens that a passage costs as it would be shown, by its characters; a turn also by its header."""
    header = HEADER if passage.category == "conversation" else 0
    return min(MAX_PASSAGE_TOKENS, round(len(own_text(passage)) / CHARACTERS_PER_TOKEN) + 2) + header


def why_out(passage: Passage, subject: frozenset[str], sent: Collection[str], out: Mapping[str, str]) -> str:
    """Returns why a passage is out whatever it scores, or ""."""
    reason = out.get(f"{passage.path}:{passage.start}") or _tells_nothing(passage, subject)
    return reason or (SENT_BEFORE if was_sent(own_text(passage), sent) else "")


def _tells_nothing(passage: Passage, subject: frozenset[str]) -> str | None:
    """Returns why a passage has nothing to tell here, or None."""
    if passage.role == "system":
        return "a note of the system"
    if passage.category in ("identity", "topic"):
        return f"{passage.category}: comes by itself"
    if passage.title.rsplit(" › ", 1)[-1] in (REPLACED, CLOSED):
        return "no longer so"
    if ends_with_question(own_text(passage)) and not _STATEMENT.search(own_text(passage)):
        return "only a question"
    said = frozenset(content_words(own_text(passage))) - TALK_WORDS
    return "says no more than the message" if len(said & subject) >= ECHO * len(said) else None


def visible_line(passages: int, tokens: int, what: str = "", topics: Sequence[str] = ()) -> str:
    """What the user sees of an injection: `memory: 2 passages, topic email-triage, 310 tokens`."""
    counted = [what] if what else []
    if not what and (passages or not topics):
        counted.append(f"{passages} passage{'' if passages == 1 else 's'}")
    if topics:
        counted.append(f"topic{'' if len(topics) == 1 else 's'} {', '.join(topics)}")
    return f"memory: {', '.join(counted)}, {tokens:,} tokens"
