"""Semantic duplicates: decides whether two short entries (decisions, open items) have the same meaning.

Two entries are duplicates if one of these is true (checked in this order, the cheapest first):

    equal      the same words, ignoring bullets, markdown, case, accents and white space
    keywords   at least half of their keywords in common (Jaccard), if together they have three or more
    contained  the shorter one has ten characters or more, and the longer one contains it word for word

Keywords are words of three letters or more other than English and Serbian stop words. Entries are never duplicates if
only one is negated ("use Postgres", "do not use Postgres"), or if each has a number ("3 retries", "5 retries") or a
name ("Ana likes tea", "Bo likes tea") that the other lacks. A name is a capitalized word; the first word of an entry
counts as a name only if a verb follows ("Ana likes", "Redis is").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from mcp_server.text.words import listed, words

SAME_KEYWORDS = 0.5
LEAST_UNION = 3
LEAST_CONTAINED = 10
SHORTEST_KEYWORD = 3

STOP_WORDS = listed(
    """
    the a an is are was were be been being to and or in for with that this of i we it he she they you my our
    need should will must have has had do does did can could would not no but if so then
    je su sam si smo ste ili ali da ne za na u sa od do iz taj ta to ovo ono ja ti on ona mi vi oni
    treba moze mora ce
    """
)
"""Stop words in folded form. The list is short, because most words carry meaning in a plan."""

VERBS = listed(
    """
    use add remove replace create implement switch move keep skip merge split export import change fix
    update deploy persist store read write inject filter track decide choose adopt rename drop migrate
    enable disable extract cache introduce refactor simplify convert wrap used added removed replaced
    created implemented switched moved kept skipped merged split exported imported changed fixed updated
    deployed persisted stored wrote injected filtered tracked decided chose adopted renamed dropped
    migrated enabled disabled extracted cached introduced refactored simplified converted wrapped
    """
)
"""Verbs that decisions and tasks begin with. Capitalized, they are not names."""

NEGATIONS = listed(
    """
    not no never without cannot don doesn didn won wouldn shouldn couldn isn aren wasn weren hasn haven mustn
    ne nije nisu nikad bez
    """
)

_BULLET = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")
_CANNOT = re.compile(r"\bcan['’]t\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<![\w'’])[^\W\d_a-z]\w+")
_DOES = re.compile(r"\W*\w+(?:['’]s)?\s+(?:is|was|has|had|will|can|wants?|[a-z]{2,}(?:s|ed))\b")
_MARKUP = re.compile(r"[*_`~#>]+")


@lru_cache(maxsize=4096)  # each line of a page is compared with many others
def normalised(text: str) -> str:
    """Returns the words of an entry, folded and separated by single spaces, without bullet and markdown."""
    return " ".join(words(_MARKUP.sub(" ", _BULLET.sub("", text))))


@dataclass(frozen=True, slots=True)
class _Entry:
    plain: str
    keywords: frozenset[str]
    negated: bool
    numbers: frozenset[str]
    names: frozenset[str]


@lru_cache(maxsize=4096)
def _read(text: str) -> _Entry:
    plain = normalised(text)
    said = plain.split()
    return _Entry(
        plain,
        frozenset(word for word in said if len(word) >= SHORTEST_KEYWORD and word not in STOP_WORDS),
        not NEGATIONS.isdisjoint(said) or _CANNOT.search(text) is not None,
        frozenset(_NUMBER.findall(_BULLET.sub("", text))),
        _names(text),
    )


def _names(text: str) -> frozenset[str]:
    plain = _MARKUP.sub(" ", _BULLET.sub("", text)).strip()
    found = [match for match in _NAME.finditer(plain) if match.start() or _DOES.match(plain)]
    names = (normalised(match[0]) for match in found)
    return frozenset(name for name in names if name not in STOP_WORDS and name not in VERBS)


def keywords(text: str) -> frozenset[str]:
    """Returns the keywords of an entry, folded."""
    return _read(text).keywords


def is_duplicate(first: str, second: str) -> bool:
    """Returns whether two entries have the same meaning. Symmetric; an empty entry is never a duplicate."""
    one, other = _read(first), _read(second)
    if not one.plain or not other.plain:
        return False
    if one.plain == other.plain and one.negated == other.negated:
        return True
    if one.negated != other.negated or _name_different_things(one, other):
        return False
    if _share_keywords(one, other):
        return True
    shorter, longer = sorted((one.plain, other.plain), key=len)
    return len(shorter) >= LEAST_CONTAINED and f" {shorter} " in f" {longer} "


def is_like(first: str, second: str) -> bool:
    """Returns whether two entries have the same subject: they share half of their keywords."""
    return _share_keywords(_read(first), _read(second))


def _share_keywords(one: _Entry, other: _Entry) -> bool:
    union = one.keywords | other.keywords
    return len(union) >= LEAST_UNION and len(one.keywords & other.keywords) >= SAME_KEYWORDS * len(union)


def _name_different_things(one: _Entry, other: _Entry) -> bool:
    """Returns whether each entry has a number that the other lacks, or each has a name that the other lacks."""
    if one.numbers - other.numbers and other.numbers - one.numbers:
        return True
    return bool(one.names - set(other.plain.split()) and other.names - set(one.plain.split()))
