"""The words of a text, their stems, and cue words: what a message does (accept, refuse, propose, postpone, …), and
whether a line takes the place of an older one. The patterns for the latter are English."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from sys import intern

from mcp_server.text.entries import DERIVED, sources_of, without_sources
from mcp_server.text.words import STOP_WORDS, TALK_WORDS, content_words, fold

WORD = re.compile(r"[^\W_]+(?:['’.\-_/][^\W_]+)*|[\U0001F300-\U0001FAFF✅❤❌✔☑]|\?|!|%|€|\$")

CUES: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "yes": r"\b(?:yes|yeah|yep|yup|ja|da|si|oui|ok|okay|sure|fine|agreed|deal|go ahead|go for it|do (?:it"
        r"|that)|sold|perfect|exactly|sounds (?:good|right|great)|makes sense|works for me|approved?|može"
        r"|moze|važi|vazi|dogovoreno|passt|einverstanden|genau|gut|lgtm|ship it|no (?:objections?|problem"
        r"|worries))\b|\+1|👍|✅|👌|💯|🤝",
        "no": r"\b(?:no(?! (?:objections?|problem|worries)\b)|nope|nah|nein|ne|never|don'?t|do not|not|without"
        r"|kein\w*|nicht|nema|stop|drop|scrap|scratch|forget|instead|rather)\b",
        "must": r"\b(?:must|have to|has to|needs? to|shall|should|only|never|always|every|each|whenever"
        r"|from (?:now|here) on(?:wards?)?|any ?time|going forward|until|unless|nobody|nothing|everything"
        r"|muss|immer|nie|uvek|nikad)\b",
        "choice": r"\b(?:let'?s|we'?ll|we (?:use|go|keep|stay|take|do)|i want|i'd rather|i would rather|go with|use"
        r"|keep|make (?:it|that)|stays?|take|switch|move|pick|choose|stick)\b",
        "later": r"\b(?:later|tomorrow|remind|don'?t forget|to-?do|still|needs? to|have to|someone|somebody|waiting"
        r"|pending|next (?:week|month)|(?:mon|tues|wednes|thurs|fri|satur|sun)day|by (?:the )?end"
        r"|follow[- ]up|owe|missing)\b",
        "done": r"\b(?:done|fixed|sent|signed|arrived|finished|settled|sorted|merged|shipped|got|came|paid|booked"
        r"|called|ordered|closed|replied|confirmed|said yes|handled|in place|no longer|is (?:in|out|gone"
        r"|here))\b",
        "maybe": r"\b(?:would|could|might|maybe|perhaps|what if|if we|suppose|hypothetical\w*|thinking|wonder\w*"
        r"|imagine|someday|eventually)\b",
        "said": r"\b(?:said|says|told|wrote|according|blog|article|suggested|thinks|wants|asked)\b|[\"“„]",
        "unknown": r"\b(?:no (?:idea|clue|notion|answer|news)|unknown|unclear|undecided|unsettled|unexplained|uncertain"
        r"|pending|not? yet|(?:nobody|no ?one|nothing|none) (?:yet|so far)|(?:(?:do|does|did|have|has|is|are|was|were"
        r"|can|could)(?:n'?t| not)|cannot|never|nobody|not) (?:\w+ ){0,2}(?:know|knows|known|sure|explain\w*|found|find"
        r"|looked|decided?|settled|tested|tried|checked|booked|confirmed|answered|certain))\b",
        "propose": r"\b(?:i'?d|i would|i suggest|i propose|i recommend|my (?:suggestion|recommendation|pick|vote"
        r"|advice|proposal)|recommend\w*|suggest\w*|propos\w*|shall i|should i|want me to|unless you"
        r"|objections?|how about|we could|ok(?:ay)? with you)\b",
    }.items()
}
"""Cue words of dialogue acts, in English with common German and Serbian ones. They are hints; the weights decide."""

_LOWER_CUES = {name: re.compile(pattern.pattern) for name, pattern in CUES.items()}
"""`CUES` for text in lower case: searching without IGNORECASE takes a third of the time."""


_DIRECTIVE = re.compile(
    r"(?:^|[,;:–—] )(?:\W*(?:ok|okay|so|and|then|hm+|well|right|yes|no|good)\b[,.! ]*)*"
    r"(?:let['’]?s|let us"
    r"|we(?:['’]ll| will)?(?: all| now| just)? (?:use|go|keep|stay|take|do|switch|move|stick|drop|skip))\b",
    re.IGNORECASE,
)
_UNSURE = frozenset({"maybe", "said"})


def word_list(text: str) -> list[str]:
    """Returns the words of a text in lower case; question and exclamation marks, % and emoji count as words."""
    # interned, so that a message of millions of words holds each word once
    return [intern(found[0].lower().replace("’", "'")) for found in WORD.finditer(text)]


def content_stems(words: Iterable[str]) -> frozenset[str]:
    """Returns the content words, folded and cut to six letters, which serves as a cheap stem in any language."""
    return _stems(_folded(words))


_CONTRACTED = re.compile(r"'(?:m|s|d|t|ll|re|ve)$")
"""The end of "I'm", "don't" and "Dave's". What remains of the first two are stop words."""


@lru_cache(maxsize=1024)
def stems_of_text(text: str) -> frozenset[str]:
    """Returns the `content_stems` of a text that is compared with another one: two texts with "I'm" have nothing in
    common. Cached, because lines of a page are compared again and again."""
    return content_stems(_CONTRACTED.sub("", word) for word in word_list(text))


def subject_stems(text: str) -> frozenset[str]:
    """Returns the stems of the words that say what a text is about: no stop words, no words about talking."""
    return _stems(word for word in _folded(word_list(text)) if word not in TALK_WORDS)


AT_ONCE = 10_000
"""Words that are folded in one call."""


def _folded(words: Iterable[str]) -> Iterator[str]:
    """Yields words without line ends, folded `AT_ONCE` at a time: one call a word would take longer, and one call for
    all words of a long message would hold each word twice."""
    left = iter(words)
    while some := list(islice(left, AT_ONCE)):
        joined = "\n".join(some)
        yield from (joined if joined.isascii() else fold(joined)).split("\n")  # the words are in lower case already


def _stems(folded: Iterable[str]) -> frozenset[str]:
    return frozenset(
        word[:6]
        for word in folded
        if (len(word) > 2 and word not in STOP_WORDS) or (not word.isalpha() and any(map(str.isdigit, word)))
    )


def directs(text: str) -> bool:
    """Returns whether a clause of a text plainly says what is to be done ("let's use", "we'll take"), without doubt."""
    return _DIRECTIVE.search(text) is not None and not text.endswith("?") and not _UNSURE.intersection(cues(text))


def cues(text: str) -> list[str]:
    """Returns the names of the cue word groups that a text has words of."""
    lower = text.lower()
    return [name for name, pattern in _LOWER_CUES.items() if pattern.search(lower)]


MOVED = re.compile(r"^(?:Moved|Changed|Postponed): ")
"""Begins a line that says that something was moved, changed or postponed."""

_DAY = re.compile(r"\s{0,3}[-*+] (?:\d{4}-\d{2}-\d{2}:? )?")
_THING = r"(?:the |a |an |our )?([\w.-]+)"
_REPLACED = re.compile(
    rf"\b(?:instead of|rather than|no longer(?: use| on| with)?|(?:switch|mov|chang)(?:ed|e|ing)? from) {_THING}"
    r"|\bno ([\w.-]+)\b(?=.*\binstead\b)",
    re.IGNORECASE,
)
"""Names what is given up: "30 days instead of 14", "no Redis: Postgres instead"."""

LEAST_SHARED = 2
"""Least subject words that both lines must share, including the thing that is given up. If a number is given up, it is
enough alone."""


def supersedes(newer: str, older: str) -> bool:
    """Returns whether a line says that an older one no longer holds: it names what is given up or begins like MOVED,
    and is about the same subject."""
    if not changes(newer):
        return False
    known = _subject(older)
    shared = len(known & _subject(newer)) >= LEAST_SHARED
    if MOVED.match(newer):
        return shared
    given_up = _given_up(newer) & known
    return bool(given_up) and (shared or any(word.isdigit() for word in given_up))


def changes(line: str) -> bool:
    """Returns whether a line may supersede another one: it names what is given up, or begins like MOVED."""
    return MOVED.match(line) is not None or bool(_given_up(line))


@lru_cache(maxsize=1024)
def _given_up(text: str) -> frozenset[str]:
    """Returns the words by which a line names what is given up."""
    return _subject(" ".join(map(" ".join, _REPLACED.findall(text))))


def overtaken(lines: Sequence[str]) -> frozenset[int]:
    """Returns the positions of the lines that a later line supersedes. `lines` are about one subject, oldest first."""
    changes = [place for place, line in enumerate(lines) if MOVED.match(line) or _REPLACED.search(line)]
    return frozenset(old for new in changes for old in range(new) if supersedes(lines[new], lines[old]))


def overtaken_lines(body: str) -> frozenset[int]:
    """Returns the positions, from 0, of a project file's derived lines that a later derived line supersedes."""
    lines = body.split("\n")
    derived = [
        (found[1] or "", sources_of(line)[0].order, place)
        for place, line in enumerate(lines)
        if (found := DERIVED.match(line))
    ]
    places = [place for *_, place in sorted(derived)]
    gone = overtaken([_DAY.sub("", without_sources(lines[place])) for place in places])
    return frozenset(places[place] for place in gone)


@lru_cache(maxsize=1024)
def _subject(text: str) -> frozenset[str]:
    return frozenset(content_words(text, TALK_WORDS))
