"""The words of a text, and the cue words that tell what a message does: accept, refuse, propose, postpone, …"""

from __future__ import annotations

import re
from collections.abc import Mapping
from sys import intern

WORD = re.compile(r"[^\W_]+(?:['’.\-_/][^\W_]+)*|[\U0001F300-\U0001FAFF✅❤❌✔☑]|\?|!|%|€|\$")

CUES: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "yes": r"\b(?:yes|yeah|yep|yup|ja|da|si|oui|ok|okay|sure|fine|agreed|deal|go ahead|go for it|do (?:it"
        r"|that)|sold|perfect|exactly|sounds (?:good|right|great)|makes sense|works for me|approved?|može"
        r"|moze|važi|vazi|dogovoreno|passt|einverstanden|genau|gut|lgtm|ship it|no objections?)\b|\+1|👍|✅"
        r"|👌|💯|🤝",
        "no": r"\b(?:no|nope|nah|nein|ne|never|don'?t|do not|not|without|kein\w*|nicht|nema|stop|drop|scrap"
        r"|scratch|forget|instead|rather)\b",
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


def directs(text: str) -> bool:
    """Returns whether a clause of a text plainly says what is to be done ("let's use", "we'll take"), without doubt."""
    return _DIRECTIVE.search(text) is not None and not text.endswith("?") and not _UNSURE.intersection(cues(text))


def cues(text: str) -> list[str]:
    """Returns the names of the cue word groups that a text has words of."""
    lower = text.lower()
    return [name for name, pattern in _LOWER_CUES.items() if pattern.search(lower)]
