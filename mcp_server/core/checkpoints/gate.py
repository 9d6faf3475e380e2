"""The quality gate: may a text stand among the decisions at all?                                   (S3 "Issue 1", B)

It asks of every captured line, and again of every entry at a merge, so that what it refuses never comes back:

    no filler      "You're right, …", "Ohoho", "Hmm"; no question
    a structure    a verb of the lexicon, a bold label, `key: what it is`, or a choice ("Postgres instead of SQLite")

A deviation from S3: a bullet alone is no structure, "- I need to send him a plan" is no decision.
"""

from __future__ import annotations

import re

from mcp_server.core.checkpoints.prose import bare


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PRESENT = _listed(
    """
    use add remove replace create implement switch move keep skip merge split export import change fix update deploy
    persist store read write inject filter track decide choose adopt rename drop migrate enable disable extract cache
    introduce refactor simplify convert wrap
    """
)
"""S3's lexicon, and verbs of the same kind that agents use."""
PAST = _listed(
    """
    used added removed replaced created implemented switched moved kept skipped merged split exported imported changed
    fixed updated deployed persisted stored wrote injected filtered tracked decided chose adopted renamed dropped
    migrated enabled disabled extracted cached introduced refactored simplified converted wrapped
    """
)

VERBS = f"(?:{'|'.join([*PAST, *PRESENT])}|go(?:ing)? with|st(?:ick|uck) (?:to|with)|opt(?:ed)? for|settled? on)"
"""A pattern for a verb of the lexicon: base form and past."""

_VERB = re.compile(rf"\b{VERBS}\b", re.IGNORECASE)
_FINITE = re.compile(rf"(?<!\bto )\b{VERBS}\b", re.IGNORECASE)
_GERUND = re.compile(
    r"\b(?:using|choosing|adding|removing|replacing|creating|implementing|switching|moving|keeping|merging|splitting|storing)\b",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?:you're right|you are right|ohoho|haha|hmm|well,|okay(?: so|[,.!])|sure[,.!]|yeah|ok[ ,.!]|ah[ ,!]|oh[ ,!]"
    r"|great[ ,.!]|good (?:question|point)|absolutely|certainly|of course|sorry)",
    re.IGNORECASE,
)
_KEY = re.compile(r"[^\s:][^:.!?]{1,40}:\s+\S+\s+\S")
VERDICT = re.compile(
    r"\b(?:is|are|would be) (?:therefore |clearly )?(?:the |a )?(?:best|better|preferred|recommended|right)"
    r" (?:choice|option|approach|method|fit|solution)\b",
    re.IGNORECASE,
)
ANSWER = re.compile(r"(?:so |here )?the (?:approach|plan|fix|solution) is\b", re.IGNORECASE)
_CHOICE = re.compile(r"\b(?:instead of|rather than|over|in favou?r of|preferred to)\b", re.IGNORECASE)


def accepts(text: str) -> bool:
    """Whether a text may stand among the decisions."""
    plain = bare(text)
    label = plain.startswith("**") and len(plain.strip("*").split()) > 1
    plain = plain.replace("**", "").strip()
    if not plain or is_filler(plain) or plain.rstrip("*_ ").endswith("?"):
        return False
    return label or any(pattern.search(plain) for pattern in (_VERB, _GERUND, _KEY, _CHOICE, ANSWER, VERDICT))


def is_filler(text: str) -> bool:
    """Whether a text begins as talk does."""
    return _FILLER.match(bare(text).replace("’", "'")) is not None


def first_verb(text: str) -> int:
    """The number of words that stand before the first verb of the lexicon that is no "to …"; -1 without one."""
    found = _FINITE.search(text)
    return len(text[: found.start()].split()) if found else -1
