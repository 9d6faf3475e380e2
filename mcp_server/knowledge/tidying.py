"""Tidying: a sentence as it was said, made one that can be read later. English.

What only opens or ends it as talk does goes ("Crazy thing happened - …", "… and it was awesome!"), and a subject that
was left out is put back ("Went to Rome.").
"""

from __future__ import annotations

import re

from mcp_server.text.words import content_words
from mcp_server.understanding import statement_patterns

LEAST_LEFT = 3
"""Words that must be left of a sentence from which something is cut."""

_EMOJI = re.compile(r"\s*[\U0001F000-\U0001FAFF\u2600-\u27bf\u2b00-\u2bff\u200d\ufe0f]+(?P<space>\s*)(?P<next>\S?)")
_ENDS = re.compile(
    r"(?<!\bDr\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bMrs\.)(?<!\bSt\.)(?<!\bvs\.)(?<=[.!?…])(?P<close>[\"”')]*)\s+(?=[\"“'(]?[A-Z0-9]|(?:please|can|could|also|and|but|so|i|we|what|how)\b)"
)
_ENDS_SMALL = re.compile(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bvs\.)(?<=[.!?])(?P<close>)\s+(?=[\w\"“'(])")
"""Of somebody who begins sentences without a capital."""
_LEAD = re.compile(r"^(?P<lead>[^.?!:;\"“]{1,60}?)\s*(?:\s[-–—]+|--+|—|:)\s*(?=(?:I|[Mm]y|[Ww]e|[Oo]ur|[Jj]ust)\b)")
_TAIL = re.compile(
    r"(?:\s*(?:\s[-–—]+\s|--+|—)\s*|[,!;]\s+|\s+(?=(?:and|but|so)\s+(?:it|that|I)\b))"
    r"(?P<tail>(?:(?:and|but|so|which)\s+)*"
    r"(?:it|it['’]s|it['’]ll|its|that['’]s|that|so|super|such|really|very|pretty|can['’]t wait|come|check|btw"
    r"|by the way|lol"
    r"|haha|phew|wow|what an?|how|no|yay|was|is|definitely|totally|all|worth|feels?|I (?:love|loved|like|had|can['’]t"
    r"|feel|felt)"
    r"|I['’]m (?:so|really|super|very|loving)|got to say|gotta say|you know|right)\b[^.!?]*)[.!…]*$",
    re.IGNORECASE,
)
_SHOWN = re.compile(
    r"\s*(?:\s[-–—]+|--+|[,;!.])\s*(?:(?:and|so)\s+)?(?:come (?:and )?see|(?:just )?check (?:it|this|that|them) out"
    r"|(?:just )?check out (?:this|these|it|my|the (?:pic|photo))|take a look|have a look"
    r"|look at (?:this|it)|see (?:the )?(?:pic|photo)|here['’]s (?:a|the|my|some))\b[^.!?]*[.!]*$",
    re.IGNORECASE,
)
_LEFT_OUT = re.compile(
    r"^(?P<adverb>(?:Just|Recently|Also|Currently|Still|Finally|Actually|Lately|Already|Even)\s+)?"
    r"(?:(?P<doing>Gonna(?! be\b)|Planning|Trying to|Working on|Thinking (?:of|about)|Looking (?:for|into|forward)"
    r"|Researching"
    r"|Preparing|Training|Hoping to|Learning|Taking|Enjoying|Reading)"
    r"|(?P<been>Been(?= (?:\w+ly )?\w+ing\b))"
    r"|(?P<was>(?:Was|Felt)(?=[^.]*\b(?:I|my)\b))"
    r"|(?P<did>(?:Got|Had|Went|Took|Made|Started|Finished|Joined|Signed up|Saw|Bought|Tried|Visited|Met|Found|Dyed"
    r"|Moved"
    r"|Booked|Won|Lost|Ran|Built|Painted|Baked|Cooked|Watched|Picked|Adopted|Applied|Decided|Hiked|Played)"
    r"(?! (?:me|us|some (?:time|effort|trial|getting|work)|a (?:while|lot|bit|little|few tries)|ages|forever|time|it"
    r"|all|sure)\b)))"
    r"(?=\s)"
)
_FILLING = re.compile(
    r"(?<!but )(?<!only )(?<=\w )(?:also|actually|definitely|literally|honestly|basically|totally) (?=[a-z])"
)
_LONG = tuple(
    (re.compile(short, re.IGNORECASE), long)
    for short, long in (
        (r"\bwanna\b", "want to"),
        (r"(?<=\w )gonna\b", "going to"),
        (r"(?<=\w )gotta(?= [a-z])", "have to"),
        (r"(?<=\w)(?:['’]ve| have) got to(?= [a-z])", " have to"),
        (r"(?<=\w)(?:['’]s| has) got to(?= [a-z])", " has to"),  # "I got to teach" is past and stays
        (r"(?<!\w)['’]?cause(?= (?:I|my|it|they|we|he|she|the)\b)", "because"),
        (r",? btw(?=[.!]*$)", ""),
    )
)
"""What people write shorter than it is read."""
_TALK_ONLY = {"happened", "happen", "spoke", "chatted", "talked", "last", "since", "everywhere", "guess", "crazy"}
"""Words that say nothing in a clause that only opens or ends a sentence."""


def split(line: str) -> list[str]:
    """The sentences of a line; closing quotes stay with their sentence, pictures and emoji end one."""
    ends = _ENDS if not line[:1].islower() else _ENDS_SMALL
    line = _EMOJI.sub(
        lambda found: f"\n{found['next']}" if not found["next"] or found["next"].isupper() else f" {found['next']}",
        line,
    )
    return [part for part in ends.sub(lambda found: found["close"] + "\n", line).split("\n") if part.strip()]


def tidied(sentence: str) -> str:
    """The sentence without talk at either end, with its subject, ending in a full stop if it ended in anything."""
    sentence = _SHOWN.sub("", sentence) if _SHOWN.search(sentence) and _left(_SHOWN.sub("", sentence)) else sentence
    lead = _LEAD.match(sentence)
    if lead is not None and says_nothing(lead["lead"]):
        sentence = sentence[lead.end() :]
    for _ in range(2):
        tail = _last_tail(sentence)
        if tail is None or not says_nothing(tail["tail"]) or not _left(sentence[: tail.start()]):
            break
        sentence = sentence[: tail.start()]
    sentence = _with_subject(sentence.strip(" ,;-–—"))
    for short, long in _LONG:
        sentence = short.sub(long, sentence)
    sentence = _FILLING.sub("", sentence)
    if re.match(r"[a-z]+(?: |,)", sentence):
        sentence = sentence[:1].upper() + sentence[1:]
    closing = re.search(r"[.!…]*([\"”')]*)$", sentence)
    assert closing is not None
    if not sentence or sentence.endswith(("?", ":")):
        return sentence
    return sentence[: closing.start()] + (closing[1] + "." if closing[1] in ("'", ")") else "." + closing[1])


def says_nothing(clause: str) -> bool:
    """Whether of all words of a clause none says anything definite."""
    return all(word in statement_patterns.VAGUE or word in _TALK_ONLY for word in content_words(clause))


def _left(rest: str) -> bool:
    return len(rest.split()) >= LEAST_LEFT


def _last_tail(sentence: str) -> re.Match[str] | None:
    """The last clause that may be talk: the pattern finds the first, which reaches to the end."""
    found, start = None, 0
    while (again := _TAIL.search(sentence, start)) is not None:
        found, start = again, again.start() + 1
        if says_nothing(again["tail"]):
            return again
    return found


def _with_subject(sentence: str) -> str:
    found = _LEFT_OUT.match(sentence)
    if found is None:
        return sentence
    adverb = (found["adverb"] or "").strip().lower()
    rest = sentence[found.end("adverb") if found["adverb"] else 0 :]
    verb = rest[:1].lower() + rest[1:]
    head = "I'm" if found["doing"] else "I've" if found["been"] else "I"
    return " ".join(filter(None, (head, adverb, verb)))
