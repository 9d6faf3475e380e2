"""Decides what of the memory is pushed with a prompt: candidates whose expected worth is more than their tokens cost.

    estimate = 1 / (1 + exp(−Σ weight × feature))     the probability that a candidate holds what the prompt needs
    goes in  if estimate ≥ PRICE × (tokens + FRAME)   best first, while the allowance of tokens lasts

Candidates are lines of the project's page (rules, decisions in force, facts, open items) and passages of conversations
and other files. A line of 20 tokens costs a quarter of a turn of 80, so lines go first where both say the same. There
is no gate: a missing fact is a wrong answer, and sixty tokens are 0.03% of a window.

Out whatever they score: what the window holds already, notes of the system, identity and topics (they come by
themselves), and what says no more than the prompt.

The weights were fitted on 1,900 labeled prompts of 39 working conversations, of which a quarter belong to another
conversation (AUC .79 on left-out conversations).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from mcp_server.core.lifecycle.lines import is_derived
from mcp_server.core.lifecycle.places import CLOSED, REPLACED
from mcp_server.core.model import GateSignal, Hit, Passage
from mcp_server.core.scoring.ranking import ends_with_question
from mcp_server.core.text.passages import own_text
from mcp_server.core.text.window_text import NO_SUBJECT as NO_SUBJECT  # callers of the policy use both
from mcp_server.core.text.window_text import asks_nothing as asks_nothing
from mcp_server.core.text.window_text import fingerprints as fingerprints
from mcp_server.core.text.window_text import is_the_clients as is_the_clients
from mcp_server.core.text.window_text import subject_words as subject_words
from mcp_server.core.text.window_text import was_sent as was_sent
from mcp_server.core.text.words import TALK_WORDS, content_words
from mcp_server.core.understanding.features import content_stems, subject_stems, word_list

PRICE, FRAME = 0.0002, 60
"""What a token costs, as a probability, and the tokens of a header that each candidate is charged with: a passage of
100 tokens goes in from an estimate of .032 on."""

BUDGET_PRICE = 0.00005
"""What a token of a budget costs that a caller asked for: room that stays empty is of no use to anybody."""

MAX_LINES, MAX_PASSAGES = 60, 12
"""Candidates of either kind that are judged for a prompt."""

MAX_BUDGET_PASSAGES = 40
"""Passages that are judged for a compiled context."""

MAX_PASSAGE_TOKENS = 120
"""A longer passage is shown by its relevant part."""

CHARACTERS_PER_TOKEN = 4.2

ECHO = 0.7
"""A passage with so large a share of its content words in the message tells nothing that the message does not."""

LONGEST = 9_500
"""Characters of one injection: over 10,000 the client makes a file of it."""

SENT_BEFORE = "sent before: this window has it"

WEIGHTS: Mapping[str, float] = {
    "bias": -1.60,
    "code": -1.05,
    "gate": 1.06,
    "line": -3.95,
    "line cosine": 6.23,
    "line rank": -0.26,
    "line score": 2.91,
    "passage": -3.20,
    "passage cosine": 3.37,
    "passage rank": -0.50,
    "passage score": 2.16,
    "repeats": -0.98,
    "shared words": 0.54,
    "shares a word": -0.29,
    "task": -1.46,
}
"""Weights of the features that `features` names."""

_TASK = re.compile(
    r"\W*(?:please |can you |could you )?(?:write|explain|rename|fix|sort|turn|convert|translate|format|rewrite"
    r"|summari[sz]e|show|run|git|what(?:'s| is| are| does| do) (?:the (?:difference|meaning|syntax)|an? |\W)"
    r"|how do (?:i|you)\b)",
    re.IGNORECASE,
)
"""How prompts begin that ask for something general, which no memory is needed for."""


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
    pages = {hit.passage.path for hit in lines}
    others = [hit for hit in passages if not (hit.passage.path in pages and is_derived(hit.passage.text))]
    asked = prompt_features(message, gate)
    candidates = [
        (estimate(features(message, hit, rank, is_line=is_line) | asked), hit)
        for is_line, hits in ((True, lines[:MAX_LINES]), (False, others[:MAX_PASSAGES]))
        for rank, hit in enumerate(hits)
    ]
    judged: list[Judged] = []
    said: list[frozenset[str]] = []
    left = allowance
    for worth, hit in sorted(candidates, key=lambda one: -one[0]):
        passage = hit.passage
        tokens = cost(passage)
        stems = content_stems(word_list(own_text(passage)))
        reason = out.get(f"{passage.path}:{passage.start}") or _tells_nothing(passage, subject)
        if not reason and was_sent(own_text(passage), sent):
            reason = SENT_BEFORE
        price = PRICE * (tokens + FRAME)
        if not reason and worth < price:
            reason = f"worth less than its {tokens} tokens ({worth:.3f} < {price:.3f})"
        if not reason and any(len(stems & other) >= 0.8 * len(stems) for other in said):
            reason = "says no more than what goes in"
        if not reason and tokens > left:
            reason = "no room left"
        if not reason:
            left -= tokens
            said.append(stems)
        judged.append(Judged(hit, worth, not reason, reason or f"worth its tokens ({worth:.2f})"))
    return tuple(judged)


def worthwhile(message: str, hits: Sequence[Hit], gate: GateSignal) -> frozenset[int]:
    """Returns the places of the hits, best first, that are expected to be worth their tokens in a compiled context."""
    if asks_nothing(message) is not None:
        return frozenset()
    asked, subject = prompt_features(message, gate), subject_words(message)
    ranks = {True: 0, False: 0}
    found = set()
    for place, hit in enumerate(hits):
        is_line = is_derived(hit.passage.text)
        rank, most = ranks[is_line], MAX_LINES if is_line else MAX_BUDGET_PASSAGES
        ranks[is_line] += 1
        if rank < most and not _tells_nothing(hit.passage, subject):
            worth = estimate(features(message, hit, rank, is_line=is_line) | asked)
            found |= {place} if worth >= BUDGET_PRICE * (cost(hit.passage) + FRAME) else set()
    return frozenset(found)


def features(message: str, hit: Hit, rank: int, *, is_line: bool) -> dict[str, float]:
    """Returns the features of a candidate: its place and scores in the search, and the words it shares."""
    written = hit.passage.category not in ("conversation", "journal") and not is_derived(hit.passage.text)
    kind = "line" if is_line or written else "passage"  # what somebody wrote down counts as a line of the page does
    text = own_text(hit.passage)[:2_000]
    shared = len(subject_stems(message) & content_stems(word_list(text)))
    return {
        kind: 1.0,
        f"{kind} rank": math.log(rank + 1),
        f"{kind} score": hit.score,
        f"{kind} cosine": hit.cosine or 0.0,
        "shares a word": float(shared > 0),
        "shared words": float(min(shared, 3)),
        "repeats": float(kind == "passage" and hit.passage.category != "conversation"),
    }


def prompt_features(message: str, gate: GateSignal) -> dict[str, float]:
    """Returns the features of a prompt, which are the same for all its candidates."""
    return {
        "bias": 1.0,
        "gate": gate.value,
        "task": float(_TASK.match(message) is not None),
        "code": float("`" in message or "\n" in message.strip()),
    }


def estimate(found: Mapping[str, float]) -> float:
    """Returns the probability that a candidate with these features holds what the prompt needs."""
    total = sum(WEIGHTS.get(name, 0.0) * value for name, value in found.items())
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


def cost(passage: Passage) -> int:
    """Returns the tokens that a passage costs as it would be shown, by its characters."""
    return min(MAX_PASSAGE_TOKENS, round(len(own_text(passage)) / CHARACTERS_PER_TOKEN) + 2)


def _tells_nothing(passage: Passage, subject: frozenset[str]) -> str | None:
    """Returns why a passage has nothing to tell here, or None."""
    if passage.role == "system":
        return "a note of the system"
    if passage.category in ("identity", "topic"):
        return f"{passage.category}: comes by itself"
    if passage.title.rsplit(" › ", 1)[-1] in (REPLACED, CLOSED):
        return "no longer so"
    if ends_with_question(own_text(passage)):
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
