"""Decisions: what an agent's answer settled, in its own words, or nothing at all        (S3 "Issue 1", SPEC §11)

A decision is taken down when the user confirms shortly after a long answer, or when a line carries an explicit marker.
Of the answer's lines, code left out, the first of the best tier is taken:

    1  Decision: …, Plan: …, Going with …, Chose …
    2  I'll …, Let's …, The fix is …
    3  **a bold line** or - **bold** bullet
    4  a bullet or a numbered item with a verb of the lexicon; those with the verb among their first five words first

Deviations from S3, which taken literally captures nearly every long answer: tiers 2 and 3 need a verb of the lexicon
and may not end in ":"; a bullet alone is no structure that proves a decision, it needs the verb too. None rather than
noise: what is missed, enrichment may still find.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 200
"""Characters of a decision."""
LONG_ANSWER = 400
"""Characters from which on an answer is long."""
SHORT_CONFIRMATION = 12
"""Words up to which a message can be a confirmation."""

VERBS = (
    "use add remove replace create implement switch move keep skip merge split export import change fix update deploy "
    "persist store read write inject filter track chose decide decided choose adopt rename drop migrate build run set "
    "enable disable extract cache"
).split()
_VERB = re.compile(rf"\b(?:{'|'.join(VERBS)}|go(?:ing)? with)(?:s|d|ing)?\b", re.IGNORECASE)
_FILLER = re.compile(
    r"(?:you're right|you are right|ohoho|haha|hmm|well,|okay so|sure,|yeah|ok |ah |oh |great|good question|absolutely)",
    re.IGNORECASE,
)
_MARKER = re.compile(r"(?:decision|plan|approach|going with|chose|choosing)\b\s*:?\s*", re.IGNORECASE)
_TIER_1 = re.compile(r"(?:(?:decision|plan|approach)\s*:|(?:going with|chose|choosing)\b)", re.IGNORECASE)
_TIER_2 = re.compile(
    r"(?:i'll|we'll|let's|i will|we will|i'm going to|we're going to|the (?:approach|plan|fix|solution) is)\b",
    re.IGNORECASE,
)
_TIER_3 = re.compile(r"(?:[-*]\s+)?\*\*[^*]+\*\*")
_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s+")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_CONFIRMATION = re.compile(
    r"^\W*(?:yes|yep|yeah|ok(?:ay)?|sure|agreed|perfect|great|good|fine|right|correct|exactly|do it|go (?:ahead|for it)"
    r"|sounds (?:good|great)|let'?s (?:do|go)|make it so|ship it|approved?|confirmed?|works for me|please do|lgtm"
    r"|da|moze|može|vazi|važi|uredu|u redu|dogovoreno|slazem|slažem|hajde|super|ja|genau|passt|einverstanden)\b",
    re.IGNORECASE,
)


def confirms(message: str) -> bool:
    """Whether a user's message is a short yes to what was said before."""
    return (
        len(message.split()) <= SHORT_CONFIRMATION
        and not message.rstrip().endswith("?")
        and _CONFIRMATION.search(message) is not None
    )


def is_long(answer: str) -> bool:
    """Whether an answer is one that may hold a decision to confirm."""
    return len(answer) >= LONG_ANSWER


def extract(answer: str) -> str | None:
    """The decision in an agent's answer, at most 200 characters, or None."""
    best: tuple[tuple[int, int], str] | None = None
    for line in _prose(answer):
        tier = _tier(line)
        if tier and accepts(line) and (best is None or (tier, _lateness(line, tier)) < best[0]):
            best = (tier, _lateness(line, tier)), line
    return clean(best[1]) if best else None


def explicit(text: str) -> str | None:
    """The decision of a line with an explicit marker (tier 1), whoever said it and whatever follows; or None."""
    return next((clean(line) for line in _prose(text) if _tier(line) == 1 and accepts(line)), None)


def accepts(text: str) -> bool:
    """The quality gate: no filler, no question, and a verb of the lexicon or a marked key with something after it."""
    plain = _bare(text)
    if not plain or _FILLER.match(plain) or plain.endswith("?"):
        return False
    marked = _TIER_1.match(plain)
    return len(plain[marked.end() :].split()) >= 2 if marked else _VERB.search(plain) is not None


def clean(line: str) -> str:
    """A line as it is kept: without bullet and bold marks, on one line, cut at a word."""
    plain = " ".join(_bare(line).replace("**", "").split())
    if len(plain) <= LONGEST:
        return plain
    return plain[: LONGEST - 1].rsplit(" ", 1)[0] + "…"


def _bare(line: str) -> str:
    return _ITEM.sub("", line.strip(), count=1).strip().removeprefix("**").strip()


def _prose(text: str) -> Iterator[str]:
    """The lines of a text that are no code."""
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and line.strip():
            yield line.strip()


def _tier(line: str) -> int:
    """The tier of a line, 0 for none."""
    plain = _bare(line)
    if _TIER_1.match(plain):
        return 1
    acts = _VERB.search(line) is not None and not line.rstrip("* ").endswith(":")
    if acts and _TIER_2.match(plain):
        return 2
    if acts and _TIER_3.match(line):
        return 3
    return 4 if acts and _ITEM.match(line) else 0


def _lateness(line: str, tier: int) -> int:
    """In tier 4 lines whose verb comes early go first."""
    if tier != 4:
        return 0
    verb = _VERB.search(_bare(line))
    return 0 if verb and len(_bare(line)[: verb.start()].split()) < 5 else 1
